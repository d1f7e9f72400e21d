"""The bullmq protocol's Transfer: jobs with their attempts, logs and flows to and from another queue."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from corral.core import payload
from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.naming import is_job_id
from corral.core.transfer import HeldJob
from corral.errors import Unsupported
from corral.protocols.bullmq.codec import STATES
from corral.protocols.bullmq.keys import NAME
from corral.protocols.bullmq.options import ReadOptions, encode_options
from corral.protocols.bullmq.scripts import BullmqPort
from corral.protocols.bullmq.snapshot import BullmqSnapshot
from corral.protocols.transfer import BaseTransfer, HoldPlace, is_made_by_server
from corral.protocols.wire import clean, text

RELATIONS = {
    "hash:processed": ":processed",
    "set:dependencies": ":dependencies",
    "hash:failed": ":failed",
    "zset:unsuccessful": ":unsuccessful",
}
"""What a parent knows of its children: the kind of each key, and its end."""
_OWN_QUEUE = ("parentKey", "parent")


class BullmqTransfer(BullmqPort, BaseTransfer):
    """A flow is moved whole, where all of its jobs that have not ended are in this queue."""

    protocol = NAME

    @property
    def _run_key(self) -> str:
        return f"{self._keys.prefix}move:run"

    @property
    def _held_key(self) -> str:
        return f"{self._keys.prefix}move:held"

    def _ledger_key(self, name: str) -> str:
        return self._keys.ledger(name)

    async def _call(self, verb: str, keys: Sequence[str], *args: Any) -> Any:
        return await self._run_with(verb, (*self._keys.fixed, *keys), args)

    async def _read(self, places: Sequence[HoldPlace]) -> Mapping[str, Job]:
        jobs = await BullmqSnapshot(self._binding).read([place.id for place in places], JobFilter())
        states = {place.id: self._state(place) for place in places}
        return {job.id: replace(job, state=states[job.id]) for job in jobs}

    def _state(self, place: HoldPlace) -> JobState:
        return STATES[place.name]

    def _due(self, place: HoldPlace) -> int | None:
        return int(float(place.score)) // 4096 if place.name == "delayed" else None

    async def _logs(self, job_ids: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        lists = await self._pipe(*(("LRANGE", self._keys.logs(job_id), 0, -1) for job_id in job_ids))
        return {
            job_id: tuple(map(text, lines)) for job_id, lines in zip(job_ids, lists, strict=True) if lines
        }

    # -- flows ------------------------------------------------------------------------------------------

    async def _complete(self, held: list[HeldJob]) -> list[HeldJob]:
        """Add what parents know of their children, and what the jobs of a flow have in common."""
        parents = {job.job.id: _parent_id(job.job) for job in held}
        children = {parent for parent in parents.values() if parent in parents}
        completed: list[HeldJob] = []
        for job in held:
            root = job.job.id
            while (parent := parents.get(root)) and parent in parents:
                root = parent
            is_part = root != job.job.id or root in children
            relations = await self._relations(job.job.id) if is_part or _is_parent(job) else {}
            completed.append(replace(job, group=root if is_part or relations else "", relations=relations))
        return completed

    async def _relations(self, job_id: str) -> dict[str, list[bytes]]:
        job = self._keys.job(job_id)
        processed, unended, ignored, fatal = await self._pipe(
            ("HGETALL", f"{job}:processed"),
            ("SMEMBERS", f"{job}:dependencies"),
            ("HGETALL", f"{job}:failed"),
            ("ZRANGE", f"{job}:unsuccessful", 0, -1, "WITHSCORES"),
        )
        rows = dict(zip(RELATIONS, (processed, unended, ignored, fatal), strict=True))
        return {name: members for name, members in rows.items() if members}

    # -- receiving --------------------------------------------------------------------------------------

    def keeps_id(self, job_id: str) -> bool:
        return is_job_id(job_id)

    def _row(self, held: HeldJob) -> Sequence[Any]:
        job = held.job
        is_own = held.protocol == NAME
        job_id = held.wanted_id if self.keeps_id(held.wanted_id) else ""
        data = payload.encode(job.data, "data")
        opts = _opts(job, job_id, is_own)
        payload.check_size(data, opts)
        place, number = _place(held)
        if place == "waiting" and held.group and "set:dependencies" in held.relations:
            place, number = "waiting-children", job.created_at
        return (
            job.id.encode("utf-8", "surrogateescape"),
            job_id,
            1 if is_made_by_server(job_id) and not held.group else 0,
            held.group,
            [*_fields(job, data, opts), *(self._related_fields(job) if is_own else ())],
            place,
            number,
            job.options.priority,
            [clean(line) for line in held.logs],
            text(job.extra.get("deid", b"")) if is_own and job.finished_at is None else "",
            {f"{name.split(':')[0]}:{RELATIONS[name]}": self._own_keys(name, members)
             for name, members in held.relations.items()} if is_own else {},
        )  # fmt: skip

    def _related_fields(self, job: Job) -> list[Any]:
        """Return the fields that only this protocol has, with the parent in this queue."""
        fields = {name: value for name, value in job.extra.items() if isinstance(value, bytes)}
        fields.pop("nrjid", None)
        parent = _parent_id(job)
        if parent is not None:
            reference = orjson.loads(fields.get("parent", b"{}"))
            reference |= {"id": parent, "queueKey": self._keys.prefix[:-1]}
            fields |= {
                "parentKey": self._keys.job(parent).encode(),
                "parent": orjson.dumps(reference),
            }
        return list(chain.from_iterable(fields.items()))

    def _own_keys(self, name: str, members: Sequence[bytes]) -> list[Any]:
        """Return the members of a relation; children that come with it have keys of this queue."""
        if name != "set:dependencies":
            return list(members)
        return [self._keys.job(text(member).rpartition(":")[2]) for member in members]


def _parent_id(job: Job) -> str | None:
    """Return the id of a job's parent, None where it has none."""
    key = job.extra.get("parentKey")
    return text(key).rpartition(":")[2] if isinstance(key, bytes) and key else None


def _is_parent(held: HeldJob) -> bool:
    """Return whether a job may have children: it waited for some, or has run."""
    return held.job.state is JobState.WAITING and HoldPlace.of(held.receipt).name == "waiting-children"


def _opts(job: Job, job_id: str, is_own: bool) -> bytes:
    if is_own and isinstance(job.options, ReadOptions):
        return job.options.raw
    if job.options.unique is not None:
        raise Unsupported(f"job {job.id!r} has an option unique, which is not kept by a move")
    requested = "" if is_made_by_server(job_id) else job_id
    return payload.encode(encode_options(job.options, requested), "options")


def _place(held: HeldJob) -> tuple[str, int]:
    job = held.job
    match job.state:
        case JobState.DELAYED:
            return "delayed", held.due or 0
        case JobState.COMPLETED:
            return "completed", job.finished_at or job.created_at
        case JobState.DEAD | JobState.CANCELLED:
            return "failed", job.finished_at or job.created_at
    return "waiting", 0


def _fields(job: Job, data: bytes, opts: bytes) -> list[Any]:
    """Return the fields of a job's hash, the name first."""
    options = job.options
    delay = options.delay if job.state is JobState.DELAYED else 0
    optional: dict[str, Any] = {
        "atm": job.attempts_made or None,
        "ats": job.starts or None,
        "stc": job.stalls or None,
        "processedOn": job.started_at,
        "finishedOn": job.finished_at,
        "progress": None if job.progress is None else payload.encode(job.progress, "progress"),
        "returnvalue": payload.encode(job.result, "result") if job.state is JobState.COMPLETED else None,
        "failedReason": None if job.reason is None else clean(job.reason),
        "stacktrace": orjson.dumps([clean(trace) for trace in job.trace]) if job.trace else None,
        "failedAttempts": msgspec.json.encode(job.failed_attempts) if job.failed_attempts else None,
        "pb": None if job.worker is None else clean(job.worker),
        "defa": None if job.doomed is None else clean(job.doomed),
    }
    if job.state is JobState.CANCELLED and job.reason is None:
        optional["failedReason"] = "cancelled"
    fields = ["name", clean(job.name), "data", data, "opts", opts, "timestamp", job.created_at]
    fields += ["delay", delay, "priority", options.priority]
    for name, value in optional.items():
        if value is not None:
            fields += [name, value]
    return fields
