"""How long the gateway waits for the server: until it is silent, not until we or a long walk are slow."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from corral.errors import RedisConnectionError, RedisError

T = TypeVar("T")

LAST_CHANCE = 0.25
"""The share of the time that is kept for asking whether the server is there at all."""
LATE_S = 0.05
"""A timer that comes later than this tells that we are slow ourselves."""


class Patience:
    """Waits for answers; a server from which nothing at all comes for so long is away.

    A verb may take many calls, and a busy process gets late to its answers. So before a call is given up the
    server is asked for a sign of life, behind everything that was asked before.
    """

    def __init__(self, seconds: float, ping: Callable[[], Awaitable[Any]]) -> None:
        self.seconds = seconds
        self._ping = ping
        self._heard_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, answer: Awaitable[T]) -> T:
        """What the server answers; `RedisConnectionError` where it is silent."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                watch = _Watch(self, loop, limit)
                try:
                    return await answer
                finally:
                    watch.stop()
        except TimeoutError:
            raise RedisConnectionError(f"the server is silent for {self.seconds:g} s") from None

    def has_heard_since(self, moment: float) -> bool:
        """Did the server give a sign of life after that?"""
        return self._heard_at > moment

    def listen(self) -> None:
        """Ask the server for a sign of life; one question is enough for all who want to know."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                await self._ping()
        except (RedisError, TimeoutError):
            return
        self._heard_at = asyncio.get_running_loop().time()


class _Watch:
    """Looks after one call."""

    __slots__ = ("_handle", "_limit", "_loop", "_patience", "_since")

    def __init__(self, patience: Patience, loop: asyncio.AbstractEventLoop, limit: asyncio.Timeout) -> None:
        self._patience = patience
        self._loop = loop
        self._limit = limit
        self._arm()

    def _arm(self) -> None:
        self._since = self._loop.time()
        self._handle = self._loop.call_later(self._patience.seconds * (1 - LAST_CHANCE), self._doubt)

    def _doubt(self) -> None:
        if self._patience.has_heard_since(self._since):
            self._arm()
        else:
            self._patience.listen()
            self._give_a_chance()

    def _give_a_chance(self) -> None:
        wait = self._patience.seconds * LAST_CHANCE
        self._handle = self._loop.call_later(wait, self._judge, self._loop.time() + wait)

    def _judge(self, due: float) -> None:
        if self._patience.has_heard_since(self._since):
            self._arm()
        elif self._loop.time() - due > LATE_S:
            # this loop was held up: the sign of life may lie in the socket, unread
            self._give_a_chance()
        else:
            self._limit.reschedule(self._loop.time())

    def stop(self) -> None:
        """It was answered, or its caller has gone."""
        self._handle.cancel()
