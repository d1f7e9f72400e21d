"""The bridgemq protocol's EventLog: one queue's part of the namespace's event stream."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from corral.core import payload
from corral.core.event import EventPage, JobEvent, columns_of
from corral.protocols.base import Binding
from corral.protocols.bridgemq.keys import DEFAULT_QUEUE, NAME, BridgemqKeys
from corral.protocols.events import BaseEventLog
from corral.protocols.wire import BROKEN, broken_fields, count, entry_time, fields_of, text, time_ms
from corral.store import streams

_OWN_FIELDS = frozenset({"event", "at", "jobId", "type", "queue", "worker", "attempt", "prev", "data"})


class BridgemqEventLog(BaseEventLog):
    """What Corral did to the jobs of one queue; foreign clients do not write here.

    Extent and marks are of the whole stream: the events of one queue would have to be read to be counted.
    """

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding, BridgemqKeys(binding.namespace, binding.queue).events)

    def _decode(self, entries: Sequence[Sequence[Any]]) -> list[JobEvent]:
        events = (decode_event(entry_id, flat) for entry_id, flat in entries)
        return [event for event in events if event.queue == self._binding.queue]

    async def range(
        self, after: str = "-", count: int = 1000, max_bytes: int | None = None
    ) -> list[JobEvent]:
        events: list[JobEvent] = []
        while len(events) < count:
            # a page of other queues' events is not the end
            entries = await streams.read_range(self._store, self._stream, after, count, max_bytes)
            events += self._decode(entries)
            is_last = len(entries) < count if max_bytes is None else bool(events) or not entries
            if is_last:
                break
            after = entries[-1][0].decode()
        return events[:count]

    async def tail(self, after: str = "$") -> AsyncGenerator[JobEvent]:
        async for entries in streams.follow(self._store, self._stream, after):
            for event in self._decode(entries):
                yield event

    def _result_of(self, data: Mapping[str, Any]) -> Any:
        return data.get("result")

    def _reason_of(self, data: Mapping[str, Any]) -> str | None:
        return data.get("reason")

    async def page(self, after: str = "-", until: str = "+", count: int = 1000) -> EventPage:
        extent, _, entries = await streams.read_page(self._store, self._stream, after, until, count)
        return streams.page_of(columns_of(self._decode(entries)), extent, entries)


def decode_event(entry_id: bytes, flat: Sequence[bytes]) -> JobEvent:
    """Return an entry of the event stream."""
    raw = fields_of(flat)
    fields = {text(name): value for name, value in raw.items()}
    attempt, data = fields.get("attempt"), fields.get("data")
    return JobEvent(
        id=entry_id.decode(),
        protocol=NAME,
        queue=text(fields.get("queue", b"")) or DEFAULT_QUEUE,
        at=time_ms(fields.get("at")) or entry_time(entry_id),
        kind=text(fields.get("event", b"")),
        job_id=text(fields.get("jobId", b"")) or None,
        name=text(fields.get("type", b"")) or None,
        attempt=None if attempt is None else count(attempt),
        previous=text(fields.get("prev", b"")) or None,
        worker=text(fields.get("worker", b"")) or None,
        data=_decode_data(fields, data, broken_fields(raw, counts=[b"attempt"], times=[b"at"])),
    )


def _decode_data(fields: Mapping[str, bytes], data: bytes | None, broken: Mapping[str, str]) -> Any:
    """Return the event's data, else the fields that only its writer knows; with those that cannot be read."""
    value = (payload.decode(data) if data else None) or {
        name: text(value) for name, value in fields.items() if name not in _OWN_FIELDS
    }
    if broken:
        return {**(value if isinstance(value, dict) else {"data": value}), BROKEN: broken}
    return value or None
