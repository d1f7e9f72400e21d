"""Worker: cancel, pause, close, run, getNextJob and callbacks."""

import asyncio
import time
from typing import Any

import pytest

from corral.bullmq import Job
from tests.dropin.factory import EventRecorder, Factory
from tests.support.polling import becomes_true, forever, outlast, until

# -- cancel and pause --------------------------------------------------------------------------------------


async def test_cancelling_a_job_aborts_its_signal(factory: Factory) -> None:
    begun: list[str] = []

    async def process(job: Job, token: str, signal: Any) -> Any:
        begun.append(job.id or "")
        await signal.wait()
        return [signal.aborted, signal.reason]

    queue, events = factory.queue(), await factory.events()
    worker = factory.worker(process, concurrency=3)
    jobs = await queue.addBulk([{"name": "send"}] * 3)
    assert await becomes_true(lambda: len(begun) == 3)
    assert worker.cancelJob("1", "enough") is True
    assert worker.cancelJob("9") is False
    assert await jobs[0].waitUntilFinished(events, 10_000) == [True, "enough"]
    await queue.operator.cancel(["2"])
    worker.cancelAllJobs("all of you")
    assert await jobs[2].waitUntilFinished(events, 10_000) == [True, "all of you"]


async def _active(factory: Factory, count: int) -> bool:
    return await factory.queue().getActiveCount() == count


async def test_a_job_cancelled_through_the_server_aborts_its_signal(factory: Factory) -> None:
    async def process(job: Job, token: str, signal: Any) -> Any:
        await signal.wait()
        signal.throw_if_aborted()

    queue, events = factory.queue(), await factory.events()
    job = await queue.add("send", {})
    factory.worker(process, lockDuration=200)
    await until(lambda: _active(factory, 1))
    await queue.operator.cancel(["1"])
    with pytest.raises(Exception, match=r"^cancelled$"):
        await job.waitUntilFinished(events, 10_000)


async def test_a_processor_without_a_signal_has_none_to_abort(factory: Factory) -> None:
    going = asyncio.Event()

    async def process(job: Job, token: str) -> Any:
        await going.wait()

    worker = factory.worker(process)
    await factory.queue().add("send", {})
    await until(lambda: _active(factory, 1))
    assert worker.cancelJob("1") is False
    going.set()


async def test_a_paused_worker_finishes_its_jobs_and_begins_none(factory: Factory) -> None:
    going = asyncio.Event()

    async def process(job: Job, token: str) -> Any:
        await going.wait()

    queue, events = factory.queue(), await factory.events()
    worker = factory.worker(process)
    recorded = EventRecorder(worker, "paused", "resumed")
    first = await queue.add("send", {})
    await until(lambda: _active(factory, 1))
    pausing = asyncio.create_task(worker.pause())
    await outlast(0.02)
    assert (pausing.done(), worker.isPaused(), recorded.events) == (False, True, [])
    going.set()
    await pausing
    assert await first.isCompleted()
    second = await queue.add("send", {})
    await outlast(0.05)
    assert await second.getState() == "waiting"
    worker.resume()
    assert (await second.waitUntilFinished(events, 10_000), worker.isPaused()) == (None, False)
    assert recorded.names() == ["paused", "resumed"]
    assert worker.isRunning()


async def test_a_worker_paused_without_waiting_returns_at_once(factory: Factory) -> None:
    going = asyncio.Event()

    async def process(job: Job, token: str) -> Any:
        await going.wait()
        return "fine"

    queue, events = factory.queue(), await factory.events()
    worker = factory.worker(process)
    job = await queue.add("send", {})
    await until(lambda: _active(factory, 1))
    await worker.pause(True)
    assert await job.isActive()
    going.set()
    assert await job.waitUntilFinished(events, 10_000) == "fine"


async def test_closing_waits_for_running_jobs(factory: Factory) -> None:
    async def process(job: Job, token: str) -> Any:
        await asyncio.sleep(0.1)

    queue = factory.queue()
    worker = factory.worker(process)
    recorded = EventRecorder(worker, "closing", "closed", "completed")
    await queue.addBulk([{"name": "send"}] * 2)
    await until(lambda: _active(factory, 1))
    await asyncio.gather(worker.close(), worker.close())
    assert recorded.names() == ["closing", "completed", "closed"]
    assert await queue.getJobCounts("active", "completed", "wait") == {"active": 0, "completed": 1, "wait": 1}
    assert (worker.closed, worker.running) == (True, False)


async def test_closing_by_force_returns_running_jobs_to_the_queue(factory: Factory) -> None:
    begun, reasons = asyncio.Event(), list[Any]()

    async def process(job: Job, token: str, signal: Any) -> Any:
        begun.set()
        try:
            await forever()
        finally:
            reasons.append(signal.reason)

    queue = factory.queue()
    worker = factory.worker(process)
    await queue.add("send", {})
    await asyncio.wait_for(begun.wait(), 10)
    began = time.monotonic()
    await worker.close(force=True)
    assert time.monotonic() - began < 5
    assert reasons == ["worker force-closed"]
    assert await queue.getJobCounts("active", "wait") == {"active": 0, "wait": 1}


async def test_a_worker_closed_before_it_started_begins_nothing(factory: Factory) -> None:
    await factory.queue().add("send", {})
    worker = factory.worker()
    await worker.close()
    assert await factory.queue().getWaitingCount() == 1


# -- run ----------------------------------------------------------------------------------------------------


async def test_a_worker_without_autorun_runs_when_called_and_only_once(factory: Factory) -> None:
    queue, events = factory.queue(), await factory.events()
    worker = factory.worker(autorun=False)
    job = await queue.add("send", {})
    await outlast(0.02)
    assert (await job.getState(), worker.isRunning()) == ("waiting", False)
    running = asyncio.create_task(worker.run())
    await job.waitUntilFinished(events, 10_000)
    with pytest.raises(Exception, match=r"^Worker is already running$"):
        await worker.run()
    await worker.close()
    await running
    with pytest.raises(Exception, match=r"^No process function is defined.$"):
        await factory.worker(None).run()


async def test_get_next_job_waits_after_a_call_that_returned_none(factory: Factory) -> None:
    queue = factory.queue()
    worker = factory.worker(None)
    assert await worker.getNextJob("t1") is None
    waiting = asyncio.create_task(worker.getNextJob("t2"))
    await until(queue.getWorkers)
    added = await queue.add("send", {"a": 1})
    job = await waiting
    assert job is not None
    assert (job.id, job.data, job.token) == (added.id, {"a": 1}, "t2")
    assert await worker.getNextJob("t3", {"block": False}) is None
    assert await worker.getNextJob("t3", {"block": False}) is None
    await worker.close()
    assert await worker.getNextJob("t4") is None


async def test_callbacks_may_be_coroutines_and_their_errors_are_emitted(factory: Factory) -> None:
    worker = factory.worker()
    recorded = EventRecorder(worker, "error")
    called: list[Any] = []

    async def completed(job: Job, result: Any) -> None:
        await asyncio.sleep(0)
        called.append(job.id)
        raise ValueError("in a task")

    worker.on("completed", completed)

    def breaks(job: Job, previous: str) -> None:
        raise ValueError("in a callback")

    worker.on("active", breaks)
    worker.once("drained", lambda: called.append("drained"))
    queue, events = factory.queue(), await factory.events()
    for _ in range(2):
        job = await queue.add("send", {})
        await job.waitUntilFinished(events, 10_000)
    await recorded.wait_for_count(4)
    assert sorted(str(error) for _, error in recorded.events) == ["in a callback"] * 2 + ["in a task"] * 2
    assert called.count("drained") == 1
    worker.off("completed", completed)
    with pytest.raises(ValueError, match="not in list"):
        worker.off("completed", completed)
