"""Queue: what producers and operators hold."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from corral.bullmq.error_code import code_of, raised, told
from corral.bullmq.job import Job
from corral.bullmq.job_scheduler import JobScheduler
from corral.bullmq.options import encode
from corral.bullmq.queue_base import QueueBase, as_text
from corral.bullmq.queue_events import SUFFIX
from corral.errors import QueueInUse, Refused
from corral.protocols.bullmq.reads import STATES
from corral.protocols.bullmq.submitting import Row, Rows, encode_job, submit_rows

Types = Sequence[str] | str


class Queue(QueueBase):
    """One queue.

    >>> queue = Queue("mail", {"connection": "redis://127.0.0.1:6379"})      # doctest: +SKIP
    >>> job = await queue.add("send", {"to": "a@b.c"}, {"attempts": 3})      # doctest: +SKIP
    """

    def __init__(self, name: str, opts: Mapping[str, Any] | None = None) -> None:
        super().__init__(name, opts)
        self.jobsOpts: dict[str, Any] = dict(self.opts.get("defaultJobOptions") or {})

    @property
    def defaultJobOptions(self) -> dict[str, Any]:
        """The options each job of this queue is added with, unless it is given others."""
        return dict(self.jobsOpts)

    # -- add ------------------------------------------------------------------------------------------------

    async def add(self, name: str, data: Any = None, opts: Mapping[str, Any] | None = None) -> Job:
        """The job as it was added. One whose id (or deduplication id) is there already is not added again:
        the job returned has the id of the one that stands for it."""
        job = Job(self, name, data, {**self.jobsOpts, **(opts or {})})
        await add_jobs(self, [job])
        self.emit("waiting", job)
        return job

    async def addBulk(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        """The jobs as they were added; each is given as `{"name": …, "data": …, "opts": …}`."""
        made = [
            Job(self, job.get("name", ""), job.get("data"), {**self.jobsOpts, **(job.get("opts") or {})})
            for job in jobs
        ]
        await add_jobs(self, made)
        return made

    # -- all of it ------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """No worker begins a job until `resume`."""
        await self.operator.pause()
        self.emit("paused")

    async def resume(self) -> None:
        """Workers begin jobs again."""
        await self.operator.resume()
        self.emit("resumed")

    async def drain(self, delayed: bool = False) -> None:
        """Delete all jobs that wait, with `delayed` those too."""
        await self.operator.drain(delayed)

    async def clean(self, grace: int, limit: int, type: str = "completed") -> list[str]:
        """Delete jobs of a state that are older than `grace` ms, at most `limit` (0: all); their ids."""
        gone = await self.operator.clean(grace, limit, type)
        self.emit("cleaned", gone, "wait" if type == "waiting" else type)
        return gone

    async def obliterate(self, force: bool | Mapping[str, Any] = False) -> None:
        """Delete the queue and all that is in it; where it has active jobs only by `force`."""
        is_forced = bool(force.get("force")) if isinstance(force, Mapping) else force
        try:
            await self.operator.obliterate(is_forced)
        except QueueInUse as error:
            what = "queue with active jobs" if await self.isPaused() else "non-paused queue"
            raise Exception(f"Cannot obliterate {what}") from error

    async def retryJobs(self, opts: Mapping[str, Any] | None = None) -> None:
        """Put the failed (or, by `state`, completed) jobs back in the queue."""
        asked = opts or {}
        count = asked.get("count") or 1000
        await self.operator.retry_all(asked.get("state") or "failed", count, asked.get("timestamp"))

    async def promoteJobs(self, opts: Mapping[str, Any] | None = None) -> None:
        """Let all delayed jobs run now."""
        await self.operator.promote_all((opts or {}).get("count") or 1000)

    async def trimEvents(self, maxLength: int) -> int:
        """Keep about the last `maxLength` events; how many were dropped."""
        return await self.operator.trim_events(maxLength)

    # -- one job --------------------------------------------------------------------------------------------

    async def remove(self, job_id: str, opts: Mapping[str, Any] | None = None) -> int:
        """Delete a job, with its children unless `{"removeChildren": False}`; 0 where it is locked."""
        with told("removeJob", job=job_id):
            removed = await self.operator.remove_job(job_id, bool((opts or {}).get("removeChildren", True)))
        if removed:
            self.emit("removed", job_id)
        return int(removed)

    async def updateJobProgress(self, jobId: str, progress: Any) -> None:
        """Say how far a job is."""
        with told("updateProgress", job=jobId):
            await self.operator.update_progress(jobId, progress)

    async def addJobLog(self, jobId: str, logRow: str, keepLogs: int = 0) -> int:
        """Append a line to a job's log; how many lines it has now."""
        return await Job.addJobLog(self, jobId, logRow, keepLogs)

    # -- limits ---------------------------------------------------------------------------------------------

    async def setGlobalConcurrency(self, concurrency: int) -> int:
        """At most so many jobs active in the whole queue; 1 where that is new, 0 where another was set."""
        return await self._set("concurrency", concurrency)

    async def removeGlobalConcurrency(self) -> int:
        """Any number again; 1, or 0 where there was no limit."""
        return await self._unset("concurrency")

    async def setGlobalRateLimit(self, max_jobs: int, duration_ms: int) -> int:
        """At most `max_jobs` claims in `duration_ms`, for the whole queue; how many of the two are new."""
        return await self._set("max", max_jobs, "duration", duration_ms)

    async def removeGlobalRateLimit(self) -> int:
        """Any number again; how many of the two numbers were there."""
        return await self._unset("max", "duration")

    async def _set(self, *settings: Any) -> int:
        return int(await self.store.call("HSET", self.toKey("meta"), *settings))

    async def _unset(self, *names: str) -> int:
        return int(await self.store.call("HDEL", self.toKey("meta"), *names))

    async def rateLimit(self, expire_time_ms: int) -> None:
        """No worker that has a limit begins a job for so long."""
        await self.operator.hold(expire_time_ms)

    async def removeRateLimitKey(self) -> int:
        """Forget what counts towards the limit so far; 1, or 0 where nothing did."""
        return int(await self.operator.lift_hold())

    async def removeDeduplicationKey(self, id: str) -> int:
        """Let a job be added under this deduplication id at once; 1, or 0 where none stood for it."""
        return int(await self.operator.release_deduplication(id))

    async def removeDebounceKey(self, id: str) -> int:
        """What `removeDeduplicationKey` was called before."""
        return await self.removeDeduplicationKey(id)

    async def removeDeprecatedPriorityKey(self) -> int:
        """Delete a key that versions long gone left behind; 1, or 0 where there is none."""
        return int(await self.store.call("DEL", self.toKey("priority")))

    # -- schedulers -----------------------------------------------------------------------------------------

    @cached_property
    def jobScheduler(self) -> JobScheduler:
        """The schedulers of this queue."""
        return JobScheduler(self)

    async def upsertJobScheduler(
        self,
        job_scheduler_id: str,
        repeat_opts: Mapping[str, Any],
        job_name: str | None = None,
        job_data: Any = None,
        opts: Mapping[str, Any] | None = None,
        override: bool = True,
        producer_id: str | None = None,
    ) -> Job | None:
        """Make a scheduler, or give one other ways; its next job. See `JobScheduler.upsertJobScheduler`.

        >>> await queue.upsertJobScheduler("daily", {"pattern": "0 9 * * *", "tz": "UTC"})   # doctest: +SKIP
        """
        merged = {**self.jobsOpts, **(opts or {})}
        return await self.jobScheduler.upsertJobScheduler(
            job_scheduler_id, repeat_opts, job_name, job_data, merged, override, producer_id
        )

    async def removeJobScheduler(self, job_scheduler_id: str) -> int:
        """Delete a scheduler and its next job; 0, or 1 where there is none."""
        return await self.jobScheduler.removeJobScheduler(job_scheduler_id)

    async def isJobScheduler(self, job_scheduler_id: str) -> bool:
        """Is there a scheduler with this id?"""
        return await self.jobScheduler.isJobScheduler(job_scheduler_id)

    async def getJobScheduler(self, job_scheduler_id: str) -> dict[str, Any] | None:
        """One scheduler; None where there is none."""
        return await self.jobScheduler.getScheduler(job_scheduler_id)

    async def getJobSchedulers(
        self, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[dict[str, Any]]:
        """Schedulers by when they are due, the last first unless `asc`."""
        return await self.jobScheduler.getJobSchedulers(start, end, asc)

    async def getJobSchedulersCount(self) -> int:
        """How many schedulers there are."""
        return await self.jobScheduler.getSchedulersCount()

    # -- jobs -----------------------------------------------------------------------------------------------

    async def getJob(self, job_id: str) -> Job | None:
        """The job with this id; None where there is none."""
        return await Job.fromId(self, job_id)

    async def getJobs(self, types: Types = (), start: int = 0, end: int = -1, asc: bool = False) -> list[Job]:
        """Jobs in these states, `start` to `end` of each; `asc`: the oldest first."""
        ids = await self.inspector.ranges(self.sanitizeJobTypes(types), start, end, asc)
        found = await self.store.pipe([("HGETALL", self.toKey(job_id)) for job_id in ids])
        return [
            Job.fromJSON(self, as_text(flat), job_id) for job_id, flat in zip(ids, found, strict=True) if flat
        ]

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

    async def getJobState(self, job_id: str) -> str:
        """The state of the job with this id; `unknown` where there is none."""
        return await self.inspector.wire_state(job_id)

    async def getJobLogs(
        self, job_id: str, start: int = 0, end: int = -1, asc: bool = True
    ) -> dict[str, Any]:
        """`logs`: lines of the job's log; `count`: how many it has."""
        logs, count = await self.inspector.log_page(job_id, start, end, asc)
        return {"logs": logs, "count": count}

    # -- counts ---------------------------------------------------------------------------------------------

    def sanitizeJobTypes(self, types: Types) -> list[str]:
        """Each state once; all where none is named. Who asks for `waiting` means a paused queue's too."""
        named = [types] if isinstance(types, str) else list(types)
        if not named:
            return list(STATES)
        return list(dict.fromkeys([*named, "paused"] if "waiting" in named else named))

    async def getJobCounts(self, *types: str) -> dict[str, int]:
        """How many jobs are in each of these states, or in all."""
        return await self.inspector.wire_counts(self.sanitizeJobTypes(types))

    async def getJobCountByTypes(self, *types: str) -> int:
        """How many jobs are in these states together."""
        return sum((await self.getJobCounts(*types)).values())

    async def count(self) -> int:
        """How many jobs are yet to be run."""
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
        """How many jobs wait with each of these priorities; 0 are those without one."""
        counts = await self.inspector.counts_per_priority(priorities)
        return {str(priority): count for priority, count in counts.items()}

    async def getMetrics(self, type: str, start: int = 0, end: int = -1) -> dict[str, Any]:
        """How many jobs `completed` or `failed`: in all, and in each of the last minutes."""
        found = await self.inspector.metrics(type, start, end)
        meta = {"count": found.count, "prevTS": found.previous_at, "prevCount": found.previous_count}
        return {"meta": meta, "data": found.points, "count": found.total_points}

    async def exportPrometheusMetrics(self, globalVariables: dict[str, str] | None = None) -> str:
        """The number of jobs in each state, as Prometheus reads it."""
        labels = "".join(f', {name}="{value}"' for name, value in (globalVariables or {}).items())
        lines = [
            "# HELP bullmq_job_count Number of jobs in the queue by state",
            "# TYPE bullmq_job_count gauge",
        ]
        for state, count in (await self.getJobCounts()).items():
            lines.append(f'bullmq_job_count{{queue="{self.name}", state="{state}"{labels}}} {count}')
        return "\n".join(lines)

    # -- settings -------------------------------------------------------------------------------------------

    async def isPaused(self) -> bool:
        """Is the queue paused, for every worker?"""
        return await self.inspector.is_paused()

    async def isMaxed(self) -> bool:
        """Are as many jobs active as the whole queue may have?"""
        return await self.inspector.is_maxed()

    async def getGlobalConcurrency(self) -> int | None:
        """How many jobs may be active in the whole queue; None: any number."""
        return await self.inspector.concurrency()

    async def getGlobalRateLimit(self) -> dict[str, int] | None:
        """`max` claims in `duration` ms, for the whole queue; None: any number."""
        limit = await self.inspector.limit()
        return None if limit is None else {"max": limit.count, "duration": limit.duration}

    async def getRateLimitTtl(self, maxJobs: int | None = None) -> int:
        """Milliseconds until the rate limit lets go."""
        return await self.inspector.limited_for(maxJobs)

    async def getDeduplicationJobId(self, id: str) -> str | None:
        """The job that stands for this deduplication id; None where none does."""
        return await self.inspector.deduplicated(id)

    async def getDebounceJobId(self, id: str) -> str | None:
        """What `getDeduplicationJobId` was called before."""
        return await self.getDeduplicationJobId(id)

    async def getVersion(self) -> str | None:
        """Which client wrote the queue's settings last."""
        return await self.inspector.version()

    # -- who is connected -----------------------------------------------------------------------------------

    async def getWorkers(self) -> list[dict[str, str]]:
        """The workers of this queue, as the server lists their connections."""
        named = self.clientName(":w:")
        return await self._clients(lambda name: name == self.clientName() or name.startswith(named))

    async def getWorkersCount(self) -> int:
        return len(await self.getWorkers())

    async def getQueueEvents(self) -> list[dict[str, str]]:
        """The listeners of this queue, as the server lists their connections."""
        return await self._clients(lambda name: name == self.clientName(SUFFIX))

    async def get_workers(self) -> list[dict[str, str]]:
        """Another name of `getWorkers`."""
        return await self.getWorkers()

    async def get_workers_count(self) -> int:
        """Another name of `getWorkersCount`."""
        return await self.getWorkersCount()

    async def _clients(self, fits: Any) -> list[dict[str, str]]:
        listing = (await self.store.call("CLIENT", "LIST")).decode("utf-8", "replace")
        found = []
        for line in listing.splitlines():
            client = dict(field.partition("=")[::2] for field in line.split(" "))
            name = client.get("name", "")
            if fits(name):
                found.append({**client, "name": self.name, "rawname": name})
        return found


def row_of(job: Job) -> Row:
    """A row for the protocol's submit script, checked by the contract's rules.

    The native API's size limit does not apply here, so the data is put into the row afterwards.
    """
    made, data = encode(job.id or "", job.name, job.data, job.opts, job.timestamp, job.queue.name)
    envelope, _ = encode_job(made)
    return envelope, data


async def add_jobs(queue: QueueBase, jobs: Sequence[Job]) -> None:
    """Add the jobs and tell each its id. All are checked before the first is written; a refusal for a
    parent that is missing is raised when all others are added."""
    rows = Rows.of(row_of(job) for job in jobs)
    answers = await submit_rows(queue.store, queue.queueKeys, rows)
    refusal: Exception | None = None
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, Refused):
            refusal = refusal or refused(answer, job)
        else:
            job.id = answer
    if refusal is not None:
        raise refusal


def refused(error: Refused, job: Job) -> Exception:
    """Why a job was not added, in the official client's words."""
    code = code_of(error)
    if code is None:
        return error
    return raised(code, "addJob", job=job.id or "", parent=job.parentKey or "")
