"""Jobs that have stalled together are run apart, so that only the one that ends its process ends dead."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from corral.core.job import JobOptions, JobState
from corral.core.ports import Profile
from tests.support.jobs import submit
from tests.support.polling import becomes_true, until
from tests.support.worker_harness import WorkerHarness

SHORT = Profile(name="w", lock_ms=2000, recover_ms=200, max_stalls=5)


class Watch:
    """A handler that notes what runs beside each job."""

    def __init__(self, harness: WorkerHarness, seconds: float = 0.02) -> None:
        self.running: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        self.starts: Counter[str] = Counter()
        self._seconds = seconds
        self.harness = harness
        harness.handlers.add(harness.job_name, self.handle)

    async def handle(self, job):
        self.starts[job.id] += 1
        for other in self.running:
            self.beside[other].add(job.id)
        self.beside[job.id] = set(self.running)
        self.running.add(job.id)
        await asyncio.sleep(self._seconds)
        self.running.discard(job.id)


class FeedingWatch(Watch):
    """The same; each job adds another one."""

    async def handle(self, job):
        await submit(self.harness.producer, [self.harness.job()])
        await super().handle(job)


async def stall(harness: WorkerHarness, count: int) -> list[str]:
    """Submit jobs that a worker claims and abandons; return their ids when they are requeued."""
    dead = harness.broker("dead", lock_ms=100, recover_ms=20, max_stalls=5)
    ids = await submit(dead, [harness.job() for _ in range(count)])
    assert len((await dead.turn([], count)).claims) == count
    finder = harness.broker("finder", lock_ms=100, recover_ms=20, max_stalls=5)

    async def are_requeued() -> bool:
        await finder.recover()
        return all([(await harness.read(job_id)).state is JobState.WAITING for job_id in ids])

    await until(are_requeued, "the abandoned jobs are requeued")
    return ids


async def test_jobs_that_have_stalled_run_one_at_a_time_apart_from_others(each_harness):
    harness = each_harness
    watch = Watch(harness)
    suspects = await stall(harness, 4)
    others = await submit(harness.producer, [harness.job() for _ in range(20)])
    async with harness.worker(profile=SHORT, concurrency=8):
        jobs = await harness.ended(*suspects, *others)
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert set(watch.starts.values()) == {1}
    assert [watch.beside[job_id] for job_id in suspects] == [set()] * 4
    assert any(watch.beside[job_id] for job_id in others)


async def test_a_stalled_job_starts_although_the_queue_is_never_empty(each_harness):
    harness = each_harness
    watch = FeedingWatch(harness)
    [suspect] = await stall(harness, 1)
    await submit(harness.producer, [harness.job() for _ in range(8)])
    async with harness.worker(profile=SHORT, concurrency=4):
        await harness.ended(suspect, seconds=5)
    assert watch.beside[suspect] == set()
    assert watch.starts[suspect] == 1


async def test_a_stopping_worker_gives_back_a_job_that_it_keeps_until_it_can_run_alone(url):
    async with WorkerHarness(url, protocol="streams") as harness:
        running, release = asyncio.Event(), asyncio.Event()

        @harness.handle(harness.job_name)
        async def handle(job):
            running.set()
            await release.wait()

        [suspect] = await stall(harness, 1)
        [other] = await submit(harness.producer, [harness.job()])
        async with harness.worker(profile=SHORT, concurrency=4) as worker:
            await running.wait()
            assert (await harness.read(suspect)).state is JobState.ACTIVE
            stopping = asyncio.create_task(worker.stop())

            async def is_given_back() -> bool:
                return (await harness.read(suspect)).state is JobState.WAITING

            await until(is_given_back, "the kept job is given back while the other runs", 5)
            release.set()
            await stopping
        assert (await harness.read(other)).state is JobState.COMPLETED


async def test_a_worker_goes_on_after_an_isolated_job_was_the_last(harness):
    watch = Watch(harness)
    suspects = await stall(harness, 2)
    async with harness.worker(profile=SHORT, concurrency=4):
        await harness.ended(*suspects)
        later = await submit(harness.producer, [harness.job() for _ in range(4)])
        await harness.ended(*later, seconds=3)
    assert watch.starts.total() == 6


async def test_a_long_job_does_not_keep_a_stalled_one_waiting_for_ever(harness, monkeypatch):
    monkeypatch.setattr("corral.worker.isolation.ALONE_S", 0.3)
    release = asyncio.Event()

    @harness.handle("long")
    async def long(job):
        await release.wait()

    watch = Watch(harness)
    suspects = await stall(harness, 2)
    [long_id] = await harness.submit("long", {}, options=JobOptions(attempts=1, lifo=True))
    async with harness.worker(profile=SHORT, concurrency=4):
        later = await submit(harness.producer, [harness.job()])
        await harness.ended(*suspects, *later)
        assert {watch.starts[job_id] for job_id in (*suspects, *later)} == {1}, (
            "beside the long job, each once"
        )
        release.set()
        await harness.ended(long_id)


async def test_claiming_goes_on_beside_a_stalled_job_that_runs_for_long(harness, monkeypatch):
    monkeypatch.setattr("corral.worker.isolation.ALONE_S", 0.3)
    release = asyncio.Event()

    @harness.handle("work")
    async def work(job):
        started[job.id] += 1
        if job.id in suspects:
            await release.wait()

    started: Counter[str] = Counter()
    suspects = await stall(harness, 1)
    async with harness.worker(profile=SHORT, concurrency=4):
        later = await submit(harness.producer, [harness.job() for _ in range(3)])
        await harness.ended(*later)
        assert started == Counter([*suspects, *later]), "beside the stalled job, each once"
        release.set()
        await harness.ended(*suspects)


async def check_suspects_alone(harness, monkeypatch, workers: int) -> None:
    """Run 3 jobs that have stalled for longer than claiming waits for them, beside 6 others."""
    monkeypatch.setattr("corral.worker.isolation.ALONE_S", 0.05)
    watch = Watch(harness, seconds=0.25)
    suspects = await stall(harness, 3)
    async with AsyncExitStack() as stack:
        for _ in range(workers):
            await stack.enter_async_context(harness.worker(profile=SHORT, concurrency=4))
        assert await becomes_true(lambda: watch.starts), "the first of them runs"
        others = await submit(harness.producer, [harness.job() for _ in range(6)])
        jobs = await harness.ended(*suspects, *others)
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert set(watch.starts.values()) == {1}
    assert [watch.beside[job_id] & set(suspects) for job_id in suspects] == [set()] * 3
    assert any(watch.beside[job_id] & set(suspects) for job_id in others), "others need not wait that long"


async def test_no_two_jobs_that_have_stalled_run_at_once_however_long_they_take(each_harness, monkeypatch):
    await check_suspects_alone(each_harness, monkeypatch, workers=1)


async def test_no_two_jobs_that_have_stalled_run_at_once_in_two_workers_of_a_process(harness, monkeypatch):
    await check_suspects_alone(harness, monkeypatch, workers=2)
