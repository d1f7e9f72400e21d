"""The synchronous API: the same calls for programs without an event loop."""

import asyncio
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from threading import enumerate as threads
from typing import Any

import pytest

from corral import Corral, InvalidOptions, InvalidPayload, JobState
from tests.support.apps import ended, working
from tests.support.polling import becomes_true, eventually, forever
from tests.support.servers import Server


@pytest.fixture
def app(url: str) -> Iterator[Corral]:
    app = Corral(url)
    yield app
    app.sync(app.close())
    app.sync.close()


def test_a_plain_function_adds_and_reads_jobs(app: Corral) -> None:
    @app.job("greet", queue="mail", attempts=2)
    def greet(job: Any) -> None: ...

    job = app.sync(greet.options(priority=3).add({"to": "Ada"}))
    assert job.id == "1"
    assert app.sync(app.queue("mail").add_many([("greet", n) for n in range(700)]))[-1] == "701"
    assert app.sync(app.queue("mail").counts())[JobState.WAITING] == 701
    found = app.sync(app.queue("mail").job("1"))
    assert found is not None
    assert (found.data, found.options.priority) == ({"to": "Ada"}, 3)
    assert app.sync(app.queue("mail").cancel(["1"])) == ["1"]
    assert [event.kind for event in app.sync(app.queue("mail").events.range(count=2))] == ["added", "waiting"]


def test_what_the_coroutine_raises_is_raised_here(app: Corral) -> None:
    with pytest.raises(InvalidPayload, match="data is nan"):
        app.sync(app.queue("mail").add("greet", float("nan")))


def test_many_plain_threads_use_one_door(app: Corral, server: Server) -> None:
    def add(number: int) -> str:
        return app.sync(app.queue("mail").add("greet", number)).id

    doors = open_doors()
    with server.connect() as client:
        before = {line["id"] for line in client.client_list()}
        with ThreadPoolExecutor(8) as pool:
            ids = list(pool.map(add, range(200)))
        new = {line["id"] for line in client.client_list()} - before
    assert sorted(map(int, ids)) == list(range(1, 201))
    assert len(open_doors() - doors) == 1
    assert len(new) == 1, "one connection for all of them"


def test_a_child_made_by_fork_has_a_door_of_its_own(app: Corral) -> None:
    """As the workers of a web server do that loads the application before it forks."""
    queue = app.queue("mail")
    assert app.sync(queue.add("greet", "before")).id == "1"
    child = os.fork()
    if child == 0:
        try:
            added = app.sync(queue.add("greet", "child"), timeout=30).id
            read = app.sync(queue.job("1"), timeout=30)
            os._exit(0 if added == "2" and read is not None and read.data == "before" else 1)
        finally:
            os._exit(2)
    assert eventually(lambda: os.waitpid(child, os.WNOHANG) == (child, 0)), "the child could add and read"
    assert app.sync(queue.add("greet", "after"), timeout=30).id == "3"
    found = app.sync(queue.job("2"))
    assert found is not None
    assert found.data == "child"


def test_children_of_an_embedded_servers_owner_work_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    app = Corral(folder=tmp_path)
    assert app.sync(app.queue("mail").add("greet")).id == "1"
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if app.sync(app.queue("mail").add("greet"), timeout=30).id == "2" else 1)
        finally:
            os._exit(2)
    assert eventually(lambda: os.waitpid(child, os.WNOHANG) == (child, 0))
    assert app.sync(app.queue("mail").add("greet")).id == "3"
    app.sync(app.close())
    app.sync.close()


def test_a_call_that_takes_too_long_is_given_up(app: Corral) -> None:
    ended_by: list[str] = []

    async def wait() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            ended_by.append("cancelled")
            raise

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        app.sync(wait(), timeout=0.05)
    assert time.monotonic() - began < 5
    assert eventually(lambda: ended_by == ["cancelled"])
    assert app.sync(app.queue("mail").add("greet")).id == "1", "the door still works"


def test_inside_the_door_there_is_no_second_one(app: Corral) -> None:
    async def inside() -> None:
        app.sync(app.queue("mail").add("greet"))

    with pytest.raises(InvalidOptions, match="await the coroutine instead"):
        app.sync(inside(), timeout=30)


def open_doors() -> set[Thread]:
    """Return the threads of every app that was used from plain code."""
    return {thread for thread in threads() if thread.name == "corral-sync"}


def test_a_closed_door_opens_again(app: Corral) -> None:
    before = open_doors()
    for expected in ("1", "2"):
        assert app.sync(app.queue("mail").add("greet")).id == expected
        app.sync(app.close())
        app.sync.close()
        assert eventually(lambda: open_doors() <= before)


async def test_an_event_loop_and_the_door_share_an_app(app: Corral) -> None:
    """As in a notebook, whose cells run on a loop: awaited or through the door, in any order."""
    queue = app.queue("mail")
    inspector = queue
    for turn in range(3):
        await queue.add("greet")
        app.sync(queue.add("greet"))
        assert (await inspector.counts())[JobState.WAITING] == 2 * turn + 2
        assert app.sync(inspector.counts(), timeout=30)[JobState.WAITING] == 2 * turn + 2
    await app.close()


async def test_a_worker_runs_what_a_plain_thread_adds(app: Corral) -> None:
    @app.job("double", queue="sums")
    async def double(job: Any) -> int:
        return int(job.data) * 2

    ids: list[str] = []
    async with working(app):
        thread = Thread(target=lambda: ids.append(app.sync(double.add(21)).id))
        thread.start()
        assert await becomes_true(lambda: ids)
        assert (await ended(double.queue, ids[0])).result == 42
        thread.join()
    await app.close()
