"""A real worker in a process of its own; what it does and finds goes to stdout as JSON lines.

Started as `python -m tests.support.chaos_worker '{"url": …, "room": …, "profile": {…}}'`.
"""

import asyncio
import json
import sys
import time
from typing import Any

from corral import Corral, JobContext
from corral.observe import logs
from corral.store.connect import Reconnect
from corral.worker import Happening, WorkerEvent

JOB = "tool"
"""A job name that every room knows."""

TOLD = (Happening.LOST, Happening.UNKNOWN, Happening.AWAY, Happening.BACK)


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def told(event: WorkerEvent) -> None:
    if event.kind in TOLD:
        say(happening=event.kind.value, job=event.claim.job.id if event.claim else None)


async def handle(job: JobContext) -> Any:
    """Do for `seconds` what the job's data says, and return its number."""
    seconds = job.data["seconds"]
    if job.data.get("is_announced"):
        say(happening="began", job=job.id)
    match job.data["how"]:
        case "nap":
            await asyncio.sleep(seconds)
        case "block":
            time.sleep(seconds)
        case "spin":
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass
    return job.data["number"]


async def main(order: dict[str, Any]) -> None:
    logs.configure(level="critical")
    app = Corral(order["url"], room=order["room"])
    app.job(JOB)(handle)
    workers = app.workers(
        concurrency=order["concurrency"],
        name=order["name"],
        listener=told,
        reconnect=Reconnect(first_ms=20, most_ms=500),
        **order["profile"],
    )
    for worker in workers:
        await worker.start()
    say(happening="ready")
    await asyncio.gather(*(worker.run() for worker in workers))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
