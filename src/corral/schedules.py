"""ScheduledJob: a schedule that an app declares."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from corral.core import naming
from corral.core.cron import Cron
from corral.core.job import Job
from corral.core.options import Capability, require
from corral.core.ports import Schedules
from corral.core.schedule import CATCH_UPS, ScheduleRule
from corral.errors import InvalidName, InvalidOptions, short_repr
from corral.queue import Queue


class ScheduledJob:
    """A schedule as a program declares it; it is written when the app runs, or by `start`.

    >>> report = app.schedule("report", cron="*/5 * * * *", timezone="Europe/Berlin")   # doctest: +SKIP
    >>> await report.start()                                                            # doctest: +SKIP
    'added'
    """

    def __init__(self, queue: Queue, job: Job, rule: ScheduleRule) -> None:
        self.queue = queue
        self.job = job
        """The job it adds."""
        self.rule = rule

    @property
    def id(self) -> str:
        return self.job.id

    def __repr__(self) -> str:
        rule = self.rule
        when = f"cron={rule.cron!r}" if rule.every_ms is None else f"every={rule.every_ms}"
        return f"ScheduledJob({self.id!r}, {when}, queue={self.queue.name!r})"

    async def start(self, schedules: Schedules | None = None) -> str:
        """Write it: "added", "changed", or "kept" where its rule is as before."""
        return await (schedules or self.queue.schedules).upsert(self.job, self.rule)

    async def stop(self) -> bool:
        """Delete it; jobs it has added stay. Return whether it existed."""
        return await self.queue.schedules.remove(self.id)

    async def pause(self) -> bool:
        """Stop firings until it is resumed; those in between are skipped. Return whether it exists."""
        return await self.queue.schedules.pause(self.id)

    async def resume(self) -> bool:
        """Fire again, from now on. Return whether it exists."""
        return await self.queue.schedules.resume(self.id)

    async def run_now(self) -> str | None:
        """Fire once, besides its own times; return the id of that job, None where it was never started."""
        return await self.queue.schedules.run_now(self.id)


def declare(
    queue: Queue,
    name: str,
    data: Any,
    job_id: str | None,
    rule: ScheduleRule,
    options: Mapping[str, Any],
    now: int,
) -> ScheduledJob:
    """Return a checked schedule; refused where its protocol has none, or could not keep it."""
    checked = queue.options(options)
    check_rule(queue, rule, now)
    if checked.delay:
        when = f"cron {rule.cron!r}" if rule.every_ms is None else f"every={rule.every_ms}"
        raise InvalidOptions(f"{when} and delay={checked.delay}: give one of them")
    if checked.unique is not None:
        raise InvalidOptions(
            "a schedule adds each of its jobs once, so unique, throttle and debounce are not for it; "
            "where they are the handler's, give None: unique=None"
        )
    queue.protocol.check(checked, now)
    job = Job(
        name=naming.check_job_name(name),
        data={} if data is None else data,
        queue=queue.name,
        id=_checked_id(name) if job_id is None else naming.check_id(job_id),
        options=checked,
        created_at=now,
    )
    return ScheduledJob(queue, job, rule)


def check_rule(queue: Queue, rule: ScheduleRule, now: int) -> None:
    """Refuse a rule that makes no sense, or that the queue's protocol has no word for."""
    spec = queue.protocol.spec
    if rule.every_ms is not None:
        require(spec.name, spec.capabilities, Capability.INTERVAL, f"every={short_repr(rule.every_ms)}")
        if rule.cron is not None:
            raise InvalidOptions(f"cron {rule.cron!r} and every={rule.every_ms}: give one of them")
        if type(rule.every_ms) is not int or rule.every_ms < 1:
            raise InvalidOptions(
                f"every is {short_repr(rule.every_ms)}; use whole milliseconds from 1, or a timedelta"
            )
    else:
        require(spec.name, spec.capabilities, Capability.CRON, f"cron={short_repr(rule.cron)}")
        cron = Cron.parse(rule.cron, rule.timezone or "UTC")
        if cron.next_after(now) is None:
            raise InvalidOptions(f"cron {cron.text!r} never fires; name a day that exists")
    if rule.catch_up not in CATCH_UPS:
        raise InvalidOptions(
            f"catch_up is {short_repr(rule.catch_up)}; use {', '.join(map(repr, CATCH_UPS))}"
        )


def rule_of(cron: str | None, timezone: str, every: int | timedelta | None, catch_up: str) -> ScheduleRule:
    """Return the rule of these arguments; a time zone goes with a cron expression only."""
    if every is None:
        return ScheduleRule(cron=cron, timezone=timezone, catch_up=catch_up)
    return ScheduleRule(cron=cron, every_ms=every, catch_up=catch_up)


def _checked_id(name: str) -> str:
    """Return the job's name as the schedule's id."""
    try:
        return naming.check_id(name)
    except InvalidName as error:
        raise InvalidName(f"{error}; or give the schedule an id of its own: id='…'") from None
