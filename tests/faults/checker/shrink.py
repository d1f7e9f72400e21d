"""The shortest part of a history that still shows a violation."""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import msgspec

from tests.faults.checker.index import Index
from tests.faults.checker.records import (
    AnyRecord,
    Invoke,
    Limit,
    NewJob,
    Ok,
    Promise,
    Record,
    Schedule,
)
from tests.faults.checker.rules import Rule, Violation

MOST = 2000
"""With more records than these, the evidence that the rule named is not reduced."""


def shortest(index: Index, violation: Violation, rule: Rule) -> list[AnyRecord]:
    """Return a smallest set of records in which the rule finds the very same violation.

    "The same" is word for word: the message has the numbers that decide, so that no record can be left out
    that would excuse it. No record of the result can be left out.
    """

    def shows(records: Sequence[Record]) -> bool:
        return violation in rule.judge(Index(records)).violations

    for records in (_evidence(index, violation), _with_faults(index, violation), _related(index, violation)):
        if len(records) > MOST:
            continue
        for candidate in (_trimmed(records, violation.jobs), records):
            if shows(candidate):
                return cast(list[AnyRecord], _minimal(candidate, shows))
    return cast(list[AnyRecord], _ordered(violation.records))


def _evidence(index: Index, violation: Violation) -> list[Record]:
    """Return the records that the rule named, and the promises it went by."""
    context = index.context(index.queue(violation.queue))
    promises = (record for record in context if isinstance(record, Promise | Limit | Schedule))
    return _ordered([*violation.records, *promises])


def _with_faults(index: Index, violation: Violation) -> list[Record]:
    return _ordered([*_evidence(index, violation), *index.faults])


def _related(index: Index, violation: Violation) -> list[Record]:
    """Return every record about the jobs of the violation, and all that are about no job."""
    queue = index.queue(violation.queue)
    records = [*violation.records, *index.context(queue)]
    for id in violation.jobs:
        for name in index.queues:
            job = index.queues[name].jobs.get(id)
            if job is not None:
                records += job.records
    return _ordered(records)


def _ordered(records: Iterable[Record]) -> list[Record]:
    return sorted(dict.fromkeys(records), key=lambda record: (record.at, record.process, record.seq))


def _trimmed(records: Sequence[Record], jobs: Sequence[str]) -> list[Record]:
    """Return the records with each `add` of many jobs reduced to those that matter."""
    answers = {record.op: record for record in records if isinstance(record, Ok)}
    places: dict[str, list[int]] = {}
    for record in records:
        if isinstance(record, Invoke) and len(record.jobs) > 1:
            kept = [n for n, spec in enumerate(record.jobs) if _id(spec, n, answers.get(record.op)) in jobs]
            if kept:
                places[record.op] = kept
    trimmed: list[Record] = []
    for record in records:
        kept = places.get(record.op, []) if isinstance(record, Invoke | Ok) else []
        if kept and isinstance(record, Invoke):
            trimmed.append(msgspec.structs.replace(record, jobs=tuple(record.jobs[n] for n in kept)))
        elif kept and isinstance(record, Ok) and record.ids is not None:
            existed = tuple(place for place, n in enumerate(kept) if n in record.existed)
            ids = tuple(record.ids[n] for n in kept)
            trimmed.append(msgspec.structs.replace(record, ids=ids, existed=existed))
        else:
            trimmed.append(record)
    return trimmed


def _id(spec: NewJob, place: int, answer: Ok | None) -> str | None:
    if answer is None or answer.ids is None or place >= len(answer.ids):
        return spec.id
    return answer.ids[place] or spec.id


def _minimal(records: list[Record], shows: Callable[[Sequence[Record]], bool]) -> list[Record]:
    """Leave out runs of records, long ones first, as long as the violation stays."""
    size = max(1, len(records) // 2)
    while True:
        place, removed = 0, False
        while place < len(records):
            rest = records[:place] + records[place + size :]
            if rest and shows(rest):
                records, removed = rest, True
            else:
                place += size
        if size == 1 and not removed:
            return records
        if size > 1:
            size //= 2
