"""JobEvent: an entry of an event log, in the words that all protocols share."""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class EventKind(StrEnum):
    """The kinds all protocols share; a protocol's own further kinds pass through as they are."""

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
    """Something that happened to a job or its queue."""

    id: str
    protocol: str
    queue: str
    at: int
    kind: str
    job_id: str | None = None
    name: str | None = None
    attempt: int | None = None
    """The number of the attempt the event is about, from 1; None where the protocol does not record it."""
    previous: str | None = None
    worker: str | None = None
    data: Any = None


class Extent(Struct, frozen=True, kw_only=True):
    """The range of an event log: what is kept, and how much was ever added."""

    first: str | None
    last: str | None
    length: int
    added: int | None
    """Entries ever added, where the server counts them; `added - length` were trimmed."""
