"""The BridgeMQ protocol's Inspector: reads."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import orjson

from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.ports import Gauge, WorkerInfo
from corral.protocols.base import Binding, search
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.broker import SCRIPTS, head
from corral.protocols.bridgemq.codec import Known
from corral.protocols.bridgemq.keys import DEFAULT_QUEUE, Keys
from corral.protocols.bridgemq.names_with import names_with
from corral.protocols.bridgemq.options import Settings
from corral.store.client import Store

PAGE = 500
COUNTED = 2000
"""Up to so many ids are always looked at to tell whose they are."""
CONCURRENT_TEXT = "Active jobs of a type, as its limit counts them."


class BridgemqInspector:
    """Counts, jobs, dead letters, schedules and workers; lists are shared by all queues of a namespace."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    def _head(self) -> tuple[Any, ...]:
        return head(self._binding, self._settings)

    # -- counts -----------------------------------------------------------------------------------------

    async def counts(self) -> dict[JobState, int]:
        """How many jobs of this queue are in each state.

        The document has one list for all queues. While only this queue is known, its length is the answer;
        with others beside it the ids are looked at, page by page.
        """
        part = self._keys.part
        waiting, delayed, active, dead, completed, known = await self._store.pipe(
            [
                ("LLEN", part("jobs:waiting")),
                ("ZCARD", part("jobs:delayed")),
                ("SCARD", part("jobs:active")),
                ("LLEN", part("jobs:deadletter")),
                ("ZCARD", self._keys.completed(self._binding.queue)),
                ("SMEMBERS", part("queues:known")),
            ]
        )
        is_alone = set(known) <= {self._binding.queue.encode()}
        lists = {"waiting": waiting, "delayed": delayed, "active": active, "deadletter": dead}
        counted = {name: length for name, length in lists.items() if is_alone and length > COUNTED}
        names = [name for name in lists if name not in counted]
        # the first pages show one moment: of a short queue no job is missed because it moves meanwhile
        pages = await self._store.run_together(SCRIPTS["count"], [self._page(name, b"0") for name in names])
        for name, (count, following) in zip(names, pages, strict=True):
            counted[name] = count + await self._count(name, following)
        return {
            JobState.WAITING: counted["waiting"],
            JobState.DELAYED: counted["delayed"],
            JobState.ACTIVE: counted["active"],
            JobState.COMPLETED: completed,
            JobState.DEAD: counted["deadletter"],
        }

    def _page(self, name: str, page: bytes) -> tuple[Sequence[Any], Sequence[Any]]:
        return self._keys.fixed, (*self._head(), self._binding.queue, name, page, PAGE)

    async def _count(self, name: str, page: bytes) -> int:
        total = 0
        while page != b"0":
            count, page = await self._store.run(SCRIPTS["count"], *self._page(name, page))
            total += count
        return total

    async def gauges(self) -> list[Gauge]:
        """The document's monitoring keys, of the whole namespace."""
        part = self._keys.part
        waiting, active, delayed, cron, dead, workers, events = await self._store.pipe(
            [
                ("LLEN", part("jobs:waiting")),
                ("SCARD", part("jobs:active")),
                ("ZCARD", part("jobs:delayed")),
                ("ZCARD", part("jobs:cron")),
                ("LLEN", part("jobs:deadletter")),
                ("SMEMBERS", part("workers:active")),
                ("XLEN", part("events")),
            ]
        )
        names = [worker.decode("utf-8", "replace") for worker in workers]
        beats = await self._store.pipe([("EXISTS", self._keys.heartbeat(name)) for name in names])
        counts = await self.concurrent()
        return [
            Gauge("bridgemq_jobs_waiting", "Jobs that wait.", waiting),
            Gauge("bridgemq_jobs_active", "Jobs in hand.", active),
            Gauge("bridgemq_jobs_delayed", "Jobs that are not due yet.", delayed),
            Gauge("bridgemq_jobs_cron", "Schedules.", cron),
            Gauge("bridgemq_jobs_deadletter", "Dead letters.", dead),
            Gauge("bridgemq_workers_registered", "Workers in the registry.", len(names)),
            Gauge("bridgemq_workers_alive", "Those of them that beat.", sum(beats)),
            Gauge("bridgemq_events", "Events that are kept.", events),
            *(
                Gauge("bridgemq_ratelimit_concurrent", CONCURRENT_TEXT, count, {"type": kind})
                for kind, count in counts.items()
            ),
        ]

    async def concurrent(self) -> dict[str, int]:
        """How many jobs of each type are counted as active."""
        prefix = self._keys.concurrent("")
        names = await names_with(self._store, prefix)
        counts = await self._store.call("MGET", *names) if names else []
        return {
            name[len(prefix.encode()) :].decode("utf-8", "replace"): int(count)
            for name, count in zip(names, counts, strict=True)
            if count is not None and count.lstrip(b"-").isdigit()
        }

    # -- jobs -------------------------------------------------------------------------------------------

    async def jobs(self, state: JobState, start: int = 0, count: int = 100) -> list[Job]:
        ids = self._ids(state)
        found: list[Job] = []
        async for page in ids:
            found += [job for job in await self.read_jobs(page, self._binding.queue) if job.state is state]
            if len(found) >= start + count:
                break
        return found[start : start + count]

    async def _ids(self, state: JobState) -> AsyncIterator[list[bytes]]:
        """Ids in pages, of every queue: the next to run first, the last to end first."""
        part = self._keys.part
        commands: dict[JobState, Callable[[int, int], tuple[Any, ...]]] = {
            JobState.WAITING: lambda low, high: ("LRANGE", part("jobs:waiting"), low, high),
            JobState.DELAYED: lambda low, high: ("ZRANGE", part("jobs:delayed"), low, high),
            JobState.DEAD: lambda low, high: ("LRANGE", part("jobs:deadletter"), low, high),
            JobState.COMPLETED: lambda low, high: (
                "ZREVRANGE", self._keys.completed(self._binding.queue), low, high,
            ),
        }  # fmt: skip
        if state is JobState.ACTIVE:
            yield sorted(await self._store.call("SMEMBERS", part("jobs:active")))
            return
        command = commands.get(state)
        low = 0
        while command is not None:
            page = await self._store.call(*command(low, low + PAGE - 1))
            yield list(dict.fromkeys(page))
            low += PAGE
            if len(page) < PAGE:
                return

    async def job(self, job_id: str) -> Job | None:
        found = await self.read_jobs([job_id.encode("utf-8", "replace")], "")
        return found[0] if found else None

    async def read_jobs(self, ids: Sequence[bytes], queue: str) -> list[Job]:
        """Return those of these jobs that exist, of one queue or ("") of any."""
        found: list[Job] = []
        for start in range(0, len(ids), PAGE):
            rows = await self._store.run(
                SCRIPTS["read"], self._keys.fixed, (*self._head(), queue, *ids[start : start + PAGE])
            )
            found += [_decode(row) for row in rows]
        return found

    async def search(self, jobs: JobFilter) -> list[Job]:
        return await search(self, jobs)

    async def logs(self, job_id: str, start: int = 0, count: int = 1000) -> list[str]:
        lines = await self._store.call("LRANGE", self._keys.log(job_id), start, start + count - 1)
        return [line.decode("utf-8", "replace") for line in lines]

    # -- workers ----------------------------------------------------------------------------------------

    async def workers(self) -> list[WorkerInfo]:
        """Workers that beat: ours and strangers', whatever queue they serve."""
        members = await self._store.call("SMEMBERS", self._keys.part("workers:active"))
        names = sorted(member.decode("utf-8", "replace") for member in members)
        if not names:
            return []
        beats = await self._store.call("MGET", *[self._keys.heartbeat(name) for name in names])
        descriptions = await self._store.call("MGET", *[self._keys.worker(name) for name in names])
        return [
            WorkerInfo(name=name, seen_at=_number(beat), extra=_described(description))
            for name, beat, description in zip(names, beats, descriptions, strict=True)
            if beat is not None
        ]

    async def is_paused(self) -> bool:
        return bool(
            await self._store.call("SISMEMBER", self._keys.part("queues:paused"), self._binding.queue)
        )


async def bridgemq_queues(store: Store, namespace: str) -> list[str]:
    """Names of the queues under a namespace: those that were seen, and those that are paused."""
    keys = Keys(namespace, DEFAULT_QUEUE)
    known, paused = await store.pipe(
        [("SMEMBERS", keys.part("queues:known")), ("SMEMBERS", keys.part("queues:paused"))]
    )
    return sorted({name.decode("utf-8", "replace") for name in (*known, *paused)})


def _decode(row: Sequence[Any]) -> Job:
    job_id, raw, status, result, attempts, fence, failure, progress, summary, holder = row
    known = Known(
        raw=raw or None, status=status.decode(), result=result or None, attempts=attempts or None,
        fence=fence or None, failure=failure, progress=progress or None, summary=summary or None,
        holder=holder or None,
    )  # fmt: skip
    return codec.decode_job(job_id.decode("utf-8", "replace"), known)


def _number(raw: bytes) -> int | None:
    return int(raw) if raw.isdigit() else None


def _described(raw: bytes | None) -> dict[str, Any]:
    try:
        described = orjson.loads(raw or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return described if isinstance(described, dict) else {}
