"""A hundred texts in the streams protocol: each becomes a vector, and its handler tells how it gets on."""

import asyncio
from hashlib import blake2b
from typing import Any

from corral.app import Corral
from corral.cli.demo.stage import Report, Stage, expect, work_off
from corral.core.event import EventKind, JobEvent
from corral.core.job import JobState

JOBS = 100
DIMENSIONS = 8


async def embed_texts(url: str, stage: Stage) -> Report:
    """Embed them all, and compare what the server has with what should be there."""
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

        tally = await work_off(app, "embeddings (protocol streams)", JOBS, produce, stage, concurrency=10)
        counts = await embed.queue.counts()
        expect("texts left in the queue", counts[JobState.WAITING] + counts[JobState.ACTIVE], 0)
        done = await embed.queue.jobs(JobState.COMPLETED, count=JOBS + 1)
        expect("texts that were embedded", len(done), JOBS)
        expect("the first vector", done[0].result, {"vector": vector(done[0].data["text"])})
        events = await embed.queue.events.range(count=10 * JOBS)
        expect("events of the handlers", _told(events, "event"), JOBS)
        expect("events that end a job", _told(events, EventKind.COMPLETED), JOBS)
        return Report(
            title="embeddings",
            protocol="streams",
            jobs=JOBS,
            completed=len(done),
            dead=tally.dead,
            retries=tally.retries,
            rate=tally.rate,
            p95_ms=tally.p95_ms,
            remark=f"{len(events)} events in the streams protocol, {JOBS} of them in the handlers' own words",
        )


def vector(text: str) -> list[float]:
    """Numbers that stand for a text, the same each time."""
    digest = blake2b(text.encode(), digest_size=DIMENSIONS).digest()
    return [round(byte / 255, 3) for byte in digest]


def _told(events: list[JobEvent], kind: str) -> int:
    return sum(event.kind == kind for event in events)
