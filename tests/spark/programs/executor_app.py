"""An app whose handlers run on Spark executors; what they return says where they ran."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from corral import Corral, JobContext, SyncJobContext, Transient, Unrecoverable
from corral.protocols import protocol_names
from tests.support.worker_process_main import JOB


@asynccontextmanager
async def lifespan(app: Corral) -> AsyncIterator[str]:
    yield uuid4().hex


app = Corral(lifespan=lifespan)


@app.job(queue="embed")
async def embed(job: JobContext[str], text: str) -> dict[str, Any]:
    return {"length": len(text), "process": os.getpid(), "lifespan": job.resources}


@app.job(queue="vectors", batch=256, linger=0.2)
def vectors(jobs: list[SyncJobContext[str]], texts: list[str]) -> list[dict[str, Any]]:
    return [{"length": len(text), "together": len(texts)} for text in texts]


@app.job(queue="slow")
async def slow(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()


@app.job(queue="deadly")
async def deadly(job: JobContext[str], n: int) -> int:
    """Kills its process where this is the first attempt at 0."""
    if n == 0 and job.job.stalls == 0:
        os._exit(1)
    return n


@app.job(queue="slow")
async def hang_up() -> None:
    """Get the signal that the end of an executor sends to its Python processes."""
    os.kill(os.getpid(), signal.SIGHUP)


for protocol in protocol_names():

    @app.job(JOB, queue=None if protocol == "streams" else "rows", protocol=protocol)
    async def square(n: int) -> int:
        if n < 0:
            raise Unrecoverable(f"{n} is below 0")
        return n * n


@app.job(queue="unsteady", attempts=3)
async def unsteady(job: JobContext[str], n: int) -> int:
    """Fails the first time; 7 always."""
    if job.attempt == 1 or n == 7:
        raise Transient("not yet")
    return job.attempt
