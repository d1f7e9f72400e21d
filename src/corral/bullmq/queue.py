"""Queue: what producers and operators hold."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from corral.bullmq.adding import add_jobs
from corral.bullmq.errors import told
from corral.bullmq.job import Job
from corral.bullmq.job_scheduler import JobScheduler
from corral.bullmq.queue_getters import QueueGetters
from corral.errors import QueueInUse


class Queue(QueueGetters):
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
