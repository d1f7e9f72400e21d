"""`corral job` in every protocol."""

import json
import re
from collections.abc import Callable
from contextlib import aclosing

import pytest

from corral import JobState
from corral.cli.job import follow
from corral.core.options import Capability
from corral.protocols.operator import PAGE
from tests.cli.conftest import AppQueue, Shell
from tests.support.apps import ended, working
from tests.support.shell import start


def test_one_job_is_retried_where_its_state_and_its_protocol_allow(app_queue: AppQueue, shell: Shell) -> None:
    [dead] = app_queue.work({"fail": "x"})
    result = shell("job", "retry", *app_queue.words, dead, "missing", "--json")
    assert result.code == 1
    if not app_queue.can(Capability.RETRY):
        assert "has no retry" in result.err
        return
    assert result.documents == [
        {"protocol": app_queue.protocol, "queue": "mail", "done": [dead], "not_done": ["missing"]}
    ]
    assert "no job 'missing' in queue 'mail'" in result.err
    again = shell("job", "retry", *app_queue.words, dead)
    assert again.code == 1
    assert f"job '{dead}' of queue 'mail' is waiting now, and cannot be retried" in again.err


def test_a_job_is_shown_with_the_attempts_that_failed(app_queue: AppQueue, shell: Shell) -> None:
    [dead] = app_queue.work({"fail": "no such street"})
    shown = shell("job", "show", *app_queue.words, dead)
    [line] = [line for line in shown.out.splitlines() if line.startswith("attempt  ")]
    assert re.search(r"1 failed .* after \d+ ms on \S+: \w+: no such street", line)


def test_a_delayed_job_is_promoted(app_queue: AppQueue, shell: Shell) -> None:
    if not app_queue.can(Capability.DELAY):
        [job_id] = app_queue.add({})
        result = shell("job", "promote", *app_queue.words, job_id)
        assert (result.code, "nothing to promote" in result.err) == (1, True)
        return
    [job_id] = app_queue.add({}, delay=60_000)
    assert shell("job", "promote", *app_queue.words, job_id).code == 0
    assert app_queue.state(job_id) is JobState.WAITING
    assert "is waiting now" in shell("job", "promote", *app_queue.words, job_id).err


def test_jobs_are_removed_once_it_is_confirmed(app_queue: AppQueue, shell: Shell) -> None:
    first, second = app_queue.add({}, {})
    words = ("job", "remove", *app_queue.words, first, second)
    refused = shell(*words)
    assert (refused.code, "delete 2 jobs of" in refused.err) == (2, True)
    assert app_queue.state(first) is JobState.WAITING
    assert shell(*words, "-y").code == 0
    assert app_queue.job(first) is None
    assert app_queue.job(second) is None


def test_more_jobs_than_a_page_are_removed_together(app_queue: AppQueue, shell: Shell) -> None:
    jobs = [(app_queue.name, {"n": n}) for n in range(PAGE + 1)]
    ids = app_queue.app.sync(app_queue.queue.add_many(jobs))
    [document] = shell("job", "remove", *app_queue.words, *ids, "--yes", "--json").documents
    assert (document["done"], document["not_done"]) == (ids, [])
    assert [app_queue.job(job_id) for job_id in (ids[0], ids[-1])] == [None, None]


def test_a_waiting_job_is_cancelled(app_queue: AppQueue, shell: Shell) -> None:
    [job_id] = app_queue.add({})
    assert shell("job", "cancel", *app_queue.words, job_id).code == 2
    assert shell("job", "cancel", *app_queue.words, job_id, "--yes").code == 0
    assert app_queue.state(job_id) in (None, JobState.CANCELLED)


def test_a_job_of_another_queue_is_left_alone(app_queues: Callable[[str], AppQueue], shell: Shell) -> None:
    app_queue = app_queues("bridgemq")
    [job_id] = app_queue.add({})
    app_queue.app.sync(app_queue.app.queue("sums", "bridgemq").add("add", {}))
    result = shell("job", "remove", "sums", job_id, "--yes")
    assert (result.code, f"no job '{job_id}' in queue 'sums'" in result.err) == (1, True)
    assert app_queue.state(job_id) is JobState.WAITING


def test_the_log_of_a_job_is_printed(app_queue: AppQueue, shell: Shell) -> None:
    [job_id] = app_queue.work({"log": "two\nlines\x1b[2J"})
    words = (*app_queue.words, job_id)
    assert shell("job", "logs", *words).out == "two\nlines\\x1b[2J\n"
    assert shell("job", "logs", *words, "--json").documents == [{"line": 0, "text": "two\nlines\x1b[2J"}]
    unknown = shell("job", "logs", *app_queue.words, "missing")
    assert (unknown.code, "no job 'missing'" in unknown.err) == (1, True)


def test_very_long_data_is_truncated_as_text_and_whole_as_json(shell: Shell) -> None:
    shell("queue", "add", "mail", "greet", json.dumps("x" * 50_000))
    shown = shell("job", "show", "mail", "1")
    assert "… (50002 characters; --json shows all)" in shown.out
    assert len(shown.out) < 6000
    [job] = shell("job", "show", "mail", "1", "--json").documents
    assert job["data"] == "x" * 50_000


# -- tail ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "code", "last"), [({}, 0, "completed"), ({"fail": "x"}, 1, "dead")])
def test_a_job_is_followed_from_its_first_event_to_its_end(
    app_queue: AppQueue, shell: Shell, data: dict[str, str], code: int, last: str
) -> None:
    [job_id] = app_queue.work(data)
    app_queue.work({})
    result = shell("job", "tail", *app_queue.words, job_id, "--json")
    assert result.code == code, result
    kinds = [event["kind"] for event in result.documents]
    assert (kinds[-1], {event["job_id"] for event in result.documents}) == (last, {job_id})
    assert "active" in kinds


def test_a_job_that_has_not_ended_is_followed_live(app_queue: AppQueue, shell: Shell, url: str) -> None:
    [job_id] = app_queue.add({"log": "x"})
    words = ("job", "tail", *app_queue.words, job_id, "--json", "--url", url)
    with start(*words) as tail:
        assert tail.stdout is not None
        first = tail.stdout.readline()
        app_queue.work({})
        rest = tail.stdout.read()
        assert tail.wait(30) == 0
    assert f'"{job_id}"' in first
    assert '"completed"' in rest


def test_a_dead_job_that_was_retried_is_followed_to_its_new_end(
    app_queue: AppQueue, shell: Shell, url: str
) -> None:
    [job_id] = app_queue.work({"fail": "x"})
    if shell("job", "retry", *app_queue.words, job_id).code:
        return  # this protocol's failures are final
    words = ("job", "tail", *app_queue.words, job_id, "--json", "--url", url)
    with start(*words) as tail:
        assert tail.stdout is not None
        kinds: list[str] = []
        while "dead" not in kinds:
            kinds.append(json.loads(tail.stdout.readline())["kind"])
        app_queue.work({})
        kinds += [json.loads(line)["kind"] for line in tail.stdout]
        assert tail.wait(30) == 1
    assert kinds.count("dead") == kinds.count("active") == 2


def test_a_job_that_ends_while_its_first_events_are_read_is_followed_to_its_end(
    app_queues: Callable[[str], AppQueue],
) -> None:
    app_queue = app_queues("bullmq")
    [job_id] = app_queue.add({})

    async def followed() -> list[str]:
        job = await app_queue.queue.job(job_id)
        assert job is not None
        kinds: list[str] = []
        async with aclosing(follow(app_queue.queue, job)) as events:
            async for event in events:
                if isinstance(event, JobState):
                    return [*kinds, f"ended {event.value}"]
                if not kinds:
                    async with working(app_queue.app, queues=[app_queue.queue.name]):
                        await ended(app_queue.queue, job_id)
                kinds.append(event.kind)
        raise AssertionError(kinds)

    assert app_queue.app.sync(followed()) == ["added", "waiting", "active", "completed", "ended completed"]


def test_a_job_that_is_removed_at_its_end_has_ended_as_its_event_says(
    app_queues: Callable[[str], AppQueue], url: str
) -> None:
    app_queue = app_queues("bullmq")
    [job_id] = app_queue.add({}, remove_on_complete=True)
    words = ("job", "tail", "mail", job_id, "--json", "--url", url)
    with start(*words) as tail:
        assert tail.stdout is not None
        tail.stdout.readline()
        app_queue.work({})
        assert '"completed"' in tail.stdout.read()
        assert tail.wait(30) == 0
    assert app_queue.job(job_id) is None
