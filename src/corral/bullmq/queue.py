"""Queue: adds, reads and manages the jobs of one queue."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from corral.bullmq.error_code import official_errors, translate
from corral.bullmq.job import Job
from corral.bullmq.job_scheduler import JobScheduler
from corral.bullmq.job_template import JobTemplates
from corral.bullmq.queue_base import QueueBase, as_text
from corral.bullmq.queue_events import CLIENT_SUFFIX
from corral.bullmq.types import (
    JobOptions,
    PromoteJobsOptions,
    QueueBaseOptions,
    RepeatOptions,
    RetryJobsOptions,
)
from corral.core.ports import Added
from corral.errors import QueueInUse, Refused
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.inspector import WIRE_STATES

MOST_READS = 6
"""How often `getJobs` reads on where ids have no jobs."""


class Queue(QueueBase):
    """One queue.

    >>> queue = Queue("mail", {"connection": "redis://127.0.0.1:6379"})      # doctest: +SKIP
    >>> job = await queue.add("send", {"to": "a@b.c"}, {"attempts": 3})      # doctest: +SKIP
    """

    def __init__(self, name: str, opts: QueueBaseOptions | None = None) -> None:
        super().__init__(name, opts)
        self.jobsOpts: JobOptions = {**(self.opts.get("defaultJobOptions") or JobOptions())}

    @property
    def defaultJobOptions(self) -> JobOptions:
        """The options of each job that is added without its own."""
        return {**self.jobsOpts}

    # -- add ------------------------------------------------------------------------------------------------

    async def add(self, name: str, data: Any = None, opts: JobOptions | None = None) -> Job:
        """Add a job. If its id (or deduplication id) exists already none is added, and the returned job has
        the id of the existing one."""
        [job], [answer] = await self._submit([(name, data, opts)])
        if isinstance(answer, Refused):
            raise translate(answer, "addJob", parent=job.parentKey or "")
        self.emit("waiting", job)
        return job

    async def addBulk(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        """Add many jobs, each given as `{"name": …, "data": …, "opts": …}`. All are checked before the first
        is written; one whose parent does not exist is not added, and has the number of the error as its id.
        """
        added, _ = await self._submit(
            [(job.get("name", ""), job.get("data", {}), job.get("opts")) for job in jobs]
        )
        return added

    async def _submit(
        self, jobs: Sequence[tuple[str, Any, Mapping[str, Any] | None]]
    ) -> tuple[list[Job], list[Added | Refused]]:
        """Add jobs with these names, data and options; return them with their ids, and the answers."""
        await self.connection.check_clock()
        defaults = self.jobsOpts
        drafts = [(name, data, {**defaults, **opts} if opts else defaults) for name, data, opts in jobs]
        added, rows = self._templates.encode(drafts, self.connection.clock())
        answers = await self._producer.submit_rows(rows)
        for job, answer in zip(added, answers, strict=True):
            job.set_answer(answer)
        return added, answers

    @cached_property
    def _templates(self) -> JobTemplates:
        return JobTemplates(self)

    @cached_property
    def _producer(self) -> BullmqBroker:
        return self.broker()

    # -- the whole queue ------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Let no worker begin a job until `resume`."""
        await self.operator.pause()
        self.emit("paused")

    async def resume(self) -> None:
        """Let workers begin jobs again."""
        await self.operator.resume()
        self.emit("resumed")

    async def drain(self, delayed: bool = False) -> None:
        """Delete all waiting jobs, and with `delayed` the delayed ones."""
        await self.operator.drain(delayed)

    async def clean(self, grace: int, limit: int, type: str = "completed") -> list[str]:
        """Delete jobs of a state older than `grace` ms, at most `limit` (0: all); return their ids."""
        removed = await self.operator.clean_state(grace, limit, type)
        self.emit("cleaned", removed, "wait" if type == "waiting" else type)
        return removed

    async def obliterate(self, force: bool | Mapping[str, Any] = False) -> None:
        """Delete the queue and its jobs; with active jobs only by `force`."""
        is_forced = bool(force.get("force")) if isinstance(force, Mapping) else force
        try:
            await self.operator.obliterate(is_forced)
        except QueueInUse as error:
            what = "queue with active jobs" if await self.isPaused() else "non-paused queue"
            raise Exception(f"Cannot obliterate {what}") from error

    async def retryJobs(self, opts: RetryJobsOptions | None = None) -> None:
        """Put the failed (or, by `state`, completed) jobs back in the queue."""
        jobs: RetryJobsOptions = opts or {}
        state, count = jobs.get("state") or "failed", jobs.get("count") or 1000
        await self.operator.retry_all(state, count, jobs.get("timestamp"))

    async def promoteJobs(self, opts: PromoteJobsOptions | None = None) -> None:
        """Let all delayed jobs run now."""
        await self.operator.promote_all((opts or {}).get("count") or 1000)

    async def trimEvents(self, maxLength: int) -> int:
        """Keep about the last `maxLength` events; return the number of deleted ones."""
        return await self.operator.trim_events(maxLength)

    # -- one job --------------------------------------------------------------------------------------------

    async def getJob(self, job_id: str) -> Job | None:
        """Return the job with this id; None if there is none."""
        return await Job.fromId(self, job_id)

    async def getJobState(self, job_id: str) -> str:
        """Return the state of the job with this id; `unknown` if there is none."""
        return await self.inspector.wire_state(job_id)

    async def getJobLogs(
        self, job_id: str, start: int = 0, end: int = -1, asc: bool = True
    ) -> dict[str, Any]:
        """Return `logs`, lines of the job's log, and `count`, the number of all."""
        logs, count = await self.inspector.log_page(job_id, start, end, asc)
        return {"logs": logs, "count": count}

    async def addJobLog(self, jobId: str, logRow: str, keepLogs: int = 0) -> int:
        """Append a line to a job's log; return the number of lines."""
        return await Job.addJobLog(self, jobId, logRow, keepLogs)

    async def updateJobProgress(self, jobId: str, progress: Any) -> None:
        """Set a job's progress."""
        with official_errors("updateProgress", job=jobId):
            await self.operator.update_progress(jobId, progress)

    async def remove(self, job_id: str, opts: Mapping[str, Any] | None = None) -> int:
        """Delete a job, with its children unless `{"removeChildren": False}`; return 0 if it is locked."""
        with official_errors("removeJob", job=job_id):
            removed = await self.operator.remove_job(job_id, bool((opts or {}).get("removeChildren", True)))
        if removed:
            self.emit("removed", job_id)
        return int(removed)

    # -- jobs by state --------------------------------------------------------------------------------------

    def sanitizeJobTypes(self, types: Sequence[str] | str) -> list[str]:
        """Return each state once, all if none is named; `waiting` includes a paused queue's jobs."""
        states = [types] if isinstance(types, str) else list(types)
        if not states:
            return list(WIRE_STATES)
        return list(dict.fromkeys([*states, "paused"] if "waiting" in states else states))

    async def getJobs(
        self, types: Sequence[str] | str = (), start: int = 0, end: int = -1, asc: bool = False
    ) -> list[Job]:
        """Return jobs in these states, `start` to `end` of each, with `asc` the oldest first.

        An id without a job is passed over, and a later one takes its place.
        """
        states = self.sanitizeJobTypes(types)
        pages = await asyncio.gather(*(self._page(state, start, end, asc) for state in states))
        hashes: dict[str, Sequence[bytes]] = {}
        for page in pages:
            hashes.update((job_id, flat) for job_id, flat in page.items() if job_id not in hashes)
        return [Job.fromJSON(self, as_text(flat), job_id) for job_id, flat in hashes.items()]

    async def _page(self, state: str, start: int, end: int, asc: bool) -> dict[str, Sequence[bytes]]:
        """Return the hashes of the jobs `start` to `end` in one state, by their ids."""
        page: dict[str, Sequence[bytes]] = {}
        for _ in range(MOST_READS):
            ids = await self.inspector.ranges([state], start, end, asc)
            hashes = await self.store.pipe([("HGETALL", self.toKey(job_id)) for job_id in ids])
            page |= {job_id: flat for job_id, flat in zip(ids, hashes, strict=True) if flat}
            missing = sum(not flat for flat in hashes)
            if not missing or start < 0 or end < 0 or len(ids) <= end - start:
                break
            start, end = end + 1, end + missing
        return page

    async def getWaiting(self, start: int = 0, end: int = -1) -> list[Job]:
        return await self.getJobs(["waiting"], start, end, True)

    async def getWaitingChildren(self, start: int = 0, end: int = -1) -> list[Job]:
        return await self.getJobs(["waiting-children"], start, end, True)

    async def getActive(self, start: int = 0, end: int = -1) -> list[Job]:
        return await self.getJobs(["active"], start, end, True)

    async def getDelayed(self, start: int = 0, end: int = -1) -> list[Job]:
        return await self.getJobs(["delayed"], start, end, True)

    async def getPrioritized(self, start: int = 0, end: int = -1) -> list[Job]:
        return await self.getJobs(["prioritized"], start, end, True)

    async def getCompleted(self, start: int = 0, end: int = -1) -> list[Job]:
        return await self.getJobs(["completed"], start, end, False)

    async def getFailed(self, start: int = 0, end: int = -1) -> list[Job]:
        return await self.getJobs(["failed"], start, end, False)

    async def getJobCounts(self, *types: str) -> dict[str, int]:
        """Return the number of jobs in each of these states, or in all."""
        return await self.inspector.wire_counts(self.sanitizeJobTypes(types), types)

    async def getJobCountByTypes(self, *types: str) -> int:
        """Return the number of jobs in these states together."""
        return sum((await self.getJobCounts(*types)).values())

    async def count(self) -> int:
        """Return the number of jobs that have yet to run."""
        return await self.getJobCountByTypes("waiting", "delayed", "prioritized", "waiting-children")

    async def getWaitingCount(self) -> int:
        return await self.getJobCountByTypes("waiting")

    async def getWaitingChildrenCount(self) -> int:
        return await self.getJobCountByTypes("waiting-children")

    async def getActiveCount(self) -> int:
        return await self.getJobCountByTypes("active")

    async def getCompletedCount(self) -> int:
        return await self.getJobCountByTypes("completed")

    async def getFailedCount(self) -> int:
        return await self.getJobCountByTypes("failed")

    async def getDelayedCount(self) -> int:
        return await self.getJobCountByTypes("delayed")

    async def getPrioritizedCount(self) -> int:
        return await self.getJobCountByTypes("prioritized")

    async def getCountsPerPriority(self, priorities: Sequence[int]) -> dict[str, int]:
        """Return the number of waiting jobs of each of these priorities; 0: of those without one."""
        counts = await self.inspector.counts_per_priority(priorities)
        return {str(priority): count for priority, count in counts.items()}

    async def getMetrics(self, type: str, start: int = 0, end: int = -1) -> dict[str, Any]:
        """Return the number of `completed` or `failed` jobs: in all, and in each of the last minutes."""
        metrics = await self.inspector.metrics(type, start, end)
        meta = {"count": metrics.count, "prevTS": metrics.previous_at, "prevCount": metrics.previous_count}
        return {"meta": meta, "data": metrics.points, "count": metrics.total_points}

    async def exportPrometheusMetrics(self, globalVariables: dict[str, str] | None = None) -> str:
        """Return the number of jobs in each state in Prometheus's text format."""
        labels = "".join(f', {name}="{value}"' for name, value in (globalVariables or {}).items())
        lines = [
            "# HELP bullmq_job_count Number of jobs in the queue by state",
            "# TYPE bullmq_job_count gauge",
        ]
        for state, count in (await self.getJobCounts()).items():
            lines.append(f'bullmq_job_count{{queue="{self.name}", state="{state}"{labels}}} {count}')
        return "\n".join(lines)

    # -- limits and settings --------------------------------------------------------------------------------

    async def isPaused(self) -> bool:
        """Return whether the queue is paused for every worker."""
        return await self.inspector.is_paused()

    async def isMaxed(self) -> bool:
        """Return whether as many jobs are active as the global concurrency allows."""
        return await self.inspector.is_maxed()

    async def getGlobalConcurrency(self) -> int | None:
        """Return how many jobs may be active in the whole queue; None: any number."""
        return await self.inspector.concurrency()

    async def setGlobalConcurrency(self, concurrency: int) -> int:
        """Limit the active jobs of the whole queue; return 1 if that is new, 0 if a limit was replaced."""
        return await self._set_meta("concurrency", concurrency)

    async def removeGlobalConcurrency(self) -> int:
        """Remove that limit; return 1, or 0 if there was none."""
        return await self._delete_meta("concurrency")

    async def getGlobalRateLimit(self) -> dict[str, int] | None:
        """Return the limit of `max` claims in `duration` ms for the whole queue; None: there is none."""
        limit = await self.inspector.limit()
        return None if limit is None else {"max": limit.count, "duration": limit.duration}

    async def setGlobalRateLimit(self, max_jobs: int, duration_ms: int) -> int:
        """Allow `max_jobs` claims in `duration_ms` for the whole queue; return how many of both are new."""
        return await self._set_meta("max", max_jobs, "duration", duration_ms)

    async def removeGlobalRateLimit(self) -> int:
        """Remove that limit; return how many of its two numbers there were."""
        return await self._delete_meta("max", "duration")

    async def _set_meta(self, *settings: Any) -> int:
        return int(await self.store.call("HSET", self.toKey("meta"), *settings))

    async def _delete_meta(self, *names: str) -> int:
        return int(await self.store.call("HDEL", self.toKey("meta"), *names))

    async def rateLimit(self, expire_time_ms: int) -> None:
        """Let no worker that has a limit begin a job for this time."""
        await self.operator.block_claims(expire_time_ms)

    async def getRateLimitTtl(self, maxJobs: int | None = None) -> int:
        """Return the milliseconds until the rate limit allows a job."""
        return await self.inspector.limited_for(maxJobs)

    async def removeRateLimitKey(self) -> int:
        """Reset what counts towards the rate limit; return 1, or 0 if nothing did."""
        return int(await self.operator.reset_limiter())

    async def getDeduplicationJobId(self, id: str) -> str | None:
        """Return the id of the job that holds this deduplication id; None if none does."""
        return await self.inspector.deduplicated(id)

    async def removeDeduplicationKey(self, id: str) -> int:
        """Release a deduplication id at once; return 1, or 0 if no job held it."""
        return int(await self.operator.release_deduplication(id))

    # names of earlier versions
    getDebounceJobId = getDeduplicationJobId
    removeDebounceKey = removeDeduplicationKey

    async def removeDeprecatedPriorityKey(self) -> int:
        """Delete a key that early versions left; return 1, or 0 if there is none."""
        return int(await self.store.call("DEL", self.toKey("priority")))

    async def getVersion(self) -> str | None:
        """Return the client that wrote the queue's settings last."""
        return await self.inspector.version()

    # -- connected clients, as the server lists them --------------------------------------------------------

    async def getWorkers(self) -> list[dict[str, str]]:
        """Return the workers of this queue."""
        prefix = self.clientName(":w:")
        return await self._clients(lambda name: name == self.clientName() or name.startswith(prefix))

    async def getWorkersCount(self) -> int:
        return len(await self.getWorkers())

    async def getQueueEvents(self) -> list[dict[str, str]]:
        """Return the `QueueEvents` of this queue."""
        return await self._clients(lambda name: name == self.clientName(CLIENT_SUFFIX))

    # the official client has both spellings
    get_workers = getWorkers
    get_workers_count = getWorkersCount

    async def _clients(self, matches: Callable[[str], bool]) -> list[dict[str, str]]:
        listing = (await self.store.call("CLIENT", "LIST")).decode("utf-8", "replace")
        rows = [dict(field.partition("=")[::2] for field in line.split(" ")) for line in listing.splitlines()]
        return [
            {**row, "name": self.name, "rawname": row["name"]} for row in rows if matches(row.get("name", ""))
        ]

    # -- schedulers -----------------------------------------------------------------------------------------

    @cached_property
    def jobScheduler(self) -> JobScheduler:
        """The schedulers of this queue."""
        return JobScheduler(self)

    async def upsertJobScheduler(
        self, job_scheduler_id: str, repeat_opts: RepeatOptions, job_name: str | None = None,
        job_data: Any = None, opts: JobOptions | None = None, override: bool = True,
        producer_id: str | None = None,
    ) -> Job | None:  # fmt: skip
        """Create or change a scheduler; return its next job. See `JobScheduler.upsertJobScheduler`.

        >>> await queue.upsertJobScheduler("daily", {"pattern": "0 9 * * *", "tz": "UTC"})   # doctest: +SKIP
        """
        return await self.jobScheduler.upsertJobScheduler(
            job_scheduler_id, repeat_opts, job_name, job_data, {**self.jobsOpts, **(opts or JobOptions())},
            override, producer_id,
        )  # fmt: skip

    async def removeJobScheduler(self, job_scheduler_id: str) -> int:
        """Delete a scheduler and its next job; return 0, or 1 if there is none."""
        return await self.jobScheduler.removeJobScheduler(job_scheduler_id)

    async def isJobScheduler(self, job_scheduler_id: str) -> bool:
        """Return whether there is a scheduler with this id."""
        return await self.jobScheduler.isJobScheduler(job_scheduler_id)

    async def getJobScheduler(self, job_scheduler_id: str) -> dict[str, Any] | None:
        """Return one scheduler; None if there is none."""
        return await self.jobScheduler.getScheduler(job_scheduler_id)

    async def getJobSchedulers(
        self, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[dict[str, Any]]:
        """Return schedulers by their next time, the latest first unless `asc`."""
        return await self.jobScheduler.getJobSchedulers(start, end, asc)

    async def getJobSchedulersCount(self) -> int:
        """Return the number of schedulers."""
        return await self.jobScheduler.getSchedulersCount()
