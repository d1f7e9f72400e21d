"""Handlers in spawned processes: killed when they must be, and never left behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corral import Corral
from corral.core.job import JobState
from corral.core.ports import Profile
from corral.errors import InvalidOptions
from corral.worker import HandlerRegistry, WorkerEventKind
from tests.support import process_handlers as handlers
from tests.support import slow_import
from tests.support.apps import ended, working
from tests.support.polling import becomes_true, eventually
from tests.support.worker_harness import AT_ONCE, ONCE

ROOT = Path(__file__).parents[2]


def is_running(pid):
    """Is there such a process, and not only its remains?"""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def run(harness, fn, data=None, options=ONCE, **handler):
    """The job, once the handler has ended it in a process."""
    harness.handlers.add("work", fn, process=True, **handler)
    async with harness.worker(concurrency=1):
        [job] = await harness.ended(*await harness.submit("work", data, options=options), seconds=30)
    return job


async def test_a_process_handler_returns_its_result(harness):
    job = await run(harness, handlers.add, {"a": 1, "b": 2})
    assert (job.state, job.result) == (JobState.COMPLETED, 3)


async def test_a_decorated_handler_is_found_inside_its_wrapping(harness):
    assert (await run(harness, handlers.wrapped)).result == "inside"


async def test_processes_are_not_this_one_and_are_used_again(harness):
    harness.handlers.add("work", handlers.pid, process=True)
    async with harness.worker(concurrency=1):
        jobs = await harness.ended(*await harness.submit("work", 1, 2, 3), seconds=30)
        pids = {job.result for job in jobs}
        assert len(pids) == 1
        assert os.getpid() not in pids
    assert eventually(lambda: not any(map(is_running, pids)))


async def test_a_process_handler_speaks_through_its_parent(harness):
    job = await run(harness, handlers.talk)
    assert (job.result, job.progress) == ([1, 1], 50)
    assert await harness.inspector.logs(job.id) == ["one"]


async def test_an_async_handler_in_a_process_has_the_same_words(harness):
    job = await run(harness, handlers.talk_async)
    assert job.result == [1, 2, 1, "work", "work"]
    assert job.progress == {"progress": 25, "message": "half a scene"}
    assert await harness.inspector.logs(job.id) == ["one", "two"]


async def test_what_a_process_handler_may_not_say_is_its_own_error(harness):
    job = await run(harness, handlers.overdo)
    assert job.state is JobState.DEAD
    assert "progress is 101; use a number from 0 to 100" in job.reason


async def test_a_killed_process_is_noticed_at_once_and_the_job_tried_again_in_another(harness):
    began = time.monotonic()
    job = await run(harness, handlers.die_once, options=AT_ONCE)
    assert (job.state, job.result, job.stalls) == (JobState.COMPLETED, 2, 0)
    assert time.monotonic() - began < 20  # not the 30 s of a lock


async def test_a_process_that_leaves_says_how(harness):
    job = await run(harness, handlers.leave)
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
async def test_errors_in_a_process_are_judged_as_they_would_be_here(harness, how, attempts, reason):
    job = await run(harness, handlers.fail, how, options=AT_ONCE)
    assert (job.state, job.attempts_made, job.reason) == (JobState.DEAD, attempts, reason)
    assert "in fail" in job.trace[-1]


async def test_a_process_handler_may_postpone(harness):
    job = await run(harness, handlers.fail, "postpone")
    assert (job.state, job.result, job.attempts_made) == (JobState.COMPLETED, "fine", 1)


async def test_a_result_json_cannot_carry_is_said_by_the_process(harness):
    job = await run(harness, handlers.fail, "result", options=AT_ONCE)
    assert job.state is JobState.DEAD
    assert job.reason.startswith("the result of 'work' cannot be written as JSON")


async def test_a_process_that_takes_too_long_is_killed(harness):
    began = time.monotonic()
    job = await run(harness, handlers.sleep, 60, timeout=1.5)
    assert job.state is JobState.DEAD
    assert job.reason == "'work' took longer than 1.5 s; its process was killed"
    assert time.monotonic() - began < 20


async def test_jobs_beside_others_whose_processes_are_killed_complete(harness):
    """A process that is being killed is handed on to none of them."""
    harness.handlers.add("work", handlers.hang_or_double, process=True, timeout=0.3)
    data = [0, 1, 2, 3] * 4
    async with harness.worker(concurrency=2):
        ids = await harness.submit("work", *data)
        jobs = await harness.ended(*ids, seconds=60)
    results = [(job.state, job.result) for job in jobs if job.data]
    assert results == [(JobState.COMPLETED, number * 2) for number in data if number]
    assert {job.reason for job in jobs if not job.data} == {
        "'work' took longer than 0.3 s; its process was killed"
    }


async def test_a_timeout_counts_from_the_first_line_of_the_handler(harness):
    job = await run(harness, slow_import.work, 0.01, timeout=0.5)
    assert (job.state, job.result) == (JobState.COMPLETED, "done")


async def test_a_process_has_imported_its_handler_before_there_is_a_job(harness, tmp_path, monkeypatch):
    imported = tmp_path / "imported"
    monkeypatch.setenv("SLOW_IMPORT_DONE", str(imported))
    harness.handlers.add("work", slow_import.work, process=True)
    async with harness.worker(concurrency=1):
        assert await becomes_true(imported.exists)
        [job] = await harness.ended(*await harness.submit("work", 0.01))
    assert (job.state, job.result) == (JobState.COMPLETED, "done")
    assert job.finished_at - job.started_at < slow_import.SECONDS * 1000


async def test_there_are_at_most_so_many_processes_for_all_queues(url):
    async with Corral(url) as app:
        for queue in ("one", "two"):
            app.job("work", queue=queue, process=True)(handlers.pid)
        with pytest.raises(InvalidOptions, match="max_processes=0 is not a whole number from 1 to 1024"):
            app.workers(max_processes=0)
        async with working(app, max_processes=1):
            queues = [app.queue("one"), app.queue("two")] * 3
            ids = [(await queue.add("work", {})).id for queue in queues]
            jobs = [await ended(queue, job_id) for queue, job_id in zip(queues, ids, strict=True)]
    pids = {job.result for job in jobs}
    assert len(pids) == 1
    assert os.getpid() not in pids


async def test_a_job_whose_process_died_before_its_handler_began_takes_another(harness):
    harness.handlers.add("work", slow_import.work, process=True)
    async with harness.worker(concurrency=1):
        [job_id] = await harness.submit("work", 0.01)

        def children():
            return [child for child in multiprocessing.active_children() if child.name == "corral-handler"]

        assert await becomes_true(children)
        children()[0].kill()
        [job] = await harness.ended(job_id)
    assert (job.state, job.result, job.attempts_made) == (JobState.COMPLETED, "done", 1)


@pytest.mark.parametrize("fn", [handlers.wait_for_cancel, handlers.wait_for_cancel_async])
async def test_a_process_handler_is_told_that_its_job_is_cancelled(harness, fn):
    harness.handlers.add("work", fn, process=True)
    async with harness.worker(profile=Profile(name="w", lock_ms=1000)):
        [job_id] = await harness.submit("work", {})
        assert await becomes_true(lambda: harness.reported(WorkerEventKind.ACTIVE))
        await harness.operator.cancel([job_id])
        [job] = await harness.ended(job_id, seconds=20)
    assert (job.state, job.reason) == (JobState.DEAD, "cancelled")


async def test_a_stopped_worker_kills_its_processes_and_gives_their_jobs_back(harness, tmp_path):
    harness.handlers.add("work", handlers.write_pid_and_sleep, process=True)
    noted = tmp_path / "pid"
    async with harness.worker() as worker:
        [job_id] = await harness.submit("work", str(noted))
        assert await becomes_true(lambda: noted.exists() and noted.read_text(), 20)
        await worker.stop(grace=0.1)
    job = await harness.read(job_id)
    assert (job.state, job.attempts_made) == (JobState.WAITING, 0)
    assert eventually(lambda: not is_running(int(noted.read_text())))


LONE_WORKER = """
import asyncio, sys
from tests.support.worker_harness import WorkerHarness
from tests.support import process_handlers

async def main():
    harness = WorkerHarness(sys.argv[1])
    harness.handlers.add("work", process_handlers.write_pid_and_sleep, process=True)
    await harness.new_worker().run()

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_a_process_dies_with_the_worker_that_is_killed(harness, url, tmp_path):
    script, noted = tmp_path / "lone_worker.py", tmp_path / "pid"
    script.write_text(LONE_WORKER)
    parent = subprocess.Popen([sys.executable, script, url], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        await harness.submit("work", str(noted))
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
        HandlerRegistry().add("work", local, process=True)
    with pytest.raises(InvalidOptions, match="top of a module"):
        HandlerRegistry().add("work", lambda job: None, process=True)
