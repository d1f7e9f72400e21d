"""Two keyspaces of one queue, compared by the rules of the BullMQ contract.

Ids are literal; a lock must hold the receipt its side was given, or (where the receipts are not known)
lock values are mapped by first appearance; `opts` and `data` are compared as JSON, everything else as bytes;
stream ids are stripped and the order of events kept; `jobId` may be an event's last field, by which Corral
marks what spends no attempt; a time to live must be there or not on both sides, and about the same. Only
`meta.version` may differ, and `failedAttempts` of a job, a field that Corral adds, is not looked at.

Both sides usually have the same set clock; times are literal then. Where each reads its own clock, `during`
says between which moments: times must lie there and keep their order, and are masked then.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.keyspace import Entry, Keyspace

TTL_TOLERANCE_MS = 2_000
JSON_FIELDS = frozenset({"opts", "data"})
TIME_FIELDS = ("timestamp", "processedOn", "finishedOn")
FREE_FIELDS = frozenset({("meta", "version")})
ADDED_FIELDS = frozenset({"failedAttempts"})
SCORED_BY_TIME = frozenset({"completed", "failed", "delayed"})
DELAY_UNIT = 4096


@dataclass(frozen=True)
class Period:
    """The moments between which a run happened, and how far ahead of them it may have planned, in ms."""

    begin: int
    end: int
    ahead: int = 0

    def holds(self, moment: float) -> bool:
        return self.begin <= moment <= self.end + self.ahead


@dataclass
class _Masks:
    """What one side's free values are called, by first appearance."""

    period: Period | None
    receipts: Mapping[str, str] | None
    locks: dict[bytes, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def lock(self, name: str, value: bytes) -> str:
        if self.receipts is None:
            return self.locks.setdefault(value, f"lock {len(self.locks) + 1}")
        job_id = name.removesuffix(":lock")
        if self.receipts.get(job_id) != value.decode():
            self.faults.append(f"{name}: {value!r} is not the receipt given, {self.receipts.get(job_id)!r}")
        return "the receipt"

    def time(self, where: str, moment: float) -> str:
        assert self.period is not None
        if not self.period.holds(moment):
            self.faults.append(f"{where}: {moment} is outside {self.period}")
        return "a time"


Receipts = Mapping[str, str]
"""Job id -> what its lock should hold."""


def differences(
    theirs: Keyspace,
    ours: Keyspace,
    during: Period | None = None,
    receipts: tuple[Receipts, Receipts] | None = None,
) -> list[str]:
    """What is not the same, one sentence each; empty where the two are equal.

    >>> differences({"id": Entry("string", b"2")}, {"id": Entry("string", b"3")})
    ["id: theirs b'2', ours b'3'"]
    """
    found: list[str] = []
    left, right = (_Masks(during, known) for known in receipts or (None, None))
    for name in sorted(theirs.keys() | ours.keys()):
        if name not in ours or name not in theirs:
            side, entry = ("theirs", theirs[name]) if name in theirs else ("ours", ours[name])
            found.append(f"{name}: only {side} ({entry.kind} {entry.value!r})")
            continue
        found += _entry_differences(name, theirs[name], ours[name], left, right)
    found += [f"theirs: {fault}" for fault in left.faults] + [f"ours: {fault}" for fault in right.faults]
    if during is not None:
        found += [f"theirs: {fault}" for fault in _disorder(theirs)]
        found += [f"ours: {fault}" for fault in _disorder(ours)]
    return found


def _entry_differences(name: str, theirs: Entry, ours: Entry, left: _Masks, right: _Masks) -> Iterator[str]:
    if theirs.kind != ours.kind:
        yield f"{name}: theirs is a {theirs.kind}, ours a {ours.kind}"
        return
    if not _live_alike(theirs.ttl, ours.ttl):
        yield f"{name}: theirs lives {_life(theirs)}, ours {_life(ours)}"
    one, other = _canonical(name, theirs, left), _canonical(name, ours, right)
    if one == other:
        return
    if isinstance(one, dict):
        for part in sorted(one.keys() | other.keys()):
            if one.get(part, _ABSENT) != other.get(part, _ABSENT):
                yield f"{name}.{part}: theirs {one.get(part, _ABSENT)!r}, ours {other.get(part, _ABSENT)!r}"
    elif theirs.kind == "stream":
        yield from _event_differences(name, one, other)
    else:
        yield f"{name}: theirs {one!r}, ours {other!r}"


def _live_alike(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= TTL_TOLERANCE_MS


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


_ABSENT = _Absent()


def _life(entry: Entry) -> str:
    return "for ever" if entry.ttl is None else f"{entry.ttl} ms"


def _event_differences(name: str, theirs: list[Any], ours: list[Any]) -> Iterator[str]:
    if len(theirs) != len(ours):
        yield f"{name}: theirs has {len(theirs)} events, ours {len(ours)}"
    for place, (one, other) in enumerate(zip(theirs, ours, strict=False)):
        if one != other:
            yield f"{name}[{place}]: theirs {one!r}, ours {other!r}"
            return
    for place, one in enumerate(theirs[len(ours) :], len(ours)):
        yield f"{name}[{place}]: only theirs {one!r}"
    for place, other in enumerate(ours[len(theirs) :], len(theirs)):
        yield f"{name}[{place}]: only ours {other!r}"


def _canonical(name: str, entry: Entry, masks: _Masks) -> Any:
    """The value with what may differ masked away."""
    match entry.kind:
        case "hash":
            fields = {
                part: given
                for part, given in entry.value.items()
                if (name, part) not in FREE_FIELDS and part not in ADDED_FIELDS
            }
            return {part: _field(name, part, given, masks) for part, given in fields.items()}
        case "stream":
            return [[_event_field(name, fields, part, given, masks) for part, given in _id_first(fields)]
                    for _, fields in entry.value]  # fmt: skip
        case "zset" if masks.period is not None and name in SCORED_BY_TIME:
            unit = DELAY_UNIT if name == "delayed" else 1
            return [(member, masks.time(name, score // unit)) for member, score in entry.value]
        case "zset" if masks.period is not None and name == "marker":
            return [(member, masks.time(name, score) if score else 0) for member, score in entry.value]
        case "string" if name.endswith(":lock"):
            return masks.lock(name, entry.value)
        case "string" if masks.period is not None and name == "stalled-check":
            return masks.time(name, float(entry.value))
    return entry.value


def _field(name: str, part: str, given: bytes, masks: _Masks) -> Any:
    if part in JSON_FIELDS:
        return _parsed(given)
    if masks.period is not None and (part in TIME_FIELDS or part == "prevTS"):
        return masks.time(f"{name}.{part}", float(given))
    return given


def _id_first(fields: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The fields of an event with a `jobId` from their end where Node writes it: behind the first."""
    if len(fields) > 2 and fields[-1][0] == "jobId":
        return [fields[0], fields[-1], *fields[1:-1]]
    return fields


def _event_field(name: str, fields: list[tuple[str, bytes]], part: str, given: bytes, masks: _Masks) -> Any:
    if masks.period is not None and part == "delay" and ("event", b"delayed") in fields:
        return (part, masks.time(f"{name}.{part}", float(given)))
    return (part, given)


def _parsed(given: bytes) -> Any:
    """JSON with integers and floats kept apart, and objects without their order."""
    try:
        return ("json", json.loads(given, parse_float=lambda text: ("float", float(text))))
    except ValueError:
        return ("not json", given)


def _disorder(space: Keyspace) -> Iterator[str]:
    """Times inside a job that run backwards, and finished sets that do not tell the jobs' own times."""
    for name, entry in space.items():
        if entry.kind == "hash" and "timestamp" in entry.value:
            moments = [int(entry.value[part]) for part in TIME_FIELDS if part in entry.value]
            if moments != sorted(moments):
                yield f"{name}: {dict(zip(TIME_FIELDS, moments, strict=False))} run backwards"
        if entry.kind == "zset" and name in ("completed", "failed"):
            for member, score in entry.value:
                job = space.get(member.decode())
                if job is not None and int(job.value.get("finishedOn", -1)) != score:
                    yield f"{name}: {member!r} has {score}, its hash says {job.value.get('finishedOn')!r}"
