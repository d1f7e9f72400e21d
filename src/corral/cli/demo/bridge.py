"""Films in the BridgeMQ protocol: routed to who fits, a tick that comes by itself, a dead letter replayed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from corral.app import Corral
from corral.cli.demo.stage import LONGEST_STEP_S, Broken, Report, Stage, Tally, expect
from corral.core.job import Job, JobState
from corral.core.outcome import Dead
from corral.errors import Unrecoverable
from corral.worker import Worker, WorkerEvent

FILMS = 40
THUMBNAILS = 20
POISON = 7
"""The film that nobody can decode until the codec is there."""
JOBS = FILMS + THUMBNAILS + 2
"""And the tick, and the dead letter's second life."""
PROTOCOL = "bridgemq"


class Studio:
    """The handlers, two workers of which one has a GPU, and what they did."""

    def __init__(self, app: Corral) -> None:
        self.app = app
        self.film_workers: list[str | None] = []
        self.ticks: list[str] = []
        self.has_codec = False
        self.ticked, self.died = asyncio.Event(), asyncio.Event()
        needs = {"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"}
        self.films = app.job("film", target=needs, rate={"concurrent": 4})(self._film)
        self.thumbnails = app.job("thumbnail")(self._thumbnail)
        app.job("tick")(self._tick)
        self.every_second = app.schedule("tick", cron="* * * * * *", timezone="Europe/Berlin")

    async def _film(self, job: Any) -> int:
        self.film_workers.append(job.job.worker)
        await asyncio.sleep(0.005)  # a film takes its time
        if job.data["number"] == POISON and not self.has_codec:
            raise Unrecoverable("no codec for this film")
        return int(job.data["number"])

    async def _thumbnail(self, job: Any) -> None:
        await asyncio.sleep(0.001)

    async def _tick(self, job: Any) -> None:
        self.ticks.append(job.id)
        self.ticked.set()

    def staff(self, tally: Tally) -> list[Worker]:
        def hear(event: WorkerEvent) -> None:
            tally.hear(event)
            if isinstance(event.outcome, Dead):
                self.died.set()

        plain = self.app.workers(concurrency=5, listener=hear, server_id="plain", region="eu")
        skills: dict[str, Any] = {"region": "us-east", "capabilities": ["gpu"]}
        return [*plain, *self.app.workers(concurrency=5, listener=hear, server_id="gpu-1", **skills)]

    async def play(self, tally: Tally) -> Job:
        """Add everything, replay what dies, hear one tick; the job that was a dead letter, as it was."""
        await self.films.add_many({"number": number} for number in range(FILMS))
        await self.thumbnails.add_many({"number": number} for number in range(THUMBNAILS))
        await self.died.wait()
        queue = self.films.queue
        [dead] = await queue.jobs(JobState.DEAD)
        self.has_codec = True
        replayed = await queue.replay([dead.id])
        expect("dead letters that were replayed", replayed, [dead.id])
        await self.every_second.start()
        await self.ticked.wait()
        await self.every_second.stop()
        await tally.finished.wait()
        return dead


async def route_films(url: str, stage: Stage) -> Report:
    """Work everything off, and compare what the server has with what should be there."""
    async with Corral(url, protocol=PROTOCOL) as app:
        studio = Studio(app)
        with stage.bar("films (protocol bridgemq)", JOBS) as show:
            tally = Tally(JOBS, app.clock, show)
            try:
                async with asyncio.timeout(LONGEST_STEP_S), _at_work(studio.staff(tally)):
                    dead = await studio.play(tally)
            except TimeoutError:
                told = f"only {tally.ended} of {JOBS} jobs ended within {LONGEST_STEP_S:.0f} s"
                raise Broken(told) from None
        counts = await studio.films.queue.counts()
        revived = await studio.films.queue.job(dead.id)
    ended = FILMS + THUMBNAILS + len(studio.ticks)
    expect("workers that had films", set(studio.film_workers), {"gpu-1"})
    expect("jobs that are completed", counts[JobState.COMPLETED], ended)
    expect("dead letters that are left", counts[JobState.DEAD], 0)
    expect("the result of the one that was replayed", revived and revived.result, POISON)
    remark = (
        f"{FILMS} films went to the worker with the GPU, none to the other; "
        f"{studio.ticks[0]} came by itself; "
        f"film {POISON} was a dead letter ({dead.reason!r}), was replayed, and is done"
    )
    return Report(
        title="films",
        protocol=PROTOCOL,
        jobs=ended,
        completed=counts[JobState.COMPLETED],
        dead=counts[JobState.DEAD],
        retries=tally.retries,
        rate=tally.rate,
        p95_ms=tally.p95_ms,
        remark=remark,
    )


@asynccontextmanager
async def _at_work(staff: Sequence[Worker]) -> AsyncIterator[None]:
    """These workers, while inside."""
    working = [asyncio.create_task(worker.run()) for worker in staff]
    try:
        yield
    finally:
        for worker in staff:
            await worker.stop(1.0)
        for task in working:
            with suppress(asyncio.CancelledError):
                await task
