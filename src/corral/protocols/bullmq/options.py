"""A job's options to and from BullMQ's wire format."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from corral.core import payload
from corral.core.job import Backoff, JobOptions, Keep
from corral.errors import InvalidOptions, short_repr

SHORT_NAMES = {
    "deduplication": "de",
    "failParentOnFailure": "fpof",
    "continueParentOnFailure": "cpof",
    "ignoreDependencyOnFailure": "idof",
    "keepLogs": "kl",
    "removeDependencyOnFailure": "rdof",
}
LONG_NAMES = {short: long for long, short in SHORT_NAMES.items()}
SHORT_NAMES["debounce"] = "de"  # what deduplication was called before; never written back
POLICIES = {"failParentOnFailure": "fpof", "continueParentOnFailure": "cpof",
            "ignoreDependencyOnFailure": "idof", "removeDependencyOnFailure": "rdof"}  # fmt: skip
"""What a failed child means to its parent."""


def encode_options(options: JobOptions, job_id: str) -> dict[str, Any]:
    """The options as they stand in a job's `opts` field."""
    wire: dict[str, Any] = {"attempts": options.attempts}
    if options.backoff is not None:
        wire["backoff"] = _encode_backoff(options.backoff)
    if options.delay:
        wire["delay"] = options.delay
    if options.priority:
        wire["priority"] = options.priority
    if options.lifo:
        wire["lifo"] = True
    if job_id:
        wire["jobId"] = job_id
    if options.keep_logs is not None:
        wire["kl"] = options.keep_logs
    if options.keep_completed is not None:
        wire["removeOnComplete"] = _encode_keep(options.keep_completed)
    if options.keep_dead is not None:
        wire["removeOnFail"] = _encode_keep(options.keep_dead)
    for name, value in options.extra.items():
        if name == "telemetry":
            wire.update(_encode_telemetry(value))
        else:
            wire[SHORT_NAMES.get(name, name)] = value
    return wire


def _encode_backoff(backoff: Backoff) -> dict[str, Any]:
    wire: dict[str, Any] = {"type": backoff.kind, "delay": backoff.delay}
    if backoff.jitter:
        wire["jitter"] = backoff.jitter
    return wire


def _encode_keep(keep: Keep) -> bool | int | dict[str, int]:
    if keep.age is not None:
        return {"age": keep.age} if keep.count is None else {"age": keep.age, "count": keep.count}
    if keep.count is None:
        return False
    return True if keep.count == 0 else keep.count


def _encode_telemetry(telemetry: Mapping[str, Any]) -> dict[str, Any]:
    names = {"metadata": "tm", "omitContext": "omc"}
    return {names[name]: value for name, value in telemetry.items() if name in names}


@lru_cache(maxsize=4096)
def decode_options(raw: bytes) -> JobOptions:
    """The options in a job's `opts` field; jobs of one kind share them, so they are read once."""
    wire = payload.decode(raw)
    if not isinstance(wire, dict):
        wire = {}
    backoff = wire.pop("backoff", None)
    extra = {LONG_NAMES.get(name, name): value for name, value in wire.items() if name not in _OWN_OPTIONS}
    return JobOptions(
        priority=_number(wire.get("priority")),
        delay=_number(wire.get("delay")),
        attempts=_number(wire.get("attempts")),
        backoff=_decode_backoff(backoff),
        keep_completed=_decode_keep(wire.get("removeOnComplete")),
        keep_dead=_decode_keep(wire.get("removeOnFail")),
        lifo=bool(wire.get("lifo")),
        keep_logs=wire.get("kl") or None,
        extra=extra,
    )


_OWN_OPTIONS = frozenset(
    {"priority", "delay", "attempts", "removeOnComplete", "removeOnFail", "lifo", "kl", "jobId"}
)


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _decode_backoff(wire: Any) -> Backoff | None:
    if isinstance(wire, int | float) and not isinstance(wire, bool):
        return Backoff("fixed", int(wire))
    if not isinstance(wire, dict):
        return None
    return Backoff(
        str(wire.get("type", "fixed")), _number(wire.get("delay")), float(wire.get("jitter") or 0.0)
    )


def _decode_keep(wire: Any) -> Keep | None:
    match wire:
        case None:
            return None
        case bool():
            return Keep(count=0) if wire else Keep()
        case int() | float():
            return Keep(count=int(wire)) if wire >= 0 else Keep()
        case dict():
            return Keep(count=wire.get("count"), age=wire.get("age"))
    return None


# -- what binds a job to others -----------------------------------------------------------------------------


def deduplication_of(extra: Mapping[str, Any]) -> tuple[str, int | bool, bool, bool] | None:
    """(id, ttl ms or False, extends, replaces): what the submit script needs to know; None where not asked.

    >>> deduplication_of({"deduplication": {"id": "a", "ttl": 500}})
    ('a', 500, False, False)
    """
    name = "deduplication" if extra.get("deduplication") is not None else "debounce"
    asked = extra.get(name)
    if asked is None:
        return None
    if not isinstance(asked, Mapping) or not isinstance(asked.get("id"), str) or not asked["id"]:
        raise InvalidOptions(
            f"{name} is {short_repr(asked)}; give it an 'id' (text), and a 'ttl' in ms or none"
        )
    ttl = asked.get("ttl")
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int) or ttl < 0):
        raise InvalidOptions(f"{name} ttl is {short_repr(ttl)}; use whole milliseconds, or leave it out")
    return asked["id"], ttl or False, bool(asked.get("extend")), bool(asked.get("replace"))


def parent_of(extra: Mapping[str, Any]) -> tuple[str, bytes, str, str] | None:
    """(key, connection as JSON, prefix of its queue, id) of a job's parent; None where there is none.

    >>> parent_of({"parent": {"id": "7", "queue": "bull:mail"}, "failParentOnFailure": True})
    ('bull:mail:7', b'{"id":"7","queueKey":"bull:mail","fpof":true}', 'bull:mail:', '7')
    """
    policies = [name for name in POLICIES if extra.get(name)]
    if len(policies) > 1:
        raise InvalidOptions(f"{' and '.join(policies)} cannot be used together; choose one")
    parent = extra.get("parent")
    if parent is None:
        return None
    if not isinstance(parent, Mapping) or not all(
        isinstance(parent.get(part), str) and parent[part] for part in ("id", "queue")
    ):
        raise InvalidOptions(
            f"parent is {short_repr(parent)}; give its 'id' and its 'queue' with the prefix, "
            f"such as 'bull:mail'"
        )
    queue, parent_id = parent["queue"], parent["id"]
    connection: dict[str, Any] = {"id": parent_id, "queueKey": queue}
    connection |= {POLICIES[name]: True for name in policies}
    return f"{queue}:{parent_id}", payload.encode(connection, "parent"), f"{queue}:", parent_id
