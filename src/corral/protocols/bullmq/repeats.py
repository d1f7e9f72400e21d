"""When a scheduler's next job is due, and what that job's options are, as 5.62.0 reckons them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from msgspec import Struct

from corral.core import payload
from corral.core.cron import Cron
from corral.errors import InvalidOptions, short_repr
from corral.protocols.bullmq.options import SHORT_NAMES

Made = tuple[str, bytes, bytes, str, int, bool, str | bool]
"""What a script needs to make a scheduler's job (lua/parts/scheduling names the columns)."""


class Iteration(Struct, frozen=True):
    """The job that follows a claimed one: due at a time, or `every` so many ms, which the server reckons."""

    scheduler: str
    producer: str
    due: int | None
    every: float | None
    offset: float
    made: Made

    @property
    def row(self) -> tuple[Any, ...]:
        """For the iterate script."""
        return (self.scheduler, self.producer, self.due or False, self.every or False, self.offset, self.made)


# -- times --------------------------------------------------------------------------------------------------


def milliseconds(name: str, moment: Any) -> int | None:
    """A moment as ms since the epoch: given as such, as a datetime, or as ISO text; None stays None.

    >>> milliseconds("endDate", "2025-10-09T08:53:20Z")
    1760000000000
    """
    match moment:
        case None:
            return None
        case bool():
            pass
        case int() | float():
            return int(moment)
        case datetime():
            return int(moment.timestamp() * 1000)
        case str():
            try:
                read = datetime.fromisoformat(moment)
            except ValueError:
                raise InvalidOptions(f"{name} is {short_repr(moment)}; use ISO 8601 text, or ms") from None
            # JavaScript reads a date without a time as UTC, and one with a time as local
            is_date = len(moment) == len("2025-10-09")
            return int((read.replace(tzinfo=UTC) if is_date else read).timestamp() * 1000)
    raise InvalidOptions(
        f"{name} is {short_repr(moment)}; use a datetime, ISO 8601 text, or ms since the epoch"
    )


def due_by_pattern(repeat: Mapping[str, Any], now: int, zone: str) -> int | None:
    """When a cron pattern fires next, from its start and until its end; None: not any more."""
    start = milliseconds("startDate", repeat.get("startDate"))
    end = milliseconds("endDate", repeat.get("endDate"))
    cron = Cron.parse(repeat["pattern"], "UTC" if repeat.get("utc") else repeat.get("tz") or zone)
    due = cron.next_after(max(now, start or 0))
    return None if due is None or (end is not None and due > end) else due


def is_over(repeat: Mapping[str, Any], now: int) -> bool:
    """Have there been as many jobs as wanted, or has its end come?"""
    limit, end = repeat.get("limit"), milliseconds("endDate", repeat.get("endDate"))
    return (limit is not None and next_count(repeat) > limit) or (end is not None and now > end)


def next_count(repeat: Mapping[str, Any]) -> int:
    """The number of the next job; the first is 1."""
    return int(repeat.get("count") or 0) + 1


# -- options ------------------------------------------------------------------------------------------------


def short_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options in the contract's long names, as they stand on the wire; what is None is left out."""
    wire: dict[str, Any] = {}
    for name, value in options.items():
        if name == "telemetry":
            wire |= {"tm": value.get("metadata"), "omc": value.get("omitContext")}
        else:
            wire[SHORT_NAMES.get(name, name)] = value
    shortened: dict[str, Any] = _without_nothing(wire)
    return shortened


def _without_nothing(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nothing(part) for name, part in value.items() if part is not None}
    return value


def repeat_of_next(repeat: Mapping[str, Any]) -> dict[str, Any]:
    """The `repeat` part of the next job's options."""
    times = {name: milliseconds(name, repeat.get(name)) for name in ("startDate", "endDate")}
    left_out = {"immediately", "offset"}
    kept = {name: value for name, value in repeat.items() if name not in left_out}
    known: dict[str, Any] = _without_nothing({**kept, **times, "count": next_count(repeat)})
    return known


def made(name: str, data: bytes, wire: dict[str, Any], scheduler: str, now: int, due: int | None) -> Made:
    """A scheduler's next job; `wire` are its options but for those every such job gets here.

    Its id and delay are put in by the script, which alone knows them for sure: the options come without
    their closing brace.
    """
    priority = wire.get("priority") or 0
    if isinstance(priority, bool) or not isinstance(priority, int) or priority < 0:
        raise InvalidOptions(
            f"priority is {short_repr(priority)}; use a whole number from 0 (lower runs earlier)"
        )
    options = {key: value for key, value in wire.items() if key not in ("jobId", "delay", "prevMillis")}
    options |= {"timestamp": now, "repeatJobKey": scheduler}
    if due is not None:
        options["prevMillis"] = due
    stands_for = (wire.get("de") or {}).get("id") or False
    id_text = orjson.dumps(f"repeat:{scheduler}:").decode()[1:-1]
    head = payload.encode(options, "options")[:-1]
    return name, data, head, id_text, priority, bool(wire.get("lifo")), stands_for


# -- from one job to the next -------------------------------------------------------------------------------


def iteration(job_id: str, fields: Mapping[bytes, bytes], now: int, zone: str) -> Iteration | None:
    """What follows a claimed job that a scheduler made; None where nothing does."""
    wire, repeat = read_options(fields)
    pattern, every = repeat.get("pattern"), repeat.get("every")
    if bool(pattern) == bool(every):
        raise InvalidOptions(f"it repeats by pattern {short_repr(pattern)} and every {short_repr(every)} ms")
    if is_over(repeat, now):
        return None
    scheduler = fields[b"rjk"].decode()
    due = None
    if pattern:
        start = max(now, int(wire.get("prevMillis") or 0))
        due = due_by_pattern(repeat, start, zone)
        if due is None:
            return None
    options = {**carried_on(wire), "repeat": repeat_of_next(repeat)}
    name, data = fields.get(b"name", b"").decode("utf-8", "replace"), fields.get(b"data", b"{}")
    new = made(name, data, options, scheduler, now, due)
    return Iteration(scheduler, job_id, due, every, repeat.get("offset") or 0, new)


def carried_on(wire: Mapping[str, Any]) -> dict[str, Any]:
    """The options a job hands on to the next, with what a client fills in when it reads them."""
    backoff = wire.get("backoff")
    if isinstance(backoff, int | float) and not isinstance(backoff, bool):
        backoff = {"type": "fixed", "delay": backoff}
    filled: dict[str, Any] = _without_nothing({"attempts": 0, **wire, "backoff": backoff or None})
    return filled


def read_options(fields: Mapping[bytes, bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A scheduled job's options on the wire, and among them how it repeats."""
    wire = payload.decode(fields.get(b"opts", b"{}"))
    repeat = wire.get("repeat") if isinstance(wire, dict) else None
    if not isinstance(repeat, dict):
        raise InvalidOptions("the options of a scheduled job do not say how it repeats")
    return wire, repeat
