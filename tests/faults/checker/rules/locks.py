"""Locks: no two attempts of a job hold it at the same time, and only the one that holds it settles."""

import math
from bisect import bisect_left
from typing import NamedTuple

from tests.faults.checker.index import Index
from tests.faults.checker.model import Attempt, Job
from tests.faults.checker.records import RECOVERIES
from tests.faults.checker.rules.base import Verdict, holds_at_start, lock_until, names

RELEASING = frozenset({"cancel", "remove", "retry", "replay", "drain", "clean", "obliterate"})
"""Operations that may take a job away from the worker that runs it."""


class Hold(NamedTuple):
    """A span of time in which an attempt surely holds the lock."""

    begin: float
    end: float
    attempt: Attempt
    reason: str
    """Why it is not sure any more."""


def lock(index: Index) -> Verdict:
    """No two attempts of one job hold its lock at the same time.

    An attempt surely holds the lock from its start until its handler ends, its lock runs out, or an operation
    may take the job away. A killed worker holds it until the lock runs out or the server logs that it
    recovered the job.
    """
    verdict = Verdict("lock")
    for job in index.jobs:
        if len(job.attempts) < 2:
            continue
        verdict.cases += sum(lock_until(job, attempt) is not None for attempt in job.attempts[:-1])
        ordered = [hold for attempt in job.attempts for hold in holds(index, job, attempt)]
        ordered.sort(key=lambda hold: (hold.begin, hold.end))
        longest: list[Hold] = []  # of the holds so far, the two of different attempts that end last
        reported: set[Attempt] = set()
        for later in ordered:
            earlier = next((hold for hold in longest if hold.attempt is not later.attempt), None)
            if earlier is not None and later.attempt not in reported and _overlap(job, earlier, later):
                reported.add(later.attempt)
                _report_overlap(index, job, earlier, later, verdict)
            longest = sorted((later, *longest), key=lambda hold: -hold.end)
            longest = (
                longest[:1] + [hold for hold in longest[1:] if hold.attempt is not longest[0].attempt][:1]
            )
    return verdict


def _overlap(job: Job, earlier: Hold, later: Hold) -> bool:
    """Whether neither hold can have ended before the other began, whatever the skew of the clocks."""
    tolerance = job.queue.tolerance(earlier.attempt.start, later.attempt.start)
    return min(earlier.end - later.begin, later.end - earlier.begin) > tolerance


def _report_overlap(index: Index, job: Job, earlier: Hold, later: Hold, verdict: Verdict) -> None:
    verb = "started" if later.begin == later.attempt.start.at else "extended its lock"
    message = (
        f"{names(later.attempt)} {verb} {earlier.end - later.begin:.1f} ms before {names(earlier.attempt)} "
        f"lost the lock ({earlier.reason})"
    )
    code = "overlap" if index.killed_at(earlier.attempt) is None else "early_restart"
    verdict.add(code, job.queue, [job.id], message, (*earlier.attempt.records, *later.attempt.records))


def holds(index: Index, job: Job, attempt: Attempt) -> list[Hold]:
    """Return when the attempt surely held the lock; without a known lock, only the moment of its start."""
    start, until = attempt.start, lock_until(job, attempt)
    if until is None:
        return [Hold(start.at, start.at, attempt, "nothing is known of its lock")]
    spans = [(start.at, until)] if start.at < until else []
    for extension in attempt.extensions:
        if spans and extension.at <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], extension.until))
        else:
            spans.append((extension.at, extension.until))
    cut, why = _cut(index, job, attempt)
    return [
        Hold(begin, min(end, cut), attempt, "it ran out" if end <= cut else why)
        for begin, end in spans
        if begin < cut
    ]


def _cut(index: Index, job: Job, attempt: Attempt) -> tuple[float, str]:
    """Return from when on the lock may be gone before it runs out, and why."""
    start, skew = attempt.start, job.queue.promises.skew_ms
    cuts = [(float("inf"), "")]
    if attempt.end is not None:
        cuts.append((attempt.end.at, "its handler ended"))
    for operation in (*job.operations, *job.queue.operations):
        if operation.invoke.verb in RELEASING and operation.latest >= start.at - skew:
            cuts.append((operation.invoke.at, f"a {operation.invoke.verb} was sent"))
    for doubt in index.doubts:
        stamps = (start.at, *(extension.at for extension in attempt.extensions))
        if any(doubt.begin <= at <= doubt.end for at in stamps):
            cuts.append((doubt.undone_at, "a fault may have undone the claim"))
    killed = index.killed_at(attempt)
    if killed is not None:
        if job.queue.promises.early_recovery:
            cuts.append((killed, "its worker was killed"))
        for event in job.events:
            at = killed if event.server_at is None else event.server_at
            if event.name in RECOVERIES and at >= killed - skew:
                cuts.append((at, "the job was recovered"))
    return min(cuts)


def fence(index: Index) -> Verdict:
    """A settlement is applied for the attempt that holds the lock, and only for that one.

    Judged where the rule `lock` does not: the lock of an attempt ran out, another attempt started, and the
    settlement of the first, which was sent after that, was applied all the same. Or the settlement of an
    attempt was refused although it surely held the lock all the while: somebody without the lock had the job.
    """
    verdict = Verdict("fence")
    for job in index.jobs:
        for attempt in job.attempts:
            if attempt.end is None or attempt.settled is None:
                continue
            if attempt.verdict == "refused" and not job.flows:
                _refused_with_lock(index, job, attempt, verdict)
            lost = attempt.lost
            if lost is not None:
                verdict.cases += 1
                if lost.at < attempt.end.at and attempt.verdict == "applied" and not index.undone(lost.at):
                    message = f"{names(attempt)} lost its lock, and then its settlement was applied"
                    verdict.add("applied_after_loss", job.queue, [job.id], message, attempt.records)
                    continue
            if len(job.attempts) > 1:
                _fence_between(index, job, attempt, verdict)
    return verdict


def _refused_with_lock(index: Index, job: Job, attempt: Attempt, verdict: Verdict) -> None:
    """Judge the first answer to a settlement, unless another attempt started meanwhile: `lock` has that."""
    answer = attempt.settlements[0]
    if any(attempt.start.at < other.start.at < answer.at for other in job.attempts):
        return
    until, taken = _held_until(index, job, attempt)
    verdict.cases += 1
    left = until - answer.at
    if left > job.queue.promises.skew_ms and not taken:
        message = (
            f"the settlement of {names(attempt)} was refused {left:.1f} ms before its lock could run out, "
            "and nothing had taken the job away"
        )
        verdict.add("refused_with_lock", job.queue, [job.id], message, job.records)


def _held_until(index: Index, job: Job, attempt: Attempt) -> tuple[float, bool]:
    """Return until when the attempt surely held the lock without a gap, and whether it may be gone before."""
    start, until = attempt.start, lock_until(job, attempt)
    held = until is not None and start.at < until
    end = until if held and until is not None else -math.inf
    for extension in attempt.extensions:
        if extension.at <= end:
            end = max(end, extension.until)
    operations = (*job.operations, *job.queue.operations)
    taken = any(op.invoke.verb in RELEASING and op.latest >= start.at for op in operations)
    return end, taken or attempt.lost is not None or bool(index.doubts)


def _fence_between(index: Index, job: Job, attempt: Attempt, verdict: Verdict) -> None:
    until, end = lock_until(job, attempt), attempt.end
    if until is None or end is None:
        return
    expiry = max([until, *(extension.until for extension in attempt.extensions)])
    first = bisect_left(job.attempts, attempt.start.at, key=lambda other: other.start.at)
    last = bisect_left(job.attempts, end.at, key=lambda other: other.start.at)
    for other in job.attempts[first:last]:
        tolerance = job.queue.tolerance(attempt.start, other.start)
        between = attempt.start.at + tolerance < other.start.at < end.at - tolerance
        if not between or not holds_at_start(job, other) or index.undone(other.start.at):
            continue
        verdict.cases += 1
        if attempt.verdict == "applied" and other.start.at >= expiry - tolerance:
            message = (
                f"the settlement of {names(attempt)} was applied although its lock had run out and "
                f"{names(other)} had started {end.at - other.start.at:.1f} ms before it was sent"
            )
            records = (*attempt.records, *other.records)
            verdict.add("applied_without_lock", job.queue, [job.id], message, records)
            return
