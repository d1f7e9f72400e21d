"""`corral top`: rates, times and workers from the events, on a terminal and as lines."""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from corral.cli.pulse import MOST_JOBS, WINDOW_S, Pulse
from tests.cli.conftest import AppQueue, Shell
from tests.support.apps import ended, working
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.shell import start

# -- the pulse ----------------------------------------------------------------------------------------------


def test_rates_are_those_of_the_last_seconds() -> None:
    pulse = Pulse(began=0.0)
    pulse.hear([("added", str(n), 0) for n in range(40)], now=1.0)
    assert pulse.beat(2.0).rates["added"] == 20
    pulse.hear([("completed", "1", 0)], now=5.0)
    assert pulse.beat(WINDOW_S).rates["added"] == 4
    later = pulse.beat(WINDOW_S + 2).rates
    assert later == {"added": 0, "retry": 0, "completed": 0.1, "dead": 0, "cancelled": 0}
    assert pulse.beat(100.0).rates["completed"] == 0


def test_times_are_told_apart_waiting_and_running() -> None:
    pulse = Pulse(began=0.0)
    steps = [("added", 1000), ("active", 1250), ("retry", 1300), ("active", 9000), ("completed", 9400)]
    pulse.hear([(kind, "1", at) for kind, at in steps], now=1.0)
    beat = pulse.beat(1.0)
    assert (beat.wait_ms, beat.run_ms) == (250, 400)
    put_off = Pulse(began=0.0)
    steps = [("added", 0), ("delayed", 0), ("waiting", 500), ("active", 510)]
    put_off.hear([(kind, "1", at) for kind, at in steps], now=1.0)
    assert put_off.beat(1.0).wait_ms == 10, "being put off is not waiting"
    assert Pulse(began=0.0).beat(1.0).wait_ms is None


def test_jobs_that_never_end_are_forgotten_one_day() -> None:
    pulse = Pulse(began=0.0)
    pulse.hear([("active", str(n), 0) for n in range(MOST_JOBS + 10)], now=1.0)
    pulse.hear([("completed", "0", 9), ("completed", str(MOST_JOBS), 7)], now=1.0)
    assert pulse.beat(1.0).run_ms == 7


# -- the command --------------------------------------------------------------------------------------------


def test_one_look_tells_rates_times_and_workers(app_queue: AppQueue, shell: Shell) -> None:
    app_queue.work({})

    async def look_while_jobs_are_done() -> list[dict[str, object]]:
        async with working(
            app_queue.app, queues=[app_queue.queue.name], protocol=app_queue.protocol, name="bessie"
        ):
            words = ("top", "--once", "--interval", "2", "--json", "--protocol", app_queue.protocol)
            looking = asyncio.create_task(asyncio.to_thread(shell, *words))
            while not looking.done():
                job = await app_queue.queue.add(
                    app_queue.name, {} if app_queue.protocol == "streams" else {"fail": "x"}
                )
                await ended(app_queue.queue, job.id)
                await asyncio.sleep(0.02)
            return (await looking).documents

    [document] = app_queue.app.sync(look_while_jobs_are_done())
    assert (document["protocol"], document["queue"]) == (app_queue.protocol, app_queue.queue.name)
    assert document["workers"] == ["bessie"]
    rates = document["per_second"]
    assert rates["added"] > 1
    assert rates["completed" if app_queue.protocol == "streams" else "dead"] > 1
    assert 0 <= document["p95_wait_ms"] < 5000
    assert 0 <= document["p95_run_ms"] < 5000


def test_without_a_terminal_it_prints_lines_again_and_again(
    app_queues: Callable[[str], AppQueue], url: str
) -> None:
    app_queues("bullmq").add({})
    top = start("top", "--interval", "0.2", "--json", "--url", url)
    try:
        assert top.stdout is not None
        assert [json.loads(top.stdout.readline())["queue"] for _ in range(3)] == ["mail"] * 3
        top.send_signal(signal.SIGINT)
        assert top.wait(20) == 130
    finally:
        top.kill()
        top.communicate()


def test_an_outage_is_told_once_and_waited_for(app_queues: Callable[[str], AppQueue], server: Server) -> None:
    app_queue = app_queues("bullmq")
    app_queue.add({})
    with Proxy(server.port) as proxy:
        top = start("top", "--interval", "0.2", "--json", "--url", proxy.url)
        try:
            assert top.stdout is not None
            assert top.stderr is not None
            assert json.loads(top.stdout.readline())["queue"] == "mail"
            proxy.go_away()
            assert proxy.url in json.loads(top.stderr.readline())["message"]
            app_queue.add({})
            proxy.come_back()
            while json.loads(top.stdout.readline())["counts"]["waiting"] != 2:
                assert top.poll() is None
            top.send_signal(signal.SIGINT)
            assert (top.wait(20), top.stderr.read()) == (130, "")
        finally:
            top.kill()
            top.communicate()


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_an_empty_server_has_nothing_to_watch(shell: Shell, flags: list[str]) -> None:
    said = shell("top", "--once", "--interval", "0.2", *flags)
    assert (said.code, said.out) == (0, "" if flags else "no queues here yet\n")


def test_on_a_terminal_a_screen_is_drawn_with_names_as_text(
    app_queues: Callable[[str], AppQueue], url: str
) -> None:
    app_queue = app_queues("bullmq")
    app_queue.add({})
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"}
    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli", "top", "--interval", "0.2", "--url", url],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
    ) as top:  # fmt: skip
        try:
            assert b"mail" in read_until(ours, b"mail")
            app_queue.work({"fail": "a \x1b[2Jhostile reason"})
            assert b"a \\x1b[2Jhostile reason" in read_until(ours, b"hostile reason")
        finally:
            top.send_signal(signal.SIGINT)
            top.wait(20)
            os.close(ours)
            os.close(theirs)
    assert top.returncode == 130


def read_until(terminal: int, wanted: bytes, seconds: float = 30.0) -> bytes:
    """What the terminal showed up to these words, or all of it when time is up."""
    shown, deadline = b"", time.monotonic() + seconds
    while wanted not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65_536)
    return shown
