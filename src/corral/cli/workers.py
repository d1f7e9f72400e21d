"""`corral workers`: the workers that are alive."""

import asyncio
from typing import NamedTuple

from msgspec import to_builtins

from corral.cli.options import OptionalQueue
from corral.cli.output import time_text
from corral.cli.session import Session, at_server
from corral.core.ports import WorkerInfo, WorkerRecord


class LiveWorker(NamedTuple):
    """A worker, its protocol and the names of the queues it serves."""

    info: WorkerInfo
    protocol: str
    queues: list[str]


@at_server
async def command(session: Session, queue_name: OptionalQueue = None) -> None:
    """List the workers that are alive."""
    queues = await session.queues(queue_name)
    lists = await asyncio.gather(*(queue.workers() for queue in queues))
    workers: dict[tuple[str, str], LiveWorker] = {}
    for queue, infos in zip(queues, lists, strict=True):
        protocol = queue.protocol.spec.name
        for info in infos:
            # a worker without a name is identified by its address
            key = protocol, info.name or str(info.address)
            workers.setdefault(key, LiveWorker(info, protocol, [])).queues.append(queue.name)
    session.output.listing(
        list(workers.values()),
        lambda worker: {
            "protocol": worker.protocol,
            "queues": worker.queues,
            "name": worker.info.name,
            "address": worker.info.address,
            "seen_at": worker.info.seen_at,
            "record": None if worker.info.record is None else to_builtins(worker.info.record),
        },
        ("worker", "protocol", "queues", "address", "seen", "since", "runs"),
        lambda worker: [
            worker.info.name or "(unnamed)",
            worker.protocol,
            ", ".join(worker.queues),
            worker.info.address or "",
            time_text(worker.info.seen_at),
            "" if worker.info.record is None else time_text(worker.info.record.since),
            _running_text(worker.info.record),
        ],
        "no workers are alive; `corral worker MODULE:APP` starts one",
    )


def _running_text(record: WorkerRecord | None) -> str:
    """Return how many of a worker's slots are taken, and by the jobs of which names.

    >>> _running_text(WorkerRecord(name="w", host="h", process=1, since=0, at=0, concurrency=5))
    '0 of 5'
    """
    if record is None:
        return ""
    names = ", ".join(dict.fromkeys(job.name for job in record.running))
    return f"{record.running_count} of {record.concurrency}" + (f": {names}" if names else "")
