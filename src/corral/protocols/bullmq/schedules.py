"""The bullmq protocol's Schedules: its own job schedulers."""

from msgspec.structs import replace

from corral.core import payload
from corral.core.job import Job
from corral.core.schedule import Schedule, ScheduleRule
from corral.errors import Refused, Unsupported
from corral.protocols.base import Binding
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.keys import NAME
from corral.protocols.bullmq.options import LONG_NAMES, decode_options, encode_options
from corral.protocols.bullmq.schedulers import BullmqSchedulers, Scheduler

PAUSE = (
    f"protocol {NAME!r} has no word for a paused schedule; "
    f"pause the whole queue, or remove the schedule where it is made"
)


class BullmqSchedules:
    """Job schedulers as schedules. Workers of any client make their jobs."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._schedulers = BullmqSchedulers(binding)

    async def list(self) -> list[Schedule]:
        return [self._schedule(one) for one in await self._schedulers.all(ascending=True)]

    async def upsert(self, job: Job, rule: ScheduleRule) -> str:
        if rule.catch_up != "once":
            raise Unsupported(
                f"protocol {NAME!r} makes up for the last missed firing only, so catch_up={rule.catch_up!r} "
                f"cannot be kept; use catch_up='once'"
            )
        repeat = {"pattern": rule.cron, "tz": rule.timezone, "every": rule.every_ms}
        before = await self._schedulers.get(job.id)
        wire = encode_options(job.options, "")
        options = {LONG_NAMES.get(name, name): value for name, value in wire.items()}
        await self._schedulers.upsert(job.id, repeat, name=job.name, data=job.data, options=options)
        if before is None:
            return "added"
        return "kept" if _rule(before) == rule else "changed"

    async def remove(self, schedule_id: str) -> bool:
        return await self._schedulers.remove(schedule_id)

    async def pause(self, schedule_id: str) -> bool:
        raise Unsupported(PAUSE)

    async def resume(self, schedule_id: str) -> bool:
        raise Unsupported(PAUSE)

    async def run_now(self, schedule_id: str) -> str | None:
        scheduler = await self._schedulers.get(schedule_id)
        if scheduler is None:
            return None
        # one more of its jobs is a job like any other: workers make the scheduler's own as they claim
        job = replace(self._schedule(scheduler).job, id="", created_at=self._binding.clock(), extra={})
        [added] = await BullmqBroker(self._binding).submit([job])
        assert not isinstance(added, Refused)
        return added.id

    def _schedule(self, scheduler: Scheduler) -> Schedule:
        wire = {
            "pattern": scheduler.pattern,
            "tz": scheduler.zone,
            "every": scheduler.every,
            "limit": scheduler.limit,
            "count": scheduler.count,
        }
        job = Job(
            name=scheduler.name or scheduler.id,
            data={} if scheduler.data is None else scheduler.data,
            queue=self._binding.queue,
            id=scheduler.id,
            options=decode_options(payload.encode(scheduler.options or {}, "options")),
            extra={word: value for word, value in wire.items() if value is not None},
        )
        return Schedule(id=scheduler.id, job=job, next_at=scheduler.next, rule=_rule(scheduler))


def _rule(scheduler: Scheduler) -> ScheduleRule:
    return ScheduleRule(cron=scheduler.pattern, timezone=scheduler.zone, every_ms=scheduler.every)
