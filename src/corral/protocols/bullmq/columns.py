"""Event entries of BullMQ's wire as columns: the same words as `codec.decode_events`, in bulk."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from corral.core import payload
from corral.core.event import EventKind
from corral.core.pages import EventColumns, as_json, empty_columns

DEAD, RETRY = EventKind.DEAD.encode(), EventKind.RETRY.encode()


class _Shape(NamedTuple):
    """Where an entry with these field names, in this order, has what."""

    columns: Callable[[list[Any]], tuple[Any, ...]]
    """kind, job id, name, attempts made and previous state of the values with a None behind them"""
    rest: tuple[tuple[bytes, int], ...]
    """The other fields, each with the place of its value."""


_COLUMNS = (b"event", b"jobId", b"name", b"attemptsMade", b"prev")
_MOST_SHAPES = 1000
"""There are some twenty; whoever writes entries of ever new shapes must not fill the memory."""
_shapes: dict[tuple[bytes, ...], _Shape] = {}


def _shape_of(names: tuple[bytes, ...]) -> _Shape:
    places = {name: 2 * place + 1 for place, name in enumerate(names)}
    columns = itemgetter(*(places.pop(name, -1) for name in _COLUMNS))
    if len(_shapes) >= _MOST_SHAPES:
        _shapes.clear()
    _shapes[names] = shape = _Shape(columns, tuple(places.items()))
    return shape


def decode_columns(entries: Sequence[Sequence[Any]], before: Sequence[bytes] = ()) -> EventColumns:
    """The entries as columns; `before` are the fields of the entry just before the first."""
    columns = empty_columns()
    kinds, job_ids, names = columns.kinds.append, columns.job_ids.append, columns.names.append
    attempts, previous, data = columns.attempts.append, columns.previous.append, columns.data.append
    known = _shapes.get
    last: Sequence[bytes] = before
    # this runs once for every event there ever was, so it looks at each as little as it can: entries are of
    # few shapes, and what is where in a shape is found out once
    for _, flat in entries:
        field_names = tuple(flat[::2])
        columns_in, rest = known(field_names) or _shape_of(field_names)
        kind, job_id, name, attempt, prev = columns_in([*flat, None])
        job_ids(job_id)
        names(name)
        attempts(int(attempt) if attempt else None)
        previous(prev)
        if kind in _TRANSLATED:
            kind = _translated(kind, job_id, prev, last)
        kinds(kind or b"")
        data(_as_json({key: flat[place] for key, place in rest}) if rest else None)
        last = flat
    columns.ids.extend(entry_id for entry_id, _ in entries)
    columns.at.extend(int(entry_id.partition(b"-")[0]) for entry_id in columns.ids)
    columns.workers.extend([None] * len(columns))
    return columns


_TRANSLATED = frozenset((b"failed", b"delayed", b"waiting"))


def _translated(kind: bytes, job_id: bytes | None, prev: bytes | None, last: Sequence[bytes]) -> bytes:
    """Our word for what happened; `last` are the fields of the entry before."""
    if kind == b"failed":
        return DEAD
    if kind == b"delayed":
        return kind if _was_added(last, job_id) else RETRY
    return RETRY if prev == b"active" else kind


def _was_added(flat: Sequence[bytes], job_id: bytes | None) -> bool:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    return fields.get(b"event") == b"added" and fields.get(b"jobId") == job_id


def _as_json(fields: dict[bytes, bytes]) -> bytes:
    """What is left of an entry, as one JSON object; a value that is JSON stays as it is, digit by digit."""
    if len(fields) == 1:
        [(key, value)] = fields.items()
        if key == b"returnvalue":
            return b'{"returnvalue":' + _json_value(value) + b"}"
    return orjson.dumps({_text(key): _value(key, value) for key, value in fields.items()})


def _value(key: bytes, value: bytes) -> Any:
    if key in (b"returnvalue", b"data"):
        return orjson.Fragment(_json_value(value))
    if key in (b"delay", b"count") and value.isdigit():
        return int(value)
    return _text(value)


def _json_value(value: bytes) -> bytes:
    try:
        orjson.loads(value)
        return value
    except orjson.JSONDecodeError:
        return as_json(payload.decode(value))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
