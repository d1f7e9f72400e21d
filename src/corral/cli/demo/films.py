"""Step: films in the bridgemq protocol; routed by capability, with a schedule and a replayed dead job."""

import asyncio
from typing import Any

from corral.app import Corral
from corral.cli.demo.steps import DemoOutput, StepResult, expect, run_jobs
from corral.core.job import Job, JobState
from corral.core.outcome import Dead
from corral.errors import Unrecoverable
from corral.worker import Listener, WorkerEvent
from corral.worker.worker import Worker

FILMS = 40
THUMBNAILS = 20
POISON = 7
"""The film that fails until its codec is installed."""
JOBS = FILMS + THUMBNAILS + 2
"""Also the job of the schedule, and the second end of the replayed job."""
PROTOCOL = "bridgemq"


class FilmStudio:
    """The handlers, two workers of which one has a GPU, and a record of what they did."""

    def __init__(self, app: Corral) -> None:
        self.app = app
        self.film_workers: list[str | None] = []
        self.ticks: list[str] = []
        self.dead: list[Job] = []
        self.has_codec = False
        self.ticked, self.died = asyncio.Event(), asyncio.Event()
        target = {"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"}
        self.films = app.job("film", target=target, rate={"concurrent": 4})(self._film)
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

    def workers(self, listener: Listener) -> list[Worker]:
        """Return one worker with a GPU and one without."""

        def listen(event: WorkerEvent) -> None:
            listener(event)
            if isinstance(event.outcome, Dead):
                self.died.set()

        plain = self.app.workers(concurrency=5, listener=listen, server_id="plain", region="eu")
        gpu: dict[str, Any] = {"region": "us-east", "capabilities": ["gpu"]}
        return [*plain, *self.app.workers(concurrency=5, listener=listen, server_id="gpu-1", **gpu)]

    async def produce(self) -> None:
        """Add all jobs, replay the one that dies, and let the schedule fire."""
        await self.films.add_many({"number": number} for number in range(FILMS))
        await self.thumbnails.add_many({"number": number} for number in range(THUMBNAILS))
        await self.died.wait()
        queue = self.films.queue
        self.dead = await queue.jobs(JobState.DEAD)
        self.has_codec = True
        dead_ids = [job.id for job in self.dead]
        expect("dead jobs that were replayed", await queue.replay(dead_ids), dead_ids)
        await self.every_second.start()
        await self.ticked.wait()
        await self.every_second.stop()


async def route_films(url: str, output: DemoOutput) -> StepResult:
    """Run everything, and compare the server's counts with the expected ones."""
    async with Corral(url, protocol=PROTOCOL) as app:
        studio = FilmStudio(app)
        title = f"films (protocol {PROTOCOL})"
        tally = await run_jobs(app, title, JOBS, studio.produce, output, studio.workers)
        counts = await studio.films.queue.counts()
        [dead] = studio.dead
        replayed = await studio.films.queue.job(dead.id)
    ended = FILMS + THUMBNAILS + len(studio.ticks)
    expect("workers that ran films", set(studio.film_workers), {"gpu-1"})
    expect("completed jobs", counts[JobState.COMPLETED], ended)
    expect("dead jobs left", counts[JobState.DEAD], 0)
    expect("the result of the replayed job", replayed and replayed.result, POISON)
    remark = (
        f"{FILMS} films went to the worker with the GPU, none to the other; "
        f"{studio.ticks[0]} was added by a schedule; "
        f"film {POISON} was dead ({dead.reason!r}), was replayed, and is completed"
    )
    completed = counts[JobState.COMPLETED]
    return tally.result(
        "films", PROTOCOL, remark, jobs=ended, completed=completed, dead=counts[JobState.DEAD]
    )
