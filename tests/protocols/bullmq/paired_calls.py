"""Operations on a queue or a job, on Node's side and on ours."""

from collections.abc import Awaitable
from typing import Any

from corral.errors import CorralError
from tests.protocols.bullmq.paired_queue import PairedQueue
from tests.support.node import NodeError

EVERYWHERE: list[dict[str, Any]] = [
    {}, {}, {}, {}, {"priority": 4}, {"priority": 2}, {"delay": 60_000}, {"delay": 900, "priority": 1}, {}, {}
]  # fmt: skip


async def fill(queue: PairedQueue) -> None:
    """Add jobs in every state, some with logs, some deduplicated."""
    for n, opts in enumerate(EVERYWHERE):
        await queue.add("send", {"n": n}, deduplication={"id": f"d{n}"}, **opts)
    await queue.claim(4)
    await queue.log("1", "a line")
    await queue.complete("1", "done")
    await queue.fail("2", "no luck")
    await queue.advance(1_000)
    await queue.complete("3")


async def on_queue(queue: PairedQueue, method: str, args: list[Any], ours: Awaitable[Any]) -> Any:
    """Call a method of Node's Queue and ours; both fail or both succeed, and the states are compared."""
    theirs: Any
    try:
        theirs = await queue.node_queue(method, *args)
    except NodeError as error:
        theirs = error
    try:
        own = await ours
    except CorralError as error:
        own = error
    assert isinstance(own, Exception) == isinstance(theirs, Exception), (theirs, own)
    await queue._check_same(f"{method} {args}")
    return own, theirs


async def on_job(queue: PairedQueue, job_id: str, method: str, args: list[Any], ours: Awaitable[Any]) -> Any:
    theirs: Any
    try:
        theirs = await queue._node("job", queue="node-queue", id=job_id, method=method, args=args)
    except NodeError as error:
        theirs = error
    try:
        own = await ours
    except CorralError as error:
        own = error
    assert isinstance(own, Exception) == isinstance(theirs, Exception), (theirs, own)
    await queue._check_same(f"{method} {job_id} {args}")
    return own
