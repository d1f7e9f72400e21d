"""Job, its options, and a worker's claim on it."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

DEFAULT_ATTEMPTS = 3
DEFAULT_BACKOFF_MS = 1000
DEFAULT_KEEP_LOGS = 1000


class JobState(StrEnum):
    """Where a job stands; each protocol's codec translates to the wire's own words."""

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Backoff(Struct, frozen=True):
    """How long to wait before the next attempt."""

    kind: str = "exponential"
    delay: int = DEFAULT_BACKOFF_MS
    jitter: float = 0.0


class Keep(Struct, frozen=True):
    """How many finished jobs to keep (None: all, 0: none), and for how many seconds."""

    count: int | None = None
    age: int | None = None


class JobOptions(Struct, frozen=True, kw_only=True):
    """What a producer may ask for; `core.options.build` checks and fills in.

    `keep_completed` / `keep_dead` None means "as the worker says".
    `extra` holds the options only one protocol knows, in that protocol's own words.
    """

    priority: int = 0
    delay: int = 0
    attempts: int = DEFAULT_ATTEMPTS
    backoff: Backoff | None = Backoff()
    keep_completed: Keep | None = None
    keep_dead: Keep | None = None
    lifo: bool = False
    keep_logs: int | None = None
    extra: dict[str, Any] = {}


class Job(Struct, frozen=True, kw_only=True):
    """One unit of work. A change is a copy: `msgspec.structs.replace(job, …)`."""

    name: str
    data: Any
    queue: str
    id: str = ""
    """Empty until the protocol has given one."""
    options: JobOptions = JobOptions()
    state: JobState | None = None
    attempt: int = 0
    """Attempts that have ended so far (not counting what was released or postponed)."""
    starts: int = 0
    stalls: int = 0
    created_at: int = 0
    started_at: int | None = None
    finished_at: int | None = None
    progress: Any = None
    result: Any = None
    reason: str | None = None
    """Why the last attempt failed."""
    trace: tuple[str, ...] = ()
    worker: str | None = None
    doomed: str | None = None
    """A protocol's verdict from before this attempt: the job must end with this reason, unrun."""
    extra: dict[str, Any] = {}
    """Fields only one protocol knows, as they stand on the wire."""


class Claim(Struct, frozen=True):
    """A job in a worker's hands. The receipt fences this one attempt and is opaque outside its protocol."""

    job: Job
    receipt: Any
