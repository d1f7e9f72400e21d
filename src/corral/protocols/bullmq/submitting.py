"""New jobs on their way into a queue: each its data and an envelope, which jobs that are alike share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from corral.core import payload
from corral.core.batch import encode_all
from corral.core.job import Job, JobOptions
from corral.core.ports import Added, Ledger
from corral.errors import PayloadTooLarge, Refused
from corral.protocols.batches import cuts, overlapped
from corral.protocols.bullmq.bound import SCRIPTS
from corral.protocols.bullmq.codec import pack
from corral.protocols.bullmq.codes import refusal
from corral.protocols.bullmq.keys import Keys
from corral.protocols.bullmq.options import deduplication_of, encode_options, parent_of
from corral.store.client import Store

Envelope = tuple[Any, ...]
"""What the submit script is told of a job besides its data (lua/parts/adding.lua); that of a job bound to no
other has the first columns alone."""
Row = tuple[Envelope, bytes]


class Rows(NamedTuple):
    """Many of them, in two lists: Python's collector looks at every pair."""

    envelopes: Sequence[Envelope]
    data: Sequence[bytes]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Those of single rows."""
        single = list(rows)
        return cls([envelope for envelope, _ in single], [data for _, data in single])


PLAIN = 7


# -- rows ---------------------------------------------------------------------------------------------------


def encode_jobs(jobs: Sequence[Job]) -> Rows:
    """A row for each; a refusal tells which job it means."""
    data = payload.encode_each([job.data for job in jobs])
    return Rows(encode_all(range(len(jobs)), _sealer(jobs, data)), data)


def _sealer(jobs: Sequence[Job], data: Sequence[bytes]) -> Callable[[int], Envelope]:
    """What makes the envelope of each, the same for jobs that are alike."""
    shared: JobOptions | None = None
    created_at = 0
    opts = b""
    most = 0
    """How many bytes of data fit beside these options."""
    envelopes: dict[str, Envelope] = {}

    def seal(place: int) -> Envelope:
        nonlocal shared, created_at, opts, most, envelopes
        job = jobs[place]
        options = job.options
        # the usual case first: this runs once for every job
        if job.id or options.extra:
            return _seal(job, data[place])
        if options is not shared or job.created_at != created_at:
            shared, created_at, opts, envelopes = options, job.created_at, _write_options(options, ""), {}
            most = payload.LIMIT_BYTES - len(opts)
        envelope = envelopes.get(job.name)
        if envelope is None:
            envelope = envelopes[job.name] = _envelope(job, opts)
        if len(data[place]) > most:
            payload.check_size(data[place], opts)
        return envelope

    return seal


def encode_job(job: Job) -> Row:
    """A row for the submit script; refuses what is too large."""
    data = payload.encode(job.data, "data")
    return _seal(job, data), data


def encode_node(job: Job, given_id: str, has_children: bool) -> Row:
    """A row for a job of a flow; `given_id` is what its producer called it, its own id may be made up."""
    envelope, data = encode_job(replace(job, id=given_id))
    bonds = envelope[PLAIN:] or (False, False)
    return (job.id, *envelope[1:PLAIN], *bonds[:2], has_children), data


def _seal(job: Job, data: bytes) -> Envelope:
    opts = _write_options(job.options, job.id)
    payload.check_size(data, opts)
    envelope, extra = _envelope(job, opts), job.options.extra
    if not extra:
        return envelope
    limit = extra.get("sizeLimit")
    if limit and len(data) > limit:
        raise PayloadTooLarge(f"the data of job {job.name!r} has {len(data)} bytes; its sizeLimit is {limit}")
    return _with_bonds(envelope, extra)


def _envelope(job: Job, opts: bytes) -> Envelope:
    options = job.options
    return (job.id, job.name, opts, job.created_at, options.delay, options.priority, options.lifo)


def _write_options(options: JobOptions, job_id: str) -> bytes:
    return payload.encode(encode_options(options, job_id), "options")


def _with_bonds(envelope: Envelope, extra: Mapping[str, Any]) -> Envelope:
    created = extra.get("timestamp") or envelope[3]
    dated = (*envelope[:3], created, *envelope[4:])
    deduplication, parent = deduplication_of(extra), parent_of(extra)
    if deduplication is None and parent is None:
        return dated
    return (*dated, deduplication or False, parent or False)


# -- trips --------------------------------------------------------------------------------------------------


async def submit_rows(
    store: Store, keys: Keys, rows: Rows, ledger: Ledger | None = None
) -> list[Added | Refused]:
    """Submit rows; return for each its job, or why it was not added."""
    names = keys.fixed if ledger is None else (*keys.fixed, keys.ledger(ledger.name))
    seconds = "" if ledger is None else ledger.seconds

    async def send(batch: Rows) -> list[Added | Refused]:
        answer = await store.run(SCRIPTS["submit"], names, (*submit_args(batch), seconds))
        return decode_added(answer, batch.envelopes)

    return list(chain.from_iterable(await overlapped(batches(rows), send)))


def batches(rows: Rows) -> list[Rows]:
    """The rows of each trip."""
    sizes = [len(data) + len(envelope[2]) for envelope, data in zip(*rows, strict=True)]
    return [Rows(rows.envelopes[cut], rows.data[cut]) for cut in cuts(sizes)]


def submit_args(rows: Rows) -> tuple[bytes, bytes, int | str]:
    """What the submit script is given besides keys: an envelope that jobs share goes once."""
    places: dict[Envelope, int] = {}
    which: list[int] = []
    last: Envelope | None = None
    place = 0
    for envelope in rows.envelopes:
        if envelope is not last:
            last, place = envelope, places.setdefault(envelope, len(places) + 1)
        which.append(place)
    envelopes = list(places)
    is_bound = any(len(envelope) > PLAIN for envelope in envelopes)
    return pack(envelopes), pack((rows.data, which)), 1 if is_bound else ""


def decode_added(
    answer: tuple[Sequence[Any], Sequence[int]], envelopes: Sequence[Envelope]
) -> list[Added | Refused]:
    """Return what the submit script answered for each job: its id, or why it was refused."""
    ids, existing = answer
    added: list[Added | Refused] = [
        Added(job_id.decode()) if type(job_id) is bytes else _refusal(job_id, envelopes[place])
        for place, job_id in enumerate(ids)
    ]
    for place in existing:
        added[place - 1] = Added(ids[place - 1].decode(), existed=True)
    return added


def _refusal(code: Any, envelope: Envelope) -> Refused:
    return refusal(code, envelope[0], envelope[8][0])
