"""An app whose handlers run in processes, with a lifespan and middleware; processes import this module."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from corral import Corral, JobContext, SyncJobContext


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


def app_at(url: str) -> Corral:
    """Return the app, which uses this server from now on."""
    app._url = url
    return app
