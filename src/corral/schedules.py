"""ScheduledJob: jobs of an app that come by themselves."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from corral.core import naming
from corral.core.cron import Cron
from corral.core.job import Job
from corral.core.keeper import Schedule, Timekeeper
from corral.core.options import Capability, require
from corral.errors import InvalidName, Unsupported, short_repr
from corral.protocols.binding import Binding
from corral.queue import Queue
from corral.store.client import Store

if TYPE_CHECKING:
    from corral.app import Corral


class ScheduledJob:
    """A schedule as a program declares it; it is written when the app runs, or by `start`.

    >>> report = app.schedule("report", cron="*/5 * * * *", timezone="Europe/Berlin")   # doctest: +SKIP
    >>> await report.start()                                                            # doctest: +SKIP
    'added'
    """

    def __init__(self, queue: Queue, binding: Binding, job: Job) -> None:
        self.queue = queue
        self.job = job
        """What it fires."""
        self._binding = binding

    @property
    def id(self) -> str:
        return self.job.id

    def __repr__(self) -> str:
        cron = self.job.options.extra["cron"]
        return f"ScheduledJob({self.id!r}, cron={cron!r}, queue={self.queue.name!r})"

    async def start(self, store: Store | None = None) -> str:
        """Write it down: "added", "changed", or "kept" where cron and zone are as before."""
        return await self._timekeeper(store).schedule(self.job)

    async def stop(self) -> bool:
        """Delete it; what it fired stays. Was there one?"""
        return await self._timekeeper().unschedule(self.id)

    async def pause(self) -> bool:
        """No firings until it is resumed; what falls between is not made up for. Is there one?"""
        return await self._timekeeper().pause_schedule(self.id)

    async def resume(self) -> bool:
        """Firings again, from now on. Is there one?"""
        return await self._timekeeper().resume_schedule(self.id)

    async def run_now(self) -> str | None:
        """Fire once, besides its own times; the id of that job, or None: it was never started."""
        return await self._timekeeper().run_now(self.id)

    def _timekeeper(self, store: Store | None = None) -> Timekeeper:
        make = self.queue.protocol.timekeeper
        assert make is not None
        return make(self._binding if store is None else replace(self._binding, store=store))


def declare(
    queue: Queue, binding: Binding, name: str, data: Any, job_id: str | None, options: Mapping[str, Any]
) -> ScheduledJob:
    """A schedule, checked; refused where its protocol has none, or where the protocol could not keep it."""
    protocol = queue.protocol
    require(protocol.name, protocol.capabilities, Capability.CRON, f"cron={short_repr(options.get('cron'))}")
    now = binding.clock()
    Cron.parse(options.get("cron"))  # to an option, None would mean "not given"
    checked = queue.options(options)
    protocol.check(checked, now)
    job = Job(
        name=naming.check_job_name(name),
        data={} if data is None else data,
        queue=queue.name,
        id=_checked_id(name) if job_id is None else naming.check_id(job_id),
        options=checked,
        created_at=now,
    )
    return ScheduledJob(queue, binding, job)


def _checked_id(name: str) -> str:
    """The job's name as the schedule's id."""
    try:
        return naming.check_id(name)
    except InvalidName as error:
        raise InvalidName(f"{error}; or give the schedule an id of its own: id='…'") from None


# -- schedules that are there already -----------------------------------------------------------------------


async def run_now(app: "Corral", queue: Queue, schedule: Schedule) -> str | None:
    """Fire a schedule once, besides its own times; the id of that job, or None: it is gone."""
    timekeeper = _timekeeper_of(app, queue)
    if timekeeper is not None:
        return await timekeeper.run_now(schedule.id)
    # where workers make the jobs of a schedule as they claim, one more of them is a job like any other
    job = msgspec.structs.replace(schedule.job, id="", created_at=app.clock(), extra={})
    [job_id] = await app.broker(queue).submit([job])
    return job_id


async def set_paused(app: "Corral", queue: Queue, schedule_id: str, is_paused: bool) -> bool:
    """No firings of a schedule until it is resumed, or firings again from now on. Is there one?"""
    timekeeper = _timekeeper_of(app, queue)
    if timekeeper is None:
        raise Unsupported(
            f"protocol {queue.protocol.name!r} has no word for a paused schedule; "
            f"pause the whole queue, or remove the schedule where it is made"
        )
    act = timekeeper.pause_schedule if is_paused else timekeeper.resume_schedule
    return await act(schedule_id)


def _timekeeper_of(app: "Corral", queue: Queue) -> Timekeeper | None:
    make = queue.protocol.timekeeper
    return None if make is None else make(app.binding(queue))
