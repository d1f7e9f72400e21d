"""QueueEvents: what happens in a queue, to callbacks or one by one."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

import redis.asyncio as redis

from corral.bullmq.queue_base import QueueBase, as_text
from corral.core import payload
from corral.errors import RedisError, RedisResponseError
from corral.store import streams
from corral.store.client import BlockingConnection, Reconnect

SUFFIX = ":qe"
"""What the connection's name ends in, so that tools can tell listeners from workers."""
MOST = 1000
"""Events in one read."""
_JSON_FIELDS = {"progress": "data", "completed": "returnvalue"}


class QueueEvent(NamedTuple):
    """One event: its name, what it says, and its id in the stream."""

    event: str
    args: dict[str, Any]
    id: str


class QueueEvents(QueueBase):
    """Listens to one queue, whoever works on it.

    Every event is told once and in order, also across a lost connection: reading goes on after the last event
    that was told. Give `lastEventId` to go on where another listener stopped.

    >>> events = QueueEvents("mail", {"connection": {"host": "127.0.0.1"}})     # doctest: +SKIP
    >>> events.on("completed", lambda args, id: print(args["jobId"]))           # doctest: +SKIP
    >>> async for event, args, id in events: ...                                # doctest: +SKIP
    """

    def __init__(self, name: str, opts: Mapping[str, Any] | None = None) -> None:
        super().__init__(name, opts)
        self.opts = {"blockingTimeout": 10_000, "lastEventId": "$", "autorun": True, **self.opts}
        self.running = False
        self.closed = False
        self._start: str | None = None
        """The id after which the first event is told; None until the server has said which is the last."""
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
        """Return when nothing that happens from now on can be missed."""
        await self._begin()
        return self.client

    async def run(self) -> None:
        """Tell events to the callbacks until closed."""
        if self.running:
            raise Exception("QueueEvents is already running.")
        if self._consumer is None:
            self._consumer = asyncio.current_task()
        self.running = True
        try:
            async for event, args, event_id in self._follow(await self._begin()):
                self._tell(event, args, event_id)
        finally:
            self.running = False

    def _tell(self, event: str, args: dict[str, Any], event_id: str) -> None:
        if event == "drained":
            self.emit(event, event_id)
            return
        self.emit(event, args, event_id)
        if args.get("jobId"):
            self.emit(f"{event}:{args['jobId']}", args, event_id)

    # -- one by one -----------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[QueueEvent]:
        return self.since()

    async def since(self, lastEventId: str | None = None) -> AsyncIterator[QueueEvent]:
        """Events later than this one, as they come, until closed; by default those the callbacks are told.

        The next read waits until what came is used up, so a slow reader needs no more memory.
        """
        async for event in self._follow(await self._begin() if lastEventId is None else lastEventId):
            yield event

    # -- reading --------------------------------------------------------------------------------------------

    async def _begin(self) -> str:
        """The id to go on from: "now" becomes the last event there is, so that none can fall between."""
        async with self._starting:
            tries = 0
            while self._start is None:
                asked = self.opts.get("lastEventId") or "$"
                if asked != "$":
                    self._start = str(asked)
                    break
                try:
                    extent = await streams.extent(self.store, self.toKey("events"))
                    self._start = extent.last or "0-0"
                except RedisError as fault:
                    await self._stand_back(fault, tries)
                    tries += 1
        return self._start

    async def _follow(self, position: str) -> AsyncIterator[QueueEvent]:
        block = max(int(self.opts["blockingTimeout"]), 1)
        line = self.store.blocking_connection(self.clientName(SUFFIX), block / 1000)
        self._blocking_connections.add(line)
        tries = 0
        try:
            while not self.closing:
                try:
                    entries = await self._read(line, position, block)
                    tries = 0
                except RedisError as fault:
                    if self.closing:
                        return
                    await self._stand_back(fault, tries)
                    tries += 1
                    continue
                for entry_id, flat in entries:
                    position = entry_id.decode()
                    if event := decode(position, flat):
                        yield event
        finally:
            self._blocking_connections.discard(line)
            await line.disconnect()

    async def _read(self, line: BlockingConnection, position: str, block: int) -> Sequence[Sequence[Any]]:
        key = self.toKey("events")
        answer = await line.call("XREAD", "COUNT", MOST, "BLOCK", block, "STREAMS", key, position)
        return answer[0][1] if answer else ()

    async def _stand_back(self, fault: RedisError, tries: int) -> None:
        if self.closing or isinstance(fault, RedisResponseError):
            raise fault
        if tries == 0:
            self.emit("error", fault)
        await asyncio.sleep(Reconnect().delay(tries))

    # -- the end --------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Tell no more."""
        if self.closing:
            return
        self.closing = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None and consumer is not asyncio.current_task():
            consumer.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await consumer
        for line in list(self._blocking_connections):
            await line.disconnect()
        await super().close()
        self.closed = True

    async def __aenter__(self) -> Self:
        await self.waitUntilReady()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def decode(entry_id: str, flat: Sequence[bytes]) -> QueueEvent | None:
    """An entry of the stream; None where it is no event."""
    args: dict[str, Any] = dict(as_text(flat))
    event = args.pop("event", "")
    if not event:
        return None
    field = _JSON_FIELDS.get(event)
    if field in args:
        args[field] = payload.decode(args[field])
    return QueueEvent(event, args, entry_id)
