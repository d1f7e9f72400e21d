"""Event entries of BullMQ's wire as columns: the same words as `codec.decode_events`, in bulk."""

from collections.abc import Sequence
from typing import Any

import orjson

from corral.core import payload
from corral.core.event import EventKind
from corral.core.pages import EventColumns, as_json, empty_columns

DEAD, RETRY = EventKind.DEAD.encode(), EventKind.RETRY.encode()


def decode_columns(entries: Sequence[Sequence[Any]], before: Sequence[bytes] = ()) -> EventColumns:
    """The entries as columns; `before` are the fields of the entry just before the first."""
    columns = empty_columns()
    ids, at, kinds = columns.ids.append, columns.at.append, columns.kinds.append
    job_ids, names, attempts = columns.job_ids.append, columns.names.append, columns.attempts.append
    previous, data = columns.previous.append, columns.data.append
    last: Sequence[bytes] = before
    # this runs once for every event there ever was, so it looks at each as little as it can
    for entry_id, flat in entries:
        fields = dict(zip(flat[::2], flat[1::2], strict=False))
        take = fields.pop
        kind, job_id, prev = take(b"event", b""), take(b"jobId", None), take(b"prev", None)
        attempt = take(b"attemptsMade", None)
        ids(entry_id)
        at(int(entry_id.partition(b"-")[0]))
        job_ids(job_id)
        names(take(b"name", None))
        attempts(None if attempt is None else int(attempt))
        previous(prev)
        if kind == b"failed":
            kind = DEAD
        elif kind == b"delayed":
            kind = kind if _was_added(last, job_id) else RETRY
        elif kind == b"waiting" and prev == b"active":
            kind = RETRY
        kinds(kind)
        data(_as_json(fields) if fields else None)
        last = flat
    columns.workers.extend([None] * len(columns))
    return columns


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
