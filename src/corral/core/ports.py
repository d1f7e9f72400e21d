"""The only connections between protocols and the rest of the house.

Everything is a list, so bulk needs no second verb and a single job is a batch of one.
Each port is bound to one queue of one protocol.
"""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from corral.core.event import Extent, JobEvent
from corral.core.job import Claim, Job, JobState, Keep
from corral.core.outcome import Settlement
from corral.core.pages import EventPage, Marks
from corral.errors import SettleError


class Why(StrEnum):
    """Why a turn brought no more claims."""

    SATISFIED = "satisfied"
    """It brought all that was wanted: ask again when a slot is free."""
    DRAINED = "drained"
    LIMITED = "limited"
    PAUSED = "paused"
    MAXED = "maxed"


class Rest(Struct, frozen=True):
    """Why no more came, and until when (ms since the epoch) nothing will by itself."""

    why: Why
    until: int | None = None
    cursor: Any = None
    """The protocol's own mark of what the turn saw, for `wait`."""


class Turn(Struct, frozen=True):
    """What one round trip brought: a verdict per settlement (None: applied), new claims, and the rest."""

    verdicts: Sequence[SettleError | None]
    claims: Sequence[Claim]
    rest: Rest


class Extension(Struct, frozen=True):
    """What a renewal found: claims that are not ours any more, and claims someone asked to cancel."""

    lost: Sequence[Claim] = ()
    cancelled: Sequence[Claim] = ()


class Recovery(Struct, frozen=True):
    """What a recovery found: claims to adopt (for an owner), ids put back, ids ended for good."""

    claims: Sequence[Claim] = ()
    requeued: Sequence[str] = ()
    ended: Sequence[str] = ()


class Limit(Struct, frozen=True):
    """At most `count` claims in `duration` ms."""

    count: int
    duration: int


class Profile(Struct, frozen=True, kw_only=True):
    """Who claims, and how: what a protocol needs to know of a worker.

    A protocol reads what it knows and leaves the rest alone.
    """

    name: str
    lock_ms: int = 30_000
    max_stalls: int = 1
    """How often a job may be found abandoned before it ends."""
    recover_ms: int = 30_000
    promote_ms: int | None = None
    """Between two looks for jobs that have become due, where no turn looks; None: as the protocol does."""
    limit: Limit | None = None
    keep_completed: Keep | None = None
    keep_dead: Keep | None = None
    metrics_points: int | None = None
    extra: dict[str, Any] = {}
    """What only one protocol asks of its workers (capabilities, region …)."""


class Broker(Protocol):
    """Jobs in, jobs out."""

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Ids of the jobs, in order. An id that exists already is returned and its job left as it is."""

    async def turn(self, settlements: Sequence[Settlement], want: int) -> Turn:
        """Settle what ended, then claim up to `want` jobs, in one round trip.

        A lost answer raises `RedisConnectionError`; the receipt of its claims is then in `unanswered`.
        A turn that only settles may be under way beside one that claims, but never two that claim.
        """

    async def wait(self, rest: Rest) -> None:
        """Return when there may be work again, at most 5 s from now; on a connection of its own."""

    async def extend(self, claims: Sequence[Claim]) -> Extension:
        """Renew the locks of these claims."""

    async def promote(self) -> int:
        """Move due jobs to where they can be claimed; how many were moved."""

    async def recover(self, owner: Any = None) -> Recovery:
        """Put back what dead workers left; with an `owner` (a receipt), what that one trip claimed."""

    @property
    def unanswered(self) -> Any:
        """The receipt of a claim whose answer was lost, until `recover` has been asked for it; else None."""

    async def close(self) -> None:
        """Let go of the connections this broker opened for itself."""


class Reporter(Protocol):
    """A handler's own words while it runs; each checks that the claim is still ours."""

    async def progress(self, claim: Claim, value: Any) -> None:
        """Write the progress down and tell it as an event."""

    async def log(self, claim: Claim, line: str) -> int:
        """Append a line to the job's log; how many lines it has now."""

    async def emit(self, claim: Claim, step: str, data: Any) -> None:
        """An event of the handler's own."""

    async def beat(self, stopping: bool = False) -> None:
        """The worker is alive (or says good-bye)."""


class EventLog(Protocol):
    """What happened, in order."""

    async def range(self, after: str = "-", count: int = 1000) -> list[JobEvent]:
        """Up to `count` events later than id `after` ("-": from the beginning)."""

    def tail(self, after: str = "$") -> AsyncIterator[JobEvent]:
        """Events as they come, from later than `after` ("$": from now)."""

    async def extent(self) -> Extent:
        """How far the log reaches."""

    async def page(self, after: str = "-", until: str = "+", count: int = 1000) -> EventPage:
        """The events among the `count` entries later than id `after` and no later than `until`, as columns.

        A page that saw fewer than `count` entries is the last.
        """

    async def marks(self, after: str, until: str, first: int, step: int) -> Marks:
        """Count the events later than `after` and no later than `until`; marks at `first` and each `step` on.

        One call counts a bounded stretch only: go on after its last event until it says it was the whole.
        """


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A worker as the server sees it."""

    name: str
    address: str | None = None
    seen_at: int | None = None
    extra: dict[str, Any] = {}


class Inspector(Protocol):
    """Reads."""

    async def counts(self) -> dict[JobState, int]:
        """How many jobs are in each state this protocol knows."""

    async def jobs(self, state: JobState, start: int = 0, count: int = 100) -> list[Job]:
        """Jobs in a state: the next to run first, the last to end first."""

    async def job(self, job_id: str) -> Job | None:
        """One job, with its state."""

    async def logs(self, job_id: str, start: int = 0, count: int = 1000) -> list[str]:
        """Lines of a job's log."""

    async def workers(self) -> list[WorkerInfo]:
        """Workers that are alive now."""

    async def is_paused(self) -> bool:
        """Is the queue paused?"""


class Operator(Protocol):
    """Writes on demand."""

    async def pause(self) -> None:
        """No claims until `resume`."""

    async def resume(self) -> None:
        """Claims again."""

    async def retry(self, job_ids: Sequence[str]) -> list[str]:
        """Put ended jobs back in the queue; those for which it was done."""

    async def promote(self, job_ids: Sequence[str]) -> list[str]:
        """Make delayed jobs claimable now; those for which it was done."""

    async def remove(self, job_ids: Sequence[str]) -> list[str]:
        """Delete jobs that are not active; those for which it was done."""

    async def cancel(self, job_ids: Sequence[str]) -> list[str]:
        """End waiting jobs, ask active ones to end; those for which it was done."""
