"""How a worker of this protocol waits for work: blocked on an empty list, else asking now and then."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import cached_property
from typing import Any

from corral.core.ports import Rest, Why
from corral.protocols.base import Binding
from corral.protocols.bridgemq.keys import Keys
from corral.store.client import BlockingConnection

LONGEST_S = 5.0
LOOK_EVERY_S = 1.0
"""A job that someone delays, or a schedule, is seen by those who wait within this time."""
FIRST_POLL_S = 0.01
LONGEST_POLL_S = 1.0
LONGEST_LIMITED_POLL_S = 0.25
"""A slot that others free is seen within this time."""


class Mark(StrEnum):
    """What a turn left in the list."""

    EMPTY = "empty"
    MORE = "more"
    """Jobs it has not looked at yet: ask again at once."""
    OTHERS = "others"
    """Only jobs that this worker cannot have now."""


class Idling:
    """The waits of one broker, on a connection of its own."""

    def __init__(self, binding: Binding, keys: Keys, fire: Callable[[], Awaitable[Any]]) -> None:
        self._binding = binding
        self._keys = keys
        self._fire = fire
        self._polls = 0
        """Polls in a row that brought nothing."""

    @cached_property
    def _blocking(self) -> BlockingConnection:
        """The connection workers wait on; those who only submit have none."""
        name = self._keys.connection_name(self._binding.profile.name)
        return self._binding.store.blocking_connection(name, LONGEST_S)

    def reset(self) -> None:
        """Something was claimed: the next poll comes soon again."""
        self._polls = 0

    async def wait(self, rest: Rest) -> None:
        """Return when there may be work again, at most 5 s from now."""
        if rest.why is Why.SATISFIED or rest.cursor is Mark.MORE:
            return
        if rest.why is Why.PAUSED:
            await self._until_resumed()
        elif rest.why is Why.LIMITED:
            await self._poll(rest, LONGEST_LIMITED_POLL_S)
        elif rest.cursor is Mark.OTHERS:
            await self._poll(rest, LONGEST_POLL_S)
        else:
            await self._until_added(rest)

    async def _until_added(self, rest: Rest) -> None:
        """Blocked on the empty list; woken by any push, whoever made it."""
        deadline, due = self._binding.clock() + int(LONGEST_S * 1000), rest.until
        while True:
            now = self._binding.clock()
            if due is not None and due <= now:
                await self._fire_if_due()
                return
            if now >= deadline:
                return
            end = deadline if due is None else min(due, deadline)
            seconds = min(max((end - now) / 1000, 0.001), LOOK_EVERY_S)
            waiting = self._keys.part("jobs:waiting")
            # moved from the left end to the left end: it stays where it is
            if await self._blocking.call("BLMOVE", waiting, waiting, "LEFT", "LEFT", seconds) is not None:
                return
            due = await self._next_due()

    async def _poll(self, rest: Rest, longest: float) -> None:
        """A while longer each time; others' jobs are in the way, so nothing can be blocked on."""
        seconds = min(FIRST_POLL_S * 2 ** min(self._polls, 16), longest)
        self._polls += 1
        if rest.until is not None:
            left = (rest.until - self._binding.clock()) / 1000
            if left <= seconds:
                await asyncio.sleep(max(left, 0.001))
                await self._fire_if_due()
                return
        await asyncio.sleep(seconds)

    async def _until_resumed(self) -> None:
        deadline = self._binding.clock() + int(LONGEST_S * 1000)
        seconds, paused = 0.02, self._keys.part("queues:paused")
        while self._binding.clock() < deadline:
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, 0.2)
            if not await self._binding.store.call("SISMEMBER", paused, self._keys.queue):
                return

    async def _next_due(self) -> int | None:
        firsts = await self._binding.store.pipe(
            [("ZRANGE", self._keys.part(name), 0, 0, "WITHSCORES") for name in ("jobs:delayed", "jobs:cron")]
        )
        scores = [float(first[1]) for first in firsts if first]
        soon = [score for score in scores if score < 1e15]
        return int(min(soon)) if soon else None

    async def _fire_if_due(self) -> None:
        """The turn that follows promotes what is delayed; a schedule has to be fired first."""
        first = await self._binding.store.call("ZRANGE", self._keys.part("jobs:cron"), 0, 0, "WITHSCORES")
        if first and float(first[1]) <= self._binding.clock():
            # begun once, it ends: a schedule taken and not fired would wait for its lease to run out
            await asyncio.shield(asyncio.ensure_future(self._fire()))

    async def close(self) -> None:
        if "_blocking" in self.__dict__:
            await self._blocking.disconnect()
