"""The bridgemq protocol's Inspector: reads."""

from collections.abc import Sequence
from typing import Any

import orjson

from corral.core.job import Job, JobState
from corral.core.ports import Gauge, JobEnd, NotEnded, QueueLimits, WorkerInfo
from corral.errors import RedisResponseError
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.codec import STATES, JobRecord
from corral.protocols.bridgemq.keys import DEFAULT_QUEUE, BridgemqKeys
from corral.protocols.bridgemq.scripts import SCRIPTS, BridgemqPort
from corral.protocols.cursors import IdSource, ListedIds, SetIds, SortedIds, found_by_id
from corral.protocols.inspector import BaseInspector
from corral.protocols.wire import text, time_ms, whole
from corral.store.client import Store
from corral.store.scanning import keys_with_prefix

PAGE = 500
FEW = 20
"""Up to so many awaited jobs are read without a look at their status first."""
ENDED = (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
COUNTED = 2000
"""Up to so many ids are always read to find their queue."""


class BridgemqInspector(BridgemqPort, BaseInspector):
    """Counts, jobs and workers; lists are shared by all queues of a namespace."""

    # -- counts -----------------------------------------------------------------------------------------

    async def counts(self) -> dict[JobState, int]:
        """Return how many jobs of this queue are in each state.

        The document has one list for all queues. While only this queue is known, its length is the answer;
        with others beside it the ids are read, page by page.
        """
        keys = self._keys
        waiting, delayed, active, dead, completed, known, grouped = await self._store.pipe(
            [
                ("LLEN", keys.waiting),
                ("ZCARD", keys.delayed),
                ("SCARD", keys.active),
                ("LLEN", keys.dead_letters),
                ("ZCARD", keys.completed),
                ("SMEMBERS", keys.known),
                ("ZCARD", keys.grouped),
            ]
        )
        is_alone = set(known) <= {self._binding.queue.encode()}
        lengths = {"waiting": waiting, "delayed": delayed, "active": active, "deadletter": dead}
        counts = {name: length for name, length in lengths.items() if is_alone and length > COUNTED}
        names = [name for name in lengths if name not in counts]
        # the first pages are of one moment: of a short queue no job is missed because it moves meanwhile
        pages = await self._store.run_together(SCRIPTS["count"], [self._page(name, b"0") for name in names])
        for name, (count, following) in zip(names, pages, strict=True):
            counts[name] = count + await self._count(name, following)
        return {
            JobState.WAITING: counts["waiting"] + grouped,
            JobState.DELAYED: counts["delayed"],
            JobState.ACTIVE: counts["active"],
            JobState.COMPLETED: completed,
            JobState.DEAD: counts["deadletter"],
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
        """Return the document's monitoring keys, of the whole namespace."""
        keys = self._keys
        waiting, active, delayed, cron, dead, workers, events = await self._store.pipe(
            [
                ("LLEN", keys.waiting),
                ("SCARD", keys.active),
                ("ZCARD", keys.delayed),
                ("ZCARD", keys.cron),
                ("LLEN", keys.dead_letters),
                ("SMEMBERS", keys.workers),
                ("XLEN", keys.events),
            ]
        )
        beats = await self._store.pipe([("EXISTS", keys.heartbeat(text(worker))) for worker in workers])
        return [
            Gauge("bridgemq_jobs_waiting", "Waiting jobs.", waiting),
            Gauge("bridgemq_jobs_active", "Active jobs.", active),
            Gauge("bridgemq_jobs_delayed", "Delayed jobs.", delayed),
            Gauge("bridgemq_jobs_cron", "Schedules.", cron),
            Gauge("bridgemq_jobs_deadletter", "Dead letters.", dead),
            Gauge("bridgemq_workers_registered", "Workers in the registry.", len(workers)),
            Gauge("bridgemq_workers_alive", "Workers with a heartbeat.", sum(beats)),
            Gauge("bridgemq_events", "Events that are kept.", events),
            *(
                Gauge("bridgemq_ratelimit_concurrent", "Active jobs of a type.", count, {"type": job_type})
                for job_type, count in (await self.concurrent()).items()
            ),
        ]

    async def concurrent(self) -> dict[str, int]:
        """Return how many jobs of each type are counted as active."""
        prefix = self._keys.concurrent("")
        names = await keys_with_prefix(self._store, prefix)
        counts = await self._store.call("MGET", *names) if names else []
        return {
            text(name[len(prefix.encode()) :]): whole(count)
            for name, count in zip(names, counts, strict=True)
            if count is not None and count.lstrip(b"-").isdigit()
        }

    # -- jobs -------------------------------------------------------------------------------------------

    def _sources(self, state: JobState) -> Sequence[IdSource]:
        """Return lists of the jobs of every queue: the next to run first, the last to end first."""
        keys, store = self._keys, self._store
        match state:
            case JobState.WAITING:
                return (ListedIds(store, (keys.waiting,), self._by_id), SortedIds(store, keys.grouped))
            case JobState.ACTIVE:
                return (SetIds(store, keys.active),)
            case JobState.DELAYED:
                return (SortedIds(store, keys.delayed),)
            case JobState.COMPLETED:
                return (SortedIds(store, keys.completed, is_reverse=True),)
            case JobState.DEAD:
                return (ListedIds(store, (keys.dead_letters,), self._by_id),)
            case JobState.CANCELLED:
                return ()

    async def _by_id(self, ids: Sequence[bytes]) -> dict[bytes, Job]:
        return found_by_id(ids, await self.read_jobs(ids, ""))

    async def _listed(self, ids: Sequence[bytes], state: JobState) -> dict[bytes, Job]:
        jobs = await self.read_jobs(ids, self._binding.queue)
        return found_by_id(ids, [job for job in jobs if job.state is state])

    async def job(self, job_id: str) -> Job | None:
        jobs = await self.read_jobs([job_id.encode("utf-8", "replace")], "")
        return jobs[0] if jobs else None

    async def ends(self, ids: Sequence[str]) -> list[JobEnd | NotEnded]:
        # a few are read at once; of many, only those whose status says that they may have ended
        wanted = set(ids if len(ids) <= FEW else await self._maybe_ended(ids))
        encoded = [job_id.encode("utf-8", "replace") for job_id in wanted]
        jobs = {job.id: job for job in await self.read_jobs(encoded, "")}
        return [_end_of(jobs.get(job_id)) if job_id in wanted else NotEnded.PENDING for job_id in ids]

    async def _maybe_ended(self, ids: Sequence[str]) -> list[str]:
        """Return those that have ended by their status, or have none: a foreign client's, or gone."""
        statuses = await self._store.call("MGET", *[self._keys.status(job_id) for job_id in ids])
        return [
            job_id
            for job_id, status in zip(ids, statuses, strict=True)
            if status is None or STATES.get(text(status)) in ENDED
        ]

    async def read_jobs(self, ids: Sequence[bytes], queue: str) -> list[Job]:
        """Return those of these jobs that exist, of one queue or ("") of any."""
        jobs: list[Job] = []
        for start in range(0, len(ids), PAGE):
            jobs += map(_decode, await self._run("read", queue, *ids[start : start + PAGE]))
        return jobs

    async def logs(self, job_id: str, start: int = 0, count: int = 1000) -> list[str]:
        lines = await self._store.call("LRANGE", self._keys.log(job_id), start, start + count - 1)
        return [text(line) for line in lines]

    # -- workers ----------------------------------------------------------------------------------------

    async def workers(self) -> list[WorkerInfo]:
        """Return workers with a heartbeat, Corral's and foreign ones, whatever queue they serve."""
        names = sorted(map(text, await self._store.call("SMEMBERS", self._keys.workers)))
        if not names:
            return []
        beats = await self._store.call("MGET", *[self._keys.heartbeat(name) for name in names])
        descriptions = await self._store.call("MGET", *[self._keys.worker(name) for name in names])
        return [
            WorkerInfo(name=name, seen_at=time_ms(beat) or None, extra=_description(description))
            for name, beat, description in zip(names, beats, descriptions, strict=True)
            if beat is not None
        ]

    async def is_paused(self) -> bool:
        return bool(await self._store.call("SISMEMBER", self._keys.paused, self._binding.queue))

    async def limits(self) -> QueueLimits:
        """Return none: the document limits types of jobs, not queues."""
        return QueueLimits()


async def bridgemq_queues(store: Store, namespace: str) -> list[str]:
    """Return the names of the queues in a namespace: those that were seen, and those that are paused.

    An empty name, which another client may have written, is left out: no job can be of that queue.
    """
    keys = BridgemqKeys(namespace, DEFAULT_QUEUE)
    names: set[str] = set()
    for members in await store.pipe_each([("SMEMBERS", keys.known), ("SMEMBERS", keys.paused)]):
        # where one is another kind of key, the usual queue is listed, and its readers say what is wrong
        names |= {DEFAULT_QUEUE} if isinstance(members, RedisResponseError) else set(map(text, members))
    return sorted(names - {""})


def _end_of(job: Job | None) -> JobEnd | NotEnded:
    if job is None:
        return NotEnded.MISSING
    if job.state not in ENDED:
        return NotEnded.PENDING
    return JobEnd(
        state=job.state,
        result=job.result,
        reason=job.reason,
        trace=job.trace,
        attempts_made=job.attempts_made,
    )


def _decode(row: Sequence[Any]) -> Job:
    job_id, raw, status, result, attempts, fence, failure, progress, summary, holder = row
    record = JobRecord(
        raw=raw or None, status=text(status), result=result or None, attempts=attempts or None,
        fence=fence or None, failure=failure, progress=progress or None, summary=summary or None,
        holder=holder or None,
    )  # fmt: skip
    return codec.decode_job(text(job_id), record)


def _description(raw: bytes | None) -> dict[str, Any]:
    try:
        description = orjson.loads(raw or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return description if isinstance(description, dict) else {}
