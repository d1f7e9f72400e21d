"""Limits: starts in a time, and attempts at the same time."""

import math
from collections import deque
from collections.abc import Iterator

from tests.faults.checker.index import Index
from tests.faults.checker.model import Attempt, Queue
from tests.faults.checker.records import Limit, Record
from tests.faults.checker.rules.base import Verdict, count, lock_until
from tests.faults.checker.rules.locks import holds


def _limited(queue: Queue, limit: Limit) -> Iterator[tuple[str, list[Attempt]]]:
    """Yield what has the limit, by name, with its attempts by start time."""
    groups: dict[str, list[Attempt]] = {}
    for job in queue.jobs.values():
        for attempt in job.attempts:
            name = {"queue": queue.name, "worker": attempt.start.worker, "group": attempt.start.group}[
                limit.by
            ]
            if name is not None:
                groups.setdefault(name, []).append(attempt)
    for name, attempts in groups.items():
        attempts.sort(key=lambda attempt: attempt.start.at)
        yield f"{limit.by} {name!r}", attempts


def rate_limit(index: Index) -> Verdict:
    """No more jobs are claimed in a time than the limit allows.

    A claim happened between `requested_at` and the start. So many claims are surely too many if the span from
    the first request to the last start is shorter than the limit's time.
    """
    verdict = Verdict("rate_limit")
    for queue in index.queues.values():
        for limit in queue.limits:
            if limit.per_ms is None:
                continue
            for name, attempts in _limited(queue, limit):
                for windows in _windows(limit, attempts):
                    _judge_rate(index, queue, limit, name, attempts, windows, verdict)
    return verdict


def _windows(limit: Limit, attempts: list[Attempt]) -> Iterator[int]:
    """Yield how many windows are looked at together: for fixed ones, which are blurred, 1, 2, 4 and so on."""
    windows = 1
    yield windows
    while limit.window == "fixed" and limit.max * (windows + 1) < len(attempts):
        windows *= 2
        yield windows


def _judge_rate(
    index: Index,
    queue: Queue,
    limit: Limit,
    name: str,
    attempts: list[Attempt],
    windows: int,
    verdict: Verdict,
) -> None:
    span = windows * (limit.per_ms or 0.0)
    most = limit.max * (windows if limit.window == "sliding" else windows + 1)
    slack = limit.tolerance_ms + (queue.promises.skew_ms if limit.by != "worker" else 0.0)
    requests = [_requested(attempt) for attempt in attempts]
    lowest: deque[int] = deque()  # places of requests, smallest first: the minimum of a moving window
    skip = -1
    for last, attempt in enumerate(attempts):
        while lowest and requests[lowest[-1]] >= requests[last]:
            lowest.pop()
        lowest.append(last)
        first = last - most
        if lowest[0] < first:
            lowest.popleft()
        if first < 0 or first <= skip:
            continue
        verdict.cases += 1
        begin, end = requests[lowest[0]], attempt.start.at
        lossy = any(doubt.begin <= end and doubt.end >= begin for doubt in index.doubts)
        if end - begin < span - slack and not lossy:
            burst = attempts[first : last + 1]
            message = (
                f"{count(len(burst), 'start')} of {name} within {end - begin:.1f} ms, and no more than "
                f"{most} may be in {span:.0f} ms"
            )
            jobs = sorted({one.start.job for one in burst})
            verdict.add("too_many", queue, jobs, message, (limit, *(one.start for one in burst)))
            skip = last


def _requested(attempt: Attempt) -> float:
    start = attempt.start
    return start.at if start.requested_at is None else start.requested_at


def concurrency(index: Index) -> Verdict:
    """No more handlers run at the same time than the limit allows.

    A handler surely runs from its start until it ends, its worker is killed or its lock runs out.
    """
    verdict = Verdict("concurrency")
    for queue in index.queues.values():
        for limit in queue.limits:
            if limit.per_ms is not None:
                continue
            for name, attempts in _limited(queue, limit):
                _judge_concurrency(index, queue, limit, name, attempts, verdict)
    return verdict


def _judge_concurrency(
    index: Index, queue: Queue, limit: Limit, name: str, attempts: list[Attempt], verdict: Verdict
) -> None:
    slack = limit.tolerance_ms + (queue.promises.skew_ms if limit.by != "worker" else 0.0)
    changes: list[tuple[float, int, int]] = []
    for number, attempt in enumerate(attempts):
        begin, end = attempt.start.at + slack / 2, _surely_until(index, queue, attempt) - slack / 2
        if begin < end:
            changes += ((begin, 1, number), (end, 0, number))  # at the same time, ends come before starts
    changes.sort()
    running: dict[int, Attempt] = {}
    reported = False
    for _, begins, number in changes:
        if not begins:
            del running[number]
            reported = reported and len(running) > limit.max
            continue
        running[number] = attempts[number]
        verdict.cases += 1
        if len(running) > limit.max and not reported:
            reported = True
            handlers = f"{count(len(running), 'handler')} of {name}"
            message = f"{handlers} ran at the same time, and no more than {limit.max} may"
            records: list[Record] = [record for one in running.values() for record in one.records]
            verdict.add(
                "too_many", queue, sorted({a.start.job for a in running.values()}), message, (limit, *records)
            )


def _surely_until(index: Index, queue: Queue, attempt: Attempt) -> float:
    job = queue.jobs[attempt.start.job]
    killed = index.kill_after_start(attempt)
    times = [math.inf if killed is None else killed, math.inf if attempt.end is None else attempt.end.at]
    if lock_until(job, attempt) is not None:
        times.append(max((hold.end for hold in holds(index, job, attempt)), default=attempt.start.at))
    surely = min(times)
    return attempt.start.at if surely == math.inf else surely
