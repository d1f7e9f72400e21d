"""AuditLog: who changed what, through the gateway or the command line, as a stream of its own."""

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import Struct

from corral.store.client import Store

KEY = "corral:audit"
KEPT = 100_000
"""About so many entries are kept."""
MAX_DETAIL = 4096
"""Bytes of an entry's detail; a longer one is cut."""


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One change."""

    id: str
    at: int
    actor: str
    """The name of the key, the forwarded user, or the user of the command line."""
    via: str
    """`http` or `cli`."""
    action: str
    protocol: str = ""
    queue: str = ""
    subject: str = ""
    """The job, schedule or task."""
    outcome: str = ""
    detail: str = ""


class AuditLog:
    """The audit log of one server."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def record(self, *, actor: str, via: str, action: str, **fields: str) -> None:
        """Append an entry."""
        entry = {"actor": actor, "via": via, "action": action, **fields}
        flat = [part for name, value in entry.items() if value for part in (name, value[:MAX_DETAIL])]
        await self._store.call("XADD", KEY, "MAXLEN", "~", KEPT, "*", *flat)

    async def page(self, before: str = "+", count: int = 100) -> list[AuditEntry]:
        """Return entries older than the id `before`, the latest first."""
        end = before if before == "+" else f"({before}"
        rows = await self._store.call("XREVRANGE", KEY, end, "-", "COUNT", count)
        return [_entry(entry_id.decode(), flat) for entry_id, flat in rows]


def _entry(entry_id: str, flat: list[bytes]) -> AuditEntry:
    texts = [part.decode("utf-8", "replace") for part in flat]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    known = {name: fields.get(name, "") for name in AuditEntry.__struct_fields__ if name not in ("id", "at")}
    return AuditEntry(id=entry_id, at=int(entry_id.partition("-")[0]), **known)


def detail_of(values: Mapping[str, Any]) -> str:
    """Return arguments as JSON, without those that are not set."""
    present = {name: value for name, value in values.items() if value not in (None, "", [], {}, ())}
    return orjson.dumps(present, default=str).decode("utf-8", "replace") if present else ""
