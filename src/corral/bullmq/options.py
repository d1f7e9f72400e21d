"""A job's options as people write them: checked by the contract's own rules, and put into its words."""

import json
import re
from collections.abc import Mapping
from math import isfinite, trunc
from typing import Any

from corral.core import payload
from corral.core.job import Job, JobOptions
from corral.core.naming import RESERVED_IDS
from corral.core.options import HIGHEST_PRIORITY
from corral.errors import InvalidPayload, short_repr
from corral.protocols.bullmq.options import LONG_NAMES, SHORT_NAMES, decode_options

EXCLUSIVE = (
    "removeDependencyOnFailure",
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
)
_INTEGER = re.compile(r"-?[1-9][0-9]*")
_TAKEN = RESERVED_IDS | {"metrics:completed:data", "metrics:failed:data"}


# -- in -----------------------------------------------------------------------------------------------------


def check(name: str, opts: Mapping[str, Any], data: bytes) -> None:
    """ValueError, in 5.62.0's words, where a job cannot have these options."""
    limit = opts.get("sizeLimit")
    if limit and len(data) > limit:
        raise ValueError(f"The size of job {name} exceeds the limit {limit} bytes")
    if opts.get("repeat") and not (opts["repeat"].get("count") or opts.get("repeatJobKey")):
        if opts.get("delay"):
            raise ValueError("Delay and repeat options could not be used together")
        raise ValueError(f"job {name!r} has the option 'repeat'; use upsertJobScheduler instead")
    asked = [option for option in EXCLUSIVE if opts.get(option)]
    if len(asked) > 1:
        raise ValueError(f"The following options cannot be used together: {', '.join(asked)}")
    if opts.get("jobId") not in (None, ""):
        check_id(opts["jobId"])
    _check_priority(opts.get("priority") or 0)
    for option in ("deduplication", "debounce"):
        asked_for = opts.get(option)
        if asked_for and not (isinstance(asked_for, Mapping) and asked_for.get("id")):
            raise ValueError(f"{option.capitalize()} id must be provided")
    backoff = opts.get("backoff")
    jitter = backoff.get("jitter") if isinstance(backoff, Mapping) else None
    if isinstance(jitter, int | float) and not 0 <= jitter <= 1:
        raise ValueError("Jitter should be between 0 and 1")


def check_id(job_id: Any) -> str:
    """The id itself, if 5.62.0 takes it; and not one that is the name of another key of the queue."""
    text = str(job_id)
    if text == "0" or text.startswith("0:"):
        raise ValueError("JobId cannot be '0' or start with 0:")
    if isinstance(job_id, int) or _INTEGER.fullmatch(text):
        raise ValueError("Custom Id cannot be integers")
    if not isinstance(job_id, str):
        raise ValueError(f"jobId is {short_repr(job_id)}; use text")
    if ":" in text and text.count(":") != 2:
        raise ValueError("Custom Id cannot contain :")
    if text in _TAKEN:
        raise ValueError(f"jobId {text!r} is the name of one of the queue's own keys; put a word in front")
    return text


def _check_priority(priority: Any) -> None:
    if not isinstance(priority, int | float) or isinstance(priority, bool):
        raise ValueError(f"priority is {short_repr(priority)}; use a number")
    if trunc(priority) != priority:
        raise ValueError("Priority should not be float")
    if not 0 <= priority <= HIGHEST_PRIORITY:
        raise ValueError(f"Priority should be between 0 and {HIGHEST_PRIORITY}")


def normalized_backoff(backoff: Any) -> Any:
    """A number means a fixed delay."""
    if isinstance(backoff, int | float) and not isinstance(backoff, bool) and isfinite(backoff):
        return {"type": "fixed", "delay": backoff}
    return backoff or None


def milliseconds(name: str, value: Any) -> int:
    """A time as the wire counts it."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"{name} is {short_repr(value)}; use milliseconds")
    return int(value)


def encode_data(data: Any, what: str = "data") -> bytes:
    """The data as JSON: whatever the standard encoder writes is written, with its error where it is not."""
    try:
        return payload.encode(data, what)
    except InvalidPayload:
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


def wire_options(opts: Mapping[str, Any]) -> dict[str, Any]:
    """The options in the contract's short names, without those that were given as None."""
    wire: dict[str, Any] = {}
    for name, value in opts.items():
        if value is None or name == "repeatJobKey":
            continue
        if name == "telemetry":
            wire |= {short: value[long] for long, short in _TELEMETRY if value.get(long) is not None}
        else:
            wire[SHORT_NAMES.get(name, name)] = value
    return wire


_TELEMETRY = (("metadata", "tm"), ("omitContext", "omc"))


def encode(
    job_id: str, name: str, data: Any, opts: Mapping[str, Any], timestamp: int, queue: str
) -> tuple[Job, bytes]:
    """A job for the protocol, checked; its data as JSON is apart from it."""
    encoded = encode_data(data)
    check(name, opts, encoded)
    given = {option: value for option, value in opts.items() if value is not None and option != "jobId"}
    if not given.get("delay"):
        given.pop("delay", None)
    options = JobOptions(
        attempts=given.pop("attempts", 0),
        delay=max(milliseconds("delay", given.get("delay")), 0),
        priority=int(given.get("priority") or 0),
        lifo=bool(given.get("lifo")),
        backoff=None,
        extra=given,
    )
    job = Job(id=job_id, name=name, data=0, queue=queue, options=options, created_at=timestamp)
    return job, encoded


# -- out ----------------------------------------------------------------------------------------------------


def long_options(wire: Mapping[str, Any]) -> dict[str, Any]:
    """The options in the names people write, from those of the wire."""
    opts: dict[str, Any] = {}
    telemetry = {long: wire[short] for long, short in _TELEMETRY if short in wire}
    for name, value in wire.items():
        if name not in ("tm", "omc"):
            opts[LONG_NAMES.get(name, name)] = value
    return {**opts, "telemetry": telemetry} if telemetry else opts


def core_options(opts: Mapping[str, Any]) -> JobOptions:
    """The options as the engine reads them."""
    return decode_options(encode_data(wire_options(opts), "options"))
