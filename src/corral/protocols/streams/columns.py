"""Entries of the shared event stream as columns: the same words as `codec.decode_event`, in bulk."""

from collections.abc import Sequence
from typing import Any

import orjson

from corral.core import payload
from corral.core.pages import EventColumns, as_json, empty_columns
from corral.protocols.streams.codec import KINDS, KINDS_BY_TYPE

_KINDS = {(kind.encode(), step.encode()): word.encode() for (kind, step), word in KINDS.items()}
_KINDS_BY_TYPE = {kind.encode(): word.encode() for kind, word in KINDS_BY_TYPE.items()}


def decode_columns(entries: Sequence[Sequence[Any]]) -> EventColumns:
    """The entries as columns."""
    columns = empty_columns()
    ids, at, kinds = columns.ids.append, columns.at.append, columns.kinds.append
    job_ids, names, workers = columns.job_ids.append, columns.names.append, columns.workers.append
    data = columns.data.append
    for entry_id, flat in entries:
        get = dict(zip(flat[::2], flat[1::2], strict=False)).get
        kind, step = get(b"type", b""), get(b"step", b"")
        ids(entry_id)
        at(_time(get(b"ts", b""), entry_id))
        kinds(_KINDS.get((kind, step)) or _KINDS_BY_TYPE.get(kind, kind))
        job_ids(get(b"job_id") or None)
        names(get(b"task") or None)
        workers(get(b"worker") or None)
        data(b'{"step":' + _as_text(step) + b',"data":' + _json(get(b"data") or b"{}") + b"}")
    nothing = [None] * len(columns)
    columns.attempts.extend(nothing)
    columns.previous.extend(nothing)
    return columns


def _time(told: bytes, entry_id: bytes) -> int:
    try:
        return int(told) or int(entry_id.partition(b"-")[0])
    except ValueError:
        return int(entry_id.partition(b"-")[0])


def _as_text(raw: bytes) -> bytes:
    return orjson.dumps(raw.decode("utf-8", "replace"))


def _json(raw: bytes) -> bytes:
    """JSON as it stands, digit by digit; anything else as the codec reads it."""
    try:
        orjson.loads(raw)
        return raw
    except orjson.JSONDecodeError:
        return as_json(payload.decode(raw))
