"""What a rule answers with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.faults.checker.index import Index
from tests.faults.checker.model import Attempt, Job, Queue
from tests.faults.checker.records import Record


@dataclass(frozen=True, slots=True)
class Violation:
    """A contradiction in the history; two are equal if they say the same, whatever records they come from."""

    rule: str
    code: str
    queue: str
    jobs: tuple[str, ...]
    message: str
    """What contradicts what, with the numbers that decide it."""
    records: tuple[Record, ...] = field(compare=False, repr=False)


@dataclass(slots=True)
class Verdict:
    """What one rule makes of a history."""

    rule: str
    cases: int = 0
    """How often the rule could have been broken; 0: it proves nothing about this history."""
    violations: list[Violation] = field(default_factory=list)

    def add(
        self, code: str, queue: Queue, jobs: Iterable[str], message: str, records: Iterable[Record]
    ) -> None:
        """Report a violation."""
        violation = Violation(self.rule, code, queue.name, tuple(jobs), message, tuple(records))
        self.violations.append(violation)


class Rule(NamedTuple):
    """A named check and what it states."""

    name: str
    statement: str
    judge: Callable[[Index], Verdict]


def names(attempt: Attempt) -> str:
    """Return how messages call an attempt."""
    return f"attempt {attempt.start.receipt!r} of worker {attempt.start.worker!r}"


def count(number: int, noun: str) -> str:
    """Return the number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def holds_at_start(job: Job, attempt: Attempt) -> bool:
    """Whether the attempt had the lock when its handler started, as far as the worker knew."""
    until = lock_until(job, attempt)
    return until is None or attempt.start.at < until


def lock_until(job: Job, attempt: Attempt) -> float | None:
    """Return until when the lock was valid that the attempt started with."""
    start, lock_ms = attempt.start, job.queue.promises.lock_ms
    if start.lock_until is not None or lock_ms is None:
        return start.lock_until
    return (start.at if start.requested_at is None else start.requested_at) + lock_ms
