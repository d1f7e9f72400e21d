"""Schedules on their way: recorded at the source, removed there, added at the target."""

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from corral.core.job import Job, JobOptions
from corral.core.options import Capability
from corral.core.ports import Schedules
from corral.core.schedule import Schedule, ScheduleRule
from corral.core.transfer import HeldJob, HoldingPort, Run, Transfer
from corral.migrate.fit import Fit
from corral.migrate.report import MoveReport

WHEN = ("cron", "timezone", "catch_up")
"""Options that the rule of a schedule has."""


class ScheduleDocument(Struct, frozen=True, kw_only=True):
    """A schedule as the record of a run keeps it while it is neither here nor there."""

    job: Job
    rule: ScheduleRule
    is_paused: bool


class ScheduleMover:
    """Moves the schedules of a queue, one at a time."""

    def __init__(
        self,
        holding: HoldingPort,
        source: Schedules,
        target: Schedules | None,
        fit: Fit,
        transfer: Transfer,
    ) -> None:
        self._holding = holding
        self._source = source
        self._target = target
        self._fit = fit
        self._transfer = transfer

    async def survey(self, report: MoveReport) -> None:
        """Count the schedules that can be moved, and those that cannot."""
        for schedule in await self._source.list():
            reason = await self._why_not(schedule)
            if reason:
                report.leave(reason, schedule.id)
            else:
                report.schedules += 1

    async def move(self, run: Run, report: MoveReport, is_only_resumed: bool = False) -> None:
        """Move every schedule that fits, those first that an interrupted process had on their way."""
        for raw in run.schedules.values():
            await self._arrive(msgspec.json.decode(raw, type=ScheduleDocument), report)
        for schedule in [] if is_only_resumed else await self._source.list():
            reason = await self._why_not(schedule)
            if reason:
                report.leave(reason, schedule.id)
                continue
            document = ScheduleDocument(
                job=self._adapted(schedule), rule=schedule.rule, is_paused=schedule.next_at is None
            )
            await self._holding.keep_schedule(schedule.id, msgspec.json.encode(document))
            await self._arrive(document, report)

    async def _arrive(self, document: ScheduleDocument, report: MoveReport) -> None:
        assert self._target is not None
        schedule_id = document.job.id
        await self._source.remove(schedule_id)
        await self._target.upsert(document.job, document.rule)
        if document.is_paused:
            await self._target.pause(schedule_id)
        await self._holding.drop_schedule(schedule_id)
        report.schedules += 1

    async def _why_not(self, schedule: Schedule) -> str:
        """Return why a schedule cannot be moved; empty where it can."""
        spec, rule = self._fit.target.spec, schedule.rule
        if self._target is None:
            return f"schedule: protocol {spec.name!r} has no schedules"
        if rule.every_ms is not None and Capability.INTERVAL not in spec.capabilities:
            return f"schedule: protocol {spec.name!r} has no intervals; use a cron expression"
        if rule.catch_up != "once" and "catch_up" not in spec.options:
            return f"schedule: protocol {spec.name!r} makes up for the last missed firing only"
        if schedule.next_at is None and "pause-schedule" in spec.lacks:
            return f"schedule: it is paused, and protocol {spec.name!r} cannot pause one"
        if "limit" in schedule.job.extra:
            return "schedule: it has a limit of firings, which is not kept by a move"
        if any(known.id == schedule.id for known in await self._target.list()):
            return "schedule: the target has one of this id"
        held = HeldJob(receipt=b"", batch="", job=self._bare(schedule), protocol=self._fit.source)
        misfits = self._fit.misfits(held, self._transfer)
        if self._fit.adapted(held, misfits) is None:
            return f"schedule: {misfits[0].part}: {misfits[0].reason}"
        return ""

    def _bare(self, schedule: Schedule) -> Job:
        """Return the job of a schedule without its times."""
        options = schedule.job.options
        extra = {name: value for name, value in options.extra.items() if name not in WHEN}
        return replace(
            schedule.job, id=schedule.id, options=replace(options, extra=extra), state=None, extra={}
        )

    def _adapted(self, schedule: Schedule) -> Job:
        held = HeldJob(receipt=b"", batch="", job=self._bare(schedule), protocol=self._fit.source)
        adapted = self._fit.adapted(held, self._fit.misfits(held, self._transfer))
        assert adapted is not None
        options = adapted.job.options
        if type(options) is not JobOptions:
            shared = {name: value for name, value in msgspec.structs.asdict(options).items() if name != "raw"}
            options = JobOptions(**shared)
        return replace(adapted.job, options=options)
