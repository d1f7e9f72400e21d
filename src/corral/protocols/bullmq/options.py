"""A job's options, to and from BullMQ's wire format."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import asdict, replace

from corral.core import payload
from corral.core.job import Backoff, JobOptions, Keep
from corral.core.options import Capability, Lack
from corral.errors import InvalidOptions, short_repr
from corral.protocols.wire import whole

CAPABILITIES = frozenset(
    {
        Capability.DELAY,
        Capability.RETRY,
        Capability.PRIORITY,
        Capability.LIFO,
        Capability.CUSTOM_ID,
        Capability.REMOVAL,
        Capability.PAUSE,
        Capability.LOGS,
        Capability.RATE_LIMIT,
        Capability.CRON,
        Capability.INTERVAL,
        Capability.UNIQUE,
        Capability.GROUPS,
    }
)
OPTIONS = {
    "timestamp": "When it was created, ms since the epoch",
    "stackTraceLimit": "How many traces are kept",
    "sizeLimit": "The most bytes its data may have",
    "telemetry": "Trace context for its worker",
    "deduplication": "One job for all that are added under the same id",
    "parent": "The job that waits for it",
    "if_dead": "What its parent does where it is dead: fail_parent, continue_parent, ignore_dependency …",
    "failParentOnFailure": "Its failure fails its parent",
    "continueParentOnFailure": "Its failure lets its parent run at once",
    "ignoreDependencyOnFailure": "Its failure is noted, and its parent goes on without it",
    "removeDependencyOnFailure": "Its parent goes on without it where it fails",
}
"""The options only this protocol knows, with their help texts."""
LACKS = {
    "pause-schedule": Lack(
        "paused schedules", "pause the whole queue, or remove the schedule and declare it again later"
    ),
}
SHORT_NAMES = {
    "deduplication": "de",
    "failParentOnFailure": "fpof",
    "continueParentOnFailure": "cpof",
    "ignoreDependencyOnFailure": "idof",
    "keepLogs": "kl",
    "removeDependencyOnFailure": "rdof",
}
LONG_NAMES = {short: long for long, short in SHORT_NAMES.items()}
SHORT_NAMES["debounce"] = "de"  # the former name of deduplication; never written back
POLICIES = {long: short for long, short in SHORT_NAMES.items() if long.endswith("OnFailure")}
"""What a child's failure means to its parent."""


IF_DEAD = {
    "fail_parent": "failParentOnFailure",
    "continue_parent": "continueParentOnFailure",
    "ignore_dependency": "ignoreDependencyOnFailure",
    "remove_dependency": "removeDependencyOnFailure",
    "wait": "",
}
"""The same in native words; "wait": the parent waits until the child is retried or removed."""


def encode_options(options: JobOptions, job_id: str) -> dict[str, Any]:
    """Return the options as a job's `opts` field has them."""
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
    if options.group is not None:
        wire["group"] = options.group
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


class ReadOptions(JobOptions, frozen=True, kw_only=True):
    """Options that were read from a job's `opts` field; equal to the same options that were not."""

    raw: bytes = b"{}"
    """The field itself."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JobOptions):
            return NotImplemented
        return {**asdict(self), "raw": b""} == {**asdict(other), "raw": b""}


@lru_cache(maxsize=4096)
def decode_options(raw: bytes) -> ReadOptions:
    """Return the options of a job's `opts` field; jobs of one kind share them, so they are cached."""
    wire = payload.decode(raw)
    if not isinstance(wire, dict):
        wire = {}
    backoff = wire.pop("backoff", None)
    extra = {LONG_NAMES.get(name, name): value for name, value in wire.items() if name not in _OWN_OPTIONS}
    group = wire.get("group")
    if isinstance(group, str):
        del extra["group"]
    return ReadOptions(
        raw=raw,
        priority=_number(wire.get("priority")),
        delay=_number(wire.get("delay")),
        attempts=_number(wire.get("attempts")),
        backoff=_decode_backoff(backoff),
        keep_completed=_decode_keep(wire.get("removeOnComplete")),
        keep_dead=_decode_keep(wire.get("removeOnFail")),
        lifo=bool(wire.get("lifo")),
        keep_logs=_number(wire.get("kl")) or None,
        group=group if isinstance(group, str) else None,
        extra=extra,
    )


_OWN_OPTIONS = frozenset(
    {"priority", "delay", "attempts", "removeOnComplete", "removeOnFail", "lifo", "kl", "jobId"}
)


def _number(value: Any) -> int:
    return whole(value) if isinstance(value, int | float) else 0


def _decode_backoff(wire: Any) -> Backoff | None:
    if isinstance(wire, int | float) and not isinstance(wire, bool):
        return Backoff("fixed", _number(wire))
    if not isinstance(wire, dict):
        return None
    jitter = wire.get("jitter")
    share = float(jitter) if isinstance(jitter, int | float) and 0 <= jitter <= 1 else 0.0
    return Backoff(str(wire.get("type", "fixed")), _number(wire.get("delay")), share)


def _decode_keep(wire: Any) -> Keep | None:
    match wire:
        case None:
            return None
        case bool():
            return Keep(count=0) if wire else Keep()
        case int() | float():
            return Keep(count=_number(wire)) if wire >= 0 else Keep()
        case dict():
            count, age = wire.get("count"), wire.get("age")
            return Keep(
                count=None if count is None else _number(count), age=None if age is None else _number(age)
            )
    return None


# -- deduplication and parents ------------------------------------------------------------------------------


def in_wire_words(options: JobOptions, name: str, data: bytes) -> JobOptions:
    """Return the options with `unique` and `if_dead` in BullMQ's words; `data` is the job's as JSON.

    >>> from corral.core.job import Unique
    >>> in_wire_words(JobOptions(unique=Unique(key="a", period=500)), "send", b"{}").extra
    {'deduplication': {'id': 'a', 'ttl': 500}}
    """
    if "if_dead" in options.extra:
        options = _with_policy(options)
    unique = options.unique
    if unique is None:
        return options
    wire: dict[str, Any] = {"id": unique.id_of(name, payload.decode(data))}
    if unique.period is not None:
        wire["ttl"] = unique.period
    if unique.is_last:
        wire |= {"extend": True, "replace": True}
    return replace(options, extra={**options.extra, "deduplication": wire})


def _with_policy(options: JobOptions) -> JobOptions:
    extra = dict(options.extra)
    policy = extra.pop("if_dead")
    check_policy(policy)
    if not any(extra.get(name) for name in POLICIES) and (name := IF_DEAD[policy]):
        extra[name] = True
    return replace(options, extra=extra)


def check_policy(policy: Any) -> None:
    """Refuse what does not say what the death of a child means."""
    if not isinstance(policy, str) or policy not in IF_DEAD:
        raise InvalidOptions(f"if_dead is {short_repr(policy)}; use {', '.join(map(repr, IF_DEAD))}")


Deduplication = tuple[str, int | bool, bool, bool, bool, bool, bool]
"""(id, ttl ms or False, extends, replaces, keeps the last, reschedules, adds), for the submit script."""


def deduplication_of(extra: Mapping[str, Any], adds: bool = False) -> Deduplication | None:
    """Return the deduplication for the submit script; None where there is none.

    `adds`: where the job that would be replaced is not delayed any more, another is added; in 5.62.0 what
    was added last is lost then.

    >>> deduplication_of({"deduplication": {"id": "a", "ttl": 500}})
    ('a', 500, False, False, False, False, False)
    """
    name = "deduplication" if extra.get("deduplication") is not None else "debounce"
    value = extra.get(name)
    if value is None:
        return None
    if not isinstance(value, Mapping) or not isinstance(value.get("id"), str) or not value["id"]:
        raise InvalidOptions(
            f"{name} is {short_repr(value)}; give it an 'id' (text), and a 'ttl' in ms or none"
        )
    ttl = value.get("ttl")
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int) or ttl < 0):
        raise InvalidOptions(f"{name} ttl is {short_repr(ttl)}; use whole milliseconds, or leave it out")
    extends, replaces, keeps_last, reschedules = (
        bool(value.get(word)) for word in ("extend", "replace", "keepLastIfActive", "reschedule")
    )
    return value["id"], ttl or False, extends, replaces, keeps_last, reschedules, adds


def parent_of(extra: Mapping[str, Any]) -> tuple[str, bytes, str, str] | None:
    """Return (key, reference as JSON, prefix of its queue, id) of a job's parent; None where it has none.

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
    reference: dict[str, Any] = {"id": parent_id, "queueKey": queue}
    reference |= {POLICIES[name]: True for name in policies}
    return f"{queue}:{parent_id}", payload.encode(reference, "parent"), f"{queue}:", parent_id
