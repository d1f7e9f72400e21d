"""Desk and Stories: the connections for clients of a contract's own HTTP interface, in its own words."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from corral.core.job import Job
from corral.core.ports import Limit


class Bounds(Struct, frozen=True, kw_only=True):
    """How much may be asked for: jobs waiting or in hand, and new jobs of one client in a time."""

    backlog: int | None = None
    rate: Limit | None = None


class Verdict(StrEnum):
    """What became of a request for a job."""

    CREATED = "created"
    REPLAYED = "replayed"
    """Its idempotency key stands for this very request: the job of then is the answer."""
    FULL = "full"
    """As many jobs wait or are in hand as may."""
    HASTY = "hasty"
    """The client has had its share for now."""


class Admission(Struct, frozen=True, kw_only=True):
    """The answer to a request for a job; nothing was written where it was not created."""

    verdict: Verdict
    job_id: str
    status: str
    created_at: int
    backlog: int
    """Jobs waiting or in hand, this one included; 0 where no bound is set."""
    left: int
    """How many more jobs the client may ask for now."""
    wait_ms: int
    """Until there is more for the client: the whole share, or, where nothing is left, one job."""


class Shown(Struct, frozen=True):
    """A job as its contract shows it, and whose it is."""

    job: Mapping[str, Any]
    owner: str | None


class Page(Struct, frozen=True):
    """Some jobs of a listing, and where to go on; None where there are no more."""

    jobs: Sequence[Mapping[str, Any]]
    following: str | None


class Desk(Protocol):
    """Jobs by request."""

    async def admit(self, job: Job, client: str, owner: str | None, bounds: Bounds) -> Admission:
        """Create a job for a client, whose own it then is where an owner is named."""

    async def show(self, job_id: str) -> Shown | None:
        """One job."""

    async def page(
        self, cursor: str, count: int, status: str | None, task: str | None, owner: str | None
    ) -> Page:
        """Up to `count` jobs from `cursor` on ("": the beginning): all, or those that fit what is given."""

    async def check(self) -> dict[str, str]:
        """Make ready what jobs need; what is ready, by its name."""


class Told(Struct, frozen=True):
    """One event of a job, as a tail sends it."""

    id: str
    kind: str
    data: bytes
    """JSON on one line."""
    is_last: bool


class Peek(Struct, frozen=True, kw_only=True):
    """Where a job stands, and how far its story reaches."""

    status: str
    owner: str | None
    first: str | None
    last: str | None
    is_told_to_the_end: bool
    """Is the last event one that ends a job?"""
    missing: int
    """How many events are gone, where the server tells."""


class Story(Struct, frozen=True, kw_only=True):
    """A piece of a job's story, later than the event that was asked from."""

    events: Sequence[Told]
    position: str
    """Of the last of these events, or the one that was asked from where there are none."""
    is_there: bool
    """Is the job itself still there?"""
    is_over: bool
    is_cut: bool
    """The event that was asked from is gone, so others behind it may be too."""
    has_more: bool


class Stories(Protocol):
    """What happened to single jobs, for many readers."""

    async def peek(self, job_id: str) -> Peek | None:
        """Where a job stands; None where there is none."""

    async def read(self, wanted: Sequence[tuple[str, str]], count: int) -> list[Story]:
        """For each (job id, id of the last event seen or "0-0"): up to `count` events later than it."""

    async def news(self, wanted: Sequence[tuple[str, str]], is_thorough: bool) -> list[str]:
        """Ids among these that are worth reading: with later events, or gone; thoroughly: over, too."""

    def hints(self) -> AsyncGenerator[Sequence[str]]:
        """Ids of jobs about which there may be something new; not all of them, and from now on only."""
