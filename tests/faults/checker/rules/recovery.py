"""Recovery: how long the jobs of a killed worker take to start again."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.faults.checker.index import Index
from tests.faults.checker.model import Attempt, Job
from tests.faults.checker.records import ENDS
from tests.faults.checker.rules.base import Verdict, holds_at_start, names


class Recovery(NamedTuple):
    """An attempt that a kill cut short, and the one that followed."""

    job: Job
    attempt: Attempt
    killed_at: float
    following: Attempt | None

    @property
    def ms(self) -> float:
        return self.following.start.at - self.killed_at if self.following is not None else float("inf")


def recoveries(index: Index) -> Iterator[Recovery]:
    """Yield every attempt that was not settled because its worker was killed."""
    if not any(fault.action == "kill" for fault in index.faults):
        return
    for job in index.jobs:
        for number, attempt in enumerate(job.attempts):
            killed_at = index.kill_after_start(attempt) if attempt.settled is None else None
            if killed_at is not None:
                later = (other for other in job.attempts[number + 1 :] if holds_at_start(job, other))
                following = next(later, None)
                taken_over = following is not None and following.start.at < killed_at
                if not taken_over and (following is not None or attempt.end is None):
                    yield Recovery(job, attempt, killed_at, following)


def recovery(index: Index) -> Verdict:
    """The jobs of a killed worker start again in the time that was promised."""
    verdict = Verdict("recovery")
    for one in recoveries(index):
        limit = one.job.queue.promises.recovery_ms
        if limit is None:
            continue
        verdict.cases += 1
        allowed = limit + one.job.queue.promises.skew_ms
        if one.following is not None and one.ms > allowed:
            worker = one.attempt.start.worker
            message = f"{names(one.following)} started {one.ms:.1f} ms after the kill of worker {worker!r}"
            code, end = "slow", one.following.records
        elif one.following is None and not _ended(one.job) and index.last_at > one.killed_at + allowed:
            message = f"{names(one.attempt)} was killed, and no other followed"
            code, end = "never", ()
        else:
            continue
        message += f"; {limit:.0f} ms are promised"
        verdict.add(code, one.job.queue, [one.job.id], message, (*one.attempt.records, *end))
    return verdict


def _ended(job: Job) -> bool:
    """Whether the job has ended or may have, so that it need not start again."""
    if job.operations or any(event.name in ENDS for event in job.events):
        return True
    return job.state is None or bool(ENDS.intersection(job.state.places))


class Distribution(NamedTuple):
    """Times in milliseconds, by nearest rank."""

    jobs: int
    p50: float
    p95: float
    p99: float
    max: float


def distribution(times: list[float]) -> Distribution | None:
    """Return the percentiles of the times, None without any."""
    if not times:
        return None
    ordered = sorted(times)
    p50, p95, p99 = (ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 95, 99))
    return Distribution(len(ordered), p50, p95, p99, ordered[-1])
