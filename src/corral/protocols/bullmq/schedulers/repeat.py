"""When a scheduler's next job is due, and that job's options, as 5.62.0 computes them."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from corral.core import payload
from corral.core.cron import Cron, check_zone
from corral.errors import InvalidOptions, short_repr
from corral.protocols.bullmq.options import SHORT_NAMES
from corral.protocols.wire import text

LOCALTIME = Path("/etc/localtime")
ZONES = "zoneinfo/"


class JobTemplate(NamedTuple):
    """What a script needs to make a scheduler's job (lua/parts/scheduled_jobs.lua)."""

    name: str
    data: bytes
    opts: bytes
    """Without the closing brace: the script adds id and delay, which it alone knows for sure."""
    id_prefix: str
    """As it stands inside a JSON text."""
    priority: int
    is_lifo: bool
    deduplication_id: str | bool
    opts_with_offset: bytes | bool = False
    """The same options where the interval has an offset, which BullMQ 6 alone hands on."""


class Iteration(Struct, frozen=True):
    """The job that follows a claimed one: due at a time, or `every` so many ms, computed by the script."""

    scheduler: str
    claimed_id: str
    due: int | None
    every: float | None
    offset: float
    template: JobTemplate

    @property
    def row(self) -> tuple[Any, ...]:
        """The row for the script."""
        due, every = self.due or False, self.every or False
        return (self.scheduler, self.claimed_id, due, every, self.offset, self.template)


# -- times --------------------------------------------------------------------------------------------------


@cache
def local_zone() -> str:
    """Return the machine's time zone, by which Node reads a pattern without one: TZ, its setting, or UTC."""
    try:
        linked = os.readlink(LOCALTIME).partition(ZONES)[2]
    except OSError:
        linked = ""
    for zone in (os.environ.get("TZ", "").removeprefix(":"), linked):
        try:
            return check_zone(zone)
        except InvalidOptions:
            continue
    return "UTC"


def milliseconds(name: str, moment: Any) -> int | None:
    """Return a moment (ms since the epoch, a datetime, or ISO text) in ms; None stays None.

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
                parsed = datetime.fromisoformat(moment)
            except ValueError:
                raise InvalidOptions(f"{name} is {short_repr(moment)}; use ISO 8601 text, or ms") from None
            # JavaScript reads a date without a time as UTC, and one with a time as local
            is_date = len(moment) == len("2025-10-09")
            return int((parsed.replace(tzinfo=UTC) if is_date else parsed).timestamp() * 1000)
    raise InvalidOptions(
        f"{name} is {short_repr(moment)}; use a datetime, ISO 8601 text, or ms since the epoch"
    )


def due_by_pattern(repeat: Mapping[str, Any], now: int, zone: str) -> int | None:
    """Return when a cron pattern fires next, between its start and its end; None: never again."""
    start = milliseconds("startDate", repeat.get("startDate"))
    end = milliseconds("endDate", repeat.get("endDate"))
    cron = Cron.parse(repeat["pattern"], "UTC" if repeat.get("utc") else repeat.get("tz") or zone)
    due = cron.next_after(max(now, start or 0))
    return None if due is None or (end is not None and due > end) else due


def is_over(repeat: Mapping[str, Any], now: int) -> bool:
    """Return whether the limit of jobs or the end date is reached."""
    limit, end = repeat.get("limit"), milliseconds("endDate", repeat.get("endDate"))
    return (limit is not None and next_count(repeat) > limit) or (end is not None and now > end)


def next_count(repeat: Mapping[str, Any]) -> int:
    """Return the number of the next job; the first is 1."""
    return int(repeat.get("count") or 0) + 1


# -- options ------------------------------------------------------------------------------------------------


def short_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in their short names on the wire; those that are None are left out."""
    wire: dict[str, Any] = {}
    for name, value in options.items():
        if name == "telemetry":
            wire |= {"tm": value.get("metadata"), "omc": value.get("omitContext")}
        else:
            wire[SHORT_NAMES.get(name, name)] = value
    short: dict[str, Any] = _without_none(wire)
    return short


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_none(part) for name, part in value.items() if part is not None}
    return value


def next_repeat(repeat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `repeat` part of the next job's options."""
    times = {name: milliseconds(name, repeat.get(name)) for name in ("startDate", "endDate")}
    kept = {name: value for name, value in repeat.items() if name not in ("immediately", "offset")}
    following: dict[str, Any] = _without_none({**kept, **times, "count": next_count(repeat)})
    return following


def job_template(
    name: str, data: bytes, wire: dict[str, Any], scheduler: str, now: int, due: int | None, offset: float
) -> JobTemplate:
    """Return a scheduler's next job; `wire` are its options but for those every such job gets here.

    `offset` is that of its interval, in ms; 0 where it has none.
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
    deduplication_id = (wire.get("de") or {}).get("id") or False
    id_prefix = orjson.dumps(f"repeat:{scheduler}:").decode()[1:-1]
    opts = payload.encode(options, "options")[:-1]
    with_offset: bytes | bool = False
    if offset:
        options["repeat"] = {**options["repeat"], "offset": offset}
        with_offset = payload.encode(options, "options")[:-1]
    is_lifo = bool(wire.get("lifo"))
    return JobTemplate(name, data, opts, id_prefix, priority, is_lifo, deduplication_id, with_offset)


# -- from one job to the next -------------------------------------------------------------------------------


def iteration(job_id: str, fields: Mapping[bytes, bytes], now: int, zone: str) -> Iteration | None:
    """Return the job that follows a claimed one of a scheduler; None where there is none."""
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
    options = {**inherited_options(wire), "repeat": next_repeat(repeat)}
    name, data = text(fields.get(b"name", b"")), fields.get(b"data", b"{}")
    offset = (every and repeat.get("offset")) or 0
    template = job_template(name, data, options, scheduler, now, due, offset)
    return Iteration(scheduler, job_id, due, every, offset, template)


def inherited_options(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a job hands on to the next, with what a client fills in when it reads them."""
    backoff = wire.get("backoff")
    if isinstance(backoff, int | float) and not isinstance(backoff, bool):
        backoff = {"type": "fixed", "delay": backoff}
    filled: dict[str, Any] = _without_none({"attempts": 0, **wire, "backoff": backoff or None})
    return filled


def read_options(fields: Mapping[bytes, bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a scheduled job's options on the wire, and their `repeat` part."""
    wire = payload.decode(fields.get(b"opts", b"{}"))
    repeat = wire.get("repeat") if isinstance(wire, dict) else None
    if not isinstance(repeat, dict):
        raise InvalidOptions("the options of a scheduled job do not say how it repeats")
    return wire, repeat
