"""The bridgemq protocol's Schedules: cron jobs that the leader among the workers fires."""

from typing import Any

from msgspec.structs import replace

from corral.core.job import Job
from corral.core.options import Capability, require
from corral.core.schedule import Schedule, ScheduleRule
from corral.errors import InvalidName, InvalidOptions
from corral.protocols.base import Binding
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.broker import SCRIPTS, head
from corral.protocols.bridgemq.inspector import BridgemqInspector
from corral.protocols.bridgemq.keys import NAME, Keys
from corral.protocols.bridgemq.operator import BridgemqOperator
from corral.protocols.bridgemq.options import CAPABILITIES, Settings, wanted
from corral.protocols.bridgemq.scheduling import describe, encode_firing, read_schedule


class BridgemqSchedules:
    """The schedules of one queue."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    def _head(self) -> tuple[Any, ...]:
        return head(self._binding, self._settings)

    async def list(self) -> list[Schedule]:
        flat = await self._store.call("ZRANGE", self._keys.part("jobs:cron"), 0, -1, "WITHSCORES")
        scores = dict(zip(flat[::2], map(float, flat[1::2]), strict=True))
        flat = await self._store.call("HGETALL", self._keys.scheduler[2])
        leases = dict(zip(flat[::2], flat[1::2], strict=True))
        inspector = BridgemqInspector(self._binding)
        return [
            Schedule(id=job.id, job=job, rule=_rule(job), next_at=_due(scores[raw], leases.get(raw)))
            for job in await inspector.read_jobs(list(scores), self._binding.queue)
            for raw in [job.id.encode()]
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
        asked = wanted(options.extra, now)
        if asked.cron is None or job.options.delay:
            raise InvalidOptions(f"schedule {job.id!r} needs a cron and takes no delay; give cron='…'")
        raw = codec.encode_raw(replace(job, options=options), job.id, asked, now)
        answer: bytes = await self._store.run(
            SCRIPTS["schedule"],
            [*self._keys.fixed, self._keys.scheduler[2]],
            (*self._head(), self._binding.queue, job.id, raw, asked.next_fire, asked.cron.text,
             asked.cron.zone, job.name),
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
        await self._store.run(
            SCRIPTS["run_now"], self._keys.fixed, (*self._head(), job_id, firing, *describe(raw))
        )
        return job_id

    async def _exists(self, schedule_id: str) -> bool:
        return await self._store.call("ZSCORE", self._keys.part("jobs:cron"), schedule_id) is not None

    async def _set_due(self, schedule_id: str, due: int | str) -> bool:
        names = [*self._keys.fixed, self._keys.scheduler[2]]
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
