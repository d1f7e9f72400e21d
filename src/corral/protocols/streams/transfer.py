"""The streams protocol's Transfer: jobs to and from another queue."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import msgspec
import orjson
from msgspec.structs import replace

from corral.core import payload
from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.transfer import HeldJob
from corral.errors import Unsupported
from corral.protocols.streams import codec
from corral.protocols.streams.keys import NAME
from corral.protocols.streams.scripts import SCRIPTS, StreamsPort
from corral.protocols.streams.snapshot import StreamsSnapshot
from corral.protocols.transfer import LEDGER_S, BaseTransfer, HoldPlace
from corral.protocols.wire import clean, pack

STATUSES = {state: word for word, state in codec.STATES.items()}


class StreamsTransfer(StreamsPort, BaseTransfer):
    """A job that waits has a queue entry, which is deleted while it is held; its hash has all the rest."""

    protocol = NAME

    @property
    def _run_key(self) -> str:
        return self._keys.ledger("move:run")

    @property
    def _held_key(self) -> str:
        return self._keys.ledger("move:held")

    def _ledger_key(self, name: str) -> str:
        return self._keys.ledger(name)

    async def _call(self, verb: str, keys: Sequence[str], *args: Any) -> Any:
        names = [self._keys.stream, self._keys.events, *keys]
        return await self._store.run(SCRIPTS[verb], names, (*self._head(), *args))

    async def _read(self, places: Sequence[HoldPlace]) -> Mapping[str, Job]:
        jobs = await StreamsSnapshot(self._binding).read([place.id for place in places], JobFilter())
        return {job.id: job for job in jobs}

    def _state(self, place: HoldPlace) -> JobState:
        return codec.STATES[place.name]

    def keeps_id(self, job_id: str) -> bool:
        try:
            return str(UUID(job_id)) == job_id
        except ValueError:
            return False

    def _receive_arguments(self, rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
        return LEDGER_S, pack(rows)

    def _row(self, held: HeldJob) -> Sequence[Any]:
        job = held.job
        if job.state is JobState.DELAYED:
            raise Unsupported(
                f"protocol {NAME!r} has no delay, and job {job.id!r} is delayed; promote it first"
            )
        job_id = held.wanted_id if self.keeps_id(held.wanted_id) else str(uuid4())
        options = replace(job.options, delay=0)
        row = codec.encode_job(
            replace(job, id=job_id, options=options),
            "",
            self._keys,
            self._settings.ttl_s,
            self._binding.clock(),
        )
        status = STATUSES[job.state or JobState.WAITING]
        error = _error(job) if status == "error" else {}
        fields: dict[str, Any] = {
            "task": row.task,
            "payload": row.payload,
            "status": status,
            "created_ts": row.created_ts,
            "updated_ts": job.finished_at or self._binding.clock(),
            "ttl_s": row.ttl_s,
            "result": payload.encode(job.result, "result") if status == "done" else b"",
            "error": orjson.dumps(error) if error else b"",
        }
        if job.failed_attempts:
            fields["failed_attempts"] = msgspec.json.encode(job.failed_attempts)
        progress = () if job.progress is None else codec.encode_progress(job.progress)
        return (
            job.id.encode("utf-8", "surrogateescape"),
            job_id,
            "" if job_id == held.wanted_id else str(uuid4()),
            [*chain.from_iterable(fields.items()), *progress],
            status,
            _event_data(status, fields["result"], error),
        )


def _error(job: Job) -> dict[str, str]:
    error = {"message": clean(job.reason or "")}
    return {**error, "trace": clean(job.trace[-1])} if job.trace else error


def _event_data(status: str, result: bytes, error: Mapping[str, str]) -> bytes:
    match status:
        case "done":
            return b'{"result":' + result + b"}"
        case "error":
            return orjson.dumps({"message": error["message"]})
        case "canceled":
            return b'{"reason":"cancelled"}'
    return b"{}"
