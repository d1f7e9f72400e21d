"""Jobs and settlements, to and from the wire format of the BridgeMQ data model."""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import msgpack
import msgspec
import orjson
from msgspec import Struct

from corral.core import payload
from corral.core.event import EventKind
from corral.core.job import (
    DEFAULT_ATTEMPTS,
    UNIQUE_KEPT_MS,
    Backoff,
    Claim,
    FailedAttempt,
    Job,
    JobOptions,
    JobState,
    Unique,
)
from corral.core.outcome import (
    Cancelled,
    Completed,
    Dead,
    Outcome,
    Postponed,
    Released,
    Retry,
    Settlement,
    Unhandled,
)
from corral.core.routing import Identity
from corral.errors import InvalidOptions
from corral.protocols.attempts import decode_attempts, encode_attempts
from corral.protocols.bridgemq.keys import DEFAULT_QUEUE, NAME
from corral.protocols.bridgemq.options import BridgemqOptions, check_shared, decode_options, parse_options
from corral.protocols.wire import (
    BROKEN,
    MOST_COUNT,
    broken_fields,
    clean,
    count,
    fields_of,
    text,
    time_ms,
    whole,
    within,
)

UNHANDLED_MS = 1000
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
    | {"backoff", "retry", "target", "schedule", "rateLimit", "createdAt", "keepData", "keepLogs", "group"}
)
_ERROR_NAME = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?::|$)")


class ClaimReceipt(Struct, frozen=True):
    """What fences one attempt: the job, the worker in its lock, and the number of this claim."""

    job_id: str
    worker: str
    fence: int


# -- new jobs -----------------------------------------------------------------------------------------------


class BridgemqJobRow(NamedTuple):
    """A new job as the submit script reads it."""

    id: str
    raw: bytes
    status: str
    score: int
    type: str
    is_front: bool
    unique: tuple[str, int, bool, bool] | None = None
    """What it has in common with jobs that count as the same, for how many ms, whether only until it has
    ended, and whether it replaces a delayed one."""
    group: str | None = None


def encode_job(job: Job, now: int) -> BridgemqJobRow:
    """Return a row for the submit script; refuses what the document has no word for."""
    options = job.options
    check_shared(options)
    own = parse_options(options.extra, now)
    job_id = job.id or str(uuid4())
    if own.cron:
        status, score = "cron", own.next_fire
    elif options.delay:
        status, score = "delayed", now + options.delay
    else:
        status, score = "waiting", 0
    raw = encode_raw(job, job_id, own, now)
    unique = None if options.unique is None else _encode_unique(options.unique, job)
    return BridgemqJobRow(
        job_id, raw, status, score, job.name, is_front(options.priority), unique, options.group
    )


def _encode_unique(unique: Unique, job: Job) -> tuple[str, int, bool, bool]:
    name = unique.id_of(job.name, payload.decode(payload.encode(job.data, "data")))
    return name, unique.period or UNIQUE_KEPT_MS, unique.period is None, unique.is_last


def is_front(priority: float) -> bool:
    """Return whether a job of this priority goes to the front."""
    return priority >= HIGH_PRIORITY


def encode_raw(job: Job, job_id: str, own: BridgemqOptions, now: int) -> bytes:
    """Return the job's JSON, with the user's data as it was encoded once."""
    options = job.options
    data = payload.encode(job.data, "data")
    schedule = own.schedule
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
        "target": own.target or None,
        "schedule": schedule,
        "rateLimit": own.rate or None,
        "createdAt": job.created_at or now,
    }
    if options.group is not None:
        fields["group"] = options.group
    if own.keep_data:
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


# -- jobs ---------------------------------------------------------------------------------------------------


def decode_claim(row: Sequence[Any], worker: str, now: int) -> Claim[ClaimReceipt]:
    """Return a claim from a row of the scripts: [id, JSON, attempts since, fence, failure]."""
    job_id, raw, attempts, fence, failure = row
    record = JobRecord(raw=raw, status="active", attempts=attempts, fence=fence, failure=failure)
    job = decode_job(text(job_id), record, claimed_at=now, worker=worker)
    return Claim(job, ClaimReceipt(job.id, worker, int(fence)))


class JobRecord(Struct, frozen=True, kw_only=True):
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


def decode_job(
    job_id: str, record: JobRecord, claimed_at: int | None = None, worker: str | None = None
) -> Job:
    """Return a job from what the server has of it."""
    wire, is_broken = _decode_raw(record.raw)
    summary = _object(record.summary)
    result = _object(record.result)
    failure = {text(name): value for name, value in fields_of(record.failure).items()}
    state = STATES.get(record.status)
    # below 0 after a replay: the attempts that the JSON was written with do not count then
    since = within(record.attempts or 0, -MOST_COUNT, MOST_COUNT)
    attempts_made = max(count(wire.get("attempt", wire.get("attempts"))) + (since or 0), 0)
    is_completed = state is JobState.COMPLETED
    reason, trace = _decode_failure(failure, result)
    held_at, holder = _decode_holder(record.holder)
    broken = (
        broken_fields({b"attempts": record.attempts or b""}, counts=[b"attempts"]) if since is None else {}
    )
    return Job(
        id=job_id,
        name=_word(wire.get("type")) or _word(summary.get("type")),
        data=wire["data"] if "data" in wire else wire.get("payload"),
        queue=_word(wire.get("queue")) or _word(summary.get("queue")) or DEFAULT_QUEUE,
        options=_decode_options(wire, attempts_made),
        state=state,
        attempts_made=count(summary.get("attempt")) if is_completed else min(attempts_made, MOST_COUNT),
        starts=count(record.fence),
        stalls=count(failure.get("stalls")),
        created_at=time_ms(wire.get("createdAt")) or time_ms(summary.get("createdAt")),
        started_at=claimed_at or held_at or time_ms(summary.get("startedAt")) or None,
        finished_at=time_ms(result.get("completedAt")) or time_ms(failure.get("at")) or None
        if state in (JobState.COMPLETED, JobState.DEAD)
        else None,
        progress=_decode_progress(record.progress),
        result=result.get("data") if is_completed else None,
        reason=None if is_completed else reason,
        trace=() if is_completed else trace,
        failed_attempts=_decode_attempts(failure, summary),
        worker=worker or holder or _word(summary.get("worker")) or None,
        doomed="its job data is no JSON object" if is_broken else None,
        extra={name: value for name, value in wire.items() if name not in _OWN_FIELDS}
        | ({"status": record.status} if record.status else {})
        | ({BROKEN: broken} if broken else {}),
    )


def _decode_raw(raw: bytes | None) -> tuple[dict[str, Any], bool]:
    """Return the fields of a job's JSON, and whether it is no JSON object."""
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
    attempts = whole(wire.get("maxAttempts")) or whole(retry.get("attempts")) or DEFAULT_ATTEMPTS
    return JobOptions(
        priority=whole(wire.get("priority")),
        delay=whole(schedule.get("delay")),
        attempts=attempts,
        backoff=_decode_backoff(wire.get("backoff") or retry.get("backoff"), attempts_made),
        keep_logs=whole(wire.get("keepLogs")) or None,
        group=_word(wire.get("group")) or None,
        extra=decode_options(wire),
    )


def _decode_backoff(wire: Any, attempts_made: int) -> Backoff | None:
    """Return a backoff; what only foreign clients write (linear, a cap) is computed for the next attempt."""
    if not isinstance(wire, dict):
        return None
    kind, delay = _word(wire.get("type")), whole(wire.get("delay"))
    jitter = wire.get("jitter")
    share = float(jitter) if isinstance(jitter, bool | int | float) and 0 <= jitter <= 1 else 0.0
    most = whole(wire.get("maxDelay"))
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
        return text(failure.get("reason", b"")), tuple(map(str, traces)) if isinstance(traces, list) else ()
    error = result.get("error")
    if not isinstance(error, dict):
        return None, ()
    stack = error.get("stack")
    return str(error.get("message", "")), (str(stack),) if stack else ()


def _decode_attempts(failure: Mapping[str, bytes], summary: Mapping[str, Any]) -> tuple[FailedAttempt, ...]:
    """Return the attempts made in vain: a job that completed has them in its summary."""
    return decode_attempts(failure.get("attempts") or orjson.dumps(summary.get("attempts", [])))


def _decode_holder(raw: bytes | None) -> tuple[int | None, str | None]:
    """Return (claimed at, worker) of an active job."""
    if raw is None:
        return None, None
    try:
        _, at, _, worker = msgpack.unpackb(raw, raw=True)
        return time_ms(at) or None, text(worker) or None
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
        return None, None  # not written by Corral


def _object(raw: bytes | None) -> dict[str, Any]:
    decoded = payload.decode(raw) if raw else None
    return decoded if isinstance(decoded, dict) else {}


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


# -- settlements --------------------------------------------------------------------------------------------


class BridgemqSettlementRow(NamedTuple):
    """A settlement as the turn script reads it."""

    id: str
    fence: int
    verb: str
    at: int
    type: str
    attempt: int
    """The number of the attempt that ended."""
    value: bytes = b""
    """The result's JSON."""
    reason: str = ""
    traces: bytes = b"[]"
    data: bytes = b""
    """What the event has."""
    delay: int = 0
    is_front: bool = False
    keeps_data: bool = False
    summary: bytes = b""
    attempts: bytes = b""
    """The records of the attempts made in vain."""
    group: str = ""


def encode_settlement(settlement: Settlement[ClaimReceipt]) -> BridgemqSettlementRow:
    """Return a row for the turn script."""
    row, group = _settlement_row(settlement), settlement.claim.job.options.group
    return row if group is None else row._replace(group=group)


def _settlement_row(settlement: Settlement[ClaimReceipt]) -> BridgemqSettlementRow:
    claim, outcome, at = settlement.claim, settlement.outcome, settlement.at
    job, receipt = claim.job, claim.receipt
    attempt = job.attempts_made + 1
    match outcome:
        case Completed(result=result):
            return BridgemqSettlementRow(
                job.id, receipt.fence, "completed", at, job.name, attempt,
                value=b'{"success":true,"data":%b,%b' % (result, _times(job, at)),
                data=b'{"result":%b}' % result,
                keeps_data=bool(job.options.extra.get("keep_data")),
                summary=_summary(job, receipt.worker),
            )  # fmt: skip
        case Released():
            return BridgemqSettlementRow(job.id, receipt.fence, "released", at, job.name, attempt)
        case Postponed(delay=delay):
            return BridgemqSettlementRow(
                job.id, receipt.fence, "postponed", at, job.name, attempt, delay=delay
            )
        case Unhandled():
            # a worker whose profile lists its handlers does not claim such a job
            return BridgemqSettlementRow(
                job.id, receipt.fence, "postponed", at, job.name, attempt, delay=UNHANDLED_MS
            )
        case Retry(delay=delay, reason=reason, trace=trace):
            return BridgemqSettlementRow(
                job.id, receipt.fence, "retry", at, job.name, attempt,
                reason=clean(reason), traces=_traces(job, trace), delay=delay,
                data=orjson.dumps({"reason": clean(reason), "delay": delay}),
                is_front=is_front(job.options.priority), attempts=encode_attempts(settlement),
            )  # fmt: skip
    reason, trace, event = _end(outcome)
    return BridgemqSettlementRow(
        job.id, receipt.fence, "dead", at, job.name, attempt,
        value=b'{"success":false,"error":%b,%b' % (_error(reason, trace), _times(job, at)),
        reason=reason, traces=_traces(job, trace), data=orjson.dumps({"reason": reason, **event}),
        attempts=encode_attempts(settlement),
    )  # fmt: skip


def _end(outcome: Outcome) -> tuple[str, str, dict[str, Any]]:
    """Return (reason, trace, what else the event has) of a job that will not run again."""
    match outcome:
        case Dead(reason=reason, trace=trace):
            return clean(reason), clean(trace), {}
        case Cancelled(reason=reason):
            return clean(reason), "", {"cancelled": True}
    return f"the handler waits for children, but protocol {NAME!r} has none", "", {}


def _times(job: Job, at: int) -> bytes:
    took = max(at - job.started_at, 0) if job.started_at else 0
    return b'"completedAt":%d,"processingTime":%d}' % (at, took)


def _error(reason: str, trace: str) -> bytes:
    last = trace.rstrip().rpartition("\n")[2]
    name = _ERROR_NAME.match(last)
    return orjson.dumps({"message": reason, "stack": trace, "name": name.group(1) if name else "Error"})


def _summary(job: Job, worker: str) -> bytes:
    fields: dict[str, Any] = {
        "type": job.name,
        "queue": job.queue,
        "createdAt": job.created_at,
        "startedAt": job.started_at,
        "attempt": job.attempts_made + 1,
        "worker": worker,
    }
    if job.failed_attempts:
        fields["attempts"] = msgspec.to_builtins(job.failed_attempts)
    return orjson.dumps(fields)


def _traces(job: Job, trace: str) -> bytes:
    """Return every attempt's trace so far, the newest last."""
    return orjson.dumps([clean(lines) for lines in (*job.trace, trace) if lines])


# -- what workers write -------------------------------------------------------------------------------------

RESERVED_STEPS = frozenset(map(str, EventKind)) | {"removed", "failed"}


def encode_step(step: str) -> str:
    """Return the name of a handler's own event."""
    if not isinstance(step, str) or not step or len(step) > 255:
        raise InvalidOptions(f"step {step!r} does not fit; use a text of 1 to 255 characters")
    if step in RESERVED_STEPS:
        raise InvalidOptions(f"event name {step!r} has a meaning of its own; use another")
    return clean(step)


def encode_progress(value: Any, now: int) -> bytes:
    """Return the progress as the document's JSON: a percentage, a message, anything else as data."""
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
    if wire.get("data") is not None:
        return wire["data"]
    if wire.get("message") is not None:
        return {"progress": wire.get("percent"), "message": wire["message"]}
    return wire.get("percent")


def encode_worker(identity: Identity, now: int) -> bytes:
    """Return a worker's description in the registry; several stacks or regions are listed as one text."""
    return orjson.dumps(
        {
            "serverId": identity.server,
            "stack": ",".join(sorted(identity.stack)),
            "region": ",".join(sorted(identity.region)),
            "capabilities": sorted(identity.capabilities),
            "lastSeen": now,
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
        }
    )
