"""`corral workers`: who is alive, in every protocol."""

import asyncio

from corral.cli.screen import moment
from corral.cli.session import Here, QueuesArgument, at_server
from corral.core.ports import WorkerInfo
from corral.queue import Queue


@at_server
async def list_workers(here: Here, queue: QueuesArgument = None) -> None:
    """List the workers that are alive now; without a queue, those of every queue of every protocol."""
    queues = await here.every() if queue is None else [await here.find(queue)]
    lists = await asyncio.gather(*(found.workers() for found in queues))
    workers: dict[tuple[str, str], tuple[WorkerInfo, list[str]]] = {}
    for found, listed in zip(queues, lists, strict=True):
        for worker in listed:
            _, served = workers.setdefault(_key(found, worker), (worker, []))
            served.append(found.name)
    for (protocol, _), (worker, served) in workers.items():
        if here.screen.as_json:
            seen = {"name": worker.name, "address": worker.address, "seen_at": worker.seen_at}
            here.screen.document({"protocol": protocol, "queues": served, **seen})
    if here.screen.as_json:
        return
    if not workers:
        here.screen.line("no workers are alive; `corral worker MODULE:APP` starts one")
        return
    rows = [
        [
            worker.name or "(unnamed)",
            protocol,
            ", ".join(served),
            worker.address or "",
            moment(worker.seen_at),
        ]
        for (protocol, _), (worker, served) in workers.items()
    ]
    here.screen.table(("worker", "protocol", "queues", "address", "seen"), rows)


def _key(queue: Queue, worker: WorkerInfo) -> tuple[str, str]:
    """What tells one worker from another: one without a name is known by its address."""
    return queue.protocol.spec.name, worker.name or str(worker.address)
