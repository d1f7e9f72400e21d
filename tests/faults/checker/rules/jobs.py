"""Jobs as a whole: where each comes from, where it is in the end, and what it leaves behind."""

from collections.abc import Iterable

from tests.faults.checker.index import Index
from tests.faults.checker.model import Addition, Job, Queue
from tests.faults.checker.records import ENDS, Record
from tests.faults.checker.rules.base import Verdict, count
from tests.faults.checker.rules.ends import ended_for_good


def origin(index: Index) -> Verdict:
    """Every job comes from one add, tick or flow; an add without an answer makes at most one."""
    verdict = Verdict("origin")
    for queue in index.queues.values():
        unexplained: list[Job] = []
        by_tag: dict[str, list[Job]] = {}
        for job in queue.jobs.values():
            for tag in job.tags:
                by_tag.setdefault(tag, []).append(job)
            verdict.cases += 1
            if _traces(job) and not job.all_additions and not job.ticks and not job.flows:
                unexplained.append(job)
            _id_given_twice(queue, job, verdict)
        unknown = [*queue.anonymous, *_unknown_tags(queue, by_tag)]
        if len(unexplained) > len(unknown):
            _report_unexplained(queue, unexplained, unknown, verdict)
        for tag, jobs in by_tag.items():
            jobs = [job for job in jobs if _surely_exists(index, job)]
            if len(jobs) > 1:
                message = f"tag {tag!r} names one job, and {count(len(jobs), 'job')} have it"
                records = [record for job in jobs for record in job.records]
                verdict.add("made_twice", queue, sorted(job.id for job in jobs), message, records)
    return verdict


def _traces(job: Job) -> tuple[Record, ...]:
    """Return the records that show that the job was there; keys alone are judged by the rule `leaks`."""
    starts = tuple(attempt.start for attempt in job.attempts)
    state = () if job.state is None else (job.state,)
    return (*starts, *job.events, *job.results, *state)


def _id_given_twice(queue: Queue, job: Job, verdict: Verdict) -> None:
    chosen = [a for a in job.additions if a.status == "ok" and a.spec.id is None and not a.existed]
    if len(chosen) > 1 and len({a.spec.tag or a.operation.invoke.op for a in chosen}) > 1:
        message = f"the server gave the id {job.id!r} to {count(len(chosen), 'job')}"
        verdict.add("id_given_twice", queue, [job.id], message, _operations(chosen))


def _operations(additions: Iterable[Addition]) -> list[Record]:
    return [record for addition in additions for record in addition.operation.records]


def _unknown_tags(queue: Queue, by_tag: dict[str, list[Job]]) -> list[Addition]:
    """Return an add for each tag that was added without an answer, and that no job is known to have."""
    return [
        additions[0]
        for tag, additions in queue.tags.items()
        if tag not in by_tag and any(addition.status == "unknown" for addition in additions)
    ]


def _report_unexplained(
    queue: Queue, unexplained: list[Job], unknown: list[Addition], verdict: Verdict
) -> None:
    if not unknown:
        for job in unexplained:
            message = f"job {job.id!r} is there, and nobody added it"
            verdict.add("from_nowhere", queue, [job.id], message, _traces(job)[:1])
        return
    message = (
        f"{count(len(unexplained), 'job')} come from no add that is known, and only {len(unknown):,} added "
        "without an id had no answer"
    )
    records = [*_operations(unknown), *(_traces(job)[0] for job in unexplained)]
    verdict.add("made_twice", queue, (job.id for job in unexplained), message, records)


def refused(index: Index) -> Verdict:
    """A refused add leaves nothing: no start, no event, no state, no key."""
    verdict = Verdict("refused")
    for queue in index.queues.values():
        for job in queue.jobs.values():
            if job.additions and not job.ticks and not job.flows:
                _leaves_nothing(queue, f"job {job.id!r}", job.all_additions, [job], verdict)
        by_tag: dict[str, list[Job]] = {}
        for job in queue.jobs.values():
            for tag in job.tags:
                by_tag.setdefault(tag, []).append(job)
        for tag, additions in queue.tags.items():
            if all(addition.spec.id is None for addition in additions):
                _leaves_nothing(queue, f"the job with tag {tag!r}", additions, by_tag.get(tag, ()), verdict)
    return verdict


def _leaves_nothing(
    queue: Queue, name: str, additions: Iterable[Addition], jobs: Iterable[Job], verdict: Verdict
) -> None:
    if any(addition.status != "refused" for addition in additions):
        return
    verdict.cases += 1
    for job in jobs:
        traces = (*_traces(job), *job.keys)
        if traces:
            message = f"{name} was refused, and yet there is its {type(traces[0]).__name__.lower()}"
            verdict.add("left_something", queue, [job.id], message, (*_operations(additions), *traces))


def place(index: Index) -> Verdict:
    """Every acknowledged job has exactly one end or one place."""
    verdict = Verdict("place")
    for queue in index.queues.values():
        if queue.dump is None:
            continue
        for job in queue.jobs.values():
            places = () if job.state is None else job.state.places
            if not places and not _surely_exists(index, job):
                continue
            verdict.cases += 1
            if not places:
                _absent(index, job, verdict)
            elif len(places) > 1:
                message = f"job {job.id!r} is in {count(len(places), 'place')}: {', '.join(sorted(places))}"
                verdict.add("two_places", queue, [job.id], message, job.records)
            elif places[0] not in ENDS:
                _unfinished(index, job, places[0], verdict)
    return verdict


def _surely_exists(index: Index, job: Job) -> bool:
    """Whether the job was acknowledged or seen, and no fault can have undone that."""
    return (
        any(addition.status == "ok" for addition in job.additions)
        or any(not index.undone(attempt.start.at) for attempt in job.attempts)
        or job.state is not None
        or any(not index.undone(record.at) for record in (*job.events, *job.ticks))
    )


def _absent(index: Index, job: Job, verdict: Verdict) -> None:
    queue, dump = job.queue, job.queue.dump
    if dump is None or index.may_be_removed(job):
        return
    if dump.keeps_ended:
        message = (
            f"job {job.id!r} was acknowledged and is in no place, although jobs that have ended are kept"
        )
        verdict.add("lost", queue, [job.id], message, (*job.records, dump))
        return
    stalls = sum(attempt.stalled for attempt in job.attempts)
    may_be_dead = queue.promises.max_stalls is not None and stalls > queue.promises.max_stalls
    ended = any(attempt.may_end_job for attempt in job.attempts) or any(e.name in ENDS for e in job.events)
    cancelled = any(op.invoke.verb == "cancel" for op in (*job.operations, *queue.operations))
    if not ended and not may_be_dead and not cancelled:
        message = f"job {job.id!r} was acknowledged, has no end and is in no place"
        verdict.add("lost", queue, [job.id], message, (*job.records, dump))


def _unfinished(index: Index, job: Job, name: str, verdict: Verdict) -> None:
    ending = ended_for_good(index, job)
    if ending is not None:
        message = f"job {job.id!r} ended as {ending.outcome} and is in {name!r} all the same"
        verdict.add("ended_and_placed", job.queue, [job.id], message, job.records)
    elif job.queue.promises.drained:
        message = f"job {job.id!r} has not ended: it is in {name!r}"
        verdict.add("not_ended", job.queue, [job.id], message, job.records)


def leaks(index: Index) -> Verdict:
    """Every key belongs to its queue or to a job that is there, and every lock to a job that runs."""
    verdict = Verdict("leaks")
    for queue in index.queues.values():
        if queue.dump is None:
            continue
        verdict.cases += len(queue.strays)
        for key in queue.strays:
            verdict.add("stray", queue, [], f"key {key.name!r} belongs to nobody", (key, queue.dump))
        for job in queue.jobs.values():
            additions = job.all_additions
            if additions and all(addition.status == "refused" for addition in additions):
                continue  # the rule `refused` has it
            places = () if job.state is None else job.state.places
            for key in job.keys:
                verdict.cases += 1
                if key.role == "stray" or not places:
                    message = f"key {key.name!r} belongs to job {job.id!r}, which is in no place"
                    verdict.add("orphan", queue, [job.id], message, (key, queue.dump))
                elif key.role == "lock" and "active" not in places:
                    message = f"job {job.id!r} is in {places[0]!r} and still has the lock {key.name!r}"
                    verdict.add("lock", queue, [job.id], message, (key, queue.dump, *job.records))
    return verdict
