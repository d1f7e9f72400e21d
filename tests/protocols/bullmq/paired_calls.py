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
    """Call a method of Node's Queue and ours; return both results."""
    return await _on_both(queue, queue.node_queue(method, *args), ours, f"{method} {args}")


async def on_job(queue: PairedQueue, job_id: str, method: str, args: list[Any], ours: Awaitable[Any]) -> Any:
    """Call a method of Node's Job and ours; return our result."""
    theirs = queue._node("job", queue="node-queue", id=job_id, method=method, args=args)
    return (await _on_both(queue, theirs, ours, f"{method} {job_id} {args}"))[0]


async def _on_both(queue: PairedQueue, theirs: Awaitable[Any], ours: Awaitable[Any], what: str) -> Any:
    """Both fail or both succeed, and the states are compared."""
    node_result = await _result(theirs, NodeError)
    own_result = await _result(ours, CorralError)
    failed = [isinstance(result, Exception) for result in (own_result, node_result)]
    assert failed[0] == failed[1], (node_result, own_result)
    await queue._check_same(what)
    return own_result, node_result


async def _result(call: Awaitable[Any], error: type[Exception]) -> Any:
    try:
        return await call
    except error as failure:
        return failure
