"""HttpApi: the port for clients of a protocol's own HTTP contract, in that contract's words."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from corral.core.job import Job
from corral.core.ports import Limit


class AdmissionLimits(Struct, frozen=True, kw_only=True):
    """How many jobs may wait or run, and how many new ones one client may submit in a time."""

    backlog: int | None = None
    rate: Limit | None = None


class AdmissionVerdict(StrEnum):
    """The result of a request for a job."""

    CREATED = "created"
    REPLAYED = "replayed"
    """The idempotency key belongs to this very request: its job is the answer."""
    FULL = "full"
    """As many jobs wait or run as may."""
    RATE_LIMITED = "limited"
    """The client's quota is used up."""


class Admission(Struct, frozen=True, kw_only=True):
    """The answer to a request for a job; nothing was written where it was not created."""

    verdict: AdmissionVerdict
    job_id: str
    status: str
    created_at: int
    backlog: int
    """Jobs waiting or running, this one included; 0 where no limit is set."""
    left: int
    """How many more jobs the client may submit now."""
    wait_ms: int
    """Until the client's quota is full again, or, where nothing is left, until one more job is allowed."""


class OwnedJob(Struct, frozen=True):
    """A job as its contract shows it, and its owner."""

    job: Mapping[str, Any]
    owner: str | None


class JobListing(Struct, frozen=True):
    """Some jobs of a listing, and the cursor for more; None where there are no more."""

    jobs: Sequence[Mapping[str, Any]]
    following: str | None


class TailEvent(Struct, frozen=True):
    """One event of a job, as a tail sends it."""

    id: str
    kind: str
    data: bytes
    """JSON on one line."""
    is_last: bool


class TailState(Struct, frozen=True, kw_only=True):
    """A job's status and owner, and how far its events reach."""

    status: str
    owner: str | None
    first: str | None
    last: str | None
    has_final_event: bool
    """Whether the last event is one that ends a job."""
    missing: int
    """How many events are gone, where the server knows."""


class TailBatch(Struct, frozen=True, kw_only=True):
    """Events of a job later than a position."""

    events: Sequence[TailEvent]
    position: str
    """Of the last of these events, or the requested one where there are none."""
    exists: bool
    """Whether the job itself still exists."""
    is_over: bool
    is_cut: bool
    """Whether the event at the requested position is gone, so that others behind it may be too."""
    has_more: bool


class HttpApi(Protocol):
    """Creates, shows and lists jobs, and reads the events of many jobs for many readers."""

    async def admit(self, job: Job, client: str, owner: str | None, limits: AdmissionLimits) -> Admission:
        """Create a job for a client, owned by it where an owner is given."""

    async def show(self, job_id: str) -> OwnedJob | None:
        """Return one job; None where it does not exist."""

    async def page(
        self, cursor: str, count: int, status: str | None, task: str | None, owner: str | None, max_bytes: int
    ) -> JobListing:
        """Return up to `count` jobs from `cursor` on ("": the beginning) that match.

        They have at most `max_bytes`, except where a single one has more.
        """

    async def check(self) -> dict[str, str]:
        """Prepare what jobs need; return what is ready, by its name."""

    async def tail_state(self, job_id: str) -> TailState | None:
        """Return a job's status and the extent of its events; None where it does not exist."""

    async def read(self, positions: Sequence[tuple[str, str]], count: int, max_bytes: int) -> list[TailBatch]:
        """For each (job id, id of the last event seen or "0-0"): return up to `count` later events.

        They have at most `max_bytes`, except where a single one has more.
        """

    async def changed(self, positions: Sequence[tuple[str, str]], is_thorough: bool) -> list[str]:
        """Return the ids among these that have later events or are gone; `is_thorough`: or are over."""

    def hints(self) -> AsyncGenerator[Sequence[str]]:
        """Yield ids of jobs that may have new events, from now on; not all of them."""
