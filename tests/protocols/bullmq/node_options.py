"""Corral's options and profiles for what a Node program would write."""

from collections.abc import Mapping
from typing import Any

from corral.core.job import Backoff, JobOptions, Keep
from corral.core.ports import Limit, Profile


def profile_of(options: Mapping[str, Any]) -> Profile:
    """Our worker's profile for a Node Worker's options."""
    limiter = options.get("limiter")
    return Profile(
        name=options.get("name", "anna"),
        lock_ms=options.get("lockDuration", 30_000),
        max_stalls=options.get("maxStalledCount", 1),
        recover_ms=options.get("stalledInterval", 30_000),
        limit=limiter and Limit(limiter["max"], limiter["duration"]),
        keep_completed=keep_of(options.get("removeOnComplete")),
        keep_dead=keep_of(options.get("removeOnFail")),
        metrics_points=options.get("metrics", {}).get("maxDataPoints"),
    )


def options_of(wire: Mapping[str, Any]) -> JobOptions:
    """Our options for what a Node producer would write as `wire`."""
    rest = {name: value for name, value in wire.items() if name != "jobId"}
    known: dict[str, Any] = {
        "attempts": rest.pop("attempts", 0),
        "backoff": backoff_of(rest.pop("backoff", None)),
        "keep_logs": rest.pop("keepLogs", None),
    }
    known |= {name: rest.pop(name) for name in ("priority", "delay", "lifo") if name in rest}
    for theirs, ours in (("removeOnComplete", "keep_completed"), ("removeOnFail", "keep_dead")):
        if has_own_spelling(rest.get(theirs)):
            known[ours] = keep_of(rest.pop(theirs))
    return JobOptions(**known, extra=rest)


def backoff_of(wire: Any) -> Backoff | None:
    """Our backoff for a number of ms, or {type, delay, jitter}."""
    if wire is None:
        return None
    if isinstance(wire, int):
        return Backoff("fixed", wire)
    return Backoff(wire["type"], wire.get("delay", 0), wire.get("jitter", 0.0))


def has_own_spelling(wire: Any) -> bool:
    """Whether our model can express this policy; 0 and {count} are passed on unchanged instead."""
    if isinstance(wire, dict):
        return "age" in wire
    return wire is not None and (isinstance(wire, bool) or wire > 0)


def keep_of(wire: Any) -> Keep | None:
    """Our removal policy for true, false, a number, or {count, age}."""
    match wire:
        case None:
            return None
        case bool():
            return Keep(0) if wire else Keep()
        case int():
            return Keep(wire)
    return Keep(wire.get("count"), wire.get("age"))
