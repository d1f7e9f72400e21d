"""Step: a hundred texts in the streams protocol; each becomes a vector, with events of the handler."""

import asyncio
from collections import Counter
from functools import partial
from hashlib import blake2b
from typing import Any

from corral.app import Corral
from corral.cli.demo.steps import DemoOutput, StepResult, expect, run_jobs
from corral.core.event import EventKind
from corral.core.job import JobState

JOBS = 100
DIMENSIONS = 8


async def embed_texts(url: str, output: DemoOutput) -> StepResult:
    """Embed them all, and compare the server's counts and events with the expected ones."""
    async with Corral(url) as app:

        @app.job("embed", protocol="streams")
        async def embed(job: Any) -> dict[str, list[float]]:
            words = job.data["text"].split()
            await job.emit("embed.words", {"count": len(words)})
            await asyncio.sleep(0.005)  # a model takes its time
            await job.progress(100)
            return {"vector": vector(job.data["text"])}

        async def produce() -> None:
            await embed.add_many({"text": f"text number {number} of the herd"} for number in range(JOBS))

        tally = await run_jobs(
            app, "embeddings (protocol streams)", JOBS, produce, output, partial(app.workers, concurrency=10)
        )
        counts = await embed.queue.counts()
        expect("texts left in the queue", counts[JobState.WAITING] + counts[JobState.ACTIVE], 0)
        completed = await embed.queue.jobs(JobState.COMPLETED, count=JOBS + 1)
        expect("texts embedded", len(completed), JOBS)
        expect("the first vector", completed[0].result, {"vector": vector(completed[0].data["text"])})
        kinds = Counter(event.kind for event in await embed.queue.events.range(count=10 * JOBS))
        expect("events of the handlers", kinds["event"], JOBS)
        expect("events that end a job", kinds[EventKind.COMPLETED], JOBS)
        remark = f"{kinds.total()} events in the streams protocol, {JOBS} of them emitted by the handlers"
        return tally.result("embeddings", "streams", remark, completed=len(completed))


def vector(text: str) -> list[float]:
    """Return numbers that stand for a text, the same each time."""
    digest = blake2b(text.encode(), digest_size=DIMENSIONS).digest()
    return [round(byte / 255, 3) for byte in digest]
