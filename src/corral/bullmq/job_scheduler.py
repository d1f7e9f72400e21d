"""JobScheduler: jobs that repeat by a pattern or at an interval."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import orjson
from msgspec.structs import asdict

from corral.bullmq.error_code import official_errors
from corral.bullmq.job import Job
from corral.bullmq.options import encode_data, long_options
from corral.bullmq.queue_base import QueueBase
from corral.bullmq.types import JobOptions, RepeatOptions
from corral.protocols.bullmq.options import encode_options
from corral.protocols.bullmq.schedulers.job_schedulers import JobSchedulers, SchedulerRecord
from corral.protocols.bullmq.schedulers.repeat import milliseconds

_NAMES = {
    "id": "key", "name": "name", "next": "next", "count": "iterationCount", "limit": "limit",
    "start": "startDate", "end": "endDate", "zone": "tz", "pattern": "pattern", "every": "every",
    "offset": "offset",
}  # fmt: skip
"""The official client's name for each field of a scheduler."""


class JobScheduler:
    """The schedulers of one queue; a Queue has the same methods."""

    def __init__(self, queue: QueueBase) -> None:
        self.queue = queue

    @cached_property
    def _schedulers(self) -> JobSchedulers:
        return JobSchedulers(self.queue.binding())

    async def upsertJobScheduler(
        self,
        job_scheduler_id: str,
        repeat_opts: RepeatOptions,
        job_name: str | None = None,
        job_data: Any = None,
        opts: JobOptions | None = None,
        override: bool = True,
        producer_id: str | None = None,
    ) -> Job | None:
        """Create or change a scheduler; return its next job, or None if its limit or its end is reached.

        `repeat_opts`: `every` (ms) or `pattern` (cron, with `tz`), `limit`, `startDate`, `endDate`,
        `immediately`. `override` and `producer_id` must keep their defaults: workers add the next job of a
        scheduler by themselves.
        """
        check_repeat(repeat_opts)
        if not override or producer_id is not None:
            raise ValueError(
                "override=False and producer_id are not supported: the worker that claims a scheduler's job "
                "adds the next; leave both out"
            )
        await self.queue.connection.check_clock()
        end = milliseconds("endDate", repeat_opts.get("endDate"))
        if end is not None and end < self.queue.connection.clock():
            return None
        data = None if job_data is None else orjson.Fragment(encode_data(job_data))
        with official_errors("addJobScheduler"):
            following = await self._schedulers.upsert(
                job_scheduler_id, repeat_opts, name=job_name or job_scheduler_id, data=data, options=opts
            )
        if following is None:
            return None
        wire = long_options(encode_options(following.options, following.id))
        options = {**wire, "timestamp": following.created_at, "repeatJobKey": job_scheduler_id}
        return Job(self.queue, following.name, {} if job_data is None else job_data, options, following.id)

    async def removeJobScheduler(self, job_scheduler_id: str) -> int:
        """Delete a scheduler and its next job; return 0, or 1 if there is none."""
        return int(not await self._schedulers.remove(job_scheduler_id))

    async def isJobScheduler(self, job_scheduler_id: str) -> bool:
        """Return whether there is a scheduler with this id."""
        key = self.queue.toKey(f"repeat:{job_scheduler_id}")
        return bool(await self.queue.store.call("HEXISTS", key, "ic"))

    async def getScheduler(self, job_scheduler_id: str) -> dict[str, Any] | None:
        """Return one scheduler; None if there is none."""
        scheduler = await self._schedulers.get(job_scheduler_id)
        return None if scheduler is None else to_json(scheduler)

    async def getJobSchedulers(
        self, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[dict[str, Any]]:
        """Return schedulers by their next time, the latest first unless `asc`."""
        return [to_json(scheduler) for scheduler in await self._schedulers.all(start, end, asc)]

    async def getSchedulersCount(self) -> int:
        """Return the number of schedulers."""
        return await self._schedulers.count()


def check_repeat(repeat: Mapping[str, Any]) -> None:
    """Raise ValueError, with the message of BullMQ 5.62.0, where a scheduler cannot have these options."""
    pattern, every = repeat.get("pattern"), repeat.get("every")
    if pattern and every:
        raise ValueError("Both .pattern and .every options are defined for this repeatable job")
    if not pattern and not every:
        raise ValueError("Either .pattern or .every options must be defined for this repeatable job")
    if repeat.get("immediately") and repeat.get("startDate"):
        raise ValueError("Both .immediately and .startDate options are defined for this repeatable job")


def to_json(scheduler: SchedulerRecord) -> dict[str, Any]:
    """Return a scheduler as a `JobSchedulerJson`, without the fields it does not have."""
    if scheduler.name is None and ":" in scheduler.id:
        return _legacy_to_json(scheduler.id, scheduler.next)
    fields = asdict(scheduler)
    required = ("key", "name", "next")
    json = {
        name: fields[field] for field, name in _NAMES.items() if name in required or fields[field] is not None
    }
    template = {"data": scheduler.data, "opts": scheduler.options}
    if template := {name: value for name, value in template.items() if value is not None}:
        json["template"] = template
    return json


def _legacy_to_json(key: str, due: int | None) -> dict[str, Any]:
    """Return a repeatable job of earlier versions, whose key holds all its fields."""
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
