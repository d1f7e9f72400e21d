"""What an audit can find, and what it says of it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What an audit finds of one life of a job."""

    ENDED = "ended"
    """It ended once."""
    ALIVE = "alive"
    """It stands in one state."""
    MOVING = "moving"
    """It was on its way while the snapshot was taken, and events tell of it since."""
    UNTOLD = "untold"
    """It stands in one state and no event tells of it, where clients that write none are expected."""
    LOST = "lost"
    """It was added, has not ended, and is not there."""
    DOUBLED = "doubled"
    """It ended twice in one life, or stands in two places at once."""
    CONTRADICTED = "contradicted"
    """Its events and its record tell two different ends."""
    ORPHANED = "orphaned"
    """It has a record without a state, a place or a story, or a place without a record."""
    LEAKED = "leaked"
    """A lock, a counter or a mark that no job accounts for."""
    UNPROVABLE = "unprovable"
    """What would tell was gone before it was read."""


RIGHT = (Verdict.ENDED, Verdict.ALIVE, Verdict.MOVING, Verdict.UNTOLD)
WRONG = (Verdict.LOST, Verdict.DOUBLED, Verdict.CONTRADICTED, Verdict.ORPHANED, Verdict.LEAKED)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or that cannot be proved."""

    verdict: Verdict
    protocol: str
    queue: str
    job_id: str | None
    """The job, or what else it is about (a counter's name); None for a gap in a log."""
    name: str | None
    detail: str | None

    def sentence(self) -> str:
        """The finding, for people."""
        subject = f"{self.queue}/{self.job_id}" if self.job_id is not None else self.queue
        return f"{self.verdict}: {subject} {self.detail or ''}".rstrip()
