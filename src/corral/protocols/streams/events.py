"""The streams protocol's EventLog: the shared stream of Corral's own parts, and each job's own."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import orjson

from corral.core.event import (
    EventColumns,
    EventKind,
    EventPage,
    JobEvent,
    empty_columns,
    events_of,
    json_value,
)
from corral.core.job import Job
from corral.protocols.base import Binding
from corral.protocols.events import BaseEventLog
from corral.protocols.streams.keys import NAME, QUEUE, StreamsKeys
from corral.protocols.wire import BROKEN, broken_fields, entry_time, text, time_ms
from corral.store import streams

KINDS: Mapping[tuple[bytes, bytes], bytes] = {
    (b"queued", b"gateway.enqueue"): EventKind.ADDED.encode(),
    (b"queued", b"worker.recover"): EventKind.STALLED.encode(),
}
"""The step tells apart what the contract calls by one word."""
KINDS_BY_TYPE: Mapping[bytes, bytes] = {
    b"queued": EventKind.WAITING.encode(),
    b"running": EventKind.ACTIVE.encode(),
    b"progress": EventKind.PROGRESS.encode(),
    b"done": EventKind.COMPLETED.encode(),
    b"error": EventKind.DEAD.encode(),
    b"canceled": EventKind.CANCELLED.encode(),
}
MOST_OF_JOB = 1000


class StreamsEventLog(BaseEventLog):
    """The events in `jobs:events`; foreign workers write only to a job's own stream."""

    def __init__(self, binding: Binding) -> None:
        self._keys = StreamsKeys(binding.namespace, binding.queue)
        super().__init__(binding, self._keys.events)

    async def range(
        self, after: str = "-", count: int = 1000, max_bytes: int | None = None
    ) -> list[JobEvent]:
        return decode_events(await streams.read_range(self._store, self._stream, after, count, max_bytes))

    async def tail(self, after: str = "$") -> AsyncGenerator[JobEvent]:
        async for entries in streams.follow(self._store, self._stream, after):
            for event in decode_events(entries):
                yield event

    async def of_job(self, job: Job, after: str = "-") -> list[JobEvent]:
        """Return up to 1000 events of a job's own stream, which foreign workers write to as well."""
        stream = self._keys.job_events(job.id)
        return decode_events(await streams.read_range(self._store, stream, after, MOST_OF_JOB), job.id)

    def _result_of(self, data: Mapping[str, Any]) -> Any:
        return _part(data, "result")

    def _reason_of(self, data: Mapping[str, Any]) -> str | None:
        reason = _part(data, "message")
        return None if reason is None else str(reason)

    async def page(self, after: str = "-", until: str = "+", count: int = 1000) -> EventPage:
        extent, _, entries = await streams.read_page(self._store, self._stream, after, until, count)
        return streams.page_of(decode_columns(entries), extent, entries)


def decode_events(entries: Sequence[Sequence[Any]], job_id: str | None = None) -> list[JobEvent]:
    """Return entries of the shared stream, or (then `job_id` is given) of a job's own."""
    return events_of(decode_columns(entries, job_id), NAME, QUEUE)


def decode_columns(entries: Sequence[Sequence[Any]], job_id: str | None = None) -> EventColumns:
    """Return entries as columns; `job_id` is for those that do not name their job."""
    columns = empty_columns()
    ids, at, kinds = columns.ids.append, columns.at.append, columns.kinds.append
    job_ids, names, workers = columns.job_ids.append, columns.names.append, columns.workers.append
    data = columns.data.append
    for entry_id, flat in entries:
        fields = dict(zip(flat[::2], flat[1::2], strict=False))
        get = fields.get
        kind, step = get(b"type", b""), get(b"step", b"")
        ids(entry_id)
        time = time_ms(get(b"ts"))
        at(time or entry_time(entry_id))
        kinds(KINDS.get((kind, step)) or KINDS_BY_TYPE.get(kind, kind))
        job_ids(get(b"job_id", job_id) or None)
        names(get(b"task") or None)
        workers(get(b"worker") or None)
        step_json = orjson.dumps(text(step))
        broken = b"" if time else _broken(fields)
        data(b'{"step":' + step_json + b',"data":' + json_value(get(b"data") or b"{}") + broken + b"}")
    nothing = [None] * len(columns)
    columns.attempts.extend(nothing)
    columns.previous.extend(nothing)
    return columns


def _part(data: Mapping[str, Any], name: str) -> Any:
    inner = data.get("data")
    return inner.get(name) if isinstance(inner, dict) else None


def _broken(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the member of an event's data that shows a time which cannot be read; nothing without one."""
    broken = broken_fields(fields, times=[b"ts"])
    return b',"%b":%b' % (BROKEN.encode(), orjson.dumps(broken)) if broken else b""
