"""What the Spark benches stand on: a queue's events made by real jobs, and jobs to add."""

from typing import Any

from corral.core.job import Job, JobOptions, Keep
from corral.core.outcome import Completed, Settlement
from corral.protocols import protocol_named
from corral.protocols.base import Binding
from corral.store.client import Store
from corral.worker import wall_clock

QUEUE = "bench"
EVENTS_A_JOB = 4
"""added, waiting, active, completed"""
BATCH = 1000
TEXT = "x" * 180


def rows_of(count: int, start: int = 0) -> list[tuple[str, str]]:
    return [(str(number), TEXT) for number in range(start, start + count)]


async def fill_events(url: str, count: int) -> int:
    """Add and work off as many jobs as make so many events; how many there are then."""
    store = Store(url)
    await store.call("FLUSHALL")
    await store.call("HSET", f"bull:{QUEUE}:meta", "opts.maxLenEvents", 1 << 40)
    broker = protocol_named("bullmq").bind(Binding(store, QUEUE, "bull", wall_clock)).broker
    options = JobOptions(attempts=1, keep_completed=Keep(count=0))
    for start in range(0, count // EVENTS_A_JOB, BATCH):
        many = min(BATCH, count // EVENTS_A_JOB - start)
        await broker.submit([_job(row, options) for row in rows_of(many, start)])
        claims = (await broker.turn([], many)).claims
        done = [Settlement(claim, Completed(b'{"ok":true}'), wall_clock()) for claim in claims]
        await broker.turn(done, 0)
    await broker.close()
    made = int(await store.call("XLEN", f"bull:{QUEUE}:events"))
    await store.close()
    return made


async def add_jobs(url: str, count: int) -> float:
    """Jobs a second that Corral itself adds, in batches, each waited for."""
    store = Store(url)
    broker = protocol_named("bullmq").bind(Binding(store, QUEUE, "bull", wall_clock)).broker
    options = JobOptions(attempts=1)
    started = wall_clock()
    for start in range(0, count, BATCH):
        rows = rows_of(min(BATCH, count - start), start)
        await broker.submit([_job(row, options, f"job-{row[0]}") for row in rows])
    took = (wall_clock() - started) / 1000
    await broker.close()
    await store.close()
    return count / took


def _job(row: tuple[str, str], options: JobOptions, job_id: str = "") -> Job:
    data: dict[str, Any] = {"n": row[0], "text": row[1]}
    return Job(name="send", data=data, queue=QUEUE, id=job_id, options=options, created_at=wall_clock())
