"""`corral cron` in the protocols that have schedules."""

from collections.abc import Callable

import pytest

from corral import JobState
from corral.core.job import Job
from corral.core.options import Capability
from corral.core.schedule import ScheduleRule
from corral.protocols.bullmq.schedulers.job_schedulers import JobSchedulers
from tests.cli.conftest import AppQueue, Shell

YEARLY = "0 0 1 1 *"


@pytest.fixture(params=["bullmq", "bridgemq"])
def scheduled(request: pytest.FixtureRequest, app_queues: Callable[[str], AppQueue]) -> AppQueue:
    """A queue with the schedule `report`."""
    app_queue = app_queues(request.param)
    binding = app_queue.app.binding(app_queue.queue)
    if app_queue.protocol == "bullmq":
        rule = {"pattern": YEARLY, "tz": "UTC"}
        options = {"attempts": 7}
        app_queue.app.sync(
            JobSchedulers(binding).upsert("report", rule, name="send", data={"n": 1}, options=options)
        )
    else:
        job = Job(
            name="send",
            data={"n": 1},
            queue="mail",
            id="report",
            options=app_queue.queue.options({"attempts": 7}),
        )
        rule = ScheduleRule(cron=YEARLY, timezone="UTC")
        app_queue.app.sync(app_queue.queue.schedules.upsert(job, rule))
    return app_queue


def test_schedules_are_listed_with_their_rule_and_next_time(scheduled: AppQueue, shell: Shell) -> None:
    [found] = shell("cron", "ls", "--json").documents
    assert (found["protocol"], found["queue"], found["id"]) == (scheduled.protocol, "mail", "report")
    assert (found["job"]["name"], found["job"]["data"]) == ("send", {"n": 1})
    assert found["job"]["options"]["attempts"] == 7
    assert found["next_at"] > scheduled.app.clock()
    result = shell("cron", "ls")
    assert f"{YEARLY} (UTC)" in result.out
    assert "-01-01 00:00:00" in result.out


def test_a_schedule_is_run_now_and_stays_as_it_is(scheduled: AppQueue, shell: Shell) -> None:
    before = shell("cron", "ls", "--json").documents[0]["next_at"]
    result = shell("cron", "run", "mail", "report")
    assert result.code == 0
    job = scheduled.job(result.out.strip())
    assert job is not None
    assert (job.name, job.data, job.state, job.options.attempts) == ("send", {"n": 1}, JobState.WAITING, 7)
    assert shell("cron", "ls", "--json").documents[0]["next_at"] == before
    [second] = shell("cron", "run", "mail", "report", "--json").documents
    assert second["schedule"] == "report"
    assert second["id"] != job.id


def test_a_schedule_is_paused_and_resumed_or_the_reason_is_given(scheduled: AppQueue, shell: Shell) -> None:
    result = shell("cron", "pause", "mail", "report")
    if scheduled.protocol == "bullmq":
        assert (result.code, "has no paused schedules" in result.err) == (2, True)
        return
    assert result.out == "schedule 'report' of queue 'mail' of protocol 'bridgemq' is paused\n"
    [found] = shell("cron", "ls", "--json").documents
    assert found["next_at"] is None
    assert "paused" in shell("cron", "ls").out
    assert shell("cron", "resume", "mail", "report", "--json").documents[0]["paused"] is False
    assert shell("cron", "ls", "--json").documents[0]["next_at"] > scheduled.app.clock()


@pytest.mark.parametrize("verb", ["run", "pause", "resume"])
def test_a_missing_schedule_is_named(scheduled: AppQueue, shell: Shell, verb: str) -> None:
    result = shell("cron", verb, "mail", "nightly")
    assert (result.code, "no schedule 'nightly' in queue 'mail'" in result.err) == (1, True)


def test_a_protocol_without_schedules_says_so(app_queues: Callable[[str], AppQueue], shell: Shell) -> None:
    app_queue = app_queues("streams")
    app_queue.add({})
    assert not app_queue.can(Capability.CRON)
    assert shell("cron", "ls").out == "no schedules\n"
    result = shell("cron", "ls", "--protocol", "streams")
    assert (result.code, "protocol 'streams' has no cron" in result.err) == (2, True)
