"""A real worker in a process of its own; what it does and finds goes to whoever started it."""

import asyncio
import os
import time
from datetime import timedelta
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from corral import Corral, JobContext
from corral.store.client import Reconnect
from corral.telemetry import logs
from corral.worker import WorkerEvent, WorkerEventKind, isolation

JOB = "tool"
"""A job name that every protocol knows."""
LINGER = timedelta(milliseconds=100)

REPORTED = (
    WorkerEventKind.LOST,
    WorkerEventKind.UNKNOWN,
    WorkerEventKind.UNAVAILABLE,
    WorkerEventKind.AVAILABLE,
)


class Report:
    """What this process says: what happened, and to which job."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender

    def say(self, happening: str, job_id: str | None = None) -> None:
        self._sender.send((happening, job_id))

    def heard(self, event: WorkerEvent) -> None:
        if event.kind in REPORTED:
            self.say(event.kind.value, event.claim.job.id if event.claim else None)


async def handle(job: JobContext, report: Report) -> Any:
    """Do for `seconds` what the job's data says, and return its number."""
    seconds = job.data["seconds"]
    if job.data.get("is_announced"):
        report.say("began", job.id)
    match job.data["how"]:
        case "nap":
            await asyncio.sleep(seconds)
        case "block":
            time.sleep(seconds)
        case "die":
            await asyncio.sleep(seconds)
            os._exit(1)
        case "spin":
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass
    return job.data["number"]


async def serve(order: dict[str, Any], report: Report) -> None:
    """Work until killed."""
    isolation.ALONE_S = order["profile"].pop("alone_s", isolation.ALONE_S)
    batch, holds = order["profile"].pop("batch", 0), order["profile"].pop("holds", False)
    app = Corral(order["url"], protocol=order["protocol"])
    if batch:

        @app.job(JOB, batch=batch, linger=LINGER)
        async def run_batch(jobs: list[JobContext], data: list[dict[str, Any]]) -> list[Any]:
            for job in jobs:
                report.say("began", job.id)
            if holds:
                await asyncio.Event().wait()
            return [await handle(job, report) for job in jobs]

    else:

        @app.job(JOB)
        async def run(job: JobContext) -> Any:
            return await handle(job, report)

    [worker] = app.workers(
        concurrency=order["concurrency"],
        name=order["name"],
        listener=report.heard,
        reconnect=Reconnect(first_ms=20, most_ms=500),
        **order["profile"],
    )
    await worker.start()
    report.say("ready")
    await worker.run()


def main(order: dict[str, Any], sender: Connection) -> None:
    """The whole life of the process."""
    Thread(target=go_with_parent, daemon=True).start()
    logs.configure(level="critical")
    asyncio.run(serve(order, Report(sender)))


def go_with_parent() -> None:
    """Wait until the process that started this one has ended, and end as well."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
