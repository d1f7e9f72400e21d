"""What a move did, or would do."""

from typing import Any

import msgspec
from msgspec import Struct

MOST_EXAMPLES = 5


class Leftover(Struct):
    """Jobs that stay at the source for one reason."""

    count: int = 0
    examples: list[str] = []

    def add(self, job_id: str) -> None:
        """Count one more job."""
        self.count += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples = [*self.examples, job_id]


class MoveReport(Struct, kw_only=True):
    """What became of the jobs and schedules of a queue."""

    run: str = ""
    is_dry: bool = False
    is_resumed: bool = False
    moved: dict[str, int] = {}
    """How many jobs of each state were moved by this process, or fit."""
    left: dict[str, Leftover] = {}
    """What stays at the source, by the reason."""
    adapted: dict[str, Leftover] = {}
    """What jobs left behind, by the reason."""
    renumbered: int = 0
    """Jobs that have another id at the target."""
    schedules: int = 0
    total: int = 0
    """Jobs that the whole run has moved, those of earlier processes among them."""
    received: int = 0
    """The same as the target counts it."""
    compared: int = 0
    """Jobs of the sample that still existed at the target, and were compared with what was held."""
    differences: list[str] = []
    """What differed: empty, or something is wrong."""

    @property
    def count(self) -> int:
        """How many jobs were moved by this process, or fit."""
        return sum(self.moved.values())

    @property
    def is_verified(self) -> bool:
        """Whether both sides count the same, and the sample is equal."""
        return self.total == self.received and not self.differences

    def leave(self, reason: str, job_id: str) -> None:
        """Count a job that stays at the source."""
        self.left.setdefault(reason, Leftover()).add(job_id)

    def adapt(self, reason: str, job_id: str) -> None:
        """Count a job that leaves something behind."""
        self.adapted.setdefault(reason, Leftover()).add(job_id)

    def merge(self, other: "MoveReport") -> None:
        """Add what another process did in the same run."""
        for state, count in other.moved.items():
            self.moved[state] = self.moved.get(state, 0) + count
        for mine, others in ((self.left, other.left), (self.adapted, other.adapted)):
            for reason, leftover in others.items():
                known = mine.setdefault(reason, Leftover())
                known.count += leftover.count
                known.examples = (known.examples + leftover.examples)[:MOST_EXAMPLES]
        self.renumbered += other.renumbered
        self.compared += other.compared
        self.differences = self.differences + other.differences

    def document(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return {**document, "count": self.count, "is_verified": self.is_verified}
