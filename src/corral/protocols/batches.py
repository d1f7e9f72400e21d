"""Long lists in batches of bounded size, each sent while the server still works on the one before."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar

Batch = TypeVar("Batch")
Answer = TypeVar("Answer")

MOST_ROWS = 500
MOST_BYTES = 4 * 1024 * 1024
"""The most job data in one trip, either way."""
AHEAD = 1
"""How many batches wait at the server beside the one it works on."""


def cuts(sizes: Sequence[int]) -> Iterator[slice]:
    """Yield the slices of a list whose items have so many bytes: batches limited by count and bytes.

    >>> [["a", "b"][cut] for cut in cuts([MOST_BYTES, 1])]
    [['a'], ['b']]
    """
    totals = [0, *accumulate(sizes)]
    start = 0
    while start < len(sizes):
        fitting = bisect_right(totals, totals[start] + MOST_BYTES) - 1
        end = min(max(fitting, start + 1), start + MOST_ROWS, len(sizes))
        yield slice(start, end)
        start = end


async def overlapped(
    batches: Sequence[Batch], send: Callable[[Batch], Coroutine[Any, Any, Answer]]
) -> list[Answer]:
    """Return what `send` answers to each batch, in order; an error is raised when all sent have ended."""
    if len(batches) == 1:
        return [await send(batches[0])]
    sent: list[asyncio.Task[Answer]] = []
    try:
        for batch in batches:
            sent.append(asyncio.create_task(send(batch)))
            await asyncio.sleep(0)  # it goes out now, and the next is made while the server works on it
            if len(sent) > AHEAD:
                await sent[-1 - AHEAD]
        return [await task for task in sent]
    except asyncio.CancelledError:
        for task in sent:
            task.cancel()
        raise
    finally:
        await asyncio.gather(*sent, return_exceptions=True)
