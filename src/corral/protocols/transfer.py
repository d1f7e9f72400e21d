"""What the transfers of all protocols share: the record of a run, holds and ledgers."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgpack
from msgspec import Struct

from corral.core.job import Job, JobState
from corral.core.ports import Added
from corral.core.transfer import HeldJob, Run, Unheld
from corral.errors import InvalidName, QueueInUse, RedisResponseError, Refused
from corral.protocols.base import BoundPort
from corral.protocols.batches import cuts
from corral.protocols.wire import fields_of, id_bytes, id_text, pack, text, whole
from corral.store.client import Store
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.protocols")
LEDGER_S = 30 * 86_400
"""How long the target knows what has arrived; a run that was interrupted must be resumed before."""
CLOSED = ""
"""The field of a ledger that lets no more jobs be added; no job has an empty id."""
_SCHEDULE = b"schedule:"


async def held_groups(
    answers: Sequence[Any], read: Callable[[Sequence[bytes]], Awaitable[list[HeldJob]]]
) -> list[list[HeldJob] | Unheld]:
    """Return the jobs that a script has held, group by group, or why a group is not held."""
    receipts = [receipt for answer in answers if isinstance(answer, list) for receipt in answer]
    held = {job.receipt: job for job in await read(receipts)}
    return [
        [held[receipt] for receipt in answer if receipt in held]
        if isinstance(answer, list)
        else Unheld(text(answer))
        for answer in answers
    ]


class HoldPlace(Struct, frozen=True):
    """Where a job was when it was held, as its receipt says."""

    batch: str
    name: str
    score: bytes
    id: str

    @classmethod
    def of(cls, receipt: bytes) -> "HoldPlace":
        """Return what a receipt says."""
        batch, name, score, job_id = msgpack.unpackb(receipt, raw=True)[:4]
        return cls(text(batch), text(name), score, id_text(job_id))


class RunRecord(ABC):
    """The record of a run at its source."""

    _store: Store

    @property
    @abstractmethod
    def _run_key(self) -> str:
        """The key of the record of a run."""

    @property
    @abstractmethod
    def _held_key(self) -> str:
        """The key that lists what is held."""

    async def begin(self, run: Run) -> Run:
        fields = ("id", run.id, "target", run.target, "options", run.options,
                  "started", run.started_at, "moved", 0)  # fmt: skip
        return _decode_run(await self._store.run(SCRIPTS["begin_run"], [self._run_key], fields))

    async def run(self) -> Run | None:
        flat = await self._store.call("HGETALL", self._run_key)
        return _decode_run(flat) if flat else None

    async def finish(self, run: str) -> None:
        await self._store.run(SCRIPTS["finish_run"], [self._run_key, self._held_key], [run])

    async def keep_schedule(self, schedule_id: str, document: bytes) -> None:
        await self._store.call("HSET", self._run_key, _SCHEDULE + schedule_id.encode(), document)

    async def drop_schedule(self, schedule_id: str) -> None:
        await self._store.call("HDEL", self._run_key, _SCHEDULE + schedule_id.encode())

    async def check_rights(self) -> None:
        error = await self._store.run(SCRIPTS["check_rights"], [f"{self._run_key}:rights"], [])
        if error is not None:
            raise RedisResponseError(text(error))

    @property
    def place(self) -> str:
        return self._run_key


class BaseTransfer(BoundPort, RunRecord):
    """Holds are the scripts `hold` and `end_hold`; `receive` adds what was held elsewhere."""

    protocol = ""

    @abstractmethod
    def _ledger_key(self, name: str) -> str:
        """Return the key of a ledger."""

    @abstractmethod
    async def _call(self, verb: str, keys: Sequence[str], *args: Any) -> Any:
        """Return the answer of a script that takes these keys after the queue's own."""

    @abstractmethod
    async def _read(self, places: Sequence[HoldPlace]) -> Mapping[str, Job]:
        """Return the jobs that are held, by their ids."""

    @abstractmethod
    def _state(self, place: HoldPlace) -> JobState:
        """Return the state that a job had."""

    def _due(self, place: HoldPlace) -> int | None:
        """Return when a job that was delayed is due."""
        return None

    async def _logs(self, job_ids: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the logs of jobs that have some."""
        return {}

    async def _complete(self, held: list[HeldJob]) -> list[HeldJob]:
        """Add what only the same protocol can take over."""
        return held

    @abstractmethod
    def _row(self, held: HeldJob) -> Sequence[Any]:
        """Return a row of the script `receive`; refuses what the protocol cannot hold."""

    def _receive_arguments(self, rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
        return LEDGER_S, pack(rows)

    # -- holding ----------------------------------------------------------------------------------------

    async def hold(
        self, run: str, batch: str, groups: Sequence[Sequence[str]]
    ) -> list[list[HeldJob] | Unheld]:
        rows = pack([[id_bytes(job_id) for job_id in group] for group in groups])
        answers = await self._call("hold", [self._run_key, self._held_key], run, batch, rows)
        if answers is None:
            raise QueueInUse(
                f"the move {run} of queue {self._binding.queue!r} has ended, or was put back, by another "
                f"process; begin anew"
            )
        return await held_groups(answers, self._held)

    async def held(self) -> list[HeldJob]:
        return await self._held(await self._store.call("ZRANGE", self._held_key, 0, -1))

    async def _held(self, receipts: Sequence[bytes]) -> list[HeldJob]:
        if not receipts:
            return []
        places = {receipt: HoldPlace.of(receipt) for receipt in receipts}
        jobs = await self._read(list(places.values()))
        logs = await self._logs([job.id for job in jobs.values() if job.starts or job.finished_at])
        held: list[HeldJob] = []
        gone: list[bytes] = []
        for receipt, place in places.items():
            job = jobs.get(place.id)
            if job is None:
                gone.append(receipt)  # it was removed, or has expired, while it was held
                continue
            held.append(
                HeldJob(
                    receipt=receipt,
                    batch=place.batch,
                    job=job,
                    protocol=self.protocol,
                    due=self._due(place),
                    logs=logs.get(place.id, ()),
                )
            )
        if gone:
            await self._call("end_hold", [self._run_key, self._held_key], "restore", *gone)
        return await self._complete(held)

    async def drop(self, held: Sequence[HeldJob]) -> int:
        return await self._end("drop", held)

    async def restore(self, held: Sequence[HeldJob]) -> int:
        return await self._end("restore", held)

    async def _end(self, word: str, held: Sequence[HeldJob]) -> int:
        if not held:
            return 0
        receipts = [job.receipt for job in held]
        ended: int = await self._call("end_hold", [self._run_key, self._held_key], word, *receipts)
        return ended

    # -- receiving --------------------------------------------------------------------------------------

    def check(self, held: HeldJob) -> None:
        self._row(held)

    @abstractmethod
    def keeps_id(self, job_id: str) -> bool:
        """Return whether a job can have this id here."""

    async def receive(self, run: str, batch: str, jobs: Sequence[HeldJob]) -> list[Added | Refused]:
        if not jobs:
            return []
        keys = [self._ledger_key(f"move-{run}-{batch}"), self._ledger_key(f"move-{run}")]
        rows = [self._row(job) for job in jobs]
        # the jobs of a flow are added in one step
        has_flows = any(job.group for job in jobs)
        slices = [slice(None)] if has_flows else cuts([len(pack(row)) for row in rows])
        answers: list[Any] = []
        for part in slices:
            answers += await self._call("receive", keys, *self._receive_arguments(rows[part]))
        return [_decode_answer(answer, held) for answer, held in zip(answers, jobs, strict=True)]

    async def received(self, run: str) -> int:
        return whole(await self._store.call("GET", self._ledger_key(f"move-{run}")))

    async def close(self, run: str, batch: str) -> set[str]:
        ledger = self._ledger_key(f"move-{run}-{batch}")
        *_, flat = await self._store.pipe(
            [("HSET", ledger, CLOSED, "closed"), ("EXPIRE", ledger, LEDGER_S), ("HGETALL", ledger)]
        )
        arrived = {job_id for job_id, target_id in fields_of(flat).items() if job_id and target_id}
        return {id_text(job_id) for job_id in arrived}

    async def forget(self, run: str, batch: str, job_ids: Sequence[str]) -> None:
        ledger = self._ledger_key(f"move-{run}-{batch}")
        await self._store.pipe(
            [
                ("HSET", ledger, CLOSED, "closed"),
                ("EXPIRE", ledger, LEDGER_S),
                ("HDEL", ledger, *map(id_bytes, job_ids)),
            ]
        )


def _decode_run(flat: Sequence[bytes]) -> Run:
    fields = fields_of(flat)
    schedules = {
        name[len(_SCHEDULE) :].decode(): value for name, value in fields.items() if name.startswith(_SCHEDULE)
    }
    return Run(
        id=text(fields.get(b"id", b"")),
        target=text(fields.get(b"target", b"")),
        options=text(fields.get(b"options", b"")),
        started_at=whole(fields.get(b"started")),
        moved=whole(fields.get(b"moved")),
        schedules=schedules,
    )


def _decode_answer(answer: Sequence[Any], held: HeldJob) -> Added | Refused:
    job_id, detail = answer
    if job_id is not None:
        return Added(text(job_id), existed=detail == 1)
    if detail == b"closed":
        return QueueInUse(f"job {held.job.id!r} was moved by another process")
    return InvalidName(f"job id {held.job.id!r} is taken at the target; remove one of the two jobs")


def is_made_by_server(job_id: str) -> bool:
    """Return whether a server has made this id, so that it may be replaced where it is taken.

    >>> is_made_by_server("17"), is_made_by_server("order-17")
    (True, False)
    """
    return job_id.isdigit() and job_id.isascii()
