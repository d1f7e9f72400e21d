"""Job, its options, and a worker's claim on it."""

from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic

import orjson
from msgspec import Struct
from msgspec.structs import force_setattr

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)
    """A protocol's receipt: of one claim, or of one trip that claimed."""
    RCo = TypeVar("RCo", default=Any, covariant=True)
    RContra = TypeVar("RContra", default=Any, contravariant=True)
else:
    from typing import TypeVar

    R = TypeVar("R")
    RCo = TypeVar("RCo", covariant=True)
    RContra = TypeVar("RContra", contravariant=True)

DEFAULT_ATTEMPTS = 3
DEFAULT_BACKOFF_MS = 1000
DEFAULT_KEEP_LOGS = 1000


class JobState(StrEnum):
    """The state of a job; each protocol's codec translates it to the words on the wire."""

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Backoff(Struct, frozen=True):
    """How long to wait before the next attempt: `delay` is in ms, and may be given as a timedelta.

    >>> Backoff("fixed", timedelta(seconds=5)).delay
    5000
    """

    kind: str = "exponential"
    delay: int = DEFAULT_BACKOFF_MS
    jitter: float = 0.0

    if TYPE_CHECKING:

        def __init__(self, kind: str = ..., delay: int | timedelta = ..., jitter: float = ...) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.delay, timedelta):
            force_setattr(self, "delay", self.delay // timedelta(milliseconds=1))


class Keep(Struct, frozen=True):
    """How many finished jobs to keep (None: all, 0: none), and for how many seconds (or a timedelta).

    >>> Keep(age=timedelta(hours=1)).age
    3600
    """

    count: int | None = None
    age: int | None = None

    if TYPE_CHECKING:

        def __init__(self, count: int | None = ..., age: int | timedelta | None = ...) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.age, timedelta):
            force_setattr(self, "age", -(-self.age // timedelta(seconds=1)))  # not a part of it too short


UNIQUE_KEPT_MS = 30 * 86_400_000
"""How long a key is known at most that is taken until its job has ended, where only Corral keeps it."""


class Unique(Struct, frozen=True, kw_only=True):
    """Which jobs of a queue count as one, and for how long."""

    key: str | None = None
    """What they have in common; None: their name, and with `by_data` their data too."""
    by_data: bool = False
    period: int | None = None
    """For how many ms; None: until the job has ended."""
    is_last: bool = False
    """Whether the last of them runs, once none was added for the period; else the first."""

    def id_of(self, name: str, data: Any) -> str:
        """Return what tells such jobs from others.

        >>> Unique(by_data=True).id_of("charge", {"b": 1, "a": 2})
        'charge:cf18a029e5a0c29229df0753ee807c70'
        """
        if self.key is not None:
            return self.key
        if not self.by_data:
            return name
        text = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
        return f"{name}:{blake2b(text, digest_size=16).hexdigest()}"


class JobOptions(Struct, frozen=True, kw_only=True):
    """The options of a job; `core.options.build` checks them and fills in the defaults.

    `keep_completed` / `keep_dead` None leaves it to the worker. `unique` is None in jobs that were read.
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
    unique: Unique | None = None
    group: str | None = None
    extra: dict[str, Any] = {}


class FailedAttempt(Struct, frozen=True, kw_only=True):
    """A short record of an attempt after which the job was retried or ended dead."""

    number: int
    started_at: int | None
    ended_at: int
    worker: str | None
    error: str
    """The class of the error; empty where the worker refused the job without running it."""
    message: str
    """The beginning of the reason."""


class Job(Struct, frozen=True, kw_only=True):
    """One unit of work. A change is a copy: `msgspec.structs.replace(job, …)`."""

    name: str
    data: Any
    queue: str
    id: str = ""
    """Empty until the job was added."""
    options: JobOptions = JobOptions()
    state: JobState | None = None
    attempts_made: int = 0
    """Attempts that have ended (what was released or postponed does not count)."""
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
    failed_attempts: tuple[FailedAttempt, ...] = ()
    """The last attempts that Corral workers made in vain, the oldest first; at most 20 are kept."""
    worker: str | None = None
    doomed: str | None = None
    """The reason with which the job must end without running, decided by the protocol before this attempt."""
    extra: dict[str, Any] = {}
    """Fields only one protocol knows, as they stand on the wire."""


class Claim(Struct, Generic[RCo], frozen=True):
    """A job that a worker has claimed. The receipt fences this attempt and is opaque outside its protocol."""

    job: Job
    receipt: RCo
