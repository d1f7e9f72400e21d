"""An app whose handlers run in processes, with a lifespan and middleware; processes import this module."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from corral import Corral, JobContext, JobOutcome, SyncJobContext, Unrecoverable


@dataclass
class Text:
    text: str


@asynccontextmanager
async def lifespan(app: Corral) -> AsyncIterator[str]:
    yield "bank"


app = Corral("redis://unused:1", lifespan=lifespan)


@app.middleware
async def marked(job: Any, call_next: Any) -> Text:
    result = await call_next(job)
    return Text(f"{result.text}, through middleware")


@app.job(queue="heavy", process=True)
def heavy(job: SyncJobContext[str], number: int) -> Text:
    job.log("in a process")
    return Text(f"{number} {job.resources}")


@app.job(queue="heavy", process=True)
async def slow(job: JobContext[str], number: int) -> Text:
    await job.progress(50)
    return Text(f"{number} {job.resources}")


@app.job(queue="heavy-batches", process=True, batch=8, linger=0.1)
def batch(jobs: list[SyncJobContext[str]], numbers: list[int]) -> list[JobOutcome[Text]]:
    for job in jobs:
        job.log(f"job {job.id} of {len(jobs)}")
    return [
        Unrecoverable("not one") if number == 1 else Text(f"{number} {jobs[0].resources}")
        for number in numbers
    ]


def app_at(url: str) -> Corral:
    """Return the app, which uses this server from now on."""
    app._url = url
    return app
