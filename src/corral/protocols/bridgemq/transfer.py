"""The bridgemq protocol's Transfer: jobs with their attempts, failures and logs to and from another queue."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any
from uuid import uuid4

import msgspec
import orjson
from msgspec.structs import replace

from corral.core import payload
from corral.core.job import Job, JobState
from corral.core.transfer import HeldJob
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.inspector import BridgemqInspector
from corral.protocols.bridgemq.keys import NAME
from corral.protocols.bridgemq.options import check_shared, parse_options
from corral.protocols.bridgemq.scripts import SCRIPTS, BridgemqPort
from corral.protocols.transfer import LEDGER_S, BaseTransfer, HoldPlace, is_made_by_server
from corral.protocols.wire import clean, id_bytes, pack, text

PLACES = {JobState.DELAYED: "delayed", JobState.COMPLETED: "completed", JobState.DEAD: "dead"}


class BridgemqTransfer(BridgemqPort, BaseTransfer):
    """The lists are shared by all queues of the namespace; a job's JSON says which is its own."""

    protocol = NAME

    @property
    def _run_key(self) -> str:
        return self._keys.ledger(f"move:run:{self._binding.queue}")

    @property
    def _held_key(self) -> str:
        return self._keys.ledger(f"move:held:{self._binding.queue}")

    def _ledger_key(self, name: str) -> str:
        return self._keys.ledger(name)

    async def _call(self, verb: str, keys: Sequence[str], *args: Any) -> Any:
        own = (*args, self._binding.queue) if verb == "hold" else args
        return await self._store.run(SCRIPTS[verb], (*self._keys.fixed, *keys), (*self._head(), *own))

    async def _read(self, places: Sequence[HoldPlace]) -> Mapping[str, Job]:
        inspector = BridgemqInspector(self._binding)
        jobs = await inspector.read_jobs([id_bytes(place.id) for place in places], self._binding.queue)
        states = {place.id: self._state(place) for place in places}
        return {job.id: replace(job, state=states[job.id]) for job in jobs}

    def _state(self, place: HoldPlace) -> JobState:
        return codec.STATES[place.name]

    def _due(self, place: HoldPlace) -> int | None:
        return int(float(place.score)) if place.name == "delayed" else None

    async def _logs(self, job_ids: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        reads = [("LRANGE", self._keys.log(job_id), 0, -1) for job_id in job_ids]
        lists = await self._store.pipe(reads) if reads else []
        return {
            job_id: tuple(map(text, lines)) for job_id, lines in zip(job_ids, lists, strict=True) if lines
        }

    # -- receiving --------------------------------------------------------------------------------------

    def keeps_id(self, job_id: str) -> bool:
        return 0 < len(job_id) <= 255 and ":" not in job_id and job_id.isprintable()

    def _receive_arguments(self, rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
        return self._binding.queue, LEDGER_S, self._settings.result_s, pack(rows)

    def _row(self, held: HeldJob) -> Sequence[Any]:
        job = replace(held.job, queue=self._binding.queue)
        check_shared(job.options)
        is_own = held.protocol == NAME
        wanted = held.wanted_id
        ids = [wanted if self.keeps_id(wanted) else str(uuid4())]
        if ids[0] != wanted or is_made_by_server(wanted):
            ids.append(str(uuid4()))
        place = PLACES.get(job.state or JobState.WAITING, "waiting")
        if job.state is JobState.CANCELLED:
            place = "dead"
        is_over = place in ("completed", "dead")
        is_retried = place == "delayed" and job.attempts_made > 0
        ended_at = job.finished_at or job.created_at
        return (
            job.id.encode("utf-8", "surrogateescape"),
            ids[0],
            ids[1] if len(ids) > 1 else "",
            job.name,
            {job_id: self._raw(job, job_id, is_own) for job_id in ids},
            place,
            ended_at if is_over else held.due or 0,
            place == "waiting" and codec.is_front(job.options.priority),
            "failed" if is_retried else place,
            _result(job, ended_at) if is_over else b"",
            _summary(job) if place == "completed" else b"",
            job.attempts_made,
            _failure(job) if place != "completed" else [],
            [clean(line) for line in held.logs],
        )

    def _raw(self, job: Job, job_id: str, is_own: bool) -> bytes:
        """Return the job's JSON; fields of other clients survive where it had one."""
        own = parse_options(job.options.extra, self._binding.clock())
        raw = codec.encode_raw(job, job_id, own, job.created_at or self._binding.clock())
        foreign = {
            name: value for name, value in job.extra.items() if name not in ("status", "_broken")
        } if is_own else {}  # fmt: skip
        return raw[:-1] + b"," + orjson.dumps(foreign)[1:] if foreign else raw


def _result(job: Job, ended_at: int) -> bytes:
    times = {
        "completedAt": ended_at,
        "processingTime": max(ended_at - job.started_at, 0) if job.started_at else 0,
    }
    if job.state is JobState.COMPLETED:
        result = orjson.Fragment(payload.encode(job.result, "result"))
        return orjson.dumps({"success": True, "data": result, **times})
    error = {
        "message": clean(job.reason or "cancelled"),
        "stack": clean("".join(job.trace[-1:])),
        "name": "Error",
    }
    return orjson.dumps({"success": False, "error": error, **times})


def _summary(job: Job) -> bytes:
    """Return what is known of a completed job besides its result."""
    fields: dict[str, Any] = {
        "type": job.name,
        "queue": job.queue,
        "createdAt": job.created_at,
        "startedAt": job.started_at,
        "attempt": job.attempts_made,
        "worker": job.worker,
    }
    if job.failed_attempts:
        fields["attempts"] = msgspec.to_builtins(job.failed_attempts)
    return orjson.dumps(fields)


def _failure(job: Job) -> list[Any]:
    """Return the fields of a job's last failure; none where no attempt has failed."""
    if job.reason is None and not job.stalls:
        return []
    fields: dict[str, Any] = {
        "reason": clean(job.reason or ""),
        "traces": orjson.dumps([clean(trace) for trace in job.trace]),
        "at": job.finished_at or job.started_at or job.created_at,
    }
    if job.failed_attempts:
        fields["attempts"] = msgspec.json.encode(job.failed_attempts)
    if job.stalls:
        fields["stalls"] = job.stalls
    if job.worker:
        fields["worker"] = clean(job.worker)
    return list(chain.from_iterable(fields.items()))
