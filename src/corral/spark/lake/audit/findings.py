"""The verdicts and findings of an audit."""

from dataclasses import dataclass
from enum import StrEnum


class AuditVerdict(StrEnum):
    """What an audit concludes about one generation of a job."""

    ENDED = "ended"
    """It ended once."""
    ALIVE = "alive"
    """It is in one state."""
    MOVING = "moving"
    """It changed its state while the snapshot was taken, and has events since."""
    EVENTLESS = "eventless"
    """It is in one state and has no events, where clients that write none are expected."""
    LOST = "lost"
    """It was added, has not ended, and does not exist."""
    DOUBLED = "doubled"
    """It ended twice in one generation, or is listed twice at once."""
    CONTRADICTED = "contradicted"
    """Its events and its record have two different ends."""
    ORPHANED = "orphaned"
    """It has a record without a state, a list or events, or is listed without a record."""
    LEAKED = "leaked"
    """A lock, a counter or a mark that belongs to no job."""
    UNPROVABLE = "unprovable"
    """The events that would prove it were gone before they were read."""


RIGHT = (AuditVerdict.ENDED, AuditVerdict.ALIVE, AuditVerdict.MOVING, AuditVerdict.EVENTLESS)
WRONG = (
    AuditVerdict.LOST,
    AuditVerdict.DOUBLED,
    AuditVerdict.CONTRADICTED,
    AuditVerdict.ORPHANED,
    AuditVerdict.LEAKED,
)


class AuditExit:
    """Exit codes of a program that audits."""

    NOTHING_LOST = 0
    WRONG = 1
    UNPROVABLE = 4
    """3 is the command line's own, where there is no server."""


@dataclass(frozen=True)
class AuditFinding:
    """Something that is wrong, or that cannot be proved."""

    verdict: AuditVerdict
    protocol: str
    queue: str
    job_id: str | None
    """The job, or the subject of a leak (a counter's name); None for a gap in a log."""
    name: str | None
    detail: str | None

    def sentence(self) -> str:
        """Return the finding in words."""
        subject = f"{self.queue}/{self.job_id}" if self.job_id is not None else self.queue
        return f"{self.verdict}: {subject} {self.detail or ''}".rstrip()
