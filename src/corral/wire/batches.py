"""Long lists in batches of bounded cost, each sent while the server still works on the one before."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

Batch = TypeVar("Batch")
Answer = TypeVar("Answer")

MOST_ROWS = 500
MOST_BYTES = 4 * 1024 * 1024
"""The most job data in one trip, either way."""
AHEAD = 1
"""So many batches wait at the server beside the one it works on."""


def cuts(sizes: Sequence[int]) -> Iterator[slice]:
    """Where to cut a list whose items have so many bytes: batches limited by count and bytes.

    >>> [["a", "b"][cut] for cut in cuts([MOST_BYTES, 1])]
    [['a'], ['b']]
    """
    start = size = 0
    for place, length in enumerate(sizes):
        if place > start and (size + length > MOST_BYTES or place - start == MOST_ROWS):
            yield slice(start, place)
            start, size = place, 0
        size += length
    if start < len(sizes):
        yield slice(start, len(sizes))


async def overlapped(
    batches: Sequence[Batch], send: Callable[[Batch], Coroutine[Any, Any, Answer]]
) -> list[Answer]:
    """What `send` answers to each batch, in order; a failure is raised when all under way have ended."""
    if len(batches) == 1:
        return [await send(batches[0])]
    under_way: list[asyncio.Task[Answer]] = []
    try:
        for batch in batches:
            under_way.append(asyncio.create_task(send(batch)))
            await asyncio.sleep(0)  # it goes out now, and the next is made while the server works on it
            if len(under_way) > AHEAD:
                await under_way[-1 - AHEAD]
        return [await task for task in under_way]
    except asyncio.CancelledError:
        for task in under_way:
            task.cancel()
        raise
    finally:
        await asyncio.gather(*under_way, return_exceptions=True)
