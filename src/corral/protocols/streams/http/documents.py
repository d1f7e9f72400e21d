"""Jobs and events as the contract's JSON, and cursors of listings."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from corral.core.http_api import OwnedJob, TailEvent
from corral.protocols.wire import BROKEN, broken_fields, count, entry_time, fields_of, text, time_ms

FINAL_STATUSES = frozenset({b"done", b"error", b"canceled"})
"""The statuses of a job that is over, and the types of event that end a tail."""

_ID = re.compile(r"[!-9;-~]{1,255}")
"""The contract's ids are UUIDs; a foreign one may be any text that cannot be the name of another key."""
_CURSOR = re.compile(r"([0-9]{1,20})\.([0-9]{1,4})\.([!-9;-~]{0,255})")


def is_job_id(job_id: str) -> bool:
    """Return whether this can be a job's id."""
    return _ID.fullmatch(job_id) is not None


def job_document(flat: Sequence[bytes]) -> dict[str, Any]:
    """Return the nine fields of a job's hash, its JSON fields as JSON; other fields are left out.

    Numbers that cannot be read are 0, and stand under `_broken` as they are.
    """
    fields = fields_of(flat)

    def raw(name: str) -> bytes:
        return fields.get(name.encode(), b"")

    broken = broken_fields(fields, counts=[b"ttl_s"], times=[b"created_ts", b"updated_ts"])
    return {
        **{name: text(raw(name)) for name in ("job_id", "task", "status")},
        **{name: _json(raw(name)) for name in ("payload", "result", "error")},
        **{name: time_ms(raw(name)) for name in ("created_ts", "updated_ts")},
        "ttl_s": count(raw("ttl_s")),
        **({BROKEN: broken} if broken else {}),
    }


def owned_job(flat: Sequence[bytes]) -> OwnedJob:
    """Return a job's hash as a document, with its owner."""
    owner = fields_of(flat).get(b"client")
    return OwnedJob(job_document(flat), None if owner is None else text(owner))


def _json(raw: bytes) -> Any:
    """Return JSON text as it stands, to be put into more JSON; what is no JSON becomes `{"_raw": text}`."""
    if not raw:
        return None
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {"_raw": raw.decode("utf-8", "backslashreplace")}
    # a line break can only be white space between the parts, and an event must stand on one line
    return orjson.Fragment(raw.replace(b"\r", b" ").replace(b"\n", b" "))


def tail_event(entry_id: bytes, flat: Sequence[bytes]) -> TailEvent:
    """Return an entry of a job's own stream as a tail sends it."""
    fields = fields_of(flat)
    kind, time = fields.get(b"type", b""), time_ms(fields.get(b"ts"))
    data = {
        "type": text(kind),
        "ts": time or entry_time(entry_id),
        "step": text(fields.get(b"step", b"")),
        "data": _json(fields.get(b"data", b"") or b"{}"),
    }
    if not time and (broken := broken_fields(fields, times=[b"ts"])):
        data[BROKEN] = broken
    return TailEvent(entry_id.decode(), text(kind), orjson.dumps(data), kind in FINAL_STATUSES)


class ListingCursor(NamedTuple):
    """The server's own cursor, how many keys its next step scans, and the last id listed of that step.

    The same cursor and size bring the same keys again, so a step can be listed in several pages.
    """

    position: str
    size: int
    after: str

    @staticmethod
    def parse(cursor: str) -> "ListingCursor | None":
        """Return a cursor as `str` wrote it; None where it is not valid."""
        match = _CURSOR.fullmatch(cursor)
        if match is None or int(match[1]) >= 2**64 or int(match[2]) < 1:
            return None
        return ListingCursor(match[1], int(match[2]), match[3])

    def __str__(self) -> str:
        return f"{self.position}.{self.size}.{self.after}"
