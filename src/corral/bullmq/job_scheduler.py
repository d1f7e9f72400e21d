"""JobScheduler: what makes jobs of its own, by a pattern or every so often."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import orjson

from corral.bullmq.error_code import told
from corral.bullmq.job import Job
from corral.bullmq.options import encode_data, long_options
from corral.bullmq.queue_base import QueueBase
from corral.protocols.bullmq.options import encode_options
from corral.protocols.bullmq.repeats import milliseconds
from corral.protocols.bullmq.schedulers import BullmqSchedulers, Scheduler
from corral.worker.worker import wall_clock

_PARTS = {
    "iterationCount": "count", "limit": "limit", "startDate": "start", "endDate": "end", "tz": "zone",
    "pattern": "pattern", "every": "every", "offset": "offset",
}  # fmt: skip


class JobScheduler:
    """The schedulers of one queue; a Queue has the same methods."""

    def __init__(self, queue: QueueBase) -> None:
        self.queue = queue

    @cached_property
    def _schedulers(self) -> BullmqSchedulers:
        return BullmqSchedulers(self.queue.binding())

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
        """The scheduler's next job; None where no job follows (its limit is reached).

        `repeat_opts`: `every` (ms) or `pattern` (cron, with `tz`), `limit`, `startDate`, `endDate`,
        `immediately`. `override` and `producer_id` are for workers that carry a scheduler on by hand; here
        they do so by themselves.
        """
        check(repeat_opts)
        if not override or producer_id is not None:
            raise ValueError("a scheduler is carried on by whoever claims its job; leave override as it is")
        data = None if job_data is None else orjson.Fragment(encode_data(job_data))
        with told("addJobScheduler"):
            made = await self._schedulers.upsert(
                job_scheduler_id, repeat_opts, name=job_name or job_scheduler_id, data=data, options=opts
            )
        if made is None:
            return None
        wire = long_options(encode_options(made.options, made.id))
        job = Job(self.queue, made.name, job_data, {**wire, "timestamp": made.created_at}, made.id)
        job.repeatJobKey = job_scheduler_id
        return job

    async def removeJobScheduler(self, job_scheduler_id: str) -> int:
        """Delete a scheduler and its next job; 0, or 1 where there is none."""
        return int(not await self._schedulers.remove(job_scheduler_id))

    async def isJobScheduler(self, job_scheduler_id: str) -> bool:
        """Is there a scheduler with this id?"""
        key = self.queue.toKey(f"repeat:{job_scheduler_id}")
        return bool(await self.queue.store.call("HEXISTS", key, "ic"))

    async def getScheduler(self, job_scheduler_id: str) -> dict[str, Any] | None:
        """One scheduler; None where there is none."""
        found = await self._schedulers.get(job_scheduler_id)
        return None if found is None else shown(found)

    async def getJobSchedulers(
        self, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[dict[str, Any]]:
        """Schedulers by when they are due, the last first unless `asc`."""
        return [shown(found) for found in await self._schedulers.all(start, end, asc)]

    async def getSchedulersCount(self) -> int:
        """How many schedulers there are."""
        return await self._schedulers.count()


def check(repeat: Mapping[str, Any]) -> None:
    """ValueError, in 5.62.0's words, where a scheduler cannot have these options."""
    pattern, every = repeat.get("pattern"), repeat.get("every")
    if pattern and every:
        raise ValueError("Both .pattern and .every options are defined for this repeatable job")
    if not pattern and not every:
        raise ValueError("Either .pattern or .every options must be defined for this repeatable job")
    if repeat.get("immediately") and repeat.get("startDate"):
        raise ValueError("Both .immediately and .startDate options are defined for this repeatable job")
    end = milliseconds("endDate", repeat.get("endDate"))
    if end is not None and end < wall_clock():
        raise ValueError("End date must be greater than current timestamp")


def shown(scheduler: Scheduler) -> dict[str, Any]:
    """A scheduler as a plain dict, without what it has not."""
    if scheduler.name is None and ":" in scheduler.id:
        return _of_an_older_generation(scheduler.id, scheduler.next)
    found: dict[str, Any] = {"key": scheduler.id, "name": scheduler.name, "next": scheduler.next}
    for name, part in _PARTS.items():
        value = getattr(scheduler, part)
        if value is not None:
            found[name] = value
    template = {"data": scheduler.data, "opts": scheduler.options}
    if given := {name: value for name, value in template.items() if value is not None}:
        found["template"] = given
    return found


def _of_an_older_generation(key: str, due: int | None) -> dict[str, Any]:
    """A repeatable job of former versions, which kept all it was in the name of its key."""
    name, job_id, end, zone, *pattern = (*key.split(":"), "", "", "")
    return {
        "key": key,
        "name": name,
        "id": job_id or None,
        "endDate": int(end) if end.isdecimal() else None,
        "tz": zone or None,
        "pattern": ":".join(part for part in pattern if part) or None,
        "next": due,
    }
