"""The job that follows one of a repeatable of BullMQ's first versions, whose keys spell their options."""

from collections.abc import Mapping
from hashlib import md5
from typing import Any

from corral.core import payload
from corral.errors import InvalidOptions, short_repr
from corral.protocols.bullmq.options import deduplication_of
from corral.protocols.bullmq.schedulers.repeat import (
    due_by_pattern,
    inherited_options,
    is_over,
    milliseconds,
    next_count,
    read_options,
)
from corral.protocols.wire import text

PARTS = 5
"""name:id:end:zone:pattern"""


def is_legacy(repeat_key: bytes | None) -> bool:
    """Return whether this is the repeat key of such a job; newer ones have fewer parts."""
    return not repeat_key or repeat_key.count(b":") >= PARTS - 1


def legacy_iteration(fields: Mapping[bytes, bytes], now: int, zone: str) -> tuple[Any, ...] | None:
    """Return (due, (key, envelope, data) for each key the repeatable may have); None where no job follows."""
    wire, repeat = read_options(fields)
    repeat = {"pattern": repeat.get("cron"), **repeat}
    repeat.pop("cron", None)
    if is_over(repeat, now):
        return None
    due = _due(repeat, max(now, int(wire.get("prevMillis") or 0)), zone)
    if due is None:
        return None
    name, data = text(fields.get(b"name", b"")), fields.get(b"data", b"{}")
    spelled = _spelled(name, repeat)
    keys = (repeat.get("key") or _hashed(spelled), spelled)
    return (due, *((key, _envelope(name, data, wire, repeat, key, due, now), data) for key in keys))


def _due(repeat: Mapping[str, Any], now: int, zone: str) -> int | None:
    every = repeat.get("every")
    if every and repeat.get("pattern"):
        raise InvalidOptions(
            f"it repeats by pattern {short_repr(repeat['pattern'])} and every {short_repr(every)} ms"
        )
    return int(now // every * every + every) if every else due_by_pattern(repeat, now, zone)


def _envelope(
    name: str, data: bytes, wire: dict[str, Any], repeat: dict[str, Any], key: str, due: int, now: int
) -> tuple[Any, ...]:
    job_id = f"repeat:{_id_part(name, data, key)}:{due}"
    delay = max(int(due + (repeat.get("offset") or 0) - now), 0)
    times = {part: milliseconds(part, repeat.get(part)) for part in ("startDate", "endDate")}
    kept = {part: value for part, value in {**repeat, **times}.items() if value is not None}
    kept.pop("immediately", None)
    options = inherited_options(
        {**wire, "jobId": job_id, "delay": delay, "timestamp": now, "prevMillis": due,
         "repeat": {**kept, "count": next_count(repeat)}}
    )  # fmt: skip
    options.pop("repeatJobKey", None)
    deduplication = deduplication_of({"deduplication": wire.get("de")}) or False
    opts = payload.encode(options, "options")
    priority, is_lifo = int(wire.get("priority") or 0), bool(wire.get("lifo"))
    return (job_id, name, opts, now, delay, priority, is_lifo, deduplication, False, False, key)


def _id_part(name: str, data: bytes, key: str) -> str:
    if key.count(":") < 2:
        return key
    decoded = payload.decode(data)
    own = decoded.get("id") if isinstance(decoded, dict) else None
    return _hashed(f"{name}{own or ''}{_hashed(key)}")


def _spelled(name: str, repeat: Mapping[str, Any]) -> str:
    end = milliseconds("endDate", repeat.get("endDate"))
    when = repeat.get("pattern") or repeat.get("every") or ""
    return f"{name}:{repeat.get('jobId') or ''}:{end or ''}:{repeat.get('tz') or ''}:{when}"


def _hashed(words: str) -> str:
    return md5(words.encode(), usedforsecurity=False).hexdigest()
