"""Long lists in batches of bounded size, each sent while the server still works on the one before; and single
calls that are sent together."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

Batch = TypeVar("Batch")
Answer = TypeVar("Answer")
Row = TypeVar("Row")

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


class SingleCalls(Generic[Row, Answer]):
    """Calls with one row each, in any event loop: sent at once where none is under way; those that come
    meanwhile go together in the next, so nobody waits for company."""

    def __init__(
        self, send: Callable[[list[Row]], Awaitable[Sequence[Answer]]], size_of: Callable[[Row], int]
    ) -> None:
        self._send = send
        self._size_of = size_of
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopCalls[Row, Answer]] = (
            WeakKeyDictionary()
        )

    async def call(self, row: Row) -> Answer:
        """Return the answer to this row; an error of the trip is raised in each of its calls."""
        loop = asyncio.get_running_loop()
        calls = self._loops.get(loop)
        if calls is None:
            calls = self._loops[loop] = _LoopCalls(self._send, self._size_of)
        if calls.is_busy:
            return await calls.follow(loop, row)
        calls.is_busy = True
        try:
            [answer] = await self._send([row])
            return answer
        finally:
            calls.proceed(loop)


class _LoopCalls(Generic[Row, Answer]):
    """The calls of one event loop."""

    def __init__(
        self, send: Callable[[list[Row]], Awaitable[Sequence[Answer]]], size_of: Callable[[Row], int]
    ) -> None:
        self.is_busy = False
        self._send = send
        self._size_of = size_of
        self._waiting: deque[tuple[Row, asyncio.Future[Answer]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def follow(self, loop: asyncio.AbstractEventLoop, row: Row) -> "asyncio.Future[Answer]":
        """Send this with the next trip."""
        reply: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((row, reply))
        return reply

    def proceed(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send what has come during the trip that has just ended."""
        if self._waiting:
            self._task = loop.create_task(self._send_waiting())
        else:
            self.is_busy = False

    async def _send_waiting(self) -> None:
        try:
            while batch := self._take():
                try:
                    answers = await self._send([row for row, _ in batch])
                except BaseException as error:
                    for _, reply in batch:
                        if not reply.done():
                            reply.set_exception(error)
                    if not isinstance(error, Exception):
                        raise
                else:
                    for (_, reply), answer in zip(batch, answers, strict=True):
                        if not reply.done():  # its caller was cancelled
                            reply.set_result(answer)
        finally:
            self.is_busy = False

    def _take(self) -> "list[tuple[Row, asyncio.Future[Answer]]]":
        """Return what one trip may carry, without the calls that were cancelled before they were sent."""
        batch: list[tuple[Row, asyncio.Future[Answer]]] = []
        size = 0
        while self._waiting and len(batch) < MOST_ROWS and size < MOST_BYTES:
            row, reply = self._waiting.popleft()
            if not reply.done():
                batch.append((row, reply))
                size += self._size_of(row)
        return batch
