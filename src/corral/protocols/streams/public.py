"""What clients of the gateway are shown: a job's hash and its events, as the contract's JSON."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from corral.core.http_api import TailEvent

OVER = ("done", "error", "canceled")
"""The types of event that end a tail."""

_ID = re.compile(r"[!-9;-~]{1,255}")
"""The contract's ids are UUIDs; a stranger's may be any text that cannot be the name of another key."""
_CURSOR = re.compile(r"([0-9]{1,20})\.([0-9]{1,4})\.([!-9;-~]{0,255})")
_NUMBERS = ("created_ts", "updated_ts", "ttl_s")
_DOCUMENTS = ("payload", "result", "error")


def is_id(job_id: str) -> bool:
    """Can this be a job's id?"""
    return _ID.fullmatch(job_id) is not None


def job(flat: Sequence[bytes]) -> dict[str, Any]:
    """The nine fields of a job's hash, its JSON fields as JSON; fields of others are left out."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    shown: dict[str, Any] = {
        name: fields.get(name.encode(), b"").decode("utf-8", "replace")
        for name in ("job_id", "task", "status")
    }
    shown |= {name: document(fields.get(name.encode(), b"")) for name in _DOCUMENTS}
    shown |= {name: number(fields.get(name.encode(), b"")) for name in _NUMBERS}
    return shown


def owner(flat: Sequence[bytes]) -> str | None:
    """Whose job it is; None where nobody's."""
    found = dict(zip(flat[::2], flat[1::2], strict=True)).get(b"client")
    return None if found is None else found.decode("utf-8", "replace")


def document(raw: bytes) -> Any:
    """JSON text as it stands, ready to be put into more JSON; what is no JSON becomes `{"_raw": text}`."""
    if not raw:
        return None
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {"_raw": raw.decode("utf-8", "backslashreplace")}
    # a line break can only be white space between the parts, and an event must stand on one line
    return orjson.Fragment(raw.replace(b"\r", b" ").replace(b"\n", b" "))


def tail_event(entry_id: bytes, flat: Sequence[bytes]) -> TailEvent:
    """An entry of a job's own stream, as a tail sends it."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    kind = fields.get(b"type", b"").decode("utf-8", "replace")
    data = {
        "type": kind,
        "ts": number(fields.get(b"ts", b"")) or int(entry_id.split(b"-")[0]),
        "step": fields.get(b"step", b"").decode("utf-8", "replace"),
        "data": document(fields.get(b"data", b"") or b"{}"),
    }
    return TailEvent(entry_id.decode(), kind, orjson.dumps(data), kind in OVER)


def number(raw: bytes) -> int:
    """A whole number, or 0 where a stranger wrote something else."""
    try:
        return int(raw)
    except ValueError:
        return 0


# -- places in a listing ------------------------------------------------------------------------------------


class Cursor(NamedTuple):
    """The server's own cursor, how many keys its next step looks at, and the last id listed of that step.

    The same cursor and size bring the same keys again, so a step can be listed in several pages.
    """

    position: str
    size: int
    after: str

    @staticmethod
    def read(text: str) -> "Cursor | None":
        """A cursor as `str` wrote it; None where it is none of ours."""
        found = _CURSOR.fullmatch(text)
        if found is None or int(found[1]) >= 2**64 or int(found[2]) < 1:
            return None
        return Cursor(found[1], int(found[2]), found[3])

    def __str__(self) -> str:
        return f"{self.position}.{self.size}.{self.after}"


def literal(text: str) -> str:
    """The text as a pattern that matches only itself."""
    return "".join(f"\\{char}" if char in "*?[]\\^" else char for char in text)
