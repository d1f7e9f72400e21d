"""Jobs and settlements, to and from BullMQ's wire format."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import msgpack
import orjson
from msgspec import Struct
from msgspec.structs import replace

from corral.core import payload
from corral.core.batch import encode_all
from corral.core.job import Claim, Job, JobOptions, JobState, Keep
from corral.core.outcome import (
    Abandoned,
    AlreadyMoved,
    Cancelled,
    Completed,
    Dead,
    Outcome,
    Postponed,
    Released,
    Retry,
    Settlement,
    Unhandled,
    WaitingChildren,
)
from corral.core.ports import JobEnd, Profile
from corral.errors import PayloadTooLarge
from corral.protocols.attempts import decode_attempts, encode_attempts
from corral.protocols.bullmq.options import (
    decode_options,
    deduplication_of,
    encode_options,
    in_wire_words,
    parent_of,
)
from corral.protocols.wire import BROKEN, broken_fields, clean, count, fields_of, pack, text, time_ms

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

NEW_FIELDS = (b"name", b"data", b"opts", b"timestamp", b"delay", b"priority")
"""The fields of a job that was never claimed and has no relation to other jobs, as clients order them."""
_COUNTS = (b"atm", b"attemptsMade", b"ats", b"stc")
_TIMES = (b"timestamp", b"processedOn", b"finishedOn")
RECENT_MS = 1000
"""A job that ran no longer than this is still near the head of the active list."""

# -- new jobs -----------------------------------------------------------------------------------------------

Envelope = tuple[Any, ...]
"""What the submit script needs of a job besides its data (lua/parts/add_job.lua); like jobs share it.
That of a job without relations has the first columns alone."""
PLAIN = 7
"""How many columns that are."""
PARENT = 8
"""The column of the parent."""


class JobRows(Struct, frozen=True):
    """New jobs as two lists: Python's garbage collector looks at every pair."""

    envelopes: Sequence[Envelope]
    data: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.data)

    @classmethod
    def of(cls, rows: Iterable[tuple[Envelope, bytes]]) -> Self:
        """Return the rows of single jobs."""
        single = list(rows)
        return cls([envelope for envelope, _ in single], [data for _, data in single])

    @property
    def sizes(self) -> list[int]:
        """The bytes of each."""
        return [
            len(data) + len(envelope[2]) for envelope, data in zip(self.envelopes, self.data, strict=True)
        ]

    def arguments(self) -> tuple[bytes, bytes, int | str]:
        """Return the submit script's arguments; an envelope that jobs share goes once."""
        numbers: dict[Envelope, int] = {}
        used: list[int] = []
        last: Envelope | None = None
        number = 0
        for envelope in self.envelopes:
            if envelope is not last:
                last, number = envelope, numbers.setdefault(envelope, len(numbers) + 1)
            used.append(number)
        has_relations = any(len(envelope) > PLAIN for envelope in numbers)
        return pack(list(numbers)), pack((self.data, used)), 1 if has_relations else ""


def encode_jobs(jobs: Sequence[Job]) -> JobRows:
    """Return a row for each; a refusal has the `position` of its job."""
    data = payload.encode_each([job.data for job in jobs])
    return JobRows(encode_all(range(len(jobs)), _enveloper(jobs, data)), data)


def _enveloper(jobs: Sequence[Job], data: Sequence[bytes]) -> Callable[[int], Envelope]:
    """Return a function that makes the envelope of each, the same for jobs that are alike."""
    shared: JobOptions | None = None
    created_at = 0
    opts = b""
    most = 0
    """How many bytes of data fit beside these options."""
    envelopes: dict[str, Envelope] = {}

    def envelope_of(index: int) -> Envelope:
        nonlocal shared, created_at, opts, most, envelopes
        job = jobs[index]
        options = job.options
        # the usual case first: this runs once for every job
        if job.id:
            return _full_envelope(job, data[index])
        if options is not shared or job.created_at != created_at:
            if options.extra or options.unique is not None or options.group is not None:
                return _full_envelope(job, data[index])
            shared, created_at, opts, envelopes = options, job.created_at, _encode_opts(options, ""), {}
            most = payload.LIMIT_BYTES - len(opts)
        envelope = envelopes.get(job.name)
        if envelope is None:
            envelope = envelopes[job.name] = _envelope(job, opts)
        if len(data[index]) > most:
            payload.check_size(data[index], opts)
        return envelope

    return envelope_of


def encode_job(job: Job) -> tuple[Envelope, bytes]:
    """Return a row for the submit script; refuses what is too large."""
    data = payload.encode(job.data, "data")
    return _full_envelope(job, data), data


def encode_node(job: Job, requested_id: str, has_children: bool, first: str | None) -> tuple[Envelope, bytes]:
    """Return a row for a job of a flow; `requested_id` is "" where the job's id was made up."""
    envelope, data = encode_job(replace(job, id=requested_id))
    relations = envelope[PLAIN:] or (False, False)
    chained = False if first is None else first
    return (job.id, *envelope[1:PLAIN], *relations[:2], has_children, False, chained, *relations[5:]), data


def _full_envelope(job: Job, data: bytes) -> Envelope:
    options = in_wire_words(job.options, job.name, data)
    opts = _encode_opts(options, job.id)
    payload.check_size(data, opts)
    envelope, extra = _envelope(job, opts), options.extra
    if not extra and options.group is None:
        return envelope
    limit = extra.get("sizeLimit")
    if limit and len(data) > limit:
        raise PayloadTooLarge(f"the data of job {job.name!r} has {len(data)} bytes; its sizeLimit is {limit}")
    return _with_relations(envelope, options)


def _envelope(job: Job, opts: bytes) -> Envelope:
    options = job.options
    return (job.id, job.name, opts, job.created_at, options.delay, options.priority, options.lifo)


def _encode_opts(options: JobOptions, job_id: str) -> bytes:
    return payload.encode(encode_options(options, job_id), "options")


def _with_relations(envelope: Envelope, options: JobOptions) -> Envelope:
    extra = options.extra
    dated = (*envelope[:3], extra.get("timestamp") or envelope[3], *envelope[4:])
    adds = options.unique is not None and options.unique.is_last
    deduplication, parent = deduplication_of(extra, adds), parent_of(extra)
    group = options.group
    if deduplication is None and parent is None and group is None:
        return dated
    related = (*dated, deduplication or False, parent or False)
    return related if group is None else (*related, False, False, False, group)


# -- jobs ---------------------------------------------------------------------------------------------------


def decode_job(
    job_id: bytes | str,
    flat: Sequence[bytes],
    queue: str,
    state: JobState | None = None,
    claimed_at: int | None = None,
    claimed_by: str | None = None,
) -> Job:
    """Return a job from the fields of its hash; with `claimed_at` those from before its claim."""
    fields = fields_of(flat)
    broken = broken_fields(fields, _COUNTS, _TIMES) if claimed_at is None else {}
    take = fields.pop
    take(b"delay", None)
    take(b"priority", None)
    attempts_made = take(b"atm", None)
    attempts_made = take(b"attemptsMade", None) or attempts_made
    reason, result = take(b"failedReason", None), take(b"returnvalue", None)
    # a job that failed and then succeeded keeps its old reason on the wire; a Job shows only how it ended
    if state is JobState.COMPLETED:
        reason = None
    trace, attempts = take(b"stacktrace", None), take(b"failedAttempts", None)
    worker, doomed, progress = take(b"pb", None), take(b"defa", None), take(b"progress", None)
    started, finished = take(b"processedOn", None), take(b"finishedOn", None)
    starts = count(take(b"ats", None))
    data, given = payload.decode(take(b"data", b"{}")), take(b"given", None)
    if given is not None:
        data = _filled(data, text(fields.get(b"chained", b"")), payload.decode(given))
    if claimed_at is not None:
        starts += 1
    return Job(
        id=job_id if isinstance(job_id, str) else text(job_id),
        name=text(take(b"name", b"")),
        data=data,
        queue=queue,
        options=decode_options(take(b"opts", b"{}")),
        state=state,
        attempts_made=count(attempts_made),
        starts=starts,
        stalls=count(take(b"stc", None)),
        created_at=time_ms(take(b"timestamp", None)),
        started_at=claimed_at or (time_ms(started) if started else None),
        finished_at=time_ms(finished) if finished else None,
        progress=None if progress is None else payload.decode(progress),
        result=None if result is None else payload.decode(result),
        reason=None if reason is None else text(reason),
        trace=() if trace is None else _decode_trace(trace),
        failed_attempts=decode_attempts(attempts),
        worker=claimed_by or (None if worker is None else text(worker)),
        doomed=None if doomed is None else text(doomed),
        extra={text(name): value for name, value in fields.items()} | ({BROKEN: broken} if broken else {}),
    )


def _filled(data: Any, field: str, result: Any) -> Any:
    """Return the data of a job of a chain, with the result of the one before."""
    if not field:
        return result
    return {**data, field: result} if isinstance(data, dict) else data


def decode_end(values: Sequence[bytes | None]) -> JobEnd:
    """Return how a job ended, from its result, reason, traces and counts of attempts."""
    result, reason, trace, *counts = values
    attempts = next((count(made) for made in counts if made), 0)
    if result is not None:
        return JobEnd(state=JobState.COMPLETED, result=payload.decode(result), attempts_made=attempts)
    return JobEnd(
        state=JobState.DEAD,
        reason=None if reason is None else text(reason),
        trace=() if trace is None else _decode_trace(trace),
        attempts_made=attempts,
    )


def _decode_trace(raw: bytes) -> tuple[str, ...]:
    traces = payload.decode(raw)
    return tuple(map(str, traces)) if isinstance(traces, list) else ()


def decode_claims(packed: bytes, queue: str, receipt: str, now: int, worker: str) -> list[Claim[str]]:
    """Return claims from the ids and fields that the turn script answers."""
    by = worker or None
    claims: list[Claim[str]] = []
    add, read = claims.append, payload.decode
    names: dict[bytes, str] = {}
    stamp, created_at = b"", 0
    for job_id, flat in msgpack.unpackb(packed, raw=True, use_list=False):
        # the usual case first: this runs once for every job, and most jobs of a batch are alike
        if flat[::2] == NEW_FIELDS:
            _, word, _, data, _, opts, _, timestamp, _, _, _, _ = flat
            name = names.get(word)
            if name is None:
                name = names[word] = text(word)
            if timestamp != stamp:
                stamp, created_at = timestamp, time_ms(timestamp)
            job = Job(
                name=name,
                data=read(data),
                queue=queue,
                id=job_id.decode("utf-8", "replace"),
                options=decode_options(opts),
                state=JobState.ACTIVE,
                starts=1,
                created_at=created_at,
                started_at=now,
                worker=by,
            )
        else:
            job = decode_job(job_id, flat, queue, JobState.ACTIVE, now, by)
        add(Claim(job, receipt))
    return claims


# -- settlements --------------------------------------------------------------------------------------------


SettlementRow = tuple[str, bytes | str, Envelope]
"""A job's id, its result or reason, and what else the turn script needs, which completed jobs share that are
alike: the columns that lua/parts/settle.lua names, where the script fills in those two."""


def encode_settlements(settlements: Sequence[Settlement[str]], profile: Profile) -> list[SettlementRow]:
    """Return a row for each."""
    rows: list[SettlementRow] = []
    add = rows.append
    envelope: Envelope = ()
    shared: tuple[Any, ...] = ()
    """What makes two settlements alike, of the last one."""
    for settlement in settlements:
        claim, outcome = settlement.claim, settlement.outcome
        job = claim.job
        # the usual case first: this runs once for every job
        if type(outcome) is Completed:
            options, has_relations = job.options, _may_have_relations(job)
            alike = (claim.receipt, settlement.at, options, job.attempts_made, job.started_at, has_relations)
            if alike != shared:
                keep = options.keep_completed or profile.keep_completed
                shared, envelope = alike, _settled(settlement, "completed", keep, has_relations)
            add((job.id, outcome.result, envelope))
        else:
            add(_encode_failure(settlement, profile))
    return rows


def _may_have_relations(job: Job) -> bool:
    """Return whether other jobs may wait for this one, or its deduplication ends with it: only a job whose id
    the server did not make can get a parent while it runs."""
    job_id = job.id
    return bool(job.extra) or not (
        job_id.isdigit() and job_id[0] != "0" and len(job_id) < 16 and job_id.isascii()
    )


def pack_settlements(rows: Sequence[SettlementRow]) -> bytes:
    """Return the turn script's argument; an envelope that jobs share goes once."""
    envelopes: list[Envelope] = []
    used: list[int] = []
    last: Envelope | None = None
    for _, _, envelope in rows:
        if envelope is not last:
            envelopes.append(envelope)
            last = envelope
        used.append(len(envelopes))
    packed: bytes = pack(([row[0] for row in rows], [row[1] for row in rows], used, envelopes))
    return packed


def _encode_failure(settlement: Settlement[str], profile: Profile) -> SettlementRow:
    job = settlement.claim.job
    options = job.options
    verb, value, delay, trace = _failure(settlement.outcome, job)
    envelope = (
        *_settled(settlement, verb, options.keep_dead or profile.keep_dead, _may_have_relations(job)),
        trace,
        options.attempts,
        delay,
        options.lifo,
        encode_attempts(settlement),
    )
    return job.id, value, envelope


def _settled(settlement: Settlement[str], verb: str, keep: Keep | None, has_relations: bool) -> Envelope:
    """Return the columns that all settlements have.

    Times travel as text: Lua writes them back unread, and formatting a number there costs more.
    """
    claim, at = settlement.claim, settlement.at
    job = claim.job
    started = job.started_at
    count, age = _kept(keep)
    return (
        False,
        claim.receipt,
        verb,
        str(at),
        job.attempts_made + 1,
        False,
        count,
        age,
        started is not None and at - started < RECENT_MS,
        has_relations,
    )


def _failure(outcome: Outcome, job: Job) -> tuple[str, str, int, bytes]:
    """Return (verb, reason, delay, traces) of an attempt that did not complete."""
    match outcome:
        case Retry(delay=0, reason=reason, trace=trace):
            return "waiting", reason, 0, _traces(job, trace)
        case Retry(delay=delay, reason=reason, trace=trace):
            return "delayed", reason, delay, _traces(job, trace)
        case Dead(reason=reason, trace=trace):
            return "failed", reason, 0, _traces(job, trace or doomed_trace(job.doomed))
        case Cancelled(reason=reason):
            return "failed", reason, 0, _traces(job, "")
        case Postponed(delay=delay):
            return "postponed", "", delay, b""
        case Released():
            return "released", "", 0, b""
        case WaitingChildren():
            return "waiting-children", "", 0, b""
        case Unhandled(reason=reason, after=after):
            return "unhandled", reason, after, _traces(job, "")
        case Completed() | AlreadyMoved() | Abandoned():
            raise AssertionError(f"{type(outcome).__name__} is no failure")


def doomed_trace(reason: str | None) -> str:
    """Return the trace of a job that failed through a child or by stalling: the first line of Node's.

    >>> doomed_trace("job stalled more than allowable limit")
    'UnrecoverableError: job stalled more than allowable limit'
    """
    return f"UnrecoverableError: {reason}" if reason else ""


def _traces(job: Job, trace: str) -> bytes:
    """Return every attempt's trace so far, the newest last, as many as the job keeps."""
    traces = [*job.trace, trace] if trace else list(job.trace)
    limit = job.options.extra.get("stackTraceLimit")
    if isinstance(limit, int):
        traces = traces[-limit:] if limit else []
    return orjson.dumps([clean(lines) for lines in traces])


def _kept(keep: Keep | None) -> tuple[int, int | bool]:
    """Return (count, seconds): -1 keeps all, False has no age."""
    if keep is None:
        return -1, False
    return (-1 if keep.count is None else keep.count), (False if keep.age is None else keep.age)
