"""Ends: a job ends once, its handler's result is what is stored, and the event log says the same."""

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

from tests.faults.checker.index import Index
from tests.faults.checker.model import Attempt, Job, Window
from tests.faults.checker.records import ENDS, Event, Record
from tests.faults.checker.rules.base import Verdict, count, holds_at_start, names


class Ending(NamedTuple):
    """A job surely ended, at some time in this window."""

    window: Window
    outcome: str
    what: str
    record: Record
    """The record that makes it sure."""
    attempt: Attempt | None
    records: tuple[Record, ...]


def endings(job: Job) -> list[Ending]:
    """Return the sure ends of a job: applied settlements, and acknowledged cancels and removals."""
    ends = []
    for attempt in job.attempts:
        if attempt.ends_job and attempt.settled is not None:
            settled, end = attempt.settled, attempt.end or attempt.start
            window = Window(end.at, settled.at)
            ends.append(Ending(window, settled.outcome, names(attempt), settled, attempt, attempt.records))
    for operation in job.operations:
        verb, answer = operation.invoke.verb, operation.answer
        if verb in ("cancel", "remove") and operation.status == "ok" and answer is not None:
            outcome = "cancelled" if verb == "cancel" else "removed"
            window = Window(operation.invoke.at, answer.at)
            ends.append(Ending(window, outcome, f"a {verb}", answer, None, operation.records))
    ends.sort(key=lambda ending: ending.window.end)
    return ends


def ended_for_good(index: Index, job: Job) -> Ending | None:
    """Return the sure end after which nothing can have reopened the job."""
    ends = endings(job)
    if not ends:
        return None
    last = ends[-1]
    return None if any(w.end >= last.window.begin for w in index.reopenings(job)) else last


def end_once(index: Index) -> Verdict:
    """No job ends twice, and none starts after its end, unless somebody reopened it in between."""
    verdict = Verdict("end_once")
    for job in index.jobs:
        ends = endings(job)
        events = _end_events(index, job)
        if not ends and not events:
            continue
        verdict.cases += 1
        reopenings = index.reopenings(job)
        if _ended_twice(job, ends, reopenings, verdict):
            pass
        elif len(events) > 1 + len(reopenings):
            listed = ", ".join(sorted(event.name for event in events))
            message = f"the event log has {count(len(events), 'end')} of job {job.id!r}: {listed}"
            verdict.add("logged_twice", job.queue, [job.id], message, (*events, *job.records))
        elif not reopenings:
            _outcomes_differ(job, ends, events, verdict)
        if ends:
            _started_after_end(job, ends, reopenings, verdict)
    return verdict


def _end_events(index: Index, job: Job) -> list[Event]:
    """Return the ends of the job in the event log; entries without an id count once for each name."""
    numbered = [e for e in job.events if e.name in ENDS and e.event is not None and not index.undone(e.at)]
    named = {e.name: e for e in job.events if e.name in ENDS and e.event is None and not index.undone(e.at)}
    known = {event.name for event in numbered}
    return [*numbered, *(event for name, event in named.items() if name not in known)]


def _ended_twice(job: Job, ends: list[Ending], reopenings: list[Window], verdict: Verdict) -> bool:
    """Report two ends of which, in whatever order they came, none can have been reopened by the other."""
    number = sum(ending.outcome != "removed" for ending in ends)
    for first, second in combinations(ends, 2):
        reopened = any(_between(window, first, second) for window in reopenings)
        if "removed" in (first.outcome, second.outcome):
            if reopened or not _settled_after_removal(job, first, second):
                continue
        elif reopened and number <= 1 + len(reopenings):
            continue
        ended = " and ".join(f"as {ending.outcome} by {ending.what}" for ending in (first, second))
        message = f"job {job.id!r} ended {ended}"
        verdict.add("ended_twice", job.queue, [job.id], message, (*first.records, *second.records))
        return True
    return False


def _between(reopening: Window, first: Ending, second: Ending) -> bool:
    """Whether the reopening may have come after one of the ends and before the other."""
    one, other = first.window, second.window
    return (reopening.end >= one.begin and reopening.begin <= other.end) or (
        reopening.end >= other.begin and reopening.begin <= one.end
    )


def _settled_after_removal(job: Job, first: Ending, second: Ending) -> bool:
    """Whether the first end is a removal that was surely over when the second, a settlement, was sent."""
    tolerance = job.queue.tolerance(first.record, second.record)
    return first.outcome == "removed" != second.outcome and first.window.end + tolerance < second.window.begin


def _outcomes_differ(job: Job, ends: list[Ending], events: list[Event], verdict: Verdict) -> None:
    if job.state is None and not events:
        return
    outcomes = {ending.outcome for ending in ends if ending.outcome != "removed"}
    outcomes |= {event.name for event in events}
    if job.state is not None:
        outcomes |= ENDS.intersection(job.state.places)
    if len(outcomes) > 1:
        message = (
            f"job {job.id!r} ended as {' and as '.join(sorted(outcomes))}, by what different records say"
        )
        records = (*events, *(record for ending in ends for record in ending.records))
        verdict.add("outcomes_differ", job.queue, [job.id], message, (*records, *job.records))


def _started_after_end(job: Job, ends: list[Ending], reopenings: list[Window], verdict: Verdict) -> None:
    for attempt in job.attempts:
        start = attempt.start
        for ending in ends:
            tolerance = job.queue.tolerance(ending.record, start)
            if ending.attempt is attempt or ending.window.end + tolerance >= start.at:
                continue
            reopened = any(w.begin <= start.at and w.end >= ending.window.begin for w in reopenings)
            if not reopened and holds_at_start(job, attempt):
                message = (
                    f"{names(attempt)} started {start.at - ending.window.end:.1f} ms after job {job.id!r} "
                    f"ended as {ending.outcome} by {ending.what}"
                )
                verdict.add("started_after_end", job.queue, [job.id], message, (*ending.records, start))
                break


def events(index: Index) -> Verdict:
    """The event log has every end, and no end that nobody brought about."""
    verdict = Verdict("events")
    for job in index.jobs:
        if not job.queue.promises.events:
            continue
        logged = {event.name for event in job.events}
        for ending in endings(job):
            if ending.attempt is None:
                continue
            verdict.cases += 1
            if ending.outcome not in logged:
                ended = f"job {job.id!r} ended as {ending.outcome} by {ending.what}"
                message = f"{ended}, and the event log has no such end"
                verdict.add("missing", job.queue, [job.id], message, ending.records)
        if "completed" in logged:
            verdict.cases += 1
            if not _returned(job.attempts):
                message = f"the event log says that job {job.id!r} completed, and no handler of it returned"
                verdict.add("invented", job.queue, [job.id], message, job.records)
    return verdict


def _returned(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the attempts that may have completed their job."""
    return [
        attempt
        for attempt in attempts
        if attempt.end is not None and attempt.end.outcome == "returned" and attempt.verdict != "refused"
    ]


def result(index: Index) -> Verdict:
    """A stored result is what the handler returned, byte for byte."""
    verdict = Verdict("result")
    for job in index.jobs:
        seen: list[tuple[Record, str]] = [
            (read, read.value) for read in job.results if not index.undone(read.at)
        ]
        for event in job.events:
            if event.value is not None and not index.undone(event.at):
                seen.append((event, event.value))
        state = job.state
        if state is not None and state.result is not None:
            seen.append((state, state.result))
        completed = state is not None and "completed" in state.places
        if not seen and not completed:
            continue
        verdict.cases += 1
        candidates = _returned(job.attempts)
        if completed and state is not None and not candidates:
            message = f"job {job.id!r} is completed, and no handler of it returned"
            verdict.add("by_nobody", job.queue, [job.id], message, job.records)
            continue
        if not index.reopenings(job):
            candidates = [a for a in candidates if a.ends_job] or candidates
        values = {attempt.end.value for attempt in candidates if attempt.end is not None}
        for record, value in seen:
            if value not in values:
                source = type(record).__name__.lower()
                message = f"the {source} of job {job.id!r} has a result that its handler did not return"
                returned = (record for attempt in candidates for record in attempt.records)
                verdict.add("differs", job.queue, [job.id], message, (record, *returned))
                break
    return verdict
