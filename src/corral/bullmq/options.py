"""Job options: checked by BullMQ's own rules, and converted to and from the wire's names."""

import json
import re
from collections.abc import Mapping
from math import isfinite, trunc
from typing import Any

from corral.core import payload
from corral.core.job import JobOptions
from corral.core.naming import RESERVED_IDS
from corral.core.options import HIGHEST_PRIORITY
from corral.errors import InvalidPayload, short_repr
from corral.protocols.bullmq.options import LONG_NAMES, SHORT_NAMES, decode_options

_INTEGER = re.compile(r"-?[1-9][0-9]*")
_TAKEN_IDS = RESERVED_IDS | {"metrics:completed:data", "metrics:failed:data"}
_TELEMETRY = (("metadata", "tm"), ("omitContext", "omc"))


def check_parent_policy(opts: Mapping[str, Any]) -> None:
    """Raise ValueError where the options say more than one thing about a failed child's parent."""
    names = (
        "removeDependencyOnFailure", "failParentOnFailure", "continueParentOnFailure",
        "ignoreDependencyOnFailure",
    )  # fmt: skip
    policies = [name for name in names if opts.get(name)]
    if len(policies) > 1:
        raise ValueError(f"The following options cannot be used together: {', '.join(policies)}")


def check(name: str, opts: Mapping[str, Any], data: bytes) -> None:
    """Raise ValueError, with the message of BullMQ 5.62.0, where a job cannot have these options."""
    limit = opts.get("sizeLimit")
    if limit and len(data) > limit:
        raise ValueError(f"The size of job {name} exceeds the limit {limit} bytes")
    if opts.get("repeat") and not (opts["repeat"].get("count") or opts.get("repeatJobKey")):
        if opts.get("delay"):
            raise ValueError("Delay and repeat options could not be used together")
        raise ValueError(f"job {name!r} has the option 'repeat'; use upsertJobScheduler instead")
    if opts.get("jobId") not in (None, ""):
        check_id(opts["jobId"])
    _check_priority(opts.get("priority") or 0)
    for option in ("deduplication", "debounce"):
        value = opts.get(option)
        if value and not (isinstance(value, Mapping) and value.get("id")):
            raise ValueError(f"{option.capitalize()} id must be provided")
    backoff = opts.get("backoff")
    jitter = backoff.get("jitter") if isinstance(backoff, Mapping) else None
    if isinstance(jitter, int | float) and not 0 <= jitter <= 1:
        raise ValueError("Jitter should be between 0 and 1")


def check_id(job_id: Any) -> None:
    """Raise ValueError where BullMQ refuses a custom id, or where it is the name of a key of the queue."""
    text = str(job_id)
    if text == "0" or text.startswith("0:"):
        raise ValueError("JobId cannot be '0' or start with 0:")
    if isinstance(job_id, int) or _INTEGER.fullmatch(text):
        raise ValueError("Custom Id cannot be integers")
    if not isinstance(job_id, str):
        raise ValueError(f"jobId is {short_repr(job_id)}; use text")
    if ":" in text and text.count(":") != 2:
        raise ValueError("Custom Id cannot contain :")
    if text in _TAKEN_IDS:
        raise ValueError(f"jobId {text!r} is the name of one of the queue's own keys; put a word in front")


def _check_priority(priority: Any) -> None:
    if not isinstance(priority, int | float) or isinstance(priority, bool):
        raise ValueError(f"priority is {short_repr(priority)}; use a number")
    if trunc(priority) != priority:
        raise ValueError("Priority should not be float")
    if not 0 <= priority <= HIGHEST_PRIORITY:
        raise ValueError(f"Priority should be between 0 and {HIGHEST_PRIORITY}")


def encode_data(data: Any, what: str = "data") -> bytes:
    """Return the data as JSON; what Corral refuses is left to the standard encoder and its errors."""
    try:
        return payload.encode(data, what)
    except InvalidPayload:
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


def normalized_backoff(backoff: Any) -> Any:
    """Return the `backoff` option with a number written out as a fixed delay."""
    if isinstance(backoff, int | float) and not isinstance(backoff, bool) and isfinite(backoff):
        return {"type": "fixed", "delay": backoff}
    return backoff or None


def submit_options(opts: Mapping[str, Any]) -> JobOptions:
    """Return the options of a new job, with all but those that the submit script reads in `extra`."""
    extra = {option: value for option, value in opts.items() if value is not None and option != "jobId"}
    delay = extra.get("delay") or 0
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not isfinite(delay):
        raise ValueError(f"delay is {short_repr(delay)}; use milliseconds")
    if not delay:
        extra.pop("delay", None)
    return JobOptions(
        attempts=extra.pop("attempts", 0),
        delay=max(int(delay), 0),
        priority=int(extra.get("priority") or 0),
        lifo=bool(extra.get("lifo")),
        backoff=None,
        extra=extra,
    )


def core_options(opts: Mapping[str, Any]) -> JobOptions:
    """Return the options as the engine reads them."""
    wire = {SHORT_NAMES.get(name, name): value for name, value in opts.items() if value is not None}
    return decode_options(encode_data(wire, "options"))


def written_options(raw: str | bytes) -> dict[str, Any]:
    """Return the options of a job's `opts` field in the names that users write; none where it is damaged."""
    wire = payload.decode(raw)
    return long_options(wire) if isinstance(wire, dict) else {}


def with_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as a job's `opts` has them."""
    backoff = normalized_backoff(options.get("backoff"))
    return {"attempts": 0, "delay": 0, **options, "backoff": backoff}


def long_options(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of the wire in the names that users write."""
    opts = {LONG_NAMES.get(name, name): value for name, value in wire.items() if name not in ("tm", "omc")}
    telemetry = {long: wire[short] for long, short in _TELEMETRY if short in wire}
    return {**opts, "telemetry": telemetry} if telemetry else opts
