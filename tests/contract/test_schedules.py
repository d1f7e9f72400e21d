"""Schedules: the same verbs in every protocol that has them, and a clear refusal in the others."""

import pytest

from corral.core.options import Capability
from corral.core.ports import Schedules
from corral.core.schedule import ScheduleRule
from corral.errors import Unsupported
from tests.support.harness import QueueHarness

YEARLY = ScheduleRule(cron="0 0 1 1 *", timezone="UTC")


def schedules_of(harness: QueueHarness) -> Schedules:
    schedules = harness.protocol.bind(harness.binding()).schedules
    if schedules is None:
        assert not harness.can(Capability.CRON)
        pytest.skip("this protocol has no schedules")
    return schedules


async def test_a_protocol_has_schedules_where_it_has_cron(harness: QueueHarness) -> None:
    has_port = harness.protocol.bind(harness.binding()).schedules is not None
    assert has_port == harness.can(Capability.CRON)


async def test_a_schedule_is_added_kept_changed_and_removed(harness: QueueHarness) -> None:
    schedules = schedules_of(harness)
    job = harness.job({"n": 1}, id="report")
    assert await schedules.upsert(job, YEARLY) == "added"
    [schedule] = await schedules.list()
    assert (schedule.id, schedule.job.name, schedule.job.data) == ("report", harness.job_name, {"n": 1})
    assert schedule.rule == YEARLY
    assert schedule.next_at is not None
    assert schedule.next_at > harness.now
    assert await schedules.upsert(job, YEARLY) == "kept"
    assert await schedules.list() == [schedule]
    daily = ScheduleRule(cron="0 0 * * *", timezone="Asia/Kolkata")
    assert await schedules.upsert(job, daily) == "changed"
    [changed] = await schedules.list()
    assert changed.rule == daily
    assert await schedules.remove("report")
    assert await schedules.list() == []
    assert not await schedules.remove("report")


async def test_a_kept_schedule_gets_other_data(harness: QueueHarness) -> None:
    schedules = schedules_of(harness)
    await schedules.upsert(harness.job({"n": 1}, id="report"), YEARLY)
    [before] = await schedules.list()
    assert await schedules.upsert(harness.job({"n": 2}, id="report"), YEARLY) == "kept"
    [after] = await schedules.list()
    assert (after.job.data, after.next_at) == ({"n": 2}, before.next_at)


async def test_a_schedule_is_run_now_and_stays_as_it_is(harness: QueueHarness) -> None:
    schedules = schedules_of(harness)
    await schedules.upsert(harness.job({"n": 1}, id="report"), YEARLY)
    [before] = await schedules.list()
    job_id = await schedules.run_now("report")
    assert job_id is not None
    claim = await harness.claim(harness.broker())
    assert (claim.job.id, claim.job.name, claim.job.data) == (job_id, harness.job_name, {"n": 1})
    assert await schedules.list() == [before]
    assert await schedules.run_now("nobody") is None


async def test_the_job_of_a_firing_has_the_id_that_the_port_tells(harness: QueueHarness) -> None:
    schedules = schedules_of(harness)
    await schedules.upsert(harness.job({}, id="report"), YEARLY)
    [schedule] = await schedules.list()
    assert schedule.next_at is not None
    harness.now = schedule.next_at + 1
    broker = harness.broker()
    await broker.promote()
    claim = await harness.claim(broker)
    assert claim.job.id == schedules.firing_id("report", schedule.next_at)


async def test_an_interval_is_kept_or_refused(harness: QueueHarness) -> None:
    schedules = schedules_of(harness)
    job, rule = harness.job(id="often"), ScheduleRule(every_ms=60_000)
    if not harness.can(Capability.INTERVAL):
        with pytest.raises(Unsupported, match="has no intervals, so every=60000 cannot be kept"):
            await schedules.upsert(job, rule)
        return
    assert await schedules.upsert(job, rule) == "added"
    [schedule] = await schedules.list()
    assert schedule.rule == rule


async def test_a_schedule_is_paused_and_resumed_or_the_way_out_is_said(harness: QueueHarness) -> None:
    schedules = schedules_of(harness)
    await schedules.upsert(harness.job(id="report"), YEARLY)
    [before] = await schedules.list()
    if harness.protocol.spec.name == "bullmq":
        with pytest.raises(Unsupported, match="pause the whole queue"):
            await schedules.pause("report")
        return
    assert await schedules.pause("report")
    [paused] = await schedules.list()
    assert paused.next_at is None
    assert await schedules.resume("report")
    assert (await schedules.list())[0].next_at == before.next_at
    assert not await schedules.pause("nobody")
