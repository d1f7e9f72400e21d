"""Deadline: how long the gateway waits for Redis."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from corral.errors import RedisConnectionError, RedisError

T = TypeVar("T")

PING_SHARE = 0.25
"""The share of the time that is kept for a PING."""
LATE_S = 0.05
"""A timer that fires later than this shows that the event loop was blocked."""


class Deadline:
    """Awaits calls and ends them when Redis has been silent for `seconds`.

    A call may take many trips, and a busy process reads its answers late. So before a call is given up, Redis
    is sent a PING behind everything that was sent before; its answer gives the call the same time again.
    """

    def __init__(self, seconds: float, ping: Callable[[], Awaitable[Any]]) -> None:
        self._seconds = seconds
        self._call_s, self._ping_s = seconds * (1 - PING_SHARE), seconds * PING_SHARE
        self._ping = ping
        self._pinging: asyncio.Task[bool] | None = None

    async def call(self, result: Awaitable[T]) -> T:
        """Return the result; raise `RedisConnectionError` where Redis is silent."""
        loop = asyncio.get_running_loop()
        watching: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(None) as timeout:
                timer = loop.call_later(
                    self._call_s, lambda: watching.append(loop.create_task(self._watch(timeout)))
                )
                try:
                    return await result
                finally:
                    timer.cancel()
                    for task in watching:
                        task.cancel()
        except TimeoutError:
            raise RedisConnectionError(f"Redis has not answered for {self._seconds:g} s") from None

    async def _watch(self, timeout: asyncio.Timeout) -> None:
        """End a call that takes long as soon as a PING is not answered."""
        while await self._is_answered():  # noqa: ASYNC110
            await asyncio.sleep(self._call_s)
        timeout.reschedule(asyncio.get_running_loop().time())

    async def _is_answered(self) -> bool:
        """Return whether a PING, which all calls share, is answered in time."""
        loop = asyncio.get_running_loop()
        if self._pinging is None or self._pinging.done():
            self._pinging = loop.create_task(self._send_ping())
        pinging = self._pinging
        is_late = True
        while is_late and not pinging.done():
            due = loop.time() + self._ping_s
            await asyncio.wait([pinging], timeout=self._ping_s)
            # after a late timer the answer may be in the socket, unread
            is_late = loop.time() - due > LATE_S
        return pinging.done() and pinging.result()

    async def _send_ping(self) -> bool:
        try:
            async with asyncio.timeout(self._seconds):
                await self._ping()
        except (RedisError, TimeoutError):
            return False
        return True
