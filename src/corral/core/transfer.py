"""Transfer: the port by which jobs are moved from one queue to another, whatever their protocols."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from corral.core.job import Job
from corral.core.ports import Added
from corral.errors import Refused


class Unheld(StrEnum):
    """Why a job cannot be held."""

    ACTIVE = "active"
    """A worker has claimed it."""
    GONE = "gone"
    """It does not exist any more, or is listed nowhere."""
    SCHEDULED = "scheduled"
    """It is the next firing of a schedule, and moves with that."""
    FLOW = "flow"
    """It belongs to a flow of which a part is active, or in another queue."""


class HeldJob(Struct, frozen=True, kw_only=True):
    """A job that a run holds: nobody can claim it, and its record still exists."""

    receipt: bytes
    """What ends the hold; opaque outside its protocol."""
    batch: str
    """The batch in which it was held: the target has a ledger for each."""
    job: Job
    """With the state that it had when it was held."""
    protocol: str = ""
    """The protocol that it was read from; empty where that is none of Corral's."""
    due: int | None = None
    """When a delayed job is due, ms since the epoch."""
    logs: tuple[str, ...] = ()
    has_id: bool = True
    """Whether the job has an id of its own; else that is only what the source knows it by."""
    target_id: str = ""
    """The id that it should have, where that is another."""
    is_unreadable: bool = False
    """Whether it is only listed here: nothing of it can be read."""
    group: str = ""
    """What the jobs of a flow have in common: they are received all or none."""
    relations: Mapping[str, Sequence[bytes]] = {}
    """What the protocol keeps of a job's children, for the same protocol."""

    @property
    def wanted_id(self) -> str:
        """The id that the job should have at the target; empty: any."""
        return self.target_id or (self.job.id if self.has_id else "")


class Run(Struct, frozen=True, kw_only=True):
    """One move of jobs from a queue, as its source records it until it has ended."""

    id: str
    target: str
    """The target's address, without its password."""
    options: str
    """The options of a move, which decide which jobs fit: the same for everyone who works at the run."""
    started_at: int
    moved: int = 0
    """Jobs that have arrived and were deleted here."""
    schedules: Mapping[str, bytes] = {}
    """Schedules on their way: their ids and what they are, as JSON."""


class HoldingPort(Protocol):
    """The side of a source: jobs are held by one atomic step, and deleted once they have arrived."""

    async def begin(self, run: Run) -> Run:
        """Record a run; where one is recorded already, return that."""

    async def run(self) -> Run | None:
        """Return the run that is recorded; None where there is none."""

    async def finish(self, run: str) -> None:
        """Delete the record of a run that holds no jobs."""

    async def hold(
        self, run: str, batch: str, groups: Sequence[Sequence[str]]
    ) -> list[list[HeldJob] | Unheld]:
        """Hold jobs, each group whole or not at all; `RunEnded` where the run is not the recorded one."""

    async def held(self) -> list[HeldJob]:
        """Return the jobs that are held, the first held first: a batch of each process at most."""

    async def drop(self, held: Sequence[HeldJob]) -> int:
        """Delete held jobs that have arrived; return how many of them were held."""

    async def restore(self, held: Sequence[HeldJob]) -> int:
        """Put held jobs back where they were; return how many of them were held."""

    async def keep_schedule(self, schedule_id: str, document: bytes) -> None:
        """Record a schedule that is on its way."""

    async def drop_schedule(self, schedule_id: str) -> None:
        """Delete the record of a schedule that has arrived."""

    async def check_rights(self) -> None:
        """Raise the server's error where its user may not do what a move does."""

    @property
    def place(self) -> str:
        """What tells this queue from the others of its server."""


class Transfer(HoldingPort, Protocol):
    """Both sides of a move."""

    def check(self, held: HeldJob) -> None:
        """Raise the refusal of a job that this protocol cannot hold."""

    def keeps_id(self, job_id: str) -> bool:
        """Return whether a job can have this id here; else it gets a new one."""

    async def receive(self, run: str, batch: str, jobs: Sequence[HeldJob]) -> list[Added | Refused]:
        """Add jobs with all they have: state, attempts, failures, logs.

        One that the batch's ledger knows is not added again; after `close` none is. A job whose id is taken
        gets another where a server made that id; else it is refused.
        """

    async def received(self, run: str) -> int:
        """Return how many jobs a run has added."""

    async def close(self, run: str, batch: str) -> set[str]:
        """Let no more jobs be added in this batch; return the ids, at the source, of those that were."""

    async def forget(self, run: str, batch: str, job_ids: Sequence[str]) -> None:
        """Close a batch whose jobs the source has dropped: the ledger needs them no more."""
