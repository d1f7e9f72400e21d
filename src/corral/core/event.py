"""JobEvent: something that happened to a job, as every protocol tells it."""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class EventKind(StrEnum):
    """The words every protocol shares; a protocol's own further words pass through as they are."""

    ADDED = "added"
    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    PROGRESS = "progress"
    RETRY = "retry"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    STALLED = "stalled"
    DUPLICATED = "duplicated"
    DRAINED = "drained"
    PAUSED = "paused"
    RESUMED = "resumed"


class JobEvent(Struct, frozen=True, kw_only=True):
    """One entry of a protocol's event log, in the words every protocol shares."""

    id: str
    protocol: str
    queue: str
    at: int
    kind: str
    job_id: str | None = None
    name: str | None = None
    attempt: int | None = None
    previous: str | None = None
    worker: str | None = None
    data: Any = None


class Extent(Struct, frozen=True, kw_only=True):
    """How far an event log reaches: what is kept, and how much was ever added."""

    first: str | None
    last: str | None
    length: int
    added: int | None
    """Entries ever added, where the server tells; `added - length` were trimmed."""
