"""Jobs, settlements and events to and from the words of the streams contract."""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from corral.core import payload
from corral.core.event import EventKind, JobEvent
from corral.core.job import DEFAULT_ATTEMPTS, Backoff, Claim, Job, JobOptions, JobState
from corral.core.options import Capability, require
from corral.core.outcome import (
    AlreadyMoved,
    Cancelled,
    Completed,
    Dead,
    Outcome,
    Postponed,
    Released,
    Retry,
    Settlement,
)
from corral.core.ports import Profile
from corral.errors import (
    IdempotencyConflict,
    IdempotencyPending,
    InvalidName,
    InvalidOptions,
    InvalidPayload,
    PayloadTooLarge,
)
from corral.protocols.streams.keys import NAME, QUEUE, Keys

CAPABILITIES = frozenset({Capability.CUSTOM_ID, Capability.TTL, Capability.IDEMPOTENCY})
OPTIONS = {
    "ttl_s": "Seconds it is kept",
    "idempotency_key": "The same key gives the same job",
}
"""Options only this contract knows, with their help texts."""
TASKS: tuple[str, ...] = ("chat", "plan", "code", "tool", "rag", "embed")
"""The job names this contract has."""

MOST_PAYLOAD_BYTES = 200 * 1024
MOST_TTL_S = 2_147_483_647

STATES = {
    "queued": JobState.WAITING,
    "running": JobState.ACTIVE,
    "done": JobState.COMPLETED,
    "error": JobState.DEAD,
    "canceled": JobState.CANCELLED,
}
KINDS: Mapping[tuple[str, str], str] = {
    ("queued", "gateway.enqueue"): EventKind.ADDED,
    ("queued", "worker.recover"): EventKind.STALLED,
}
"""The step tells apart what the contract calls by one word."""
KINDS_BY_TYPE: Mapping[str, str] = {
    "queued": EventKind.WAITING,
    "running": EventKind.ACTIVE,
    "progress": EventKind.PROGRESS,
    "done": EventKind.COMPLETED,
    "error": EventKind.DEAD,
    "canceled": EventKind.CANCELLED,
}

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_IDEMPOTENCY_KEY = re.compile(r"[!-~]{1,255}")


class Receipt(Struct, frozen=True):
    """What fences one attempt: the entry, who has it, and the how-manieth delivery this is."""

    entry: str
    consumer: str
    deliveries: int


class Trip(Struct, frozen=True):
    """One round trip of one broker that asked for jobs."""

    broker: str
    number: int


class Settings(Struct, frozen=True, kw_only=True):
    """What this protocol asks of a profile's `extra`."""

    ttl_s: int = 3600
    """How long a job lives that names no time of its own."""
    max_deliveries: int = 3
    """After so many deliveries that nobody finished, a job ends."""
    max_events: int = 10_000
    """About how many entries the shared event log keeps."""
    stranger_idle_ms: int = 300_000
    """How long a worker that is not ours may be silent: it has no way to renew what it holds."""

    @staticmethod
    def of(profile: Profile) -> "Settings":
        """The settings of a profile; what it does not name is as above."""
        given = {name: profile.extra[name] for name in Settings.__struct_fields__ if name in profile.extra}
        for name, value in given.items():
            if type(value) is not int or not 1 <= value <= MOST_TTL_S:
                raise InvalidOptions(f"{name}={value!r} is not a whole number from 1 to {MOST_TTL_S}")
        # a profile that allows more stalls than our default allows at least as many deliveries
        given.setdefault("max_deliveries", max(Settings().max_deliveries, profile.max_stalls + 1))
        return Settings(**given)


# -- jobs in ------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One job as the submit script reads it."""

    id: str
    task: str
    payload: bytes
    ttl_s: int
    created_ts: int
    idempotency_key: str
    fingerprint_key: str
    fingerprint: str
    is_given_id: bool


def encode_job(job: Job, fresh_id: str, keys: Keys, default_ttl: int, now: int) -> Row:
    """A row for the submit script; refuses what the contract has no word for."""
    if job.name not in TASKS:
        raise InvalidName(f"protocol 'streams' has no task {job.name!r}; use one of {', '.join(TASKS)}")
    if job.id and not _UUID.fullmatch(job.id):
        raise InvalidName(
            f"job id {job.id!r} is not a UUID, as the streams contract asks; "
            f"use lower-case hex digits as in str(uuid.uuid4()), or give none"
        )
    _check_options(job.options)
    ttl = _ttl(job.options.extra.get("ttl_s", default_ttl))
    data = _payload(job.data)
    key = _idempotency_key(job.options.extra)
    return Row(
        id=job.id or fresh_id,
        task=job.name,
        payload=data,
        ttl_s=ttl,
        created_ts=job.created_at or now,
        idempotency_key=keys.idempotency(key) if key else "",
        fingerprint_key=keys.fingerprint(key) if key else "",
        fingerprint=fingerprint(job.name, data, ttl) if key else "",
        is_given_id=bool(job.id),
    )


def _check_options(options: JobOptions) -> None:
    if options != JobOptions(attempts=1, backoff=None, extra=options.extra):
        _check_asked(options)
    unknown = sorted(options.extra.keys() - OPTIONS.keys())
    if unknown:
        raise InvalidOptions(
            f"protocol 'streams' does not know the option {unknown[0]!r}; it has {', '.join(sorted(OPTIONS))}"
        )


def _check_asked(options: JobOptions) -> None:
    refused = (
        (options.delay != 0, Capability.DELAY, f"delay={options.delay}"),
        (options.priority != 0, Capability.PRIORITY, f"priority={options.priority}"),
        (options.lifo, Capability.LIFO, "lifo=True"),
        # the defaults of the model cannot be told from silence; here a failure is final either way
        (options.attempts not in (0, 1, DEFAULT_ATTEMPTS), Capability.RETRY, f"attempts={options.attempts}"),
        (options.backoff not in (None, Backoff()), Capability.RETRY, f"backoff={options.backoff}"),
        (options.keep_completed is not None, Capability.REMOVAL, f"keep_completed={options.keep_completed}"),
        (options.keep_dead is not None, Capability.REMOVAL, f"keep_dead={options.keep_dead}"),
        (options.keep_logs is not None, Capability.LOGS, f"keep_logs={options.keep_logs}"),
    )
    for is_asked, capability, asked in refused:
        if is_asked:
            require(NAME, CAPABILITIES, capability, asked)


def _ttl(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MOST_TTL_S:
        raise InvalidOptions(f"ttl_s={value!r} is not a whole number of seconds from 1 to {MOST_TTL_S}")
    return value


def _payload(data: Any) -> bytes:
    if not isinstance(data, dict):
        raise InvalidPayload(
            f"payload is a {type(data).__name__}; the streams contract carries a JSON object: "
            f"give a dict, as in {{'value': …}}"
        )
    encoded = payload.encode(data, "payload")
    if len(encoded) > MOST_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"payload has {len(encoded)} bytes, the streams contract allows {MOST_PAYLOAD_BYTES}; "
            f"store the data elsewhere and send where it is"
        )
    return encoded


def _idempotency_key(extra: Mapping[str, Any]) -> str:
    key = extra.get("idempotency_key")
    if key is None:
        return ""
    if not isinstance(key, str) or not _IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidOptions(
            f"idempotency_key={key!r} does not fit; use 1 to 255 visible ASCII characters without spaces"
        )
    return key


def fingerprint(task: str, data: bytes, ttl: int) -> str:
    """What a request asks for, in 64 characters: the order of a payload's fields does not matter."""
    ordered = orjson.dumps(orjson.loads(data), option=orjson.OPT_SORT_KEYS)
    return sha256(b"\0".join((task.encode(), str(ttl).encode(), ordered))).hexdigest()


def conflict(word: bytes, key: str, job_id: str) -> IdempotencyConflict:
    """Why the scripts refused an idempotency key."""
    if word == b"unfinished":
        return IdempotencyPending(
            f"idempotency key {key!r} was taken for job {job_id}, which is not there: another gateway is "
            f"about to create it, or did so long ago; try again later, or use a new key for a new job"
        )
    return IdempotencyConflict(
        f"idempotency key {key!r} stands for job {job_id}, which was asked for "
        f"with another task, payload or ttl_s; use a new key for a new job"
    )


# -- jobs out -----------------------------------------------------------------------------------------------


def decode_claim(row: Sequence[Any], consumer: str, now: int) -> Claim:
    """A claim from a row of the scripts (lua/parts/claiming.lua names its columns)."""
    entry, job_id, task, data, created, ttl, before, deliveries = row
    starts = before + deliveries
    job = Job(
        id=_text(job_id),
        name=_text(task),
        data=payload.decode(data),
        queue=QUEUE,
        options=_options(ttl),
        state=JobState.ACTIVE,
        starts=starts,
        stalls=starts - 1,
        created_at=_number(created),
        started_at=now,
        worker=consumer,
    )
    return Claim(job, Receipt(entry.decode(), consumer, deliveries))


def decode_job(flat: Sequence[bytes], story: Sequence[tuple[bytes, Sequence[bytes]]] = ()) -> Job:
    """A job from the fields of its hash; `story` are its latest events, newest first."""
    fields = {_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    status = _text(fields.pop("status", b""))
    state = STATES.get(status)
    result, error = fields.pop("result", b""), fields.pop("error", b"")
    updated = _number(fields.pop("updated_ts", b""))
    reason, trace = _decode_error(error)
    told = [decode_event(entry_id, event) for entry_id, event in story]
    started = next((event.at for event in told if event.kind is EventKind.ACTIVE), None)
    progress = next((event.data["data"] for event in told if event.kind is EventKind.PROGRESS), None)
    is_over = state in (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
    return Job(
        id=_text(fields.pop("job_id", b"")),
        name=_text(fields.pop("task", b"")),
        data=payload.decode(fields.pop("payload", b"{}")),
        queue=QUEUE,
        options=_options(fields.pop("ttl_s", b"")),
        state=state,
        attempts_made=1 if state in (JobState.COMPLETED, JobState.DEAD) else 0,
        created_at=_number(fields.pop("created_ts", b"")),
        started_at=started,
        finished_at=updated if is_over else None,
        progress=progress,
        result=payload.decode(result) if result else None,
        reason=reason,
        trace=trace,
        extra={"status": status, "updated_ts": updated}
        | {name: _text(value) for name, value in fields.items()},
    )


def _options(ttl: bytes) -> JobOptions:
    # one attempt and no more: a failure is final here
    return JobOptions(attempts=1, backoff=None, extra={"ttl_s": _number(ttl)})


def _decode_error(raw: bytes) -> tuple[str | None, tuple[str, ...]]:
    if not raw:
        return None, ()
    error = payload.decode(raw)
    if not isinstance(error, dict):
        return str(error), ()
    if "message" not in error:
        return _text(raw), ()
    trace = error.get("trace")
    return str(error["message"]), (str(trace),) if trace else ()


# -- settlements --------------------------------------------------------------------------------------------


def encode_settlement(settlement: Settlement) -> tuple[Any, ...] | None:
    """A row for the turn script (lua/parts/settling.lua names its columns); None: nothing to write."""
    claim, outcome = settlement.claim, settlement.outcome
    if isinstance(outcome, AlreadyMoved):
        return None
    receipt: Receipt = claim.receipt
    status, value, data = _ending(outcome)
    return (receipt.entry, receipt.consumer, receipt.deliveries, claim.job.id, claim.job.name,
            status, value, data, str(settlement.at), claim.job.stalls > 0)  # fmt: skip


def _ending(outcome: Outcome) -> tuple[str, bytes, bytes]:
    """(status, what the hash keeps, what the event tells)."""
    match outcome:
        case Completed(result=result):
            return "done", result, b'{"result":' + result + b"}"
        case Dead(reason=reason, trace=trace) | Retry(reason=reason, trace=trace):
            return _error(reason, trace)
        case Cancelled(reason=reason):
            return "canceled", b"", orjson.dumps({"reason": _clean(reason)})
        case Released():
            return "queued", b"", b"{}"
        case Postponed(delay=delay):
            return _error(
                f"the handler postponed the job by {delay} ms, but protocol 'streams' has no delay; "
                f"raise Release to put it back at once"
            )
        case _:
            return _error("the handler waits for children, but protocol 'streams' has none")


def _error(reason: str, trace: str = "") -> tuple[str, bytes, bytes]:
    told = {"message": _clean(reason)}
    kept = {**told, "trace": _clean(trace)} if trace else told
    return "error", orjson.dumps(kept), orjson.dumps(told)


# -- events -------------------------------------------------------------------------------------------------


def decode_event(entry_id: bytes, flat: Sequence[bytes], job_id: str | None = None) -> JobEvent:
    """An entry of a job's own stream (then `job_id` is given) or of the shared one."""
    fields = {_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    kind, step = _text(fields.get("type", b"")), _text(fields.get("step", b""))
    told_of = fields.get("job_id")
    return JobEvent(
        id=entry_id.decode(),
        protocol=NAME,
        queue=QUEUE,
        at=_number(fields.get("ts", b"")) or int(entry_id.split(b"-")[0]),
        kind=KINDS.get((kind, step), KINDS_BY_TYPE.get(kind, kind)),
        job_id=_text(told_of) or None if told_of is not None else job_id,
        name=_text(fields.get("task", b"")) or None,
        worker=_text(fields.get("worker", b"")) or None,
        data={"step": step, "data": payload.decode(fields.get("data", b"{}") or b"{}")},
    )


def encode_step(step: str) -> str:
    """The name of a handler's step, as it stands in an event."""
    if not isinstance(step, str) or not step or len(step) > 255:
        raise InvalidOptions(f"step {step!r} does not fit; use a text of 1 to 255 characters")
    return _clean(step)


def encode_line(line: str) -> bytes:
    """A line of a handler's log, as event data."""
    return orjson.dumps({"line": _clean(str(line))})


def _clean(text: str) -> str:
    # half a surrogate pair has no place in UTF-8, and an error message must not fail for it
    return text.encode("utf-8", "replace").decode()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _number(raw: Any) -> int:
    try:
        return int(raw)
    except (TypeError, ValueError):
        return 0
