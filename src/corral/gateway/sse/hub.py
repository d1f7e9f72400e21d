"""TailHub: reads events for all tails of a process and fills their buffers.

A tail has a position of its own and no connection of its own. Keys that may have new events are read
together, in one trip, from the positions of their tails.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from starlette.types import Receive

from corral.core.http_api import TailBatch
from corral.errors import RedisError, RedisResponseError
from corral.gateway.deadline import Deadline
from corral.gateway.requests import BEGINNING
from corral.gateway.settings import GatewaySettings
from corral.gateway.sse.frames import HEARTBEAT, SendBuffer, end_on_disconnect, gateway_frame, job_frame
from corral.telemetry.logs import logger

PAGE = 100
"""Events of one key in one trip."""
KEYS_PER_TRIP = 500
TRIP_BYTES = 16 * 1024 * 1024
"""Events of all keys in one trip, about."""
LEAST_BYTES = 4096
RETRY_S = (0.1, 0.2, 0.5, 1.0)
"""The pauses between attempts to reach Redis again."""
FINAL_EVENT_S = 5.0
"""How long the tails of an ended job wait for its last event."""

_DISCONNECTED = gateway_frame(
    "gateway.disconnected", reason="Redis is unavailable; events follow when it is back"
)
_RECONNECTED = gateway_frame("gateway.reconnected", reason="Redis is available again")


class TailSource(Protocol):
    """What the hub reads events from; a position is the id of the last event that was read."""

    async def read(self, positions: Sequence[tuple[str, str]], count: int, max_bytes: int) -> list[TailBatch]:
        """Return up to `count` later events of at most `max_bytes` for each (key, position)."""

    async def changed(self, positions: Sequence[tuple[str, str]], is_thorough: bool) -> list[str]:
        """Return the keys among these that are worth reading."""

    def hints(self) -> AsyncGenerator[Sequence[str]]:
        """Yield keys that may have new events."""


@dataclass(eq=False, slots=True)
class Tail:
    """One reader of one key, and its position; several tails may share a buffer."""

    key: str
    position: str
    buffer: SendBuffer
    ended_at: float | None = None
    """When its job was first seen to have ended without a last event."""


class TailHub:
    """All tails of one process on one source."""

    def __init__(
        self, source: TailSource, deadline: Deadline, settings: GatewaySettings, sweep_s: float
    ) -> None:
        self._source = source
        self._deadline = deadline
        self._settings = settings
        self._sweep_s = sweep_s
        self._tails: dict[str, set[Tail]] = {}
        self._unread: dict[str, None] = {}
        self._has_unread = asyncio.Event()
        self._has_tails = asyncio.Event()
        self._is_disconnected = False
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: asyncio.Task[None] | None = None
        self.count = 0
        self.timed_out = 0
        """Tails that ended because their client did not read."""
        self.sent = 0
        """Events put into buffers so far."""

    # -- tails ----------------------------------------------------------------------------------------------

    async def wait_for_end(self, key: str, seconds: float, receive: Receive) -> bool:
        """Return whether the events of a key end in that time, or its client disconnects."""
        buffer = self.new_buffer()
        tail = self.join(key, BEGINNING, buffer)
        watching = asyncio.create_task(end_on_disconnect(receive, buffer))
        try:
            async with asyncio.timeout(seconds):
                while not buffer.has_ended:
                    await buffer.changed.wait()
                    buffer.take()
        except TimeoutError:
            return False
        finally:
            watching.cancel()
            self.leave(tail)
        return True

    def new_buffer(self) -> SendBuffer:
        """Return a buffer for one client; it has ended already where the gateway is stopping."""
        buffer = SendBuffer(self._settings.tail_bytes)
        if self._is_stopping:
            buffer.end(self._stop_frame())
        elif self._is_disconnected:
            buffer.push(_DISCONNECTED)
        return buffer

    def join(self, key: str, position: str, buffer: SendBuffer) -> Tail:
        """Start a tail into a buffer; `leave` must follow."""
        tail = Tail(key, position, buffer)
        if not self._is_stopping:
            self._tails.setdefault(key, set()).add(tail)
            self.count += 1
            self._has_tails.set()
            self.read_soon(key)
        return tail

    def leave(self, tail: Tail) -> None:
        """End a tail."""
        tails = self._tails.get(tail.key)
        if tails is None or tail not in tails:
            return
        tails.discard(tail)
        self.count -= 1
        if not tails:
            del self._tails[tail.key]
            self._unread.pop(tail.key, None)
        if not self._tails:
            self._has_tails.clear()

    def read_soon(self, key: str) -> None:
        """Have a key read: it may have new events."""
        if key in self._tails:
            self._unread[key] = None
            self._has_unread.set()

    # -- start and stop -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to fill buffers."""
        self._tasks = [asyncio.create_task(run()) for run in (self._pump, self._sweep, self._listen)]

    def stop(self) -> None:
        """End every tail with a hint when to reconnect; new ones end at once."""
        if not self._is_stopping:
            self._is_stopping = True
            for buffer in self._buffers():
                buffer.end(self._stop_frame())

    async def close(self) -> None:
        """Stop, and end the tasks."""
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _stop_frame(self) -> bytes:
        reason = "the gateway is stopping; reconnect"
        return gateway_frame("gateway.stop", retry_ms=self._settings.retry_ms, reason=reason)

    def _buffers(self) -> set[SendBuffer]:
        return {tail.buffer for tails in self._tails.values() for tail in tails}

    # -- reading --------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        failures = 0
        while True:
            await self._has_unread.wait()
            keys = list(islice(self._unread, KEYS_PER_TRIP))
            for key in keys:
                del self._unread[key]
            if not self._unread:
                self._has_unread.clear()
            try:
                await self._read(keys)
                failures = 0
                continue
            except Exception as error:
                if not isinstance(error, RedisError) or isinstance(error, RedisResponseError):
                    # the others go on
                    await self._read_each(keys)
                    continue
                self._disconnect(error)
            for key in keys:
                self.read_soon(key)
            await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
            failures += 1

    async def _read_each(self, keys: Iterable[str]) -> None:
        """Read keys one by one after one of them could not be read, and end the tails of that one."""
        for key in keys:
            try:
                await self._read([key])
            except Exception as error:
                if isinstance(error, RedisError) and not isinstance(error, RedisResponseError):
                    self.read_soon(key)
                    continue
                logger("gateway").warning("events cannot be read", key=key, error=repr(error))
                self._end_broken(key)

    def _end_broken(self, key: str) -> None:
        """End the tails of a key whose events cannot be read; a client of other keys too keeps those."""
        frame = gateway_frame("gateway.error", key=key, reason="these events cannot be read")
        ended = tuple(self._tails.get(key, ()))
        for tail in ended:
            self.leave(tail)
        others = self._buffers()
        for tail in ended:
            if tail.buffer in others:
                tail.buffer.push(frame)
            else:
                tail.buffer.end(frame)

    async def _read(self, keys: Iterable[str]) -> None:
        groups: list[tuple[str, str, list[Tail]]] = []
        for key in keys:
            by_position: dict[str, list[Tail]] = {}
            for tail in self._tails.get(key, ()):
                if not tail.buffer.is_full:
                    by_position.setdefault(tail.position, []).append(tail)
            groups += [(key, position, tails) for position, tails in by_position.items()]
        if not groups:
            return
        positions = [(key, position) for key, position, _ in groups]
        # half of what a tail may have: the other half may be in its buffer already
        max_bytes = max(min(self._settings.tail_bytes // 2, TRIP_BYTES // len(positions)), LEAST_BYTES)
        batches = await self._deadline.call(self._source.read(positions, PAGE, max_bytes))
        if self._is_disconnected:
            self._reconnect()
        for (key, position, tails), batch in zip(groups, batches, strict=True):
            self._push(batch, position, tails)
            if batch.has_more:
                self.read_soon(key)

    def _push(self, batch: TailBatch, position: str, tails: Sequence[Tail]) -> None:
        events = batch.events
        if batch.is_cut:
            first = events[0].id
            frame = gateway_frame("gateway.gap", after=position, first=first, reason="events were trimmed")
            for tail in tails:
                tail.buffer.push(frame)
        if events:
            frames = b"".join(map(job_frame, events))
            self.sent += len(events) * len(tails)
            for tail in tails:
                tail.position = batch.position
                if events[-1].is_last:
                    tail.buffer.end(frames)
                else:
                    tail.buffer.push(frames)
        elif not batch.exists:
            frame = gateway_frame("gateway.expired", reason="the job has expired or was removed")
            for tail in tails:
                tail.buffer.end(frame)
        elif batch.is_over:
            self._end_without_event(tails)

    @staticmethod
    def _end_without_event(tails: Sequence[Tail]) -> None:
        """End the tails of an ended job without a last event: its worker may have died in between."""
        now = asyncio.get_running_loop().time()
        for tail in tails:
            if tail.ended_at is None:
                tail.ended_at = now
            elif now - tail.ended_at > FINAL_EVENT_S:
                tail.buffer.end(
                    gateway_frame("gateway.ended", reason="the job has ended without a last event")
                )

    def _disconnect(self, error: RedisError) -> None:
        if not self._is_disconnected:
            self._is_disconnected = True
            logger("gateway").warning("tails wait for Redis", error=str(error))
            for buffer in self._buffers():
                buffer.push(_DISCONNECTED)

    def _reconnect(self) -> None:
        self._is_disconnected = False
        logger("gateway").info("tails continue")
        if self._listening is not None:
            # it may pause for long before it connects again
            self._listening.cancel()
        for buffer in self._buffers():
            buffer.push(_RECONNECTED)

    # -- finding keys with new events -----------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Check every key at intervals: other programs write events without hints."""
        thorough_at = 0.0
        while True:
            await self._has_tails.wait()
            self._send_heartbeats()
            now = asyncio.get_running_loop().time()
            is_thorough = now >= thorough_at
            if is_thorough:
                thorough_at = now + FINAL_EVENT_S / 2
            positions = [
                (key, position)
                for key, tails in self._tails.items()
                for position in {tail.position for tail in tails if not tail.buffer.is_full}
            ]
            for start in range(0, len(positions), KEYS_PER_TRIP):
                await self._check(positions[start : start + KEYS_PER_TRIP], is_thorough)
            await asyncio.sleep(self._sweep_s)

    async def _check(self, positions: Sequence[tuple[str, str]], is_thorough: bool) -> None:
        try:
            keys = await self._deadline.call(self._source.changed(positions, is_thorough))
        except RedisError:
            # the pump meets the same error, and handles it
            keys = [key for key, _ in positions]
        for key in keys:
            self.read_soon(key)

    def _send_heartbeats(self) -> None:
        now = asyncio.get_running_loop().time()
        for buffer in self._buffers():
            if now - buffer.taken_at >= self._settings.heartbeat_s and not buffer.changed.is_set():
                buffer.push(HEARTBEAT)

    async def _listen(self) -> None:
        """Listen for hints while there are tails."""
        while True:
            await self._has_tails.wait()
            self._listening = asyncio.create_task(self._take_hints())
            try:
                await asyncio.wait([self._listening])
            finally:
                self._listening.cancel()

    async def _take_hints(self) -> None:
        try:
            async with aclosing(self._source.hints()) as hints:
                async for keys in hints:
                    for key in keys:
                        self.read_soon(key)
                    if not self._tails:
                        return
        except RedisError:
            # the sweep still finds new events
            await asyncio.sleep(self._sweep_s)
