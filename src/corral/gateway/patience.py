"""How long the gateway waits for the server: until it is silent, not until we are slow ourselves."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from corral.errors import Away

T = TypeVar("T")

SECOND_CHANCE_S = 0.05
"""After a pause of our own, answers may lie in the socket unread: one more look before giving up."""


class Patience:
    """Waits for answers; a server from which nothing at all comes for so long is away."""

    def __init__(self, seconds: float) -> None:
        self._seconds = max(seconds - SECOND_CHANCE_S, 0.01)
        self._answered_at = float("-inf")

    async def ask(self, answer: Awaitable[T]) -> T:
        """What the server answers; `Away` where it is silent."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                watch = _Watch(self, loop, limit)
                try:
                    answered = await answer
                finally:
                    watch.handle.cancel()
        except TimeoutError:
            raise Away(f"the server is silent for {self._seconds + SECOND_CHANCE_S:g} s") from None
        self._answered_at = loop.time()
        return answered

    def has_heard_since(self, moment: float) -> bool:
        """Did the server answer anything after that?"""
        return self._answered_at > moment

    @property
    def seconds(self) -> float:
        return self._seconds


class _Watch:
    """Looks after one call: as long as others are answered, the server is there and this one only waits."""

    __slots__ = ("_limit", "_loop", "_patience", "_since", "handle")

    def __init__(self, patience: Patience, loop: asyncio.AbstractEventLoop, limit: asyncio.Timeout) -> None:
        self._patience = patience
        self._loop = loop
        self._limit = limit
        self._arm()

    def _arm(self) -> None:
        self._since = self._loop.time()
        self.handle = self._loop.call_later(self._patience.seconds, self._look)

    def _look(self) -> None:
        if self._patience.has_heard_since(self._since):
            self._arm()
        else:
            self._limit.reschedule(self._loop.time() + SECOND_CHANCE_S)
