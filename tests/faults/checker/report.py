"""A report as text for people, and as JSON."""

from collections.abc import Iterator

import msgspec

from tests.faults.checker.check import Contradiction, Report
from tests.faults.checker.records import Record, kind
from tests.faults.checker.rules import RULES
from tests.faults.checker.rules.base import count

ENVELOPE = frozenset({"at", "process", "seq"})
TIMES = frozenset({"lock_until", "requested_at", "until", "server_at", "begin", "end"})
"""Fields that are times, shown like `at`: in milliseconds since the history began."""


def as_text(report: Report) -> str:
    """Return the report as lines of text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield (
        f"{count(report.records, 'record')} of {report.processes:,} processes in "
        f"{count(report.files, 'file')}: {count(report.jobs, 'job')}, {count(report.attempts, 'attempt')}"
    )
    if report.torn:
        yield f"{count(report.torn, 'file')} with an incomplete last line, which was left out"
    if report.dangling:
        yield f"{count(report.dangling, 'record')} about an attempt or operation that never began"
    yield ""
    for verdict in report.verdicts:
        broken = f"BROKEN {count(len(verdict.violations), 'time')}" if verdict.violations else "holds"
        judged = f"{broken} in {count(verdict.cases, 'case')}" if verdict.cases else "not judged: no case"
        yield f"{verdict.rule:<12} {judged:<36} {RULES[verdict.rule].statement}"
    if report.recovery is not None:
        times = report.recovery
        yield ""
        yield (
            f"from a kill to the next start, {count(times.jobs, 'job')}: p50 {times.p50:,.1f} ms, "
            f"p95 {times.p95:,.1f} ms, p99 {times.p99:,.1f} ms, max {times.max:,.1f} ms"
        )
    if report.never_recovered:
        yield f"{count(report.never_recovered, 'attempt')} of killed workers with no next start"
    for contradiction in report.contradictions:
        yield ""
        yield from _contradiction(report, contradiction)


def _contradiction(report: Report, contradiction: Contradiction) -> Iterator[str]:
    violation, records = contradiction.violation, contradiction.records
    yield f"{violation.rule}/{violation.code} in queue {violation.queue!r}: {violation.message}"
    yield f"  the shortest history that shows it, {count(len(records), 'record')}:"
    width = max(len(record.process) for record in records)
    for record in records:
        fields = " ".join(_field(report, name, value) for name, value in _fields(record).items())
        yield f"  {record.at - report.begin:>12.3f} ms  {record.process:<{width}}  {kind(record)} {fields}"


def _field(report: Report, name: str, value: object) -> str:
    if name in TIMES and isinstance(value, float):
        return f"{name}={value - report.begin:.3f}"
    return f"{name}={value!r}"


def _fields(record: Record) -> dict[str, object]:
    """Return the fields that are set, without those that every record has."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(record)}
    values = {name: getattr(record, name) for name in record.__struct_fields__}
    return {name: v for name, v in values.items() if name not in ENVELOPE and v != defaults[name]}


def as_json(report: Report) -> bytes:
    """Return the report as one JSON object."""
    rules = {
        verdict.rule: {
            "statement": RULES[verdict.rule].statement,
            "cases": verdict.cases,
            "violations": len(verdict.violations),
        }
        for verdict in report.verdicts
    }
    contradictions = [
        {
            "rule": one.violation.rule,
            "code": one.violation.code,
            "queue": one.violation.queue,
            "jobs": one.violation.jobs,
            "message": one.violation.message,
            "shortest": one.records,
        }
        for one in report.contradictions
    ]
    counts = {
        name: getattr(report, name) for name in ("records", "files", "torn", "processes", "jobs", "attempts")
    }
    summary = {
        "ok": report.ok,
        **counts,
        "dangling": report.dangling,
        "not_judged": report.not_judged,
        "rules": rules,
        "recovery_ms": None if report.recovery is None else report.recovery._asdict(),
        "never_recovered": report.never_recovered,
        "contradictions": contradictions,
    }
    return msgspec.json.encode(summary)
