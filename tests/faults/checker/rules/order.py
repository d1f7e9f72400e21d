"""Order: jobs start in the order of their adds, by priority, and not while the queue is paused."""

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from tests.faults.checker.index import Index
from tests.faults.checker.model import Addition, Job, Queue
from tests.faults.checker.records import RECOVERIES, Start
from tests.faults.checker.rules.base import Verdict


@dataclass(slots=True, eq=False)
class Wait:
    """A job between its add and its first start; `start` is None for one that is still waiting."""

    job: Job
    addition: Addition
    start: Start | None

    @property
    def invoked(self) -> float:
        return self.addition.operation.invoke.at

    @property
    def acknowledged(self) -> float:
        return self.addition.operation.latest


def _waits(index: Index, queue: Queue) -> Iterator[Wait]:
    """Yield the jobs that were added once, without a delay, and acknowledged.

    An operation on a job, or a fault while it waited, may change its place: such jobs are left out.
    """
    faults = sorted(fault.begin for fault in index.faults)
    skew = queue.promises.skew_ms
    for job in queue.jobs.values():
        if (
            len(job.all_additions) != 1
            or job.operations
            or job.flows
            or any(e.name in RECOVERIES for e in job.events)
        ):
            continue
        addition = job.all_additions[0]
        if addition.status != "ok" or addition.existed or addition.spec.delay > 0:
            continue
        start = job.attempts[0].start if job.attempts else None
        if start is None and (job.state is None or job.state.places != ("waiting",)):
            continue
        until = math.inf if start is None else start.at + skew
        if faults and bisect_right(faults, until) > bisect_left(faults, addition.operation.invoke.at - skew):
            continue
        yield Wait(job, addition, start)


def fifo(index: Index) -> Verdict:
    """Of two jobs of one priority, the one that was added first starts first.

    Judged where the add of one was answered before the other was sent, and only for first starts: a retry has
    no place in the order.
    """
    verdict = Verdict("fifo")
    for queue in index.queues.values():
        if queue.promises.fifo is None:
            continue
        by_priority: dict[int, list[Wait]] = {}
        for wait in _waits(index, queue):
            by_priority.setdefault(wait.addition.spec.priority, []).append(wait)
        for waits in by_priority.values():
            _in_order(queue, waits, verdict)
    return verdict


def _in_order(queue: Queue, waits: list[Wait], verdict: Verdict) -> None:
    claims = queue.promises.fifo == "claim"
    order: list[tuple[float, Wait]] = []
    for wait in waits:
        if wait.start is None:
            order.append((math.inf, wait))
        elif not claims:
            order.append((wait.start.at, wait))
        elif wait.start.claim is not None:
            order.append((wait.start.claim, wait))
    order.sort(key=lambda pair: pair[0])
    newest: tuple[float, Wait] | None = None
    for place, wait in order:
        if newest is not None:
            verdict.cases += 1
            _compare(queue, newest, (place, wait), claims, verdict)
        if newest is None or wait.invoked > newest[1].invoked:
            newest = (place, wait)


def _compare(
    queue: Queue, first: tuple[float, Wait], second: tuple[float, Wait], claims: bool, verdict: Verdict
) -> None:
    """Report if the job that started first was added after the other."""
    (place, newer), (other_place, older) = first, second
    invoke, answer = newer.addition.operation.invoke, older.addition.operation.answer
    if answer is None or newer.start is None:
        return
    gap = invoke.at - answer.at
    apart = 0.0 if claims or older.start is None else queue.tolerance(newer.start, older.start)
    if gap > queue.tolerance(invoke, answer) and other_place - place > apart:
        message = (
            f"job {newer.job.id!r} started before job {older.job.id!r}, although it was added {gap:.1f} ms "
            "after the add of that one was answered"
        )
        records = [*newer.addition.operation.records, *older.addition.operation.records, newer.start]
        records += [older.start] if older.start is not None else []
        verdict.add("out_of_order", queue, [newer.job.id, older.job.id], message, records)


def priority(index: Index) -> Verdict:
    """No job is claimed while one of a better priority waits.

    Judged where the better one was surely waiting: its add was answered before the claim was requested, and
    it was claimed by a request that was sent after the other job had started, or never.
    """
    verdict = Verdict("priority")
    for queue in index.queues.values():
        sign = {"lower_first": 1, "higher_first": -1, None: 0}[queue.promises.priority]
        if not sign:
            continue
        skew = queue.promises.skew_ms
        waits = [
            wait for wait in _waits(index, queue) if wait.start is None or wait.start.requested_at is not None
        ]
        arriving = iter(sorted(waits, key=lambda wait: wait.acknowledged))
        upcoming = next(arriving, None)
        waiting: list[tuple[int, int, float, Wait]] = []
        ties = count()
        claimed = [(wait.start.requested_at, wait.start, wait) for wait in waits if wait.start is not None]
        for requested_at, start, wait in sorted(claimed, key=lambda entry: entry[0] or 0.0):
            while (
                upcoming is not None
                and requested_at is not None
                and upcoming.acknowledged + skew < requested_at
            ):
                left = math.inf if upcoming.start is None else upcoming.start.requested_at or 0.0
                rank = sign * upcoming.addition.spec.priority
                heapq.heappush(waiting, (rank, next(ties), left, upcoming))
                upcoming = next(arriving, None)
            while waiting and waiting[0][2] <= start.at + skew:
                heapq.heappop(waiting)
            verdict.cases += bool(waiting)
            if waiting and waiting[0][0] < sign * wait.addition.spec.priority:
                _passed_over(queue, wait, waiting[0][3], verdict)
    return verdict


def _passed_over(queue: Queue, claimed: Wait, better: Wait, verdict: Verdict) -> None:
    message = (
        f"job {claimed.job.id!r} with priority {claimed.addition.spec.priority} was claimed while job "
        f"{better.job.id!r} with priority {better.addition.spec.priority} waited"
    )
    records = [*claimed.addition.operation.records, *better.addition.operation.records]
    records += [wait.start for wait in (claimed, better) if wait.start is not None]
    if better.job.state is not None:
        records.append(better.job.state)
    verdict.add("passed_over", queue, [claimed.job.id, better.job.id], message, records)


def pause(index: Index) -> Verdict:
    """No job of a paused queue is claimed."""
    verdict = Verdict("pause")
    for queue in index.queues.values():
        skew = queue.promises.skew_ms
        pauses = [op for op in queue.operations if op.invoke.verb == "pause" and op.status == "ok"]
        if not pauses:
            continue
        resumes = sorted(op.invoke.at for op in queue.operations if op.invoke.verb == "resume")
        starts = [
            a.start for job in queue.jobs.values() for a in job.attempts if a.start.requested_at is not None
        ]
        starts.sort(key=lambda start: start.requested_at or 0.0)
        times = [start.requested_at or 0.0 for start in starts]
        for operation in pauses:
            place = bisect_left(resumes, operation.invoke.at)
            until = resumes[place] if place < len(resumes) else math.inf
            verdict.cases += 1
            for number in range(
                bisect_right(times, operation.latest + skew), bisect_left(times, until - skew)
            ):
                start, late = starts[number], times[number] - operation.latest
                if start.at < until - skew:
                    message = f"job {start.job!r} was claimed by a request sent {late:.1f} ms after the pause"
                    verdict.add("claimed", queue, [start.job], message, (*operation.records, start))
    return verdict
