"""Attempts: how many a job has, how they are numbered, and how long it waits before one."""

import math
from bisect import bisect_left, bisect_right
from itertools import pairwise

from tests.faults.checker.index import Index
from tests.faults.checker.model import Attempt, Job
from tests.faults.checker.records import RECOVERIES
from tests.faults.checker.rules.base import Verdict, count, holds_at_start, names

COUNTED = frozenset({"completed", "dead", "retry"})
"""Outcomes that use an attempt up; `released` and `waiting_children` do not."""


def attempts(index: Index) -> Verdict:
    """A job has no more attempts than it may have, and an attempt that stalled is not counted as one."""
    verdict = Verdict("attempts")
    for job in index.jobs:
        if job.attempts:
            _Judge(index, job, verdict).judge()
    return verdict


class _Judge:
    """The attempts of one job: surely counted, surely stalled, and those of which nobody knows."""

    def __init__(self, index: Index, job: Job, verdict: Verdict) -> None:
        self.index, self.job, self.verdict, self.promises = index, job, verdict, job.queue.promises
        self.counted: list[Attempt] = []
        self.stalled: list[Attempt] = []
        self.unclear: list[Attempt] = []
        for attempt in job.attempts:
            if attempt.verdict == "applied":
                if attempt.settled is not None and attempt.settled.outcome in COUNTED:
                    self.counted.append(attempt)
            elif attempt.stalled and not index.undone(attempt.start.at):
                self.stalled.append(attempt)
            else:
                self.unclear.append(attempt)
        stalled = self.stalled if self.promises.stalls_are_attempts else []
        self.made = {attempt: (attempt.end or attempt.start).at for attempt in (*self.counted, *self.unclear)}
        self.made |= {attempt: attempt.start.at for attempt in stalled}
        self.made_at = sorted(self.made.values())
        """When each attempt was counted at the earliest, if it was."""
        self.settled_at = sorted(a.settled.at for a in self.counted if a.settled is not None)
        times = (event.server_at for event in job.events if event.name in RECOVERIES)
        self.recovered_at = sorted(-math.inf if at is None else at for at in times)
        operations = (*job.operations, *job.queue.operations)
        self.retries = sum(operation.invoke.verb == "retry" for operation in operations)
        self.replays = len(index.reopenings(job)) - self.retries
        self.reopened = bool(self.retries or self.replays)

    def judge(self) -> None:
        """Judge the number of each attempt, and how many there are."""
        for attempt in self.job.attempts:
            if attempt.start.attempt is not None:
                self._number(attempt, attempt.start.attempt)
        if not self._too_many():
            self._too_many_stalls()
        self._dumped()

    @property
    def _most(self) -> int | None:
        """How many attempts the job may have: a replay begins anew, and a retry grants one more."""
        own = [a.spec.max_attempts for a in self.job.all_additions if a.spec.max_attempts is not None]
        most = max(own, default=self.promises.max_attempts)
        return None if most is None else most * (1 + self.replays) + self.retries

    def _number(self, attempt: Attempt, number: int) -> None:
        """Compare a number with the attempts that were settled before its claim, surely or perhaps."""
        skew, start = self.promises.skew_ms, attempt.start
        self.verdict.cases += 1
        claimed_after = start.requested_at
        if claimed_after is None:
            claimed_after = start.at if holds_at_start(self.job, attempt) else -math.inf
        least = 1 if self.reopened else 1 + bisect_left(self.settled_at, claimed_after - skew)
        own = self.made.get(attempt, math.inf) <= start.at + skew
        most = 1 + bisect_right(self.made_at, start.at + skew) - own + self._unseen(start.at)
        if not least <= number <= most:
            right = f"{least}" if least == most else f"between {least} and {most}"
            self._report("wrong_number", f"{names(attempt)} has the number {number}, and {right} is right")

    def _unseen(self, until: float) -> int:
        """Return how many claims that no handler saw the server took back: where stalls count, so do they."""
        if not self.promises.stalls_are_attempts:
            return 0
        recovered = bisect_right(self.recovered_at, until + self.promises.skew_ms)
        return max(recovered - sum(attempt.start.at < until for attempt in self.stalled), 0)

    def _too_many(self) -> bool:
        most = self._most
        if most is None:
            return False
        self.verdict.cases += 1
        counted = len(self.counted) + (len(self.stalled) if self.promises.stalls_are_attempts else 0)
        if counted > most:
            message = f"job {self.job.id!r} has {count(counted, 'attempt')}, and may have {most}"
            self._report("too_many", message)
        return counted > most

    def _too_many_stalls(self) -> None:
        stalls, most = self.promises.max_stalls, self._most
        if stalls is None or self.reopened or self.promises.stalls_are_attempts or self._in_doubt:
            return
        self.verdict.cases += 1
        followed = len(self.stalled) - (self.job.attempts[-1] in self.stalled)
        released = sum(a.settled is not None and a.settled.outcome not in COUNTED for a in self.unclear)
        starts = len(self.counted) + len(self.unclear) - released + followed
        if followed > stalls:
            message = (
                f"job {self.job.id!r} started again after {count(followed, 'stall')}, and may after {stalls}"
            )
            self._report("too_many_stalls", message)
        elif most is not None and starts > most + stalls:
            allowed = f"{count(most, 'attempt')} and {count(stalls, 'stall')} are allowed"
            message = f"job {self.job.id!r} started {starts} times, and {allowed}"
            self._report("too_many_starts", message)

    @property
    def _in_doubt(self) -> bool:
        """Whether a fault may have undone a claim, a settlement or a stall of this job."""
        first, last = self.job.attempts[0].start.at, self.job.attempts[-1].start.at
        return any(doubt.begin <= last and doubt.end >= first for doubt in self.index.doubts)

    def _dumped(self) -> None:
        state = self.job.state
        if state is None or state.attempts_made is None or self.reopened:
            return
        self.verdict.cases += 1
        least, most = len(self.counted), len(self.made) + self._unseen(math.inf)
        if not least <= state.attempts_made <= most:
            right = f"{least}" if least == most else f"between {least} and {most}"
            stored = count(state.attempts_made, "attempt")
            message = f"job {self.job.id!r} is stored with {stored}, and {right} is right"
            self._report("wrong_count", message)

    def _report(self, code: str, message: str) -> None:
        self.verdict.add(code, self.job.queue, [self.job.id], message, self.job.records)


def delay(index: Index) -> Verdict:
    """No job starts before its delay is over, neither the first time nor again."""
    verdict = Verdict("delay")
    for job in index.jobs:
        if not job.attempts or job.operations:
            continue
        additions = job.all_additions
        if len(additions) == 1 and additions[0].spec.delay > 0 and not additions[0].existed:
            invoke, first = additions[0].operation.invoke, job.attempts[0].start
            verdict.cases += 1
            early = invoke.at + additions[0].spec.delay - first.at
            if early > job.queue.tolerance(invoke, first):
                message = f"job {job.id!r} started {early:.1f} ms before its delay was over"
                verdict.add("early", job.queue, [job.id], message, (invoke, first))
        for attempt, following in pairwise(job.attempts):
            _delayed_retry(job, attempt, following, verdict)
    return verdict


def _delayed_retry(job: Job, attempt: Attempt, following: Attempt, verdict: Verdict) -> None:
    settled, end, start = attempt.settled, attempt.end, following.start
    if end is None or settled is None or settled.delay <= 0 or attempt.verdict != "applied":
        return
    if holds_at_start(job, following) and start.at >= end.at:
        verdict.cases += 1
        early = end.at + settled.delay - start.at
        if early > job.queue.tolerance(end, start):
            message = (
                f"{names(following)} started {early:.1f} ms before the delay after {names(attempt)} was over"
            )
            verdict.add("early_retry", job.queue, [job.id], message, (*attempt.records, start))
