"""What can be read of a queue."""

from collections.abc import Sequence
from typing import Any

from corral.bullmq.job import Job
from corral.bullmq.queue_base import QueueBase, as_text
from corral.bullmq.queue_events import SUFFIX
from corral.protocols.bullmq.reads import STATES

Types = Sequence[str] | str


class QueueGetters(QueueBase):
    """Jobs, counts, logs, metrics, settings, and who is connected."""

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
