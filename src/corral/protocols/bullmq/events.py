"""The bullmq protocol's EventLog: the queue's event stream."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

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
from corral.protocols.base import Binding
from corral.protocols.bullmq.keys import NAME, BullmqKeys
from corral.protocols.events import BaseEventLog
from corral.protocols.wire import BROKEN, LATEST_MS, broken_fields, count, entry_time, fields_of, text
from corral.store import streams

DEAD, RETRY = EventKind.DEAD.encode(), EventKind.RETRY.encode()


class BullmqEventLog(BaseEventLog):
    """The events of one queue."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding, BullmqKeys(binding.namespace, binding.queue).events)

    def _decode(self, entries: Sequence[Sequence[Any]], before: Sequence[bytes]) -> list[JobEvent]:
        return events_of(decode_columns(entries, before), NAME, self._binding.queue)

    async def range(
        self, after: str = "-", count: int = 1000, max_bytes: int | None = None
    ) -> list[JobEvent]:
        entries = await streams.read_range(self._store, self._stream, after, count, max_bytes)
        if not entries:
            return []
        return self._decode(entries, await streams.entry_before(self._store, self._stream, entries[0][0]))

    async def tail(self, after: str = "$") -> AsyncGenerator[JobEvent]:
        before: Sequence[bytes] = ()
        async for entries in streams.follow(self._store, self._stream, after):
            for event in self._decode(entries, before):
                yield event
            before = entries[-1][1]

    def _result_of(self, data: Mapping[str, Any]) -> Any:
        return data.get("returnvalue")

    def _reason_of(self, data: Mapping[str, Any]) -> str | None:
        return data.get("failedReason")

    async def page(self, after: str = "-", until: str = "+", count: int = 1000) -> EventPage:
        extent, before, entries = await streams.read_page(self._store, self._stream, after, until, count)
        return streams.page_of(decode_columns(entries, before), extent, entries)


class _Layout(NamedTuple):
    """Where the columns are in an entry with certain field names, in a certain order."""

    columns: Callable[[list[Any]], tuple[Any, ...]]
    """kind, job id, name, attempts made and previous state, of the flat fields with a None behind them"""
    rest: tuple[tuple[bytes, int], ...]
    """The other fields, each with the index of its value."""


_COLUMNS = (b"event", b"jobId", b"name", b"attemptsMade", b"prev")
_MOST_LAYOUTS = 1000
"""There are about twenty; entries of ever new layouts must not fill the memory."""
_layouts: dict[tuple[bytes, ...], _Layout] = {}


def _layout_of(names: tuple[bytes, ...]) -> _Layout:
    indexes = {name: 2 * position + 1 for position, name in enumerate(names)}
    columns = itemgetter(*(indexes.pop(name, -1) for name in _COLUMNS))
    if len(_layouts) >= _MOST_LAYOUTS:
        _layouts.clear()
    _layouts[names] = layout = _Layout(columns, tuple(indexes.items()))
    return layout


def decode_columns(entries: Sequence[Sequence[Any]], before: Sequence[bytes] = ()) -> EventColumns:
    """Return the entries as columns; `before` are the fields of the entry just before the first.

    The wire has no word for a retry: a job that is delayed without having been added in the entry before,
    or waiting again straight from active, is being retried.
    """
    columns = empty_columns()
    kinds, job_ids, names = columns.kinds.append, columns.job_ids.append, columns.names.append
    attempts, previous, data = columns.attempts.append, columns.previous.append, columns.data.append
    known = _layouts.get
    last: Sequence[bytes] = before
    # this runs once for every event ever written: entries have few layouts, and each is worked out once
    for _, flat in entries:
        field_names = tuple(flat[::2])
        columns_in, rest = known(field_names) or _layout_of(field_names)
        kind, job_id, name, attempt, prev = columns_in([*flat, None])
        job_ids(job_id)
        names(name)
        attempts((count(attempt) or None) if attempt else None)
        previous(prev)
        if kind in _TRANSLATED:
            kind = _translate(kind, job_id, prev, last)
        kinds(kind or b"")
        if attempt and columns.attempts[-1] is None:
            data(_with_broken(flat))
        else:
            data(_as_json({key: flat[index] for key, index in rest}) if rest else None)
        last = flat
    columns.ids.extend(entry_id for entry_id, _ in entries)
    columns.at.extend(int(entry_id.partition(b"-")[0]) for entry_id in columns.ids)
    if columns.at and columns.at[-1] > LATEST_MS:
        columns.at[:] = map(entry_time, columns.ids)
    columns.workers.extend([None] * len(columns))
    return columns


_TRANSLATED = frozenset((b"failed", b"delayed", b"waiting"))


def _translate(kind: bytes, job_id: bytes | None, prev: bytes | None, last: Sequence[bytes]) -> bytes:
    """Return our word for a kind; `last` are the fields of the entry before."""
    if kind == b"failed":
        return DEAD
    if kind == b"delayed":
        fields = fields_of(last)
        was_added = fields.get(b"event") == b"added" and fields.get(b"jobId") == job_id
        return kind if was_added else RETRY
    return RETRY if prev == b"active" else kind


def _with_broken(flat: Sequence[bytes]) -> bytes | None:
    """Return the other fields of an entry as JSON, and the number that cannot be read."""
    fields = fields_of(flat)
    broken = broken_fields(fields, counts=[b"attemptsMade"])
    rest = {key: value for key, value in fields.items() if key not in _COLUMNS}
    if not broken:
        return _as_json(rest) if rest else None
    return orjson.dumps({**{text(key): _value(key, value) for key, value in rest.items()}, BROKEN: broken})


def _as_json(fields: dict[bytes, bytes]) -> bytes:
    """Return the other fields of an entry as one JSON object; a value that is JSON stays as it is."""
    if len(fields) == 1:
        [(key, value)] = fields.items()
        if key == b"returnvalue":
            return b'{"returnvalue":' + json_value(value) + b"}"
    return orjson.dumps({text(key): _value(key, value) for key, value in fields.items()})


def _value(key: bytes, value: bytes) -> Any:
    if key in (b"returnvalue", b"data"):
        return orjson.Fragment(json_value(value))
    if key in (b"delay", b"count") and value.isdigit() and len(value) < 19:
        return int(value)
    return text(value)
