"""QueueEvents: the events of a queue, by callbacks or as an asynchronous iterator."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

import redis.asyncio as redis

from corral.bullmq.queue_base import QueueBase, as_text
from corral.bullmq.types import QueueEventsOptions
from corral.core import payload
from corral.errors import RedisError, RedisResponseError
from corral.store import streams
from corral.store.client import BlockingConnection, Reconnect

CLIENT_SUFFIX = ":qe"
"""The end of the connection's name, by which tools tell listeners from workers."""
READ_COUNT = 1000
"""Events in one read."""
_JSON_FIELDS = {"progress": "data", "completed": "returnvalue"}


class QueueEvent(NamedTuple):
    """One event: its name, its fields, and its id in the stream."""

    event: str
    args: dict[str, Any]
    id: str


class QueueEvents(QueueBase):
    """Listens to one queue.

    Every event is emitted once and in order, also across a lost connection: reading continues after the last
    event emitted. Pass `lastEventId` to continue where another listener stopped.

    >>> events = QueueEvents("mail", {"connection": {"host": "127.0.0.1"}})     # doctest: +SKIP
    >>> events.on("completed", lambda args, id: print(args["jobId"]))           # doctest: +SKIP
    >>> async for event, args, id in events: ...                                # doctest: +SKIP
    """

    def __init__(self, name: str, opts: QueueEventsOptions | None = None) -> None:
        super().__init__(name, opts)
        self.opts = {"blockingTimeout": 10_000, "lastEventId": "$", "autorun": True, **self.opts}
        self.running = False
        self.closed = False
        last = self.opts["lastEventId"] or "$"
        self._start: str | None = None if last == "$" else str(last)
        """The id after which the first event is read; None until the server has named the last one."""
        self._starting = asyncio.Lock()
        self._blocking_connections: set[BlockingConnection] = set()
        self._consumer: asyncio.Task[Any] | None = None
        if self.opts["autorun"]:
            self._consumer = asyncio.ensure_future(self._autorun())

    async def _autorun(self) -> None:
        try:
            await self.run()
        except Exception as error:
            self.emit("error", error)

    async def waitUntilReady(self) -> redis.Redis:
        """Wait until no later event can be missed."""
        await self._begin()
        return self.client

    async def run(self) -> None:
        """Emit events until closed."""
        if self.running:
            raise Exception("QueueEvents is already running.")
        if self._consumer is None:
            self._consumer = asyncio.current_task()
        self.running = True
        try:
            async for event, args, event_id in self._follow(await self._begin()):
                self._emit(event, args, event_id)
        finally:
            self.running = False

    def _emit(self, event: str, args: dict[str, Any], event_id: str) -> None:
        if event == "drained":
            self.emit(event, event_id)
            return
        self.emit(event, args, event_id)
        if args.get("jobId"):
            self.emit(f"{event}:{args['jobId']}", args, event_id)

    def __aiter__(self) -> AsyncIterator[QueueEvent]:
        return self.since()

    async def since(self, lastEventId: str | None = None) -> AsyncIterator[QueueEvent]:
        """Iterate over the events after this one until closed; by default over those the callbacks get.

        The next read waits until the last is used up, so a slow reader needs no more memory.
        """
        async for event in self._follow(await self._begin() if lastEventId is None else lastEventId):
            yield event

    async def _begin(self) -> str:
        """Return the id to start after; `$` becomes the last event's, so that none is lost between reads."""
        async with self._starting:
            tries = 0
            while self._start is None:
                try:
                    extent = await streams.extent(self.store, self.toKey("events"))
                    self._start = extent.last or "0-0"
                except RedisError as fault:
                    await self._back_off(fault, tries)
                    tries += 1
        return self._start

    async def _follow(self, position: str) -> AsyncIterator[QueueEvent]:
        block = max(int(self.opts["blockingTimeout"]), 1)
        connection = self.store.blocking_connection(self.clientName(CLIENT_SUFFIX), block / 1000)
        self._blocking_connections.add(connection)
        command = ("XREAD", "COUNT", READ_COUNT, "BLOCK", block, "STREAMS", self.toKey("events"))
        tries = 0
        try:
            while not self.closing:
                try:
                    answer = await connection.call(*command, position)
                    tries = 0
                except RedisError as fault:
                    if self.closing:
                        return
                    await self._back_off(fault, tries)
                    tries += 1
                    continue
                for entry_id, flat in answer[0][1] if answer else ():
                    position = entry_id.decode()
                    if event := decode(position, flat):
                        yield event
        finally:
            self._blocking_connections.discard(connection)
            await connection.disconnect()

    async def _back_off(self, fault: RedisError, tries: int) -> None:
        if self.closing or isinstance(fault, RedisResponseError):
            raise fault
        if tries == 0:
            self.emit("error", fault)
        await asyncio.sleep(Reconnect().delay(tries))

    async def close(self) -> None:
        """Stop emitting events and close the connections."""
        if self.closing:
            return
        self.closing = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None and consumer is not asyncio.current_task():
            consumer.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await consumer
        for connection in list(self._blocking_connections):
            await connection.disconnect()
        await super().close()
        self.closed = True

    async def __aenter__(self) -> Self:
        await self.waitUntilReady()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def decode(entry_id: str, flat: Sequence[bytes]) -> QueueEvent | None:
    """Return an entry of the stream as an event; None if it is none."""
    args: dict[str, Any] = dict(as_text(flat))
    event = args.pop("event", "")
    if not event:
        return None
    field = _JSON_FIELDS.get(event)
    if field in args:
        args[field] = payload.decode(args[field])
    return QueueEvent(event, args, entry_id)
