"""Job options: checked, completed with defaults, or refused where the protocol lacks the capability."""

import re
import warnings
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from typing import Any, Literal, NamedTuple, TypedDict, get_args

from msgspec import Struct

from corral.core.job import (
    DEFAULT_ATTEMPTS,
    DEFAULT_BACKOFF_MS,
    DEFAULT_KEEP_LOGS,
    Backoff,
    JobOptions,
    Keep,
    Unique,
)
from corral.errors import CorralWarning, InvalidOptions, Unsupported, short_repr

HIGHEST_PRIORITY = 2**21
LONGEST_DELAY_MS = 5 * 365 * 86_400_000
"""Five years: a due time is stored as ms * 4096 in a double, which is exact up to the year 2039."""
LARGEST_INTEGER = 2**53 - 1
"""The largest that every peer reads exactly."""
MANY_KEPT = 10_000
"""Finished jobs of one queue; keeping more makes each end of a job slower."""

LONGEST_GROUP = 255
_GROUP = re.compile(rf"[\w.~@+=,-]{{1,{LONGEST_GROUP}}}")
_Check = Callable[[str, Any], Any]
"""(option, value) -> the checked value."""

BACKOFF_PARTS = ("type", "delay", "jitter")
KEEP_PARTS = ("age", "count")
BACKOFF_KINDS = ("fixed", "exponential", "custom")
_BACKOFF_WAY_OUT = "use 'fixed', 'exponential', or 'custom' (the worker's own rule)"


class Capability(StrEnum):
    """A feature that one protocol has and another may lack."""

    DELAY = "delay"
    RETRY = "retry"
    PRIORITY = "priority"
    LIFO = "lifo"
    CUSTOM_ID = "custom ids"
    REMOVAL = "removal policies"
    PAUSE = "pause"
    LOGS = "logs"
    RATE_LIMIT = "rate limits"
    CRON = "cron"
    INTERVAL = "intervals"
    ROUTING = "routing"
    TTL = "time to live"
    IDEMPOTENCY = "idempotency keys"
    UNIQUE = "unique jobs"
    GROUPS = "groups"


Durability = Literal["memory", "disk", "replicas"]
DURABILITIES: tuple[Durability, ...] = get_args(Durability)
"""From the weakest to the strongest."""


class KeyAndPeriod(TypedDict, total=False):
    """What jobs have in common that count as one, and for how long that holds."""

    key: str
    period: int | timedelta
    """Milliseconds, or a timedelta."""


class OptionValues(TypedDict, total=False):
    """The options of a job, as they are given; None leaves one at its default."""

    delay: int | timedelta | None
    """Milliseconds, or a timedelta."""
    priority: int | None
    attempts: int | None
    backoff: int | timedelta | str | Backoff | Mapping[str, Any] | None
    """Milliseconds or a timedelta (fixed), a kind, or all of it."""
    remove_on_complete: bool | int | timedelta | Keep | Mapping[str, Any] | None
    """True, how many to keep, or for how long: a timedelta, or an `age` in seconds."""
    remove_on_fail: bool | int | timedelta | Keep | Mapping[str, Any] | None
    lifo: bool | None
    keep_logs: int | None
    group: str | None
    unique: bool | str | timedelta | KeyAndPeriod | None
    """True: by name and data; text: by that key; until the job has ended, or for a time."""
    throttle: int | timedelta | KeyAndPeriod | None
    """The first of the jobs added within this time; by name, or by a key."""
    debounce: int | timedelta | KeyAndPeriod | None
    """The last of the jobs added, when none was added for this time; by name, or by a key."""
    durability: Durability | None
    """Where it must be before the add returns."""
    # of the streams protocol
    ttl_s: int | timedelta | None
    idempotency_key: str | None
    # of the bridgemq protocol
    target: Mapping[str, Any] | None
    rate: Mapping[str, int] | None
    keep_data: bool | None
    # of the bullmq protocol
    timestamp: int | None
    stackTraceLimit: int | None
    sizeLimit: int | None
    telemetry: Mapping[str, Any] | None
    deduplication: Mapping[str, Any] | None
    parent: Mapping[str, Any] | None
    if_dead: (
        Literal["fail_parent", "continue_parent", "ignore_dependency", "remove_dependency", "wait"] | None
    )
    """What its parent in a flow does where it is dead."""
    failParentOnFailure: bool | None
    continueParentOnFailure: bool | None
    ignoreDependencyOnFailure: bool | None
    removeDependencyOnFailure: bool | None


class AddOptions(OptionValues, total=False):
    """The options of a job where it is added."""

    id: str | None
    cron: str | None
    timezone: str | None
    catch_up: str | None


class Lack(NamedTuple):
    """A feature that a protocol has no word for, and what to do instead."""

    feature: str
    way_out: str

    def reason(self, protocol: str) -> str:
        """Return the sentence that a page shows in place of the control.

        >>> Lack("pause", "stop its workers instead").reason("streams")
        "protocol 'streams' has no pause; stop its workers instead"
        """
        return f"protocol {protocol!r} has no {self.feature}; {self.way_out}"

    def error(self, protocol: str) -> Unsupported:
        """Return the error of a call that needs it."""
        return Unsupported(self.reason(protocol))


def require(protocol: str, capabilities: frozenset[Capability], needed: Capability, request: str) -> None:
    """Raise `Unsupported` for `request` unless the protocol has the capability it needs.

    >>> require("streams", frozenset(), Capability.DELAY, "delay=1000")
    Traceback (most recent call last):
    ...
    corral.errors.Unsupported: protocol 'streams' has no delay, so delay=1000 cannot be kept; leave it out, or use a protocol that has it
    """  # noqa: E501
    if needed not in capabilities:
        raise Unsupported(
            f"protocol {protocol!r} has no {needed.value}, so {request} cannot be kept; "
            f"leave it out, or use a protocol that has it"
        )


def build(
    protocol: str,
    capabilities: frozenset[Capability],
    extras: Collection[str] = (),
    values: Mapping[str, Any] | None = None,
    priority_order: str = "",
    **more: Any,
) -> JobOptions:
    """Return the options of a job: `values` and `more`, checked, and the defaults for the rest.

    None leaves an option at its default. `extras` are the names only this protocol knows; it checks their
    values itself. An option that needs a capability the protocol lacks is refused where it is used.
    `priority_order` says which priorities run first.

    >>> build("bullmq", frozenset(Capability), delay=500, backoff=250).backoff
    Backoff(kind='fixed', delay=250, jitter=0.0)
    >>> build("bullmq", frozenset(Capability), priority=-1)
    Traceback (most recent call last):
    ...
    corral.errors.InvalidOptions: priority is -1; use 0 (no priority) or a positive number up to 2097152
    """
    checked = dict(_defaults(capabilities))
    extra: dict[str, Any] = {}
    for name, value in {**(values or {}), **more}.items():
        if name in extras:
            if value is not None:
                extra[name] = value
        elif name == "durability":
            # the add itself waits for it; the job does not have it
            if value is not None:
                checked_durability(value)
        elif name not in _OPTIONS:
            raise InvalidOptions(unknown_option(name, [*_OPTIONS, "durability", *extras]))
        elif value is not None:
            field, needed, check, neutral = _OPTIONS[name]
            if field == "unique":
                _check_only(name, checked, extra)
            try:
                checked[field] = check(name, value)
            except InvalidOptions as error:
                if name == "priority" and priority_order:
                    raise InvalidOptions(f"{error} ({priority_order})") from None
                raise
            if checked[field] != neutral:
                require(protocol, capabilities, needed, f"{name}={short_repr(value)}")
    if checked.get("unique") is not None and checked["unique"].is_last:
        require(protocol, capabilities, Capability.DELAY, f"debounce of {checked['unique'].period} ms")
        _delay_last(checked)
    if "group" in checked:
        _check_order(checked)
    return JobOptions(**checked, extra=extra)


@cache
def _defaults(capabilities: frozenset[Capability]) -> Mapping[str, Any]:
    retries = Capability.RETRY in capabilities
    return {
        "attempts": DEFAULT_ATTEMPTS if retries else 1,
        "backoff": Backoff("exponential", DEFAULT_BACKOFF_MS) if retries else None,
        "keep_logs": DEFAULT_KEEP_LOGS if Capability.LOGS in capabilities else None,
    }


def unknown_option(name: Any, known: Collection[str]) -> str:
    """Return the complaint about an option that does not exist, with the nearest that does."""
    nearest = get_close_matches(str(name).lower(), known, n=1)
    way_out = f"did you mean {nearest[0]!r}?" if nearest else f"use any of {', '.join(sorted(known))}"
    return f"there is no option {short_repr(name)}; {way_out}"


def milliseconds(value: Any) -> Any:
    """Return a timedelta as whole milliseconds; anything else as it is.

    >>> milliseconds(timedelta(seconds=1.5)), milliseconds(250)
    (1500, 250)
    """
    return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value


def seconds(value: Any) -> Any:
    """Return a timedelta as seconds; anything else as it is.

    >>> seconds(timedelta(minutes=1)), seconds(2.5)
    (60.0, 2.5)
    """
    return value.total_seconds() if isinstance(value, timedelta) else value


def whole_seconds(value: Any) -> Any:
    """Return a timedelta as whole seconds, rounded up; anything else as it is."""
    return -(-value // timedelta(seconds=1)) if isinstance(value, timedelta) else value


class WholeNumber(Struct, frozen=True):
    """The check of a whole number within limits; neither True nor 3.0 is one. `core.schema` states it too."""

    lowest: int
    highest: int
    way_out: str

    def __call__(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.lowest <= value <= self.highest:
            raise InvalidOptions(f"{name} is {short_repr(value)}; {self.way_out}")
        return int(value)


checked_priority = WholeNumber(
    0, HIGHEST_PRIORITY, f"use 0 (no priority) or a positive number up to {HIGHEST_PRIORITY}"
)
checked_delay_ms = WholeNumber(
    0,
    LONGEST_DELAY_MS,
    f"use 0 (at once) or whole milliseconds up to {LONGEST_DELAY_MS} (five years), or a timedelta",
)
checked_attempts = WholeNumber(1, LARGEST_INTEGER, "use a whole number from 1 (run once, never again)")
checked_keep_logs = WholeNumber(1, LARGEST_INTEGER, "use how many lines to keep, from 1")
checked_backoff_ms = WholeNumber(
    1,
    LONGEST_DELAY_MS,
    f"use whole milliseconds from 1 up to {LONGEST_DELAY_MS} (five years), or a timedelta",
)
checked_keep_count = WholeNumber(
    0, LARGEST_INTEGER, "use True (remove), False (keep all), or how many to keep, from 0"
)
checked_keep_age = WholeNumber(
    1, LARGEST_INTEGER, "use whole seconds from 1, a timedelta, or True to remove at once"
)


def _delay(name: str, value: Any) -> int:
    return checked_delay_ms(name, milliseconds(value))


def _lifo(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidOptions(f"{name} is {short_repr(value)}; use True (next to run) or False")
    return value


def checked_backoff(name: str, value: Any) -> Backoff:
    """Return a backoff: a kind, milliseconds or a timedelta, or all of it."""
    value = milliseconds(value)
    if isinstance(value, str):
        value = {"type": value}
    elif isinstance(value, int) and not isinstance(value, bool):
        value = {"type": "fixed", "delay": value}
    elif isinstance(value, Backoff):
        value = {"type": value.kind, "delay": value.delay, "jitter": value.jitter}
    if not isinstance(value, Mapping):
        raise InvalidOptions(
            f"{name} is {short_repr(value)}; use 'fixed', 'exponential', milliseconds, a timedelta, "
            f"or {{'type': …, 'delay': …, 'jitter': …}}"
        )
    _check_parts(name, value, BACKOFF_PARTS)
    kind = value.get("type")
    if kind not in BACKOFF_KINDS:
        raise InvalidOptions(f"{name} type is {short_repr(kind)}; {_BACKOFF_WAY_OUT}")
    return Backoff(
        kind,
        checked_backoff_ms(f"{name} delay", milliseconds(value.get("delay", DEFAULT_BACKOFF_MS))),
        _jitter(f"{name} jitter", value.get("jitter", 0.0)),
    )


def _jitter(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise InvalidOptions(f"{name} is {short_repr(value)}; use a share of the delay, from 0 to 1")
    return float(value)


def kept(name: str, value: Any) -> Keep:
    """Return which finished jobs are kept; False keeps all, whatever the worker's own setting is."""
    if isinstance(value, bool):
        return Keep(count=0) if value else Keep()
    if isinstance(value, timedelta):
        value = {"age": value}
    elif isinstance(value, Keep):
        value = {"count": value.count, "age": value.age}
    elif isinstance(value, Mapping):
        _check_parts(name, value, KEEP_PARTS)
        if not value:
            raise InvalidOptions(f"{name} is empty; give it 'age' (seconds), 'count', or both")
    else:
        value = {"count": value}
    count, age = value.get("count"), whole_seconds(value.get("age"))
    if count is not None:
        checked_keep_count(name, count)
        if count > MANY_KEPT:
            warnings.warn(
                f"{name} keeps {count} jobs; above {MANY_KEPT} every end of a job takes longer",
                CorralWarning,
                stacklevel=4,
            )
    if age is not None:
        checked_keep_age(f"{name} age", age)
    return Keep(count=count, age=age)


def checked_keep(name: str, value: Any) -> Keep | None:
    """Return which ended jobs a worker keeps: how many, for how long, or both; None where nothing is said.

    >>> checked_keep("keep_completed", timedelta(hours=1))
    Keep(count=None, age=3600)
    """
    if isinstance(value, bool):
        raise InvalidOptions(f"{name} is {value}; use how many to keep, a timedelta, or both as a Keep")
    return None if value is None else kept(name, value)


def _check_parts(name: str, value: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for part in value:
        if part not in known:
            raise InvalidOptions(f"{name} has {short_repr(part)}; use {', '.join(map(repr, known))}")


# -- durability ---------------------------------------------------------------------------------------------


def checked_durability(value: Any) -> Durability:
    """Return a durability that was given.

    >>> checked_durability("tape")
    Traceback (most recent call last):
    ...
    corral.errors.InvalidOptions: durability is 'tape'; use 'memory', 'disk' or 'replicas'
    """
    if value not in DURABILITIES:
        raise InvalidOptions(f"durability is {short_repr(value)}; use 'memory', 'disk' or 'replicas'")
    return DURABILITIES[DURABILITIES.index(value)]


def strongest(requested: Collection[Durability | None]) -> Durability:
    """Return the strongest of several; None asks for nothing.

    >>> strongest({None, "disk", "memory"})
    'disk'
    """
    return max((level for level in requested if level is not None), key=DURABILITIES.index, default="memory")


# -- unique jobs --------------------------------------------------------------------------------------------

LONGEST_KEY = 512
_period = WholeNumber(
    1,
    LONGEST_DELAY_MS,
    f"use whole milliseconds from 1 up to {LONGEST_DELAY_MS} (five years), or a timedelta",
)


def _unique(name: str, value: Any) -> Unique | None:
    match value:
        case False:
            return None
        case True:
            return Unique(by_data=True)
        case timedelta():
            return Unique(by_data=True, period=_period(name, milliseconds(value)))
        case str():
            return Unique(key=_key(name, value))
        case Mapping():
            key, period = _key_and_period(name, value)
            return Unique(key=key, by_data=key is None, period=period)
    raise InvalidOptions(
        f"{name} is {short_repr(value)}; use True (by name and data), a key, a timedelta, "
        f"or {{'key': …, 'period': …}}"
    )


def _throttle(name: str, value: Any) -> Unique:
    key, period = _key_and_period(name, value if isinstance(value, Mapping) else {"period": value})
    if period is None:
        raise InvalidOptions(f"{name} has no 'period'; give whole milliseconds or a timedelta")
    return Unique(key=key, period=period)


def _debounce(name: str, value: Any) -> Unique:
    unique = _throttle(name, value)
    return Unique(key=unique.key, period=unique.period, is_last=True)


def _key_and_period(name: str, value: Mapping[str, Any]) -> tuple[str | None, int | None]:
    _check_parts(name, value, ("key", "period"))
    key, period = value.get("key"), milliseconds(value.get("period"))
    return (
        None if key is None else _key(f"{name} key", key),
        None if period is None else _period(f"{name} period", period),
    )


def _key(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode("utf-8", "surrogatepass")) <= LONGEST_KEY:
        raise InvalidOptions(f"{name} is {short_repr(value)}; use text of 1 to {LONGEST_KEY} bytes")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidOptions(f"{name} is {short_repr(value)}, half a surrogate pair; cut between characters")
    return value


def _check_only(name: str, checked: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """Refuse a second option that says which jobs count as one."""
    if checked.get("unique") is not None or "deduplication" in extra:
        raise InvalidOptions(
            f"{name} is given beside another of unique, throttle, debounce and deduplication; "
            f"use one of them, and None for the others"
        )


def _delay_last(checked: dict[str, Any]) -> None:
    """Delay a job by the period after which it runs unless another replaces it."""
    unique: Unique = checked["unique"]
    if checked.get("delay"):
        raise InvalidOptions(
            f"debounce and delay={checked['delay']}: a debounced job runs {unique.period} ms after the last "
            f"was added; leave the delay out"
        )
    checked["delay"] = unique.period


def _group(name: str, value: Any) -> str:
    """Return the name of a group."""
    if not isinstance(value, str) or not _GROUP.fullmatch(value):
        raise InvalidOptions(
            f"{name} is {short_repr(value)}; use 1 to {LONGEST_GROUP} letters, digits and - _ . ~ @ + = ,"
        )
    return value


def _check_order(checked: Mapping[str, Any]) -> None:
    """Refuse what would need another order within a group."""
    for name in ("priority", "lifo"):
        if checked.get(name):
            raise InvalidOptions(
                f"group={checked['group']!r} and {name}={checked[name]}: the jobs of a group run in the "
                f"order in which they were added; leave {name} out"
            )


_NO_VALUE: Any = object()

# option: its field, the capability it needs, its check, and the value that needs no capability
_OPTIONS: dict[str, tuple[str, Capability, _Check, Any]] = {
    "priority": ("priority", Capability.PRIORITY, checked_priority, 0),
    "delay": ("delay", Capability.DELAY, _delay, 0),
    "attempts": ("attempts", Capability.RETRY, checked_attempts, 1),
    "backoff": ("backoff", Capability.RETRY, checked_backoff, _NO_VALUE),
    "remove_on_complete": ("keep_completed", Capability.REMOVAL, kept, _NO_VALUE),
    "remove_on_fail": ("keep_dead", Capability.REMOVAL, kept, _NO_VALUE),
    "lifo": ("lifo", Capability.LIFO, _lifo, False),
    "keep_logs": ("keep_logs", Capability.LOGS, checked_keep_logs, _NO_VALUE),
    "unique": ("unique", Capability.UNIQUE, _unique, None),
    "throttle": ("unique", Capability.UNIQUE, _throttle, _NO_VALUE),
    "debounce": ("unique", Capability.UNIQUE, _debounce, _NO_VALUE),
    "group": ("group", Capability.GROUPS, _group, _NO_VALUE),
}
