"""Long lists in batches of bounded cost, each sent while the server still works on the one before."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

Row = TypeVar("Row")
Answer = TypeVar("Answer")

MOST_ROWS = 500
MOST_BYTES = 4 * 1024 * 1024
"""The most job data in one trip, either way."""
AHEAD = 1
"""So many batches wait at the server beside the one it works on."""


def bounded(rows: Sequence[Row], size_of: Callable[[Row], int]) -> Iterator[list[Row]]:
    """The rows in batches limited by count and bytes."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        length = size_of(row)
        if batch and (size + length > MOST_BYTES or len(batch) == MOST_ROWS):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += length
    if batch:
        yield batch


async def overlapped(
    batches: Sequence[list[Row]], send: Callable[[list[Row]], Coroutine[Any, Any, Answer]]
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
