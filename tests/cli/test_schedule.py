"""`corral schedule` in the protocols that have schedules."""

from collections.abc import Callable
from pathlib import Path

import pytest

from corral import JobState
from corral.app_loader import load_app
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
    [found] = shell("schedule", "ls", "--json").documents
    assert (found["protocol"], found["queue"], found["id"]) == (scheduled.protocol, "mail", "report")
    assert (found["job"]["name"], found["job"]["data"]) == ("send", {"n": 1})
    assert found["job"]["options"]["attempts"] == 7
    assert found["next_at"] > scheduled.app.clock()
    result = shell("schedule", "ls")
    assert f"{YEARLY} (UTC)" in result.out
    assert "-01-01 00:00:00" in result.out


def test_schedules_that_are_no_longer_declared_are_pruned(
    scheduled: AppQueue, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"""from corral import Corral
app = Corral(protocol={scheduled.protocol!r})
app.schedule("kept", cron="0 0 1 1 *", queue="mail")
"""
    old = program + 'app.schedule("dropped", cron="0 0 1 1 *", queue="mail")\n'
    (tmp_path / f"new_{scheduled.protocol}.py").write_text(program)
    (tmp_path / f"old_{scheduled.protocol}.py").write_text(old)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDIS_URL", scheduled.app.url)
    before = load_app(f"old_{scheduled.protocol}:app")
    before.sync(before.start_schedules())
    refused = shell("schedule", "prune", f"new_{scheduled.protocol}:app")
    assert "remove 'dropped' of queue 'mail'" in refused.err
    result = shell("schedule", "prune", f"new_{scheduled.protocol}:app", "--yes", "--json")
    assert [document["schedule"] for document in result.documents] == ["dropped"]
    # `report` was never declared by an app
    left = {document["id"] for document in shell("schedule", "ls", "--json").documents}
    assert left == {"kept", "report"}
    assert shell("schedule", "prune", f"new_{scheduled.protocol}:app", "--yes", "--json").documents == []


def test_a_schedule_is_run_now_and_stays_as_it_is(scheduled: AppQueue, shell: Shell) -> None:
    before = shell("schedule", "ls", "--json").documents[0]["next_at"]
    result = shell("schedule", "run", "mail", "report")
    assert result.code == 0
    job = scheduled.job(result.out.strip())
    assert job is not None
    assert (job.name, job.data, job.state, job.options.attempts) == ("send", {"n": 1}, JobState.WAITING, 7)
    assert shell("schedule", "ls", "--json").documents[0]["next_at"] == before
    [second] = shell("schedule", "run", "mail", "report", "--json").documents
    assert second["schedule"] == "report"
    assert second["id"] != job.id


def test_a_schedule_is_paused_and_resumed_or_the_reason_is_given(scheduled: AppQueue, shell: Shell) -> None:
    result = shell("schedule", "pause", "mail", "report")
    if scheduled.protocol == "bullmq":
        assert (result.code, "has no paused schedules" in result.err) == (2, True)
        return
    assert result.out == "schedule 'report' of queue 'mail' of protocol 'bridgemq' is paused\n"
    [found] = shell("schedule", "ls", "--json").documents
    assert found["next_at"] is None
    assert "paused" in shell("schedule", "ls").out
    assert shell("schedule", "resume", "mail", "report", "--json").documents[0]["paused"] is False
    assert shell("schedule", "ls", "--json").documents[0]["next_at"] > scheduled.app.clock()


@pytest.mark.parametrize("verb", ["run", "pause", "resume"])
def test_a_missing_schedule_is_named(scheduled: AppQueue, shell: Shell, verb: str) -> None:
    result = shell("schedule", verb, "mail", "nightly")
    assert (result.code, "no schedule 'nightly' in queue 'mail'" in result.err) == (1, True)


def test_a_protocol_without_schedules_says_so(app_queues: Callable[[str], AppQueue], shell: Shell) -> None:
    app_queue = app_queues("streams")
    app_queue.add({})
    assert not app_queue.can(Capability.CRON)
    assert shell("schedule", "ls").out == "no schedules\n"
    result = shell("schedule", "ls", "--protocol", "streams")
    assert (result.code, "protocol 'streams' has no cron" in result.err) == (2, True)
