"""Jobs and settlements, to and from the wire format of the streams contract."""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from corral.core import payload
from corral.core.event import EventKind, JobEvent
from corral.core.job import UNIQUE_KEPT_MS, Claim, Job, JobOptions, JobState
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
from corral.core.ports import JobEnd
from corral.errors import (
    IdempotencyConflict,
    IdempotencyPending,
    InvalidName,
    InvalidOptions,
    InvalidPayload,
    PayloadTooLarge,
)
from corral.protocols.attempts import decode_attempts, encode_attempts
from corral.protocols.streams.keys import NAME, QUEUE, StreamsKeys
from corral.protocols.streams.options import check_options, idempotency_key_of, ttl_of
from corral.protocols.wire import BROKEN, broken_fields, clean, count, fields_of, text, time_ms

TASKS: tuple[str, ...] = ("chat", "plan", "code", "tool", "rag", "embed")
"""The job names of the contract."""
MOST_PAYLOAD_BYTES = 200 * 1024
STATES = {
    "queued": JobState.WAITING,
    "running": JobState.ACTIVE,
    "done": JobState.COMPLETED,
    "error": JobState.DEAD,
    "canceled": JobState.CANCELLED,
}
OVER = frozenset({JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED})

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class EntryReceipt(Struct, frozen=True):
    """What fences one attempt: the queue entry, its consumer, and the number of this delivery."""

    entry: str
    consumer: str
    deliveries: int


# -- new jobs -----------------------------------------------------------------------------------------------


class StreamsJobRow(NamedTuple):
    """A new job as the submit script reads it."""

    id: str
    task: str
    payload: bytes
    ttl_s: int
    created_ts: int
    idempotency_key: str
    fingerprint_key: str
    fingerprint: str
    is_requested_id: bool
    unique: tuple[str, int, bool] | None = None
    """The key of the jobs that count as the same, for how many ms, and whether only until it has ended."""


def check_task(name: str) -> str:
    """Return a job's name, if it is one of the contract's tasks."""
    if name not in TASKS:
        raise InvalidName(f"protocol {NAME!r} has no task {name!r}; use one of {', '.join(TASKS)}")
    return name


def encode_job(job: Job, new_id: str, keys: StreamsKeys, default_ttl: int, now: int) -> StreamsJobRow:
    """Return a row for the submit script; refuses what the contract has no word for."""
    check_task(job.name)
    if job.id and not _UUID.fullmatch(job.id):
        raise InvalidName(
            f"job id {job.id!r} is not a UUID, as the streams contract requires; "
            f"use lower-case hex digits as in str(uuid.uuid4()), or leave it out"
        )
    check_options(job.options)
    ttl = ttl_of(job.options.extra, default_ttl)
    data = _encode_payload(job.data)
    key = idempotency_key_of(job.options.extra)
    return StreamsJobRow(
        id=job.id or new_id,
        task=job.name,
        payload=data,
        ttl_s=ttl,
        created_ts=job.created_at or now,
        idempotency_key=keys.idempotency(key) if key else "",
        fingerprint_key=keys.fingerprint(key) if key else "",
        fingerprint=fingerprint(job.name, data, ttl) if key else "",
        is_requested_id=bool(job.id),
        unique=_encode_unique(job, data, keys),
    )


def _encode_unique(job: Job, data: bytes, keys: StreamsKeys) -> tuple[str, int, bool] | None:
    unique = job.options.unique
    if unique is None:
        return None
    key = keys.unique(unique.id_of(job.name, payload.decode(data)))
    return key, unique.period or UNIQUE_KEPT_MS, unique.period is None


def _encode_payload(data: Any) -> bytes:
    if not isinstance(data, dict):
        raise InvalidPayload(
            f"payload is a {type(data).__name__}; the streams contract carries a JSON object: "
            f"use a dict, as in {{'value': …}}"
        )
    encoded = payload.encode(data, "payload")
    if len(encoded) > MOST_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"payload has {len(encoded)} bytes, the streams contract allows {MOST_PAYLOAD_BYTES}; "
            f"store the data elsewhere and send a reference to it"
        )
    return encoded


def fingerprint(task: str, data: bytes, ttl: int) -> str:
    """Return what a request is known by; the order of the payload's fields does not matter."""
    ordered = orjson.dumps(orjson.loads(data), option=orjson.OPT_SORT_KEYS)
    return sha256(b"\0".join((task.encode(), str(ttl).encode(), ordered))).hexdigest()


def conflict(word: bytes, key: str, job_id: str) -> IdempotencyConflict:
    """Return the error for an idempotency key that the scripts refused."""
    if word == b"unfinished":
        return IdempotencyPending(
            f"idempotency key {key!r} was taken for job {job_id}, which does not exist: another gateway is "
            f"about to create it, or did so long ago; try again later, or use a new key for a new job"
        )
    return IdempotencyConflict(
        f"idempotency key {key!r} belongs to job {job_id}, which was requested "
        f"with another task, payload or ttl_s; use a new key for a new job"
    )


# -- jobs ---------------------------------------------------------------------------------------------------


def decode_claim(row: Sequence[Any], consumer: str, now: int) -> Claim[EntryReceipt]:
    """Return a claim from a row of the scripts (lua/parts/claim.lua names its columns)."""
    entry, job_id, task, data, created, ttl, before, deliveries = row
    starts = before + deliveries
    job = Job(
        id=text(job_id),
        name=text(task),
        data=payload.decode(data),
        queue=QUEUE,
        options=_decode_options(ttl),
        state=JobState.ACTIVE,
        starts=starts,
        stalls=starts - 1,
        created_at=time_ms(created),
        started_at=now,
        worker=consumer,
    )
    return Claim(job, EntryReceipt(entry.decode(), consumer, deliveries))


def decode_job(flat: Sequence[bytes], events: Sequence[JobEvent] = ()) -> Job:
    """Return a job from the fields of its hash; `events` are its latest ones, newest first."""
    raw = fields_of(flat)
    broken = broken_fields(raw, counts=[b"ttl_s"], times=[b"created_ts", b"updated_ts"])
    fields = {text(name): value for name, value in raw.items()}
    status = text(fields.pop("status", b""))
    state = STATES.get(status)
    result, error = fields.pop("result", b""), fields.pop("error", b"")
    updated = time_ms(fields.pop("updated_ts", b""))
    reason, trace = _decode_error(error)
    started = next((event.at for event in events if event.kind == EventKind.ACTIVE), None)
    fields.pop("idempotency_key", None)
    progress = decode_progress(fields.pop("progress", b""), fields.pop("progress_message", b""))
    if progress is None:
        # another worker of the contract writes only the event
        progress = next(
            (event.data.get("data") for event in events if event.kind == EventKind.PROGRESS), None
        )
    return Job(
        id=text(fields.pop("job_id", b"")),
        name=text(fields.pop("task", b"")),
        data=payload.decode(fields.pop("payload", b"{}")),
        queue=QUEUE,
        options=_decode_options(fields.pop("ttl_s", b"")),
        state=state,
        attempts_made=1 if state in (JobState.COMPLETED, JobState.DEAD) else 0,
        created_at=time_ms(fields.pop("created_ts", b"")),
        started_at=started,
        finished_at=updated if state in OVER else None,
        progress=progress,
        result=payload.decode(result) if result else None,
        reason=reason,
        trace=trace,
        failed_attempts=decode_attempts(fields.pop("failed_attempts", b"")),
        extra={"status": status, "updated_ts": updated}
        | {name: text(value) for name, value in fields.items()}
        | ({BROKEN: broken} if broken else {}),
    )


def decode_end(values: Sequence[bytes | None]) -> JobEnd:
    """Return how a job ended, from its status, result and error."""
    status, result, error = (value or b"" for value in values)
    state = STATES[text(status)]
    reason, trace = _decode_error(error)
    return JobEnd(
        state=state,
        result=payload.decode(result) if result and state is JobState.COMPLETED else None,
        reason="cancelled" if state is JobState.CANCELLED else reason,
        trace=trace,
        attempts_made=1,
    )


def encode_progress(value: Any) -> tuple[str | bytes, ...]:
    """Return the fields of the hash for a progress, and their values.

    >>> encode_progress({"progress": 25, "message": "scene 1"})
    ('progress', b'25', 'progress_message', 'scene 1')
    """
    message = ""
    if (
        isinstance(value, dict)
        and value.keys() == {"progress", "message"}
        and isinstance(value["message"], str)
    ):
        value, message = value["progress"], value["message"]
    return "progress", payload.encode(value, "progress"), "progress_message", clean(message)


def decode_progress(value: bytes, message: bytes) -> Any:
    """Return the progress that the hash has; None where it has none."""
    if not value:
        return None
    progress = payload.decode(value)
    return {"progress": progress, "message": text(message)} if message else progress


def _decode_options(ttl: bytes) -> JobOptions:
    # a single attempt: a failure is final here
    return JobOptions(attempts=1, backoff=None, extra={"ttl_s": count(ttl)})


def _decode_error(raw: bytes) -> tuple[str | None, tuple[str, ...]]:
    if not raw:
        return None, ()
    error = payload.decode(raw)
    if not isinstance(error, dict):
        return str(error), ()
    if "message" not in error:
        return text(raw), ()
    trace = error.get("trace")
    return str(error["message"]), (str(trace),) if trace else ()


# -- settlements --------------------------------------------------------------------------------------------


class StreamsSettlementRow(NamedTuple):
    """A settlement as the turn script reads it."""

    entry: str
    consumer: str
    deliveries: int
    id: str
    task: str
    status: str
    """`queued` gives the job back."""
    value: bytes
    """What the hash keeps."""
    data: bytes
    """What the event has."""
    at: str
    was_requeued: bool
    attempts: bytes
    """The records of the attempts made in vain."""


def encode_settlement(settlement: Settlement[EntryReceipt]) -> StreamsSettlementRow:
    """Return a row for the turn script."""
    job, receipt = settlement.claim.job, settlement.claim.receipt
    status, value, data = _ending(settlement.outcome)
    return StreamsSettlementRow(
        receipt.entry, receipt.consumer, receipt.deliveries, job.id, job.name,
        status, value, data, str(settlement.at), job.stalls > 0, encode_attempts(settlement),
    )  # fmt: skip


def _ending(outcome: Outcome) -> tuple[str, bytes, bytes]:
    """Return (status, what the hash keeps, what the event has)."""
    match outcome:
        case Completed(result=result):
            return "done", result, b'{"result":' + result + b"}"
        case Dead(reason=reason, trace=trace) | Retry(reason=reason, trace=trace):
            return _error(reason, trace)
        case Cancelled(reason=reason):
            return "canceled", b"", orjson.dumps({"reason": clean(reason)})
        case Released():
            return "queued", b"", b"{}"
        case Unhandled():
            return "parked", b"", b"{}"
        case Postponed(delay=delay):
            return _error(
                f"the handler postponed the job by {delay} ms, but protocol {NAME!r} has no delay; "
                f"raise Release to put it back at once"
            )
        case _:
            return _error(f"the handler waits for children, but protocol {NAME!r} has none")


def _error(reason: str, trace: str = "") -> tuple[str, bytes, bytes]:
    event = {"message": clean(reason)}
    kept = {**event, "trace": clean(trace)} if trace else event
    return "error", orjson.dumps(kept), orjson.dumps(event)


def encode_step(step: str) -> str:
    """Return the name of a handler's step, as an event has it."""
    if not isinstance(step, str) or not step or len(step) > 255:
        raise InvalidOptions(f"step {step!r} does not fit; use a text of 1 to 255 characters")
    return clean(step)


def encode_line(line: str) -> bytes:
    """Return a line of a handler's log as event data."""
    return orjson.dumps({"line": clean(str(line))})
