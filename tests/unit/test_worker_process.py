"""Handlers in spawned processes: killed when they must be, and never left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corral.core.job import JobState
from corral.core.ports import Profile
from corral.errors import InvalidOptions
from corral.worker import Happening, Registry
from tests.support import process_handlers as handlers
from tests.support.polling import becomes_true, eventually
from tests.support.workers import AT_ONCE, ONCE, Shop

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def shop(url):
    shop = Shop(url)
    yield shop
    await shop.close()


def is_running(pid):
    """Is there such a process, and not only its remains?"""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def run(shop, fn, data=None, options=ONCE, **handler):
    """The job, once the handler has ended it in a process."""
    shop.handlers.add("work", fn, process=True, **handler)
    async with shop.worker(concurrency=2):
        [job] = await shop.ended(*await shop.submit("work", data, options=options), seconds=30)
    return job


async def test_a_process_handler_returns_its_result(shop):
    job = await run(shop, handlers.add, {"a": 1, "b": 2})
    assert (job.state, job.result) == (JobState.COMPLETED, 3)


async def test_a_decorated_handler_is_found_inside_its_wrapping(shop):
    assert (await run(shop, handlers.wrapped)).result == "inside"


async def test_processes_are_not_this_one_and_are_used_again(shop):
    shop.handlers.add("work", handlers.pid, process=True)
    async with shop.worker(concurrency=1):
        jobs = await shop.ended(*await shop.submit("work", 1, 2, 3), seconds=30)
        pids = {job.result for job in jobs}
        assert len(pids) == 1
        assert os.getpid() not in pids
    assert eventually(lambda: not any(map(is_running, pids)))


async def test_a_process_handler_speaks_through_its_parent(shop):
    job = await run(shop, handlers.talk)
    assert (job.result, job.progress) == ([1, 1], 50)
    assert await shop.inspector.logs(job.id) == ["one"]


async def test_an_async_handler_in_a_process_has_the_same_words(shop):
    job = await run(shop, handlers.talk_async)
    assert job.result == [1, 2, 1, "work", "work"]
    assert job.progress == {"progress": 25, "message": "half a scene"}
    assert await shop.inspector.logs(job.id) == ["one", "two"]


async def test_what_a_process_handler_may_not_say_is_its_own_error(shop):
    job = await run(shop, handlers.overdo)
    assert job.state is JobState.DEAD
    assert "progress is 101; use a number from 0 to 100" in job.reason


async def test_a_killed_process_is_noticed_at_once_and_the_job_tried_again_in_another(shop):
    began = time.monotonic()
    job = await run(shop, handlers.die_once, options=AT_ONCE)
    assert (job.state, job.result, job.stalls) == (JobState.COMPLETED, 2, 0)
    assert time.monotonic() - began < 20  # not the 30 s of a lock


async def test_a_process_that_leaves_says_how(shop):
    job = await run(shop, handlers.leave)
    assert job.state is JobState.DEAD
    assert job.reason == "the process that ran the handler ended with exit code 7"


@pytest.mark.parametrize(
    ("how", "attempts", "reason"),
    [
        ("transient", 3, "once more"),
        ("unrecoverable", 1, "never"),
        ("value", 1, "bad data"),
        ("own", 3, "503 busy"),
        ("exit", 1, "3"),
    ],
)
async def test_errors_in_a_process_are_judged_as_they_would_be_here(shop, how, attempts, reason):
    job = await run(shop, handlers.fail, how, options=AT_ONCE)
    assert (job.state, job.attempt, job.reason) == (JobState.DEAD, attempts, reason)
    assert "in fail" in job.trace[-1]


async def test_a_process_handler_may_postpone(shop):
    job = await run(shop, handlers.fail, "postpone")
    assert (job.state, job.result, job.attempt) == (JobState.COMPLETED, "fine", 1)


async def test_a_result_json_cannot_carry_is_said_by_the_process(shop):
    job = await run(shop, handlers.fail, "result", options=AT_ONCE)
    assert job.state is JobState.DEAD
    assert job.reason.startswith("the result of 'work' cannot be written down as JSON")


async def test_a_process_that_takes_too_long_is_killed(shop):
    began = time.monotonic()
    job = await run(shop, handlers.sleep, 60, timeout=1.5)
    assert job.state is JobState.DEAD
    assert job.reason == "'work' took longer than 1.5 s; its process was killed"
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("fn", [handlers.wait_for_cancel, handlers.wait_for_cancel_async])
async def test_a_process_handler_is_told_that_its_job_is_cancelled(shop, fn):
    shop.handlers.add("work", fn, process=True)
    async with shop.worker(profile=Profile(name="w", lock_ms=1000)):
        [job_id] = await shop.submit("work", {})
        assert await becomes_true(lambda: shop.told(Happening.ACTIVE))
        await shop.operator.cancel([job_id])
        [job] = await shop.ended(job_id, seconds=20)
    assert (job.state, job.reason) == (JobState.DEAD, "cancelled")


async def test_a_stopped_worker_kills_its_processes_and_gives_their_jobs_back(shop, tmp_path):
    shop.handlers.add("work", handlers.write_pid_and_sleep, process=True)
    noted = tmp_path / "pid"
    async with shop.worker() as worker:
        [job_id] = await shop.submit("work", str(noted))
        assert await becomes_true(lambda: noted.exists() and noted.read_text(), 20)
        await worker.stop(grace=0.1)
    job = await shop.job(job_id)
    assert (job.state, job.attempt) == (JobState.WAITING, 0)
    assert eventually(lambda: not is_running(int(noted.read_text())))


LONE_WORKER = """
import asyncio, sys
from tests.support.workers import Shop
from tests.support import process_handlers

async def main():
    shop = Shop(sys.argv[1])
    shop.handlers.add("work", process_handlers.write_pid_and_sleep, process=True)
    await shop.new_worker().run()

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_a_process_dies_with_the_worker_that_is_killed(shop, url, tmp_path):
    script, noted = tmp_path / "lone_worker.py", tmp_path / "pid"
    script.write_text(LONE_WORKER)
    parent = subprocess.Popen([sys.executable, script, url], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        await shop.submit("work", str(noted))
        assert await becomes_true(lambda: noted.exists() and noted.read_text(), 30)
        child = int(noted.read_text())
        assert is_running(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert eventually(lambda: not is_running(child))
    finally:
        parent.kill()
        parent.wait()


def test_a_handler_a_process_could_not_find_is_refused():
    def local(job):
        pass

    with pytest.raises(InvalidOptions, match="top of a module"):
        Registry().add("work", local, process=True)
    with pytest.raises(InvalidOptions, match="top of a module"):
        Registry().add("work", lambda job: None, process=True)
