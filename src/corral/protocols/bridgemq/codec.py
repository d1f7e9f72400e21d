"""Jobs, settlements and events to and from the words of the BridgeMQ data model."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import msgpack
import orjson
from msgspec import Struct

from corral.core import payload
from corral.core.event import EventKind, JobEvent
from corral.core.job import DEFAULT_ATTEMPTS, Backoff, Claim, Job, JobOptions, JobState
from corral.core.options import Capability, require
from corral.errors import InvalidOptions
from corral.protocols.bridgemq.keys import DEFAULT_QUEUE, NAME
from corral.protocols.bridgemq.options import CAPABILITIES, Wanted, read_wanted, wanted

HIGH_PRIORITY = 7
"""From this priority on a job goes to the front."""

STATES = {
    "waiting": JobState.WAITING,
    "active": JobState.ACTIVE,
    "completed": JobState.COMPLETED,
    "failed": JobState.DELAYED,
    "delayed": JobState.DELAYED,
    "cron": JobState.DELAYED,
    "dead": JobState.DEAD,
}
"""`failed` waits for its retry, `cron` for its next firing."""

_OWN_FIELDS = frozenset(
    {"id", "jobId", "type", "queue", "data", "payload", "priority", "attempt", "attempts", "maxAttempts"}
    | {"backoff", "retry", "target", "schedule", "rateLimit", "createdAt", "keepData", "keepLogs"}
)


class Receipt(Struct, frozen=True):
    """What fences one attempt: the job, the worker in its lock, and the number of this claim."""

    job_id: str
    worker: str
    fence: int


class Trip(Struct, frozen=True):
    """One round trip of one broker that asked for jobs."""

    broker: str
    number: int


# -- jobs in ------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One job as the submit script reads it."""

    id: str
    raw: bytes
    status: str
    score: int
    type: str
    is_front: bool


def encode_job(job: Job, now: int) -> Row:
    """A row for the submit script; refuses what the contract has no word for."""
    options = job.options
    _check_options(options)
    asked = wanted(options.extra, now)
    job_id = job.id or str(uuid4())
    if asked.cron:
        status, score = "cron", asked.next_fire
    elif options.delay:
        status, score = "delayed", now + options.delay
    else:
        status, score = "waiting", 0
    raw = encode_raw(job, job_id, asked, now)
    return Row(job_id, raw, status, score, job.name, is_front(options.priority))


def _check_options(options: JobOptions) -> None:
    refused = (
        (options.lifo, Capability.LIFO, "lifo=True"),
        (options.keep_completed is not None, Capability.REMOVAL, f"keep_completed={options.keep_completed}"),
        (options.keep_dead is not None, Capability.REMOVAL, f"keep_dead={options.keep_dead}"),
    )
    for is_asked, capability, asked in refused:
        if is_asked:
            require(NAME, CAPABILITIES, capability, asked)


def is_front(priority: float) -> bool:
    """Does a job of this priority go to the front?"""
    return priority >= HIGH_PRIORITY


def encode_raw(job: Job, job_id: str, asked: Wanted, now: int) -> bytes:
    """The job's JSON, with the user's data as it was encoded once."""
    options = job.options
    data = payload.encode(job.data, "data")
    schedule = asked.schedule
    if schedule is None and options.delay:
        schedule = {"delay": options.delay, "runAt": now + options.delay}
    fields: dict[str, Any] = {
        "id": job_id,
        "type": job.name,
        "queue": job.queue,
        "data": orjson.Fragment(data),
        "priority": options.priority,
        "attempt": 0,
        "maxAttempts": options.attempts,
        "backoff": _encode_backoff(options.backoff),
        "target": asked.target or None,
        "schedule": schedule,
        "rateLimit": asked.rate or None,
        "createdAt": job.created_at or now,
    }
    if asked.keep_data:
        fields["keepData"] = True
    if options.keep_logs is not None:
        fields["keepLogs"] = options.keep_logs
    raw = orjson.dumps(fields)
    payload.check_size(data, raw[: len(raw) - len(data)])
    return raw


def _encode_backoff(backoff: Backoff | None) -> dict[str, Any] | None:
    if backoff is None:
        return None
    wire: dict[str, Any] = {"type": backoff.kind, "delay": backoff.delay}
    if backoff.jitter:
        wire["jitter"] = backoff.jitter
    return wire


# -- jobs out -----------------------------------------------------------------------------------------------


def decode_claim(row: Sequence[Any], worker: str, now: int) -> Claim:
    """A claim from a row of the scripts: [id, JSON, attempts since, fence, failure]."""
    job_id, raw, attempts, fence, failure = row
    known = Known(raw=raw, status="active", attempts=attempts, fence=fence, failure=failure)
    job = decode_job(_text(job_id), known, claimed_at=now, worker=worker)
    return Claim(job, Receipt(job.id, worker, int(fence)))


class Known(Struct, frozen=True, kw_only=True):
    """What the server has of one job; each part may be missing."""

    raw: bytes | None = None
    status: str = ""
    result: bytes | None = None
    attempts: bytes | None = None
    fence: bytes | int | None = None
    failure: Sequence[bytes] = ()
    progress: bytes | None = None
    summary: bytes | None = None
    holder: bytes | None = None


def decode_job(job_id: str, known: Known, claimed_at: int | None = None, worker: str | None = None) -> Job:
    """A job from what the server has of it."""
    wire, broken = _decode_raw(known.raw)
    summary = _object(known.summary)
    result = _object(known.result)
    failure = {_text(name): value for name, value in _pairs(known.failure)} if known.failure else {}
    state = STATES.get(known.status)
    attempts_made = _number(wire.get("attempt", wire.get("attempts"))) + _number(known.attempts)
    is_completed = state is JobState.COMPLETED
    reason, trace = _decode_failure(failure, result)
    held_at, holder = _decode_holder(known.holder)
    return Job(
        id=job_id,
        name=_word(wire.get("type")) or _word(summary.get("type")),
        data=wire["data"] if "data" in wire else wire.get("payload"),
        queue=_word(wire.get("queue")) or _word(summary.get("queue")) or DEFAULT_QUEUE,
        options=_decode_options(wire, attempts_made),
        state=state,
        attempts_made=_number(summary.get("attempt")) if is_completed else attempts_made,
        starts=_number(known.fence),
        created_at=_number(wire.get("createdAt")) or _number(summary.get("createdAt")),
        started_at=claimed_at or held_at or _number(summary.get("startedAt")) or None,
        finished_at=_number(result.get("completedAt")) or _number(failure.get("at")) or None
        if state in (JobState.COMPLETED, JobState.DEAD)
        else None,
        progress=_decode_progress(known.progress),
        result=result.get("data") if is_completed else None,
        reason=None if is_completed else reason,
        trace=() if is_completed else trace,
        worker=worker or holder or _word(summary.get("worker")) or None,
        doomed="its job data is no JSON object" if broken else None,
        extra={name: value for name, value in wire.items() if name not in _OWN_FIELDS}
        | ({"status": known.status} if known.status else {}),
    )


def _decode_raw(raw: bytes | None) -> tuple[dict[str, Any], bool]:
    """The fields of a job's JSON; and was there something that is none?"""
    if raw is None:
        return {}, False
    wire = payload.decode(raw)
    if not isinstance(wire, dict) or "_raw" in wire:
        return {"data": wire}, True
    return wire, False


def _decode_options(wire: Mapping[str, Any], attempts_made: int) -> JobOptions:
    retry = wire.get("retry")
    retry = retry if isinstance(retry, dict) else {}
    schedule = wire.get("schedule")
    schedule = schedule if isinstance(schedule, dict) else {}
    attempts = _number(wire.get("maxAttempts")) or _number(retry.get("attempts")) or DEFAULT_ATTEMPTS
    keep_logs = _number(wire.get("keepLogs"))
    return JobOptions(
        priority=_number(wire.get("priority")),
        delay=_number(schedule.get("delay")),
        attempts=attempts,
        backoff=_decode_backoff(wire.get("backoff") or retry.get("backoff"), attempts_made),
        keep_logs=keep_logs or None,
        extra=read_wanted(wire),
    )


def _decode_backoff(wire: Any, attempts_made: int) -> Backoff | None:
    """A backoff; what only strangers write (linear, a cap of its own) is worked out for the next attempt."""
    if not isinstance(wire, dict):
        return None
    kind, delay = _word(wire.get("type")), _number(wire.get("delay"))
    jitter = wire.get("jitter")
    share = float(jitter) if isinstance(jitter, bool | int | float) and 0 <= jitter <= 1 else 0.0
    most = _number(wire.get("maxDelay"))
    if kind == "linear":
        kind, delay = "fixed", delay * (attempts_made + 1)
    elif kind == "exponential" and most:
        kind, delay = "fixed", delay * 2 ** min(attempts_made, 53)
    return Backoff(kind or "fixed", min(delay, most) if most else delay, share)


def _decode_failure(
    failure: Mapping[str, bytes], result: Mapping[str, Any]
) -> tuple[str | None, tuple[str, ...]]:
    if failure:
        traces = payload.decode(failure.get("traces", b"[]"))
        return _text(failure.get("reason", b"")), tuple(map(str, traces)) if isinstance(traces, list) else ()
    error = result.get("error")
    if not isinstance(error, dict):
        return None, ()
    stack = error.get("stack")
    return str(error.get("message", "")), (str(stack),) if stack else ()


def _decode_holder(raw: bytes | None) -> tuple[int | None, str | None]:
    """(claimed at, worker) of an active job."""
    if raw is None:
        return None, None
    _, at, _, worker = msgpack.unpackb(raw, raw=True)
    return int(at), _text(worker) or None


# -- progress -----------------------------------------------------------------------------------------------


def encode_progress(value: Any, now: int) -> bytes:
    """The progress as the document's JSON: a percentage, a message, anything else as data."""
    wire: dict[str, Any] = {"percent": None}
    match value:
        case bool():
            wire["data"] = value
        case int() | float():
            wire["percent"] = value
        case {"progress": int() | float() as percent, "message": str() as message, **rest} if not rest:
            wire |= {"percent": percent, "message": message}
        case _:
            wire["data"] = value
    return payload.encode({**wire, "updatedAt": now}, "progress")


def _decode_progress(raw: bytes | None) -> Any:
    wire = _object(raw)
    if not wire:
        return None
    if wire.get("data") is not None:
        return wire["data"]
    if wire.get("message") is not None:
        return {"progress": wire.get("percent"), "message": wire["message"]}
    return wire.get("percent")


# -- events -------------------------------------------------------------------------------------------------

_EVENT_FIELDS = frozenset({"event", "at", "jobId", "type", "queue", "worker", "attempt", "prev", "data"})


def decode_event(entry_id: bytes, flat: Sequence[bytes]) -> JobEvent:
    """An entry of the shared event stream."""
    fields = {_text(name): value for name, value in _pairs(flat)}
    attempt = fields.get("attempt")
    data = fields.get("data")
    return JobEvent(
        id=entry_id.decode(),
        protocol=NAME,
        queue=_text(fields.get("queue", b"")) or DEFAULT_QUEUE,
        at=_number(fields.get("at")) or int(entry_id.split(b"-")[0]),
        kind=_text(fields.get("event", b"")),
        job_id=_text(fields.get("jobId", b"")) or None,
        name=_text(fields.get("type", b"")) or None,
        attempt=None if attempt is None else _number(attempt),
        previous=_text(fields.get("prev", b"")) or None,
        worker=_text(fields.get("worker", b"")) or None,
        data=(None if not data else payload.decode(data))
        or ({name: _text(value) for name, value in fields.items() if name not in _EVENT_FIELDS} or None),
    )


RESERVED_STEPS = frozenset(map(str, EventKind)) | {"removed", "failed"}


def encode_step(step: str) -> str:
    """The name of a handler's own event."""
    if not isinstance(step, str) or not step or len(step) > 255:
        raise InvalidOptions(f"step {step!r} does not fit; use a text of 1 to 255 characters")
    if step in RESERVED_STEPS:
        raise InvalidOptions(f"event name {step!r} has a meaning of its own; use another")
    return clean(step)


# -- words --------------------------------------------------------------------------------------------------


def pack(rows: Any) -> bytes:
    """Rows for a script."""
    packed: bytes = msgpack.packb(rows, use_bin_type=False)
    return packed


def _pairs(flat: Sequence[bytes]) -> Sequence[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _object(raw: bytes | None) -> dict[str, Any]:
    decoded = payload.decode(raw) if raw else None
    return decoded if isinstance(decoded, dict) else {}


def clean(text: str) -> str:
    # half a surrogate pair has no place in UTF-8, and an error message must not fail for it
    return text.encode("utf-8", "replace").decode()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    if type(value) is int:
        return value
    if value is None:  # as most are: an exception for each would cost more than the rest of the job
        return 0
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
