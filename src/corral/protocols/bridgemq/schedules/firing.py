"""A schedule's JSON, and the JSON of its firings."""

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from corral.core.cron import Cron
from corral.core.schedule import CATCH_UPS, LATE_MS, MOST_FIRINGS, plan
from corral.errors import InvalidOptions
from corral.protocols.bridgemq.keys import DEFAULT_QUEUE, instance_id

MOST_BYTES = 1024 * 1024
"""The most JSON of one schedule's firings in one go."""

_DESCRIBED = ("type", "queue", "priority")
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_schedule(raw: bytes) -> tuple[Cron, str]:
    """Return (cron, catch-up) of a schedule's JSON; `InvalidOptions` where it has none."""
    wire = _fields(raw).get("schedule")
    schedule = orjson.loads(bytes(wire)) if wire is not None else None
    if not isinstance(schedule, dict):
        raise InvalidOptions("its job data has no schedule")
    catch_up = schedule.get("catchUp")
    cron = Cron.parse(schedule.get("cron"), schedule.get("timezone") or "UTC")
    return cron, catch_up if catch_up in CATCH_UPS else "once"


def encode_firing(raw: bytes, schedule_id: str, fire_time: int, now: int) -> tuple[str, bytes]:
    """Return (id, JSON) of one firing: the schedule's own JSON, the user's parts of it byte for byte."""
    fields = _fields(raw)
    job_id = instance_id(schedule_id, fire_time)
    own: dict[str, Any] = {
        "id": job_id,
        "attempt": 0,
        "schedule": {"firedBy": schedule_id, "fireTime": fire_time},
        "createdAt": now,
    }
    if "jobId" in fields:
        own["jobId"] = job_id
    return job_id, msgspec.json.encode({**fields, **own})


def describe(raw: bytes) -> tuple[str, str, int]:
    """Return (type, queue, priority) of a job's JSON."""
    fields = {name: orjson.loads(bytes(value)) for name, value in _fields(raw).items() if name in _DESCRIBED}
    job_type, queue, priority = (fields.get(name) for name in _DESCRIBED)
    return (
        job_type if isinstance(job_type, str) else "",
        queue if isinstance(queue, str) and queue else DEFAULT_QUEUE,
        int(priority) if isinstance(priority, int | float) else 0,
    )


def firing_row(row: Sequence[Any], now: int, is_led: bool) -> tuple[Any, ...]:
    """Return a row for the fire script; a schedule that cannot be read goes to the dead letters.

    `is_led`: there was a leader until now, so a short gap came from a takeover and is made up for entirely;
    the schedule's own catch-up is about downtime.
    """
    schedule_id, due, lease, raw = row[0].decode(), int(row[1]), int(row[2]), row[3]
    try:
        cron, catch_up = read_schedule(raw)
        if is_led and now - due <= LATE_MS:
            catch_up = "all"
        most = max(min(MOST_FIRINGS, MOST_BYTES // len(raw)), 1)
        planned = plan(cron, due, now, catch_up, most)
        firings = [encode_firing(raw, schedule_id, at, now) for at in planned.firings]
        return (schedule_id, due, lease, planned.next_due or False, *describe(raw), firings, "")
    except InvalidOptions as error:
        return (schedule_id, due, lease, False, "", DEFAULT_QUEUE, 0, [], str(error))


def _fields(raw: bytes) -> dict[str, msgspec.Raw]:
    """Return the fields of a JSON object, their values undecoded."""
    try:
        return _decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise InvalidOptions(f"its job data is no JSON object: {error}") from None
