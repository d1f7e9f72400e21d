"""`corral workers`: the workers that are alive."""

import asyncio
from typing import NamedTuple

from corral.cli.options import OptionalQueue
from corral.cli.output import time_text
from corral.cli.session import Session, at_server
from corral.core.ports import WorkerInfo


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
        },
        ("worker", "protocol", "queues", "address", "seen"),
        lambda worker: [
            worker.info.name or "(unnamed)",
            worker.protocol,
            ", ".join(worker.queues),
            worker.info.address or "",
            time_text(worker.info.seen_at),
        ],
        "no workers are alive; `corral worker MODULE:APP` starts one",
    )
