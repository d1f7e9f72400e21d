"""The options of workers, as `app.run` and `app.workers` take them."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from corral.core.job import Keep
from corral.core.options import checked_keep, milliseconds, seconds, unknown_option
from corral.core.ports import GROUP_CONCURRENCY, Limit, Profile
from corral.errors import InvalidName, InvalidOptions
from corral.store.client import Reconnect
from corral.worker import Listener, default_name

IDENTITY = ("server_id", "stack", "capabilities", "region")
"""The attributes of a worker where jobs are routed."""
MOST_PROCESSES = 1024
LONGEST_EVENTS = 2**31 - 1
LONGEST_UNKNOWN_S = 30 * 86_400

_WORKER_NAME = re.compile(r"[!-~]{1,255}")
_TIMES = ("lock_ms", "recover_ms", "promote_ms")


class ProfileOptions(TypedDict, total=False):
    """What a protocol needs to know of a worker; None leaves an option at its default."""

    lock_ms: int | timedelta | None
    """Milliseconds, or a timedelta; so are the next two."""
    recover_ms: int | timedelta | None
    promote_ms: int | timedelta | None
    heartbeat: float | timedelta | None
    """Seconds between two renewals of locks, or a timedelta."""
    max_events: int | None
    max_stalls: int | None
    group_concurrency: int | None
    limit: Limit | None
    keep_completed: int | timedelta | Keep | Mapping[str, Any] | None
    keep_dead: int | timedelta | Keep | Mapping[str, Any] | None
    metrics_points: int | None
    max_processes: int | None
    """How many processes all queues together run handlers in; None: as many as the machine has cores."""
    unknown_after: float | timedelta | None
    """Seconds, or a timedelta: how long jobs without a handler are left to other workers; 0: not at all."""
    server_id: str | None
    stack: Sequence[str] | None
    capabilities: Sequence[str] | None
    region: Sequence[str] | None
    extra: dict[str, Any]


class WorkerOptions(ProfileOptions, total=False):
    """The options of `app.run` besides those of the run itself."""

    name: str | None
    queues: Sequence[str] | Mapping[str, int] | None
    protocol: str | None
    listener: Listener | None
    reconnect: Reconnect | None


def check_names(options: Mapping[str, Any], others: Collection[str]) -> None:
    """Refuse an option that does not exist, with the nearest that does."""
    known = [*WorkerOptions.__annotations__, *others]
    for name in options:
        if name not in known:
            raise InvalidOptions(unknown_option(name, known))


def profile_of(name: str | None, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> Profile:
    """Return the profile of a worker; `defaults` are the app's own."""
    given = {**defaults, **{option: value for option, value in options.items() if value is not None}}
    given.pop("heartbeat", None)
    given.pop("max_processes", None)
    extra = dict(given.pop("extra", {}))
    extra |= {part: given.pop(part) for part in IDENTITY if part in given}
    if GROUP_CONCURRENCY in given:
        extra[GROUP_CONCURRENCY] = given.pop(GROUP_CONCURRENCY)
    if "max_events" in given:
        extra["max_events"] = _checked_events(given.pop("max_events"))
    for option in _TIMES:
        if option in given:
            given[option] = milliseconds(given[option])
    if "unknown_after" in given:
        given["unknown_ms"] = _checked_unknown(given.pop("unknown_after"))
    for option in ("keep_completed", "keep_dead"):
        given[option] = checked_keep(option, given.get(option))
    return Profile(name=default_name() if name is None else _check_worker_name(name), extra=extra, **given)


def heartbeat_of(options: Mapping[str, Any], lock_ms: int) -> float | None:
    """Return the seconds between two renewals of locks; None: a quarter of their life."""
    interval = seconds(options.get("heartbeat"))
    if interval is None:
        return None
    is_number = isinstance(interval, int | float) and not isinstance(interval, bool)
    if not is_number or not 0 < interval <= lock_ms / 2000:
        raise InvalidOptions(
            f"heartbeat={interval!r} is not between 0 and {lock_ms / 2000} seconds, half of "
            f"lock_ms={lock_ms}; give seconds or a timedelta, or a longer lock"
        )
    return float(interval)


def processes_of(options: Mapping[str, Any]) -> int | None:
    """Return how many processes may run handlers; None: one for each core."""
    count = options.get("max_processes")
    if count is not None and (type(count) is not int or not 1 <= count <= MOST_PROCESSES):
        raise InvalidOptions(f"max_processes={count!r} is not a whole number from 1 to {MOST_PROCESSES}")
    return count


def _checked_events(count: Any) -> int:
    if type(count) is not int or not 1 <= count <= LONGEST_EVENTS:
        raise InvalidOptions(f"max_events={count!r} is not a whole number from 1 to {LONGEST_EVENTS}")
    return count


def _checked_unknown(after: Any) -> int:
    interval = seconds(after)
    is_number = isinstance(interval, int | float) and not isinstance(interval, bool)
    if not is_number or not 0 <= interval <= LONGEST_UNKNOWN_S:
        raise InvalidOptions(
            f"unknown_after={after!r} is not between 0 and {LONGEST_UNKNOWN_S} seconds; "
            f"give seconds or a timedelta, or 0 to end jobs without a handler at once"
        )
    return int(interval * 1000)


def _check_worker_name(name: str) -> str:
    """Return the name, if a connection may have it."""
    if not isinstance(name, str) or not _WORKER_NAME.fullmatch(name):
        raise InvalidName(
            f"worker name {name!a} does not fit; use 1 to 255 visible ASCII characters without spaces"
        )
    return name
