"""Flows and schedules: a parent starts after its children, and each tick is one job."""

import math

from tests.faults.checker.index import Index
from tests.faults.checker.model import Attempt, Job, Queue
from tests.faults.checker.records import ENDS, REMOVALS, Flow, Schedule, Tick
from tests.faults.checker.rules.base import Verdict, count, names


def flow(index: Index) -> Verdict:
    """A parent starts once all its children have ended, and does start then."""
    verdict = Verdict("flow")
    for queue in index.queues.values():
        for record in queue.flows:
            parent = queue.job(record.parent)
            children = [index.queue(name).job(id) for name, id in record.children]
            start = _start_after_children(parent)
            if start is not None:
                verdict.cases += 1
                _not_early(record, parent, start, children, verdict)
            elif parent.state is not None and not index.doubts:
                verdict.cases += 1
                if parent.state.places == ("waiting_children",) and all(
                    _surely_done(c, record) for c in children
                ):
                    message = f"parent {parent.id!r} still waits for its children, and all of them have ended"
                    records = (record, *parent.records, *(r for child in children for r in child.records))
                    verdict.add(
                        "stuck", queue, [parent.id, *(child.id for child in children)], message, records
                    )
    return verdict


def _start_after_children(parent: Job) -> Attempt | None:
    """Return the parent's first attempt after those that requested to wait for its children."""
    first = 0
    for number, attempt in enumerate(parent.attempts):
        if attempt.settled is not None and attempt.settled.outcome == "waiting_children":
            first = number + 1
    return parent.attempts[first] if first < len(parent.attempts) else None


def _not_early(record: Flow, parent: Job, attempt: Attempt, children: list[Job], verdict: Verdict) -> None:
    for child in children:
        ended = _earliest_end(child, record)
        early = ended - attempt.start.at
        if early > parent.queue.promises.skew_ms:
            how = (
                "that never ended so that it may"
                if ended == math.inf
                else f"{early:.1f} ms before that one ended"
            )
            message = f"parent {parent.id!r} started ({names(attempt)}) without its child {child.id!r}, {how}"
            records = (record, attempt.start, *child.records)
            verdict.add("early", parent.queue, [parent.id, child.id], message, records)


def _earliest_end(child: Job, record: Flow) -> float:
    """Return when the child may have ended at the earliest, so that the parent may start."""
    outcomes = frozenset({"completed"}) if record.after == "completed" else ENDS
    times = [math.inf]
    for attempt in child.attempts:
        end, settled = attempt.end, attempt.settled
        if settled is None:
            if end is not None and (end.outcome == "returned" or record.after == "ended"):
                times.append(end.at)
        elif attempt.verdict != "refused" and settled.outcome in outcomes:
            times.append(attempt.start.at if end is None else end.at)
    for operation in (*child.operations, *child.queue.operations):
        if operation.invoke.verb in REMOVALS or (
            operation.invoke.verb == "cancel" and record.after == "ended"
        ):
            times.append(operation.invoke.at)
    events = [event for event in child.events if event.name in outcomes]
    times += (event.server_at for event in events if event.server_at is not None)
    stored = child.state is not None and outcomes.intersection(child.state.places)
    if (stored or events) and not _settled(child, outcomes):
        times += (-math.inf for event in events if event.server_at is None)
        times += () if events else (-math.inf,)  # it ended without a worker's word, at an unknown time
    return min(times)


def _settled(child: Job, outcomes: frozenset[str]) -> bool:
    """Whether an attempt of the child may have brought one of these outcomes about."""
    return any(a.may_end_job and (a.settled is None or a.settled.outcome in outcomes) for a in child.attempts)


def _surely_done(child: Job, record: Flow) -> bool:
    return any(
        attempt.ends_job and attempt.settled is not None
        and (record.after == "ended" or attempt.settled.outcome == "completed")
        for attempt in child.attempts
    )  # fmt: skip


def schedule(index: Index) -> Verdict:
    """Each tick of a schedule is exactly one job, and there is no other."""
    verdict = Verdict("schedule")
    for queue in index.queues.values():
        jobs: dict[tuple[str, float], list[Tick]] = {}
        for tick in queue.ticks:
            jobs.setdefault((tick.schedule, tick.tick), []).append(tick)
        for record in queue.schedules:
            _ticks(index, queue, record, jobs, verdict)
        due = {(r.schedule, tick) for r in queue.schedules for tick in (*r.ticks, *r.optional)}
        for (name, at), seen in jobs.items():
            if (name, at) not in due:
                verdict.cases += 1
                message = (
                    f"schedule {name!r} made job {seen[0].job!r} for tick {at:.0f}, which it does not have"
                )
                verdict.add("unexpected", queue, [one.job for one in seen], message, seen)
    return verdict


def _ticks(
    index: Index, queue: Queue, record: Schedule, jobs: dict[tuple[str, float], list[Tick]], verdict: Verdict
) -> None:
    optional = set(record.optional)
    for tick in sorted({*record.ticks, *record.optional}):
        verdict.cases += 1
        seen = jobs.get((record.schedule, tick), [])
        sure = [one for one in seen if not index.undone(one.at)]
        if not seen and tick not in optional:
            message = f"schedule {record.schedule!r} made no job for the tick {tick:.0f}"
            verdict.add("missed", queue, [], message, (record,))
        elif len(sure) > 1:
            listed = sorted(one.job for one in sure)
            jobs_made = f"{count(len(sure), 'job')} for the tick {tick:.0f}: {', '.join(listed)}"
            message = f"schedule {record.schedule!r} made {jobs_made}"
            verdict.add("doubled", queue, listed, message, (record, *sure))
