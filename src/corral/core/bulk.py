"""The connections for whole tables: every job of a queue as it stands, and many jobs in at once, once."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from corral.core.job import Job, JobState


class Wanted(Struct, frozen=True):
    """Which jobs of a census are asked for; None asks for all."""

    states: frozenset[JobState] | None = None
    names: frozenset[str] | None = None
    since: int | None = None
    """Created at this time (ms) or later."""
    until: int | None = None
    """Created at this time (ms) or earlier."""

    def has(self, job: Job) -> bool:
        """Is this one of them?"""
        return (
            (self.states is None or job.state in self.states)
            and (self.names is None or job.name in self.names)
            and (self.since is None or job.created_at >= self.since)
            and (self.until is None or job.created_at <= self.until)
        )


class Location(Struct, frozen=True):
    """Where a job is found at one moment: it should have a record, and stand in one place."""

    id: str
    has_record: bool
    places: tuple[str, ...] = ()
    """The protocol's own names of where its id is listed; one that lists it twice is here twice."""


class Leak(Struct, frozen=True):
    """Something left behind that no job accounts for."""

    kind: str
    """`lock`, `counter` or `mark`."""
    subject: str
    detail: str


class Census(Protocol):
    """Every job of a queue, while it goes on working."""

    async def ids(self, cursor: str = "0") -> tuple[list[str], str]:
        """Some ids, and the cursor for more ("0": that was all).

        A job that is there all the while is among them once or more often; others may be or may not.
        """

    async def read(self, ids: Sequence[str], wanted: Wanted) -> list[Job]:
        """Those of these jobs that exist and are wanted, each with the state it has at that moment."""

    async def listed(self, cursor: str = "0") -> tuple[list[tuple[str, str]], str]:
        """Some of (place, id) of all places that list jobs, and the cursor for more ("0": that was all)."""

    async def locate(self, ids: Sequence[str]) -> list[Location]:
        """Where each of these is, exactly: dearer than `read`, for the few that look odd."""

    async def leaks(self) -> list[Leak]:
        """Locks, counters and marks that no job accounts for."""


class Ledger(Struct, frozen=True):
    """What was submitted already in one write, so that repeating it adds nothing."""

    name: str
    """Unique for one write (of one batch of one query)."""
    seconds: int
    """How long it is kept unless it is dropped before."""


class Intake(Protocol):
    """Jobs in, each once, whatever is sent twice; also when its first copy has ended and is gone."""

    async def submit_once(self, jobs: Sequence[Job], ledger: Ledger) -> int:
        """Submit those of these jobs (all with ids) that the ledger does not know; how many that were."""

    async def forget(self, ledger: Ledger) -> None:
        """Drop a ledger: its write is over, and will not be repeated."""
