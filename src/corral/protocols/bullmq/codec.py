"""Jobs and events to and from BullMQ's wire format."""

from collections.abc import Sequence
from typing import Any

import msgpack
import orjson

from corral.core import payload
from corral.core.event import EventKind, JobEvent
from corral.core.job import Claim, Job, JobState, Keep
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
    WaitingChildren,
)
from corral.core.ports import Profile
from corral.protocols.bullmq.options import decode_options

STATES = {
    "wait": JobState.WAITING,
    "waiting": JobState.WAITING,
    "paused": JobState.WAITING,
    "prioritized": JobState.WAITING,
    "waiting-children": JobState.WAITING,
    "delayed": JobState.DELAYED,
    "active": JobState.ACTIVE,
    "completed": JobState.COMPLETED,
    "failed": JobState.DEAD,
}

FRESH = {b"name", b"data", b"opts", b"timestamp", b"delay", b"priority"}
"""The fields of a job that is bound to no other and was never claimed."""
pack = msgpack.Packer(use_bin_type=False, autoreset=True).pack
"""Rows for a script."""
RECENT_MS = 1000
"""A job that ran no longer than this still lies near the head of the active list."""


# -- jobs ---------------------------------------------------------------------------------------------------


def decode_job(
    job_id: bytes | str,
    flat: Sequence[bytes],
    queue: str,
    state: JobState | None = None,
    claimed_at: int | None = None,
    claimed_by: str | None = None,
) -> Job:
    """A job from the fields of its hash; `claimed_at` and `_by` where they are those from before a claim."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    if claimed_at is not None and fields.keys() == FRESH:
        # the usual case first: this runs once for every job
        return Job(
            id=job_id if isinstance(job_id, str) else job_id.decode(),
            name=fields[b"name"].decode("utf-8", "replace"),
            data=payload.decode(fields[b"data"]),
            queue=queue,
            options=decode_options(fields[b"opts"]),
            state=state,
            starts=1,
            created_at=int(fields[b"timestamp"]),
            started_at=claimed_at,
            worker=claimed_by,
        )
    take = fields.pop
    take(b"delay", None)
    take(b"priority", None)
    attempts_made = take(b"atm", None)
    attempts_made = take(b"attemptsMade", None) or attempts_made
    reason, result = take(b"failedReason", None), take(b"returnvalue", None)
    # a job that failed and then succeeded keeps its old reason on the wire; a Job shows only how it ended
    if state is JobState.COMPLETED:
        reason = None
    trace = take(b"stacktrace", None)
    worker, doomed, progress = take(b"pb", None), take(b"defa", None), take(b"progress", None)
    started, finished = take(b"processedOn", None), take(b"finishedOn", None)
    starts = int(take(b"ats", 0))
    if claimed_at is not None:
        starts += 1
    return Job(
        id=job_id if isinstance(job_id, str) else job_id.decode(),
        name=take(b"name", b"").decode("utf-8", "replace"),
        data=payload.decode(take(b"data", b"{}")),
        queue=queue,
        options=decode_options(take(b"opts", b"{}")),
        state=state,
        attempts_made=int(attempts_made or 0),
        starts=starts,
        stalls=int(take(b"stc", 0)),
        created_at=int(take(b"timestamp", 0)),
        started_at=claimed_at or (int(started) if started else None),
        finished_at=int(finished) if finished else None,
        progress=None if progress is None else payload.decode(progress),
        result=None if result is None else payload.decode(result),
        reason=None if reason is None else reason.decode("utf-8", "replace"),
        trace=() if trace is None else _decode_trace(trace),
        worker=claimed_by or (None if worker is None else worker.decode("utf-8", "replace")),
        doomed=None if doomed is None else doomed.decode("utf-8", "replace"),
        extra={name.decode(): value for name, value in fields.items()} if fields else {},
    )


def _decode_trace(raw: bytes) -> tuple[str, ...]:
    traces = payload.decode(raw)
    return tuple(map(str, traces)) if isinstance(traces, list) else ()


# -- settlements --------------------------------------------------------------------------------------------


def encode_settlement(settlement: Settlement, profile: Profile) -> tuple[Any, ...]:
    """A row for the turn script (lua/parts/settling.lua names its columns).

    Times travel as text: Lua writes them back unread, and formatting a number there costs more.
    """
    claim, outcome, at = settlement.claim, settlement.outcome, settlement.at
    job = claim.job
    options = job.options
    started = job.started_at
    recent = started is not None and at - started < RECENT_MS
    has_bonds = bool(job.extra) or not _is_numbered(job.id)
    # the usual case first: this runs once for every job
    if type(outcome) is Completed:
        count, age = _kept(options.keep_completed, profile.keep_completed)
        return (
            job.id,
            claim.receipt,
            "completed",
            str(at),
            job.attempts_made + 1,
            outcome.result,
            count,
            age,
            recent,
            has_bonds,
        )
    verb, value, delay, trace = _failure(outcome, job)
    count, age = _kept(options.keep_dead, profile.keep_dead)
    return (
        job.id,
        claim.receipt,
        verb,
        str(at),
        job.attempts_made + 1,
        value,
        count,
        age,
        recent,
        has_bonds,
        trace,
        options.attempts,
        delay,
        options.lifo,
    )


def _is_numbered(job_id: str) -> bool:
    """Is this an id the server gave? Only a job whose id was given can get a parent while it runs."""
    return job_id.isdigit() and job_id[0] != "0" and len(job_id) < 16 and job_id.isascii()


def _failure(outcome: Outcome, job: Job) -> tuple[str, str, int, bytes]:
    """(verb, reason, delay, traces) of an attempt that did not complete."""
    match outcome:
        case Retry(delay=0, reason=reason, trace=trace):
            return "waiting", reason, 0, _traces(job, trace)
        case Retry(delay=delay, reason=reason, trace=trace):
            return "delayed", reason, delay, _traces(job, trace)
        case Dead(reason=reason, trace=trace):
            return "failed", reason, 0, _traces(job, trace)
        case Cancelled(reason=reason):
            return "failed", reason, 0, _traces(job, "")
        case Postponed(delay=delay):
            return "postponed", "", delay, b""
        case Released():
            return "released", "", 0, b""
        case WaitingChildren():
            return "waiting-children", "", 0, b""
        case Completed() | AlreadyMoved():
            raise AssertionError(f"{type(outcome).__name__} is no failure")


def _traces(job: Job, trace: str) -> bytes:
    """Every attempt's trace so far, the newest last, as many as the job wants kept."""
    traces = [*job.trace, trace] if trace else list(job.trace)
    limit = job.options.extra.get("stackTraceLimit")
    if isinstance(limit, int):
        traces = traces[-limit:] if limit else []
    return orjson.dumps([text.encode("utf-8", "replace").decode() for text in traces])


def _kept(asked: Keep | None, default: Keep | None) -> tuple[int, int | bool]:
    """(count, seconds): -1 keeps all, False has no age."""
    keep = asked or default
    if keep is None:
        return -1, False
    return (-1 if keep.count is None else keep.count), (False if keep.age is None else keep.age)


def decode_claims(packed: bytes, queue: str, receipt: str, now: int, worker: str) -> list[Claim]:
    """Claims from the ids and fields the turn script answers with."""
    rows = msgpack.unpackb(packed, raw=True, use_list=False)
    by = worker or None
    return [
        Claim(decode_job(job_id, flat, queue, JobState.ACTIVE, now, by), receipt) for job_id, flat in rows
    ]


# -- events -------------------------------------------------------------------------------------------------


def decode_events(
    entries: Sequence[tuple[bytes, Sequence[bytes]]], protocol: str, queue: str, before: Sequence[bytes] = ()
) -> list[JobEvent]:
    """Entries of the queue's event stream; `before` are the fields of the entry just before the first.

    The wire has no word for a retry: a job that is delayed without having been added in the entry before,
    or waiting again straight from active, is being retried.
    """
    events = []
    last = _fields(before)
    for entry_id, flat in entries:
        fields = _fields(flat)
        events.append(_decode_event(entry_id, dict(fields), last, protocol, queue))
        last = fields
    return events


def _fields(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _decode_event(
    entry_id: bytes, fields: dict[str, bytes], last: dict[str, bytes], protocol: str, queue: str
) -> JobEvent:
    kind = fields.pop("event", b"").decode("utf-8", "replace")
    previous, job_id = fields.pop("prev", None), fields.pop("jobId", None)
    name, attempt = fields.pop("name", None), fields.pop("attemptsMade", None)
    if kind == "failed":
        kind = EventKind.DEAD
    elif kind == "delayed":
        was_added = last.get("event") == b"added" and last.get("jobId") == job_id
        kind = EventKind.DELAYED if was_added else EventKind.RETRY
    elif kind == "waiting" and previous == b"active":
        kind = EventKind.RETRY
    return JobEvent(
        id=entry_id.decode(),
        protocol=protocol,
        queue=queue,
        at=int(entry_id.split(b"-")[0]),
        kind=kind,
        job_id=None if job_id is None else job_id.decode("utf-8", "replace"),
        name=None if name is None else name.decode("utf-8", "replace"),
        attempt=None if attempt is None else int(attempt),
        previous=None if previous is None else previous.decode("utf-8", "replace"),
        data={key: _event_value(key, value) for key, value in fields.items()} or None,
    )


def _event_value(key: str, value: bytes) -> Any:
    if key in ("returnvalue", "data"):
        return payload.decode(value)
    if key in ("delay", "count") and value.isdigit():
        return int(value)
    return value.decode("utf-8", "replace")
