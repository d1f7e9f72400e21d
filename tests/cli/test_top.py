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

from corral.cli.rates import MAX_JOBS, WINDOW_S, RateMeter
from tests.cli.conftest import AppQueue, Shell
from tests.support.apps import ended, working
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.shell import start

# -- rates --------------------------------------------------------------------------------------------------


def test_rates_are_those_of_the_last_seconds() -> None:
    meter = RateMeter(started=0.0)
    meter.add([("added", str(n), 0) for n in range(40)], now=1.0)
    assert meter.rates(2.0).per_second["added"] == 20
    meter.add([("completed", "1", 0)], now=5.0)
    assert meter.rates(WINDOW_S).per_second["added"] == 4
    later = meter.rates(WINDOW_S + 2).per_second
    assert later == {"added": 0, "retry": 0, "completed": 0.1, "dead": 0, "cancelled": 0}
    assert meter.rates(100.0).per_second["completed"] == 0


def test_waiting_and_running_times_are_measured_apart() -> None:
    meter = RateMeter(started=0.0)
    steps = [("added", 1000), ("active", 1250), ("retry", 1300), ("active", 9000), ("completed", 9400)]
    meter.add([(kind, "1", at) for kind, at in steps], now=1.0)
    rates = meter.rates(1.0)
    assert (rates.wait_p95_ms, rates.run_p95_ms) == (250, 400)
    delayed = RateMeter(started=0.0)
    steps = [("added", 0), ("delayed", 0), ("waiting", 500), ("active", 510)]
    delayed.add([(kind, "1", at) for kind, at in steps], now=1.0)
    assert delayed.rates(1.0).wait_p95_ms == 10, "a delay is not waiting"
    assert RateMeter(started=0.0).rates(1.0).wait_p95_ms is None


def test_jobs_that_never_end_are_forgotten() -> None:
    meter = RateMeter(started=0.0)
    meter.add([("active", str(n), 0) for n in range(MAX_JOBS + 10)], now=1.0)
    meter.add([("completed", "0", 9), ("completed", str(MAX_JOBS), 7)], now=1.0)
    assert meter.rates(1.0).run_p95_ms == 7


# -- the command --------------------------------------------------------------------------------------------


def test_one_update_has_rates_times_and_workers(app_queue: AppQueue, shell: Shell) -> None:
    app_queue.work({})

    async def documents_while_jobs_run() -> list[dict[str, object]]:
        async with working(
            app_queue.app, queues=[app_queue.queue.name], protocol=app_queue.protocol, name="bessie"
        ):
            words = ("top", "--once", "--interval", "2", "--json", "--protocol", app_queue.protocol)
            top = asyncio.create_task(asyncio.to_thread(shell, *words))
            while not top.done():
                job = await app_queue.queue.add(
                    app_queue.name, {} if app_queue.protocol == "streams" else {"fail": "x"}
                )
                await ended(app_queue.queue, job.id)
                await asyncio.sleep(0.02)
            return (await top).documents

    [document] = app_queue.app.sync(documents_while_jobs_run())
    assert (document["protocol"], document["queue"]) == (app_queue.protocol, app_queue.queue.name)
    assert document["workers"] == ["bessie"]
    rates = document["per_second"]
    assert rates["added"] > 1
    assert rates["completed" if app_queue.protocol == "streams" else "dead"] > 1
    assert 0 <= document["p95_wait_ms"] < 5000
    assert 0 <= document["p95_run_ms"] < 5000


def test_without_a_terminal_each_update_is_printed(app_queues: Callable[[str], AppQueue], url: str) -> None:
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


def test_an_outage_is_reported_once_and_survived(
    app_queues: Callable[[str], AppQueue], server: Server
) -> None:
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
def test_an_empty_server_has_no_queues(shell: Shell, flags: list[str]) -> None:
    result = shell("top", "--once", "--interval", "0.2", *flags)
    assert (result.code, result.out) == (0, "" if flags else "no queues yet\n")


def test_on_a_terminal_a_screen_is_drawn_with_names_as_text(
    app_queues: Callable[[str], AppQueue], url: str
) -> None:
    app_queue = app_queues("bullmq")
    app_queue.add({})
    terminal, device = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"}
    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli", "top", "--interval", "0.2", "--url", url],
        stdin=device, stdout=device, stderr=device, env=environment,
    ) as top:  # fmt: skip
        try:
            assert b"mail" in read_until(terminal, b"mail")
            app_queue.work({"fail": "a \x1b[2Jhostile reason"})
            assert b"a \\x1b[2Jhostile reason" in read_until(terminal, b"hostile reason")
        finally:
            top.send_signal(signal.SIGINT)
            top.wait(20)
            os.close(terminal)
            os.close(device)
    assert top.returncode == 130


def read_until(terminal: int, words: bytes, seconds: float = 30.0) -> bytes:
    """Return what the terminal showed up to these words, or all of it when the time is up."""
    shown, deadline = b"", time.monotonic() + seconds
    while words not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65_536)
    return shown
