"""A small protocol on a Redis list and a hash, to show what a fourth protocol has to bring."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from typing import Any

import msgspec
import orjson

from corral.core import payload
from corral.core.event import Extent, JobEvent
from corral.core.filter import JobFilter
from corral.core.job import Claim, Job, JobOptions, JobState
from corral.core.outcome import Completed, Released, Retry, Settlement
from corral.core.ports import (
    Added,
    Gauge,
    JobEnd,
    JobPage,
    Jobs,
    Leak,
    Ledger,
    Location,
    NotEnded,
    Notice,
    QueueLimits,
    Recovery,
    Rest,
    RestReason,
    WorkerInfo,
)
from corral.errors import Refused
from corral.protocols.base import Binding, BoundPort, BoundPorts, ProtocolSpec, port, unsupported
from corral.protocols.broker import BaseBroker, TripAnswer
from corral.protocols.operator import BaseOperator
from corral.protocols.wire import fields_of, text
from corral.store.client import Store

NAME = "list"
STATES = {
    "waiting": JobState.WAITING,
    "active": JobState.ACTIVE,
    "completed": JobState.COMPLETED,
    "dead": JobState.DEAD,
}
Row = tuple[str, str, bytes]
"""(id, state, result or reason)"""


class ListPort(BoundPort):
    """`NAMESPACE:QUEUE` is the list of waiting ids, `…:jobs` the jobs, `…:ids` the last id."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._list = f"{binding.namespace}:{binding.queue}"
        self._jobs = f"{self._list}:jobs"

    async def _write(self, job: Job) -> None:
        document = {**msgspec.to_builtins(job, builtin_types=(bytes,)), "data": job.data}
        await self._store.call("HSET", self._jobs, job.id, payload.encode(document, "job"))

    async def _read(self, job_id: str) -> Job | None:
        raw = await self._store.call("HGET", self._jobs, job_id)
        return None if raw is None else msgspec.convert(orjson.loads(raw), Job)

    async def _move(self, job_id: str, **changes: Any) -> None:
        job = await self._read(job_id)
        if job is not None:
            await self._write(msgspec.structs.replace(job, **changes))


class ListBroker(ListPort, BaseBroker[list[Job], Row, str]):
    """Plain commands, without scripts: for one worker that is never killed."""

    def _encode_jobs(self, jobs: Sequence[Job]) -> list[list[Job]]:
        return [list(jobs)] if jobs else []

    async def _submit_batch(
        self, batch: list[Job], ledger: Ledger | None, together: bool
    ) -> Sequence[Added | Refused]:
        added = []
        for job in batch:
            job_id = job.id or str(await self._store.call("INCR", f"{self._list}:ids"))
            await self._write(msgspec.structs.replace(job, id=job_id, state=JobState.WAITING))
            await self._store.call("LPUSH", self._list, job_id)
            added.append(Added(job_id))
        return added

    def _ledger_key(self, name: str) -> str:
        return f"{self._list}:ledger:{name}"

    def _receipt(self, trip: int) -> str:
        return f"{self._id}:{trip}"

    def _encode_settlements(self, settlements: Sequence[Settlement[str]]) -> tuple[list[Row], list[int]]:
        rows = [self._encode_settlement(settlement) for settlement in settlements]
        return rows, [len(row[2]) for row in rows]

    def _encode_settlement(self, settlement: Settlement[str]) -> Row:
        job_id = settlement.claim.job.id
        match settlement.outcome:
            case Completed(result=result):
                return job_id, "completed", result
            case Released() | Retry():
                return job_id, "waiting", b""
        return job_id, "dead", b""

    async def _trip(self, rows: Sequence[Row], want: int, receipt: str) -> TripAnswer[str]:
        for job_id, state, value in rows:
            result = payload.decode(value) if value else None
            await self._move(job_id, state=STATES[state], result=result, attempts_made=1)
            if state == "waiting":
                await self._store.call("RPUSH", self._list, job_id)
        claims = []
        while len(claims) < want and (popped := await self._store.call("RPOP", self._list)):
            await self._move(text(popped), state=JobState.ACTIVE)
            job = await self._read(text(popped))
            assert job is not None
            claims.append(Claim(job, receipt))
        reason = RestReason.SATISFIED if len(claims) == want else RestReason.DRAINED
        return TripAnswer((), claims, Rest(reason))

    async def wait(self, rest: Rest) -> None:
        if rest.reason is RestReason.DRAINED:
            await self._blocking.call("BLMOVE", self._list, self._list, "RIGHT", "RIGHT", 0.1)

    async def _renew(self, claims: Sequence[Claim[str]]) -> tuple[Iterable[int], Iterable[int]]:
        return (), ()

    async def _renew_trip(self, receipt: str) -> None:
        pass

    async def promote(self) -> int:
        return 0

    async def _sweep(self) -> Recovery[str]:
        return Recovery()

    async def _adopt(self, owner: str) -> Sequence[Claim[str]]:
        return ()

    def _connection_name(self) -> str:
        return "corral:list"


class ListReporter(ListPort):
    async def progress(self, claim: Claim[str], value: Any) -> None:
        await self._move(claim.job.id, progress=value)

    async def log(self, claim: Claim[str], line: str, mark: str = "") -> int:
        return int(await self._store.call("RPUSH", f"{self._list}:log:{claim.job.id}", line))

    async def emit(self, claim: Claim[str], step: str, data: Any, mark: str = "") -> None:
        return

    async def children_results(
        self, claim: Claim[str], queue: str | None = None, name: str | None = None
    ) -> list[Any]:
        return []

    async def beat(self, stopping: bool = False) -> None:
        return


class ListEventLog(ListPort):
    """This protocol writes no events."""

    async def range(self, after: str = "-", count: int = 1000) -> list[JobEvent]:
        return []

    async def tail(self, after: str = "$") -> AsyncGenerator[JobEvent]:
        return
        yield

    async def of_job(self, job: Job, after: str = "-") -> list[JobEvent]:
        return []

    async def position(self) -> str:
        return "0-0"

    def waiter(self) -> "ListEventLog":
        return self

    async def wait(self, after: str, seconds: float) -> None:
        await asyncio.sleep(0.01)

    async def close(self) -> None:
        """There is no connection of its own."""

    async def ends_of(self, ids: Collection[str], after: str) -> dict[str, JobEnd]:
        return {}

    async def extent(self) -> Extent:
        return Extent(first=None, last=None, length=0, added=0)

    async def page(self, after: str = "-", until: str = "+", count: int = 1000) -> Any:
        raise unsupported(NAME, "events", "use a protocol that has them")

    async def marks(self, after: str, until: str, first: int, step: int) -> Any:
        raise unsupported(NAME, "events", "use a protocol that has them")


def _end_of(job: Job | None) -> JobEnd | NotEnded:
    if job is None:
        return NotEnded.MISSING
    if job.state not in (JobState.COMPLETED, JobState.DEAD):
        return NotEnded.PENDING
    return JobEnd(state=job.state, result=job.result, reason=job.reason)


class ListInspector(ListPort):
    async def _all(self) -> list[Job]:
        flat = await self._store.call("HGETALL", self._jobs)
        return [msgspec.convert(orjson.loads(raw), Job) for raw in fields_of(flat).values()]

    async def counts(self) -> dict[JobState, int]:
        jobs = await self._all()
        return {state: sum(job.state is state for job in jobs) for state in STATES.values()}

    async def page(self, state: JobState, cursor: str = "", count: int = 100) -> JobPage:
        jobs = sorted((job for job in await self._all() if job.state is state), key=lambda job: job.id)
        rest = [job for job in jobs if job.id > cursor]
        return JobPage(rest[:count], rest[count - 1].id if len(rest) > count else None)

    async def jobs(self, state: JobState, count: int = 100) -> list[Job]:
        return list((await self.page(state, "", count)).jobs)

    async def job(self, job_id: str) -> Job | None:
        return await self._read(job_id)

    async def ends(self, ids: Sequence[str]) -> list[JobEnd | NotEnded]:
        return [_end_of(await self._read(job_id)) for job_id in ids]

    async def search(self, jobs: JobFilter) -> list[Job]:
        return list(filter(jobs.has, await self._all()))[: jobs.limit]

    async def logs(self, job_id: str, start: int = 0, count: int = 1000) -> list[str]:
        lines = await self._store.call("LRANGE", f"{self._list}:log:{job_id}", start, start + count - 1)
        return [text(line) for line in lines]

    async def workers(self) -> list[WorkerInfo]:
        return []

    async def is_paused(self) -> bool:
        return False

    async def limits(self) -> QueueLimits:
        return QueueLimits()

    async def notices(self) -> list[Notice]:
        return []

    async def gauges(self) -> list[Gauge]:
        return []


class ListOperator(ListPort, BaseOperator):
    @property
    def _inspector(self) -> ListInspector:
        return ListInspector(self._binding)

    async def remove(self, jobs: Jobs) -> list[str]:
        async def remove(ids: Sequence[str]) -> list[str]:
            return [i for i in ids if await self._store.call("HDEL", self._jobs, i)]

        return await self._for_jobs(jobs, JobState, remove)

    async def _refuse(self, *_: Any, **__: Any) -> Any:
        raise unsupported(NAME, "such operation", "use a protocol that has it")

    pause = resume = retry = replay = promote = cancel = update = drain = set_limits = obliterate = _refuse


class ListSnapshot(ListPort):
    async def ids(self, cursor: str = "0") -> tuple[list[str], str]:
        return [text(job_id) for job_id in await self._store.call("HKEYS", self._jobs)], "0"

    async def read(self, ids: Sequence[str], jobs: JobFilter) -> list[Job]:
        records = [await self._read(job_id) for job_id in ids]
        return [job for job in records if job is not None and jobs.has(job)]

    async def listed(self, cursor: str = "0") -> tuple[list[tuple[str, str]], str]:
        return [("waiting", text(i)) for i in await self._store.call("LRANGE", self._list, 0, -1)], "0"

    async def locate(self, ids: Sequence[str]) -> list[Location]:
        return []

    async def leaks(self) -> list[Leak]:
        return []

    async def memory(self, ids: Sequence[str]) -> int:
        return 0


class ListPorts(BoundPorts):
    broker = port(ListBroker)
    reporter = port(ListReporter)
    events = port(ListEventLog)
    inspector = port(ListInspector)
    operator = port(ListOperator)
    snapshot = port(ListSnapshot)
    transfer = None
    schedules = None
    flows = None
    http = None


class ListProtocol:
    spec = ProtocolSpec(
        name=NAME,
        summary="a Redis list",
        capabilities=frozenset(),
        options={},
        default_queue="default",
        default_namespace="list",
    )

    def check(self, options: JobOptions, now: int) -> None:
        return

    def check_name(self, name: str) -> str:
        return name

    async def queues(self, store: Store, namespace: str) -> list[str]:
        return ["default"]

    def bind(self, binding: Binding) -> ListPorts:
        return ListPorts(binding)


PROTOCOL = ListProtocol()
