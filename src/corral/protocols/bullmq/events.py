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

    async def range(
        self, after: str = "-", count: int = 1000, max_bytes: int | None = None
    ) -> list[JobEvent]:
        entries = await streams.read_range(self._store, self._stream, after, count, max_bytes)
        if not entries:
            return []
        before = await streams.entry_before(self._store, self._stream, entries[0][0])
        return self._events(await self._columns(entries, before))

    async def tail(self, after: str = "$") -> AsyncGenerator[JobEvent]:
        before: Sequence[bytes] = ()
        async for entries in streams.follow(self._store, self._stream, after):
            for event in self._events(await self._columns(entries, before)):
                yield event
            before = entries[-1][1]

    def _result_of(self, data: Mapping[str, Any]) -> Any:
        return data.get("returnvalue")

    def _reason_of(self, data: Mapping[str, Any]) -> str | None:
        return data.get("failedReason")

    async def page(self, after: str = "-", until: str = "+", count: int = 1000) -> EventPage:
        extent, before, entries = await streams.read_page(self._store, self._stream, after, until, count)
        return streams.page_of(await self._columns(entries, before), extent, entries)

    async def _columns(self, entries: Sequence[Sequence[Any]], before: Sequence[bytes]) -> EventColumns:
        following: Sequence[bytes] = ()
        if entries and _needs_next(entries[-1][1]):
            rest = await streams.read_range(self._store, self._stream, entries[-1][0].decode(), 1)
            following = rest[0][1] if rest else ()
        return decode_columns(entries, before, following)

    def _events(self, columns: EventColumns) -> list[JobEvent]:
        return events_of(columns, NAME, self._binding.queue)


class _Layout(NamedTuple):
    """Where the columns are in an entry with certain field names, in a certain order."""

    columns: Callable[[list[Any]], tuple[Any, ...]]
    """kind, job id, name, attempts made and previous state, of the flat fields with a None behind them"""
    rest: tuple[tuple[bytes, int], ...]
    """The other fields, each with the index of its value."""
    spends_nothing: bool
    """Whether `jobId` is the last field: Corral's scripts write so where a job was moved, not retried."""


_COLUMNS = (b"event", b"jobId", b"name", b"attemptsMade", b"prev")
_MOST_LAYOUTS = 1000
"""There are about twenty; entries of ever new layouts must not fill the memory."""
_layouts: dict[tuple[bytes, ...], _Layout] = {}


def _layout_of(names: tuple[bytes, ...]) -> _Layout:
    indexes = {name: 2 * position + 1 for position, name in enumerate(names)}
    columns = itemgetter(*(indexes.pop(name, -1) for name in _COLUMNS))
    if len(_layouts) >= _MOST_LAYOUTS:
        _layouts.clear()
    is_last = len(names) > 2 and names[-1] == b"jobId"
    _layouts[names] = layout = _Layout(columns, tuple(indexes.items()), is_last)
    return layout


def decode_columns(
    entries: Sequence[Sequence[Any]], before: Sequence[bytes] = (), following: Sequence[bytes] = ()
) -> EventColumns:
    """Return the entries as columns; `before` and `following` are the fields of their neighbours in the log.

    The wire has no word for a retry: a job that is delayed without having been added in the entry before, or
    waiting again straight from active, is being retried, unless it was given back, postponed or stalled. A
    stall follows its `waiting`; the other two Corral writes with `jobId` as the last field, so that every
    client reads the same fields. A Node client's own cannot be told from retries.
    """
    columns = empty_columns()
    kinds, job_ids, names = columns.kinds.append, columns.job_ids.append, columns.names.append
    attempts, previous, data = columns.attempts.append, columns.previous.append, columns.data.append
    known = _layouts.get
    columns.ids.extend(entry_id for entry_id, _ in entries)
    columns.at.extend(int(entry_id.partition(b"-")[0]) for entry_id in columns.ids)
    if columns.at and columns.at[-1] > LATEST_MS:
        columns.at[:] = map(entry_time, columns.ids)
    last: Sequence[bytes] = before
    # this runs once for every event ever written: entries have few layouts, and each is worked out once
    for index, (_, flat) in enumerate(entries):
        field_names = tuple(flat[::2])
        layout = known(field_names) or _layout_of(field_names)
        kind, job_id, name, attempt, prev = layout.columns([*flat, None])
        rest = layout.rest
        job_ids(job_id)
        names(name)
        previous(prev)
        is_moved = kind in _TRANSLATED
        if is_moved:
            after = entries[index + 1][1] if index + 1 < len(entries) else following
            kind, attempt = _translate(kind, job_id, prev, layout.spends_nothing, last, after)
        attempts((count(attempt) or None) if attempt else None)
        kinds(kind or b"")
        if is_moved:
            data(_moved_data(kind, columns.at[index], {key: flat[place] for key, place in rest}))
        elif attempt and columns.attempts[-1] is None:
            data(_with_broken(flat))
        else:
            data(_as_json({key: flat[place] for key, place in rest}) if rest else None)
        last = flat
    columns.workers.extend([None] * len(columns))
    return columns


_TRANSLATED = frozenset((b"failed", b"delayed", b"waiting"))


def _translate(
    kind: bytes,
    job_id: bytes | None,
    prev: bytes | None,
    spends_nothing: bool,
    last: Sequence[bytes],
    following: Sequence[bytes],
) -> tuple[bytes, bytes | None]:
    """Return our word for a kind, and the number of the attempt where the next entry has it."""
    if kind == b"failed":
        return DEAD, _field_of(following, b"retries-exhausted", job_id, b"attemptsMade")
    if spends_nothing or (kind == b"waiting" and prev != b"active"):
        return kind, None
    if kind == b"delayed":
        return (kind if _field_of(last, b"added", job_id, b"jobId") else RETRY), None
    return (kind if _field_of(following, b"stalled", job_id, b"jobId") else RETRY), None


def _field_of(flat: Sequence[bytes], kind: bytes, job_id: bytes | None, name: bytes) -> bytes | None:
    """Return a field of an entry of this kind and job; None where the entry is another."""
    fields = fields_of(flat)
    if fields.get(b"event") != kind or fields.get(b"jobId") != job_id:
        return None
    return fields.get(name)


def _needs_next(flat: Sequence[bytes]) -> bool:
    """Return whether the meaning of an entry depends on the one behind it."""
    fields = fields_of(flat)
    kind = fields.get(b"event")
    return kind == b"failed" or (kind == b"waiting" and fields.get(b"prev") == b"active")


def _moved_data(kind: bytes, at: int, fields: dict[bytes, bytes]) -> bytes | None:
    """Return the other fields of an entry as JSON, with the ms until the job is due where it is delayed."""
    due = fields.get(b"delay")
    if due is not None and due.isdigit() and len(due) < 19:
        fields[b"delay"] = b"%d" % max(int(due) - at, 0)
    elif due is None and kind == RETRY:
        fields[b"delay"] = b"0"
    return _as_json(fields) if fields else None


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
