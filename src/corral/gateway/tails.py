"""Tails: what each reader is still to be sent, filled for all of them by one pump.

A tail has a position of its own, and no connection of its own. Whatever there may be news of is looked up
from the positions of its tails; all that gathered meanwhile, in one trip.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from corral.core.http_api import TailBatch
from corral.errors import RedisError, RedisResponseError
from corral.gateway import frames
from corral.gateway.patience import Patience
from corral.gateway.settings import Settings
from corral.telemetry.logs import logger

PAGE = 100
"""Events of one job in one trip."""
TOGETHER = 500
"""Jobs looked up in one trip."""
AWAY_PAUSE_S = (0.1, 0.2, 0.5, 1.0)
"""How long to wait before asking again a server that is away."""
UNTOLD_S = 5.0
"""How long a job may be over before its tails end without having been told."""


class Source(Protocol):
    """Where the pump looks things up."""

    async def read(self, wanted: Sequence[tuple[str, str]], count: int) -> list[TailBatch]:
        """For each (key, position): what is later than it."""

    async def changed(self, wanted: Sequence[tuple[str, str]], is_thorough: bool) -> list[str]:
        """Keys among these that are worth reading."""

    def hints(self) -> AsyncGenerator[Sequence[str]]:
        """Keys about which there may be something new."""


class Outlet:
    """Where one client's bytes wait to be sent, and whether there will be more."""

    __slots__ = ("_most_bytes", "_size", "_waiting", "has_ended", "taken_at", "woken")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._waiting: list[bytes] = []
        self._size = 0
        self.has_ended = False
        self.taken_at = asyncio.get_running_loop().time()
        self.woken = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Does it hold as much as it may, or is it at its end? Then nothing more is read for it."""
        return self.has_ended or self._size >= self._most_bytes

    def push(self, frame: bytes) -> None:
        """One thing more to send."""
        self._waiting.append(frame)
        self._size += len(frame)
        self.woken.set()

    def end(self, frame: bytes = b"") -> None:
        """The last thing to send."""
        if not self.has_ended:
            self.has_ended = True
            self.push(frame)

    def take(self) -> bytes:
        """All that waits; from here on it is the caller's to send."""
        self.woken.clear()
        self.taken_at = asyncio.get_running_loop().time()
        taken = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        return taken


class Tail:
    """One reader of one key, and how far it has read; several may share an outlet."""

    __slots__ = ("key", "outlet", "over_since", "position")

    def __init__(self, key: str, position: str, outlet: Outlet) -> None:
        self.key = key
        self.position = position
        self.outlet = outlet
        self.over_since: float | None = None


class Tails:
    """All tails of one process on one source."""

    def __init__(self, source: Source, patience: Patience, settings: Settings, sweep_s: float) -> None:
        self._source = source
        self._patience = patience
        self._sweep_s = sweep_s
        self._most_bytes = settings.tail_bytes
        self._retry_ms = settings.retry_ms
        self._heartbeat_s = settings.heartbeat_s
        self._readers: dict[str, set[Tail]] = {}
        self._news: dict[str, None] = {}
        self._has_news = asyncio.Event()
        self._has_readers = asyncio.Event()
        self._is_away = False
        self._is_stopping = False
        self._works: list[asyncio.Task[None]] = []
        self._listening: asyncio.Task[None] | None = None
        self.count = 0
        self.cut = 0
        self.told = 0
        """Events given to readers so far."""

    # -- for readers --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def joined(self, key: str, position: str) -> Iterator[Outlet]:
        """What is later than that position, for as long as the block lasts."""
        outlet = self.outlet()
        tail = self.join(key, position, outlet)
        try:
            yield outlet
        finally:
            self.leave(tail)

    def outlet(self) -> Outlet:
        """A place for one client's bytes; at its end already where the gateway stops."""
        outlet = Outlet(self._most_bytes)
        if self._is_stopping:
            outlet.end(self._good_bye())
        elif self._is_away:
            outlet.push(_AWAY)
        return outlet

    def join(self, key: str, position: str, outlet: Outlet) -> Tail:
        """A tail into that outlet; `leave` must follow."""
        tail = Tail(key, position, outlet)
        if not self._is_stopping:
            self._readers.setdefault(key, set()).add(tail)
            self.count += 1
            self._has_readers.set()
            self.look(key)
        return tail

    def leave(self, tail: Tail) -> None:
        """Nobody reads this one any more."""
        readers = self._readers.get(tail.key)
        if readers is None or tail not in readers:
            return
        readers.discard(tail)
        self.count -= 1
        if not readers:
            del self._readers[tail.key]
            self._news.pop(tail.key, None)
        if not self._readers:
            self._has_readers.clear()

    def look(self, key: str) -> None:
        """There may be something new of this key."""
        if key in self._readers:
            self._news[key] = None
            self._has_news.set()

    # -- the works ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to fill tails."""
        self._works = [asyncio.create_task(work()) for work in (self._pump, self._sweep, self._listen)]

    def stop(self) -> None:
        """End every tail with a word about when to come back; new ones end at once."""
        if self._is_stopping:
            return
        self._is_stopping = True
        for outlet in self._outlets():
            outlet.end(self._good_bye())

    async def close(self) -> None:
        """End the works."""
        self.stop()
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)

    def _good_bye(self) -> bytes:
        reason = "the gateway is stopping; come back"
        return frames.own("gateway.stop", retry_ms=self._retry_ms, reason=reason)

    def _outlets(self) -> set[Outlet]:
        return {tail.outlet for readers in self._readers.values() for tail in readers}

    async def _pump(self) -> None:
        tries = 0
        while True:
            await self._has_news.wait()
            keys = list(islice(self._news, TOGETHER))
            for key in keys:
                del self._news[key]
            if not self._news:
                self._has_news.clear()
            try:
                await self._serve(keys)
                tries = 0
                continue
            except RedisResponseError:
                await self._serve_each(keys)
                continue
            except RedisError as error:
                self._tell_away(error)
            except Exception as error:  # a fault of ours in one look must not end all others
                logger("gateway").error("a look for news failed", error=repr(error))
            for key in keys:
                self.look(key)
            await asyncio.sleep(AWAY_PAUSE_S[min(tries, len(AWAY_PAUSE_S) - 1)])
            tries += 1

    async def _serve_each(self, keys: Iterable[str]) -> None:
        """The server refuses something here: find out what, so that the others go on."""
        for key in keys:
            try:
                await self._serve([key])
            except RedisResponseError as error:
                logger("gateway").warning("a tail cannot be read", key=key, error=str(error))
                broken = frames.own("gateway.broken", reason="the server refuses to read these events")
                for tail in self._readers.get(key, ()):
                    tail.outlet.end(broken)
            except RedisError:
                self.look(key)

    async def _serve(self, keys: Iterable[str]) -> None:
        groups: list[tuple[str, str, list[Tail]]] = []
        for key in keys:
            by_position: dict[str, list[Tail]] = {}
            for tail in self._readers.get(key, ()):
                if not tail.outlet.is_full:
                    by_position.setdefault(tail.position, []).append(tail)
            groups += [(key, position, tails) for position, tails in by_position.items()]
        if not groups:
            return
        wanted = [(key, position) for key, position, _ in groups]
        batches = await self._patience.ask(self._source.read(wanted, PAGE))
        if self._is_away:
            self._tell_back()
        for (key, position, tails), batch in zip(groups, batches, strict=True):
            self._tell(batch, position, tails)
            if batch.has_more:
                self.look(key)

    def _tell(self, batch: TailBatch, position: str, tails: Sequence[Tail]) -> None:
        events = batch.events
        if batch.is_cut:
            gap = frames.own(
                "gateway.gap", after=position, first=events[0].id, reason="events in between were trimmed"
            )
            for tail in tails:
                tail.outlet.push(gap)
        if events:
            text = b"".join(map(frames.of_event, events))
            self.told += len(events) * len(tails)
            for tail in tails:
                tail.position = batch.position
                if events[-1].is_last:
                    tail.outlet.end(text)
                else:
                    tail.outlet.push(text)
        elif not batch.exists:
            gone = frames.own("gateway.expired", reason="the job is gone: it has expired or was removed")
            for tail in tails:
                tail.outlet.end(gone)
        elif batch.is_over:
            self._end_untold(tails)

    @staticmethod
    def _end_untold(tails: Sequence[Tail]) -> None:
        """A job is over but its last event does not come: its worker may have died between the two."""
        now = asyncio.get_running_loop().time()
        for tail in tails:
            if tail.over_since is None:
                tail.over_since = now
            elif now - tail.over_since > UNTOLD_S:
                tail.outlet.end(frames.own("gateway.over", reason="the job is over, and no event tells how"))

    # -- the server comes and goes -------------------------------------------------------------------------

    def _tell_away(self, error: RedisError) -> None:
        if not self._is_away:
            self._is_away = True
            logger("gateway").warning("tails wait for the server", error=str(error))
            for outlet in self._outlets():
                outlet.push(_AWAY)

    def _tell_back(self) -> None:
        self._is_away = False
        logger("gateway").info("tails go on")
        if self._listening is not None:
            # it may be waiting long before it dials again
            self._listening.cancel()
        for outlet in self._outlets():
            outlet.push(_BACK)

    # -- where news come from ------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Look at every key now and then: strangers give no hints."""
        thorough_at = 0.0
        while True:
            await self._has_readers.wait()
            self._beat()
            now = asyncio.get_running_loop().time()
            is_thorough = now >= thorough_at
            if is_thorough:
                thorough_at = now + UNTOLD_S / 2
            wanted = [
                (key, position)
                for key, readers in self._readers.items()
                for position in {tail.position for tail in readers if not tail.outlet.is_full}
            ]
            for start in range(0, len(wanted), TOGETHER):
                await self._ask_for_news(wanted[start : start + TOGETHER], is_thorough)
            await asyncio.sleep(self._sweep_s)

    async def _ask_for_news(self, wanted: Sequence[tuple[str, str]], is_thorough: bool) -> None:
        try:
            news = await self._patience.ask(self._source.changed(wanted, is_thorough))
        except RedisError:
            # the pump finds out what is wrong, and tells it
            news = [key for key, _ in wanted]
        for key in news:
            self.look(key)

    def _beat(self) -> None:
        """A heartbeat to everyone who has not been sent anything for a while."""
        now = asyncio.get_running_loop().time()
        for outlet in self._outlets():
            if now - outlet.taken_at >= self._heartbeat_s and not outlet.woken.is_set():
                outlet.push(frames.HEARTBEAT)

    async def _listen(self) -> None:
        """Take hints, while anybody reads."""
        while True:
            await self._has_readers.wait()
            self._listening = asyncio.create_task(self._take_hints())
            try:
                await asyncio.wait([self._listening])
            finally:
                self._listening.cancel()

    async def _take_hints(self) -> None:
        try:
            async with contextlib.aclosing(self._source.hints()) as hints:
                async for keys in hints:
                    for key in keys:
                        self.look(key)
                    if not self._readers:
                        return
        except RedisError:
            # the sweep goes on finding what is new
            await asyncio.sleep(self._sweep_s)


_AWAY = frames.own("gateway.away", reason="the job server does not answer; this tail goes on when it does")
_BACK = frames.own("gateway.back", reason="the job server answers again")
