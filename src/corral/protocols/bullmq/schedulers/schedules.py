"""The bullmq protocol's Schedules: its own job schedulers, whose jobs the workers of any client make."""

from msgspec.structs import replace

from corral.core import payload
from corral.core.job import Job
from corral.core.ports import Added
from corral.core.schedule import Schedule, ScheduleRule
from corral.errors import Unsupported
from corral.protocols.base import Binding
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.keys import NAME
from corral.protocols.bullmq.options import LACKS, LONG_NAMES, decode_options, encode_options
from corral.protocols.bullmq.schedulers.job_schedulers import JobSchedulers, SchedulerRecord


class BullmqSchedules:
    """Job schedulers as schedules."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._schedulers = JobSchedulers(binding)

    async def list(self) -> list[Schedule]:
        return [self._schedule(record) for record in await self._schedulers.all(ascending=True)]

    async def upsert(self, job: Job, rule: ScheduleRule) -> str:
        if rule.catch_up != "once":
            raise Unsupported(
                f"protocol {NAME!r} makes up for the last missed firing only, so catch_up={rule.catch_up!r} "
                f"cannot be kept; use catch_up='once'"
            )
        if job.options.group is not None:
            raise Unsupported(
                f"the jobs of a schedule of protocol {NAME!r} have no group, so "
                f"group={job.options.group!r} cannot be kept; leave it out"
            )
        before = await self._schedulers.get(job.id)
        after = self._record(job, rule)
        if before is None or after != _comparable(before):
            repeat = {"pattern": rule.cron, "tz": rule.timezone, "every": rule.every_ms}
            await self._schedulers.upsert(job.id, repeat, name=job.name, data=job.data, options=after.options)
        if before is None:
            return "added"
        return "kept" if _rule(before) == rule else "changed"

    def _record(self, job: Job, rule: ScheduleRule) -> SchedulerRecord:
        """Return the scheduler that a schedule becomes, but for its times and numbers."""
        wire = encode_options(job.options, "")
        options = {LONG_NAMES.get(name, name): value for name, value in wire.items()}
        return SchedulerRecord(
            id=job.id,
            name=job.name,
            next=None,
            every=rule.every_ms,
            pattern=rule.cron,
            zone=rule.timezone,
            data=payload.decode(payload.encode(job.data, "data")) or None,
            options=payload.decode(payload.encode(options, "options")),
        )

    async def remove(self, schedule_id: str) -> bool:
        return await self._schedulers.remove(schedule_id)

    async def pause(self, schedule_id: str) -> bool:
        raise LACKS["pause-schedule"].error(NAME)

    async def resume(self, schedule_id: str) -> bool:
        return await self.pause(schedule_id)

    async def run_now(self, schedule_id: str) -> str | None:
        record = await self._schedulers.get(schedule_id)
        if record is None:
            return None
        # an ordinary job: the scheduler's own next one stays as it is
        job = replace(self._schedule(record).job, id="", created_at=self._binding.clock(), extra={})
        [added] = await BullmqBroker(self._binding).submit([job])
        assert isinstance(added, Added)
        return added.id

    def firing_id(self, schedule_id: str, at: int) -> str:
        return f"repeat:{schedule_id}:{at}"

    def _schedule(self, record: SchedulerRecord) -> Schedule:
        wire = {
            "pattern": record.pattern,
            "tz": record.zone,
            "every": record.every,
            "limit": record.limit,
            "count": record.count,
        }
        job = Job(
            name=record.name or record.id,
            data={} if record.data is None else record.data,
            queue=self._binding.queue,
            id=record.id,
            options=decode_options(payload.encode(record.options or {}, "options")),
            extra={word: value for word, value in wire.items() if value is not None},
        )
        return Schedule(id=record.id, job=job, next_at=record.next, rule=_rule(record))


def _comparable(record: SchedulerRecord) -> SchedulerRecord:
    return replace(record, next=None, start=None, offset=None, count=None)


def _rule(record: SchedulerRecord) -> ScheduleRule:
    return ScheduleRule(cron=record.pattern, timezone=record.zone, every_ms=record.every)
