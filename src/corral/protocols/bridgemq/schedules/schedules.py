"""The bridgemq protocol's Schedules: cron jobs that the leader among the workers fires."""

from msgspec.structs import replace

from corral.core.job import Job
from corral.core.options import Capability, require
from corral.core.schedule import Schedule, ScheduleRule
from corral.errors import InvalidName, InvalidOptions
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.inspector import BridgemqInspector
from corral.protocols.bridgemq.keys import NAME, instance_id
from corral.protocols.bridgemq.operator import BridgemqOperator
from corral.protocols.bridgemq.options import CAPABILITIES, check_group, parse_options
from corral.protocols.bridgemq.schedules.firing import describe, encode_firing, read_schedule
from corral.protocols.bridgemq.scripts import SCRIPTS, BridgemqPort
from corral.protocols.wire import fields_of


class BridgemqSchedules(BridgemqPort):
    """The schedules of one queue."""

    async def list(self) -> list[Schedule]:
        scores = fields_of(await self._store.call("ZRANGE", self._keys.cron, 0, -1, "WITHSCORES"))
        leases = fields_of(await self._store.call("HGETALL", self._keys.leases))
        jobs = await BridgemqInspector(self._binding).read_jobs(list(scores), self._binding.queue)
        return [
            Schedule(id=job.id, job=job, rule=_rule(job), next_at=_due(float(scores[raw]), leases.get(raw)))
            for job, raw in ((job, job.id.encode()) for job in jobs)
        ]

    async def upsert(self, job: Job, rule: ScheduleRule) -> str:
        """Add a schedule, or change it; where its cron and time zone are as before, so is its next firing."""
        if not job.id:
            raise InvalidName("a schedule needs an id of its own, such as the job's name")
        if rule.every_ms is not None:
            require(NAME, CAPABILITIES, Capability.INTERVAL, f"every={rule.every_ms}")
        when = {"cron": rule.cron, "timezone": rule.timezone, "catch_up": rule.catch_up}
        options = replace(job.options, extra={**job.options.extra, **when})
        now = self._binding.clock()
        own = parse_options(options.extra, now)
        check_group(options)
        if own.cron is None or job.options.delay:
            raise InvalidOptions(f"schedule {job.id!r} needs a cron and takes no delay; give cron='…'")
        raw = codec.encode_raw(replace(job, options=options), job.id, own, now)
        answer: bytes = await self._store.run(
            SCRIPTS["schedule"],
            [*self._keys.fixed, self._keys.leases],
            (*self._head(), self._binding.queue, job.id, raw, own.next_fire, own.cron.text,
             own.cron.zone, job.name),
        )  # fmt: skip
        if answer == b"taken":
            raise InvalidName(f"job {job.id!r} exists and is no schedule; give the schedule another id")
        return answer.decode()

    async def remove(self, schedule_id: str) -> bool:
        if not await self._exists(schedule_id):
            return False
        return bool(await BridgemqOperator(self._binding).remove([schedule_id]))

    async def pause(self, schedule_id: str) -> bool:
        return await self._set_due(schedule_id, "+inf")

    async def resume(self, schedule_id: str) -> bool:
        raw = await self._store.call("GET", self._keys.data(schedule_id))
        if raw is None:
            return False
        cron, _ = read_schedule(raw)
        return await self._set_due(schedule_id, cron.next_after(self._binding.clock()) or "+inf")

    async def run_now(self, schedule_id: str) -> str | None:
        raw = await self._store.call("GET", self._keys.data(schedule_id))
        if raw is None or not await self._exists(schedule_id):
            return None
        now = self._binding.clock()
        job_id, firing = encode_firing(raw, schedule_id, now, now)
        await self._run("run_now", job_id, firing, *describe(raw))
        return job_id

    def firing_id(self, schedule_id: str, at: int) -> str:
        return instance_id(schedule_id, at)

    async def _exists(self, schedule_id: str) -> bool:
        return await self._store.call("ZSCORE", self._keys.cron, schedule_id) is not None

    async def _set_due(self, schedule_id: str, due: int | str) -> bool:
        names = [*self._keys.fixed, self._keys.leases]
        return bool(await self._store.run(SCRIPTS["set_due"], names, (*self._head(), schedule_id, due)))


def _rule(job: Job) -> ScheduleRule:
    extra = job.options.extra
    return ScheduleRule(
        cron=extra.get("cron"),
        timezone=extra.get("timezone"),
        catch_up=extra.get("catch_up") or "once",
    )


def _due(score: float, lease: bytes | None) -> int | None:
    """Return when a schedule fires next; while it is leased, when it was due."""
    if score > 1e15:
        return None
    due, _, leased = (lease or b"").partition(b":")
    return int(due) if leased and int(leased) == int(score) else int(score)
