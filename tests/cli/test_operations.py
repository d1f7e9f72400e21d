"""`corral queue`, `job` and `dlq` in every protocol: what they show, what they ask, what they do."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing

import pytest

from corral import JobState
from corral.cli.tailing import among_others
from corral.core.options import Capability
from tests.cli.conftest import AppQueue, Shell
from tests.support.apps import ended, working
from tests.support.servers import Server


def test_a_queue_is_shown_with_what_it_can_and_what_died_last(app_queue: AppQueue, shell: Shell) -> None:
    app_queue.add({"n": 1})
    [dead] = app_queue.work({"fail": "no such user"})
    app_queue.add({"n": 2})
    [document] = shell("queue", "show", *app_queue.words, "--json").documents
    assert (document["protocol"], document["queue"], document["paused"]) == (
        app_queue.protocol,
        app_queue.queue.name,
        False,
    )
    assert document["counts"]["waiting"] == 1
    assert document["capabilities"] == sorted(app_queue.queue.protocol.spec.capabilities)
    said = shell("queue", "show", *app_queue.words)
    assert said.code == 0
    assert "no such user" in said.out
    assert dead in said.out


def test_the_jobs_of_a_state_are_listed_and_searched_by_their_data(app_queue: AppQueue, shell: Shell) -> None:
    ids = app_queue.add({"to": "ada"}, {"to": "grace"}, {"to": "adam"})
    said = shell("queue", "show", *app_queue.words, "--state", "waiting", "--data", '"ada', "--json")
    assert [job["id"] for job in said.documents] == [ids[0], ids[2]]
    [one] = shell("queue", "show", *app_queue.words, "--state", "waiting", "--count", "1", "--json").documents
    assert one["id"] == ids[0], "the next to run first"
    assert shell("queue", "show", *app_queue.words, "--state", "dead").out == "no jobs are dead\n"


def test_a_queue_is_paused_and_resumed_or_the_reason_is_given(app_queue: AppQueue, shell: Shell) -> None:
    app_queue.add({})
    said = shell("queue", "pause", *app_queue.words)
    if not app_queue.can(Capability.PAUSE):
        assert (said.code, said.out) == (2, "")
        assert "protocol 'streams' has no pause; stop its workers instead" in said.err
        return
    assert said.out == f"queue 'mail' of protocol '{app_queue.protocol}' is paused\n"
    assert app_queue.app.sync(app_queue.queue.is_paused())
    [document] = shell("queue", "resume", *app_queue.words, "--json").documents
    assert document == {"protocol": app_queue.protocol, "queue": "mail", "paused": False}
    assert not app_queue.app.sync(app_queue.queue.is_paused())


def test_drain_deletes_what_waits_once_it_is_agreed(app_queue: AppQueue, shell: Shell) -> None:
    app_queue.add({}, {}, {})
    refused = shell("queue", "drain", *app_queue.words)
    assert (refused.code, refused.out) == (2, "")
    what = f"delete 3 waiting jobs of queue '{app_queue.queue.name}' of protocol '{app_queue.protocol}'?"
    assert what in refused.err
    assert "no terminal to ask at; say --yes" in refused.err
    assert app_queue.counts()[JobState.WAITING] == 3
    done = shell("queue", "drain", *app_queue.words, "--yes", "--json")
    assert done.documents == [
        {"protocol": app_queue.protocol, "queue": app_queue.queue.name, "deleted": 3, "left": 0}
    ]
    assert app_queue.counts()[JobState.WAITING] == 0
    again = shell("queue", "drain", *app_queue.words)
    assert (again.code, again.err) == (0, ""), "nothing to delete is nothing to ask"


def test_delayed_jobs_are_drained_only_when_they_are_named(app_queue: AppQueue, shell: Shell) -> None:
    if not app_queue.can(Capability.DELAY):
        assert (
            shell(
                "queue", "add", *app_queue.words[:1], app_queue.name, *app_queue.words[1:], "--delay", "9"
            ).code
            == 2
        )
        return
    app_queue.add({}, delay=60_000)
    assert shell("queue", "drain", *app_queue.words, "--yes").code == 0
    assert app_queue.counts()[JobState.DELAYED] == 1
    assert "delete 1 waiting and delayed jobs" in shell("queue", "drain", *app_queue.words, "--delayed").err
    assert shell("queue", "drain", *app_queue.words, "--delayed", "--yes").code == 0
    assert app_queue.counts()[JobState.DELAYED] == 0


def test_clean_deletes_ended_jobs_that_are_old_enough(app_queue: AppQueue, shell: Shell) -> None:
    [done] = app_queue.work({})
    [dead] = app_queue.work({"fail": "x"})
    assert "of 1 completed jobs" in shell("queue", "clean", *app_queue.words).err
    assert shell("queue", "clean", *app_queue.words, "--older", "3600", "--yes").out.startswith("deleted 0")
    [document] = shell("queue", "clean", *app_queue.words, "--yes", "--json").documents
    assert document["deleted"] == [done]
    assert app_queue.job(done) is None
    assert shell("queue", "clean", *app_queue.words, "--state", "dead", "--yes").code == 0
    assert app_queue.job(dead) is None
    wrong = shell("queue", "clean", *app_queue.words, "--state", "active", "--yes")
    assert (wrong.code, "use completed or dead" in wrong.err) == (2, True)


def test_dead_jobs_are_put_back_all_together_or_the_reason_is_given(
    app_queue: AppQueue, shell: Shell
) -> None:
    ids = app_queue.work({"fail": "x"}, {"fail": "y"})
    asked = shell("queue", "retry", *app_queue.words)
    assert (asked.code, "put back 2 dead jobs" in asked.err) == (2, True)
    said = shell("queue", "retry", *app_queue.words, "--yes")
    if not app_queue.can(Capability.RETRY):
        assert (said.code, "an ended job stays ended" in said.err) == (1, True)
        return
    assert said.code == 0
    assert {app_queue.state(job_id) for job_id in ids} == {JobState.WAITING}


# -- job ----------------------------------------------------------------------------------------------------


def test_one_job_is_retried_where_its_state_and_its_protocol_allow(app_queue: AppQueue, shell: Shell) -> None:
    [dead] = app_queue.work({"fail": "x"})
    said = shell(
        "job", "retry", app_queue.queue.name, dead, "nobody", "--protocol", app_queue.protocol, "--json"
    )
    assert said.code == 1
    if not app_queue.can(Capability.RETRY):
        assert "has no retry" in said.err
        return
    assert said.documents == [
        {"protocol": app_queue.protocol, "queue": "mail", "done": [dead], "not_done": ["nobody"]}
    ]
    assert "no job 'nobody' in queue 'mail'" in said.err
    again = shell("job", "retry", app_queue.queue.name, dead, "--protocol", app_queue.protocol)
    assert again.code == 1
    assert f"job '{dead}' of queue 'mail' is waiting now, and cannot be put back" in again.err


def test_a_delayed_job_is_brought_forward(app_queue: AppQueue, shell: Shell) -> None:
    if not app_queue.can(Capability.DELAY):
        [job_id] = app_queue.add({})
        said = shell("job", "promote", app_queue.queue.name, job_id, "--protocol", app_queue.protocol)
        assert (said.code, "nothing to promote" in said.err) == (1, True)
        return
    [job_id] = app_queue.add({}, delay=60_000)
    assert shell("job", "promote", app_queue.queue.name, job_id, "--protocol", app_queue.protocol).code == 0
    assert app_queue.state(job_id) is JobState.WAITING
    assert (
        "is waiting now"
        in shell("job", "promote", app_queue.queue.name, job_id, "--protocol", app_queue.protocol).err
    )


def test_options_that_only_one_protocol_has_are_given_by_name(
    app_queues: Callable[[str], AppQueue], shell: Shell
) -> None:
    target = '{"capabilities": ["gpu"]}'
    words = ("queue", "add", "films", "transcode", "--protocol", "bridgemq")
    said = shell(*words, "--option", f"target={target}", "--option", "keep_data=true")
    [job] = shell("job", "show", "films", said.out.strip(), "--json").documents
    assert job["options"]["extra"]["target"]["capabilities"] == ["gpu"]
    for wrong in ("target", "=1", "colour=blue"):
        said = shell(*words, "--option", wrong)
        assert (said.code, said.out) == (2, "")


def test_jobs_are_removed_once_it_is_agreed(app_queue: AppQueue, shell: Shell) -> None:
    first, second = app_queue.add({}, {})
    words = ("job", "remove", app_queue.queue.name, first, second, "--protocol", app_queue.protocol)
    refused = shell(*words)
    assert (refused.code, "delete 2 jobs of" in refused.err) == (2, True)
    assert app_queue.state(first) is JobState.WAITING
    assert shell(*words, "-y").code == 0
    assert app_queue.job(first) is None
    assert app_queue.job(second) is None


def test_a_waiting_job_is_cancelled(app_queue: AppQueue, shell: Shell) -> None:
    [job_id] = app_queue.add({})
    assert shell("job", "cancel", app_queue.queue.name, job_id, "--protocol", app_queue.protocol).code == 2
    assert (
        shell("job", "cancel", app_queue.queue.name, job_id, "--protocol", app_queue.protocol, "--yes").code
        == 0
    )
    assert app_queue.state(job_id) in (None, JobState.CANCELLED)


def test_what_a_handler_logged_is_printed(app_queue: AppQueue, shell: Shell) -> None:
    [job_id] = app_queue.work({"log": "two\nlines\x1b[2J"})
    place = (app_queue.queue.name, job_id, "--protocol", app_queue.protocol)
    assert shell("job", "logs", *place).out == "two\nlines\\x1b[2J\n"
    assert shell("job", "logs", *place, "--json").documents == [{"line": 0, "text": "two\nlines\x1b[2J"}]
    missing = shell("job", "logs", app_queue.queue.name, "nobody", "--protocol", app_queue.protocol)
    assert (missing.code, "no job 'nobody'" in missing.err) == (1, True)


@pytest.mark.parametrize(("data", "code", "last"), [({}, 0, "completed"), ({"fail": "x"}, 1, "dead")])
def test_a_job_is_followed_from_its_first_event_to_its_end(
    app_queue: AppQueue, shell: Shell, data: dict[str, str], code: int, last: str
) -> None:
    [job_id] = app_queue.work(data)
    app_queue.work({})
    said = shell("job", "tail", app_queue.queue.name, job_id, "--protocol", app_queue.protocol, "--json")
    assert said.code == code, said
    kinds = [event["kind"] for event in said.documents]
    assert (kinds[-1], {event["job_id"] for event in said.documents}) == (last, {job_id})
    assert "active" in kinds


def test_a_job_that_has_not_ended_is_followed_live(app_queue: AppQueue, shell: Shell, url: str) -> None:
    [job_id] = app_queue.add({"log": "x"})
    words = [
        "job",
        "tail",
        app_queue.queue.name,
        job_id,
        "--protocol",
        app_queue.protocol,
        "--json",
        "--url",
        url,
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli", *words], stdout=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        first = tail.stdout.readline()
        app_queue.work({})
        rest = tail.stdout.read()
        assert tail.wait(30) == 0
    assert f'"{job_id}"' in first
    assert '"completed"' in rest


def test_a_dead_job_that_was_put_back_is_followed_to_its_new_end(
    app_queue: AppQueue, shell: Shell, url: str
) -> None:
    [job_id] = app_queue.work({"fail": "x"})
    if shell("job", "retry", *app_queue.words[:1], job_id, *app_queue.words[1:]).code:
        return  # this protocol's failures are final
    words = [
        "job",
        "tail",
        app_queue.queue.name,
        job_id,
        "--protocol",
        app_queue.protocol,
        "--json",
        "--url",
        url,
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli", *words], stdout=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        told = []
        while "dead" not in told:
            told.append(json.loads(tail.stdout.readline())["kind"])
        app_queue.work({})
        told += [json.loads(line)["kind"] for line in tail.stdout]
        assert tail.wait(30) == 1
    assert told.count("dead") == told.count("active") == 2


def test_a_job_that_ends_while_its_past_is_told_is_told_to_its_end(
    app_queues: Callable[[str], AppQueue],
) -> None:
    app_queue = app_queues("bullmq")
    [job_id] = app_queue.add({})

    async def told() -> list[str]:
        job = await app_queue.queue.job(job_id)
        assert job is not None
        kinds = []
        async with aclosing(among_others(app_queue.queue, job)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, JobState):
                    return [*kinds, f"ended {event.value}"]
                if not kinds:
                    async with working(app_queue.app, queues=[app_queue.queue.name]):
                        await ended(app_queue.queue, job_id)
                kinds.append(event.kind)
        raise AssertionError(kinds)

    assert app_queue.app.sync(told()) == ["added", "waiting", "active", "completed", "ended completed"]


def test_a_job_that_is_gone_when_it_ends_has_ended_as_its_event_says(
    app_queues: Callable[[str], AppQueue], url: str
) -> None:
    app_queue = app_queues("bullmq")
    [job_id] = app_queue.add({}, remove_on_complete=True)
    words = ["job", "tail", "mail", job_id, "--json", "--url", url]
    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli", *words], stdout=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        tail.stdout.readline()
        app_queue.work({})
        assert '"completed"' in tail.stdout.read()
        assert tail.wait(30) == 0
    assert app_queue.job(job_id) is None


# -- dlq ----------------------------------------------------------------------------------------------------


def test_dead_jobs_of_every_protocol_are_listed_the_last_first(
    app_queues: Callable[[str], AppQueue], shell: Shell
) -> None:
    died = [
        (protocol, app_queues(protocol).work({"fail": f"in {protocol}"})[0])
        for protocol in ("bullmq", "streams", "bridgemq")
    ]
    assert shell("dlq", "ls", "--reason", "nowhere").out == (
        "no dead jobs with a reason that has 'nowhere' here\n"
    )
    said = shell("dlq", "ls", "--json")
    assert [(job["protocol"], job["id"]) for job in said.documents] == list(reversed(died))
    [found] = shell("dlq", "ls", "--reason", "in bridge", "--json").documents
    assert found["protocol"] == "bridgemq"


def test_a_dead_job_is_shown_with_its_traces(app_queue: AppQueue, shell: Shell) -> None:
    dead, fine = app_queue.work({"fail": "no such user"}, {})
    said = shell("dlq", "show", app_queue.queue.name, dead, "--protocol", app_queue.protocol)
    assert said.code == 0
    assert "no such user" in said.out
    other = shell("dlq", "show", app_queue.queue.name, fine, "--protocol", app_queue.protocol)
    assert (other.code, "is completed, not dead" in other.err) == (1, True)


def test_dead_jobs_are_replayed_by_reason_and_by_id(app_queue: AppQueue, shell: Shell) -> None:
    ids = app_queue.work({"fail": "timed out"}, {"fail": "no such user"}, {"fail": "timed out twice"})
    words = ("dlq", "replay", *app_queue.words, "--reason", "timed out")
    assert "put back 2 dead jobs with a reason that has 'timed out'" in shell(*words).err
    said = shell(*words, "--yes")
    if not app_queue.can(Capability.RETRY):
        assert (said.code, "has no retry" in said.err) == (1, True)
        return
    assert [app_queue.state(job_id) for job_id in ids] == [JobState.WAITING, JobState.DEAD, JobState.WAITING]
    wrong = shell(
        "dlq", "replay", app_queue.queue.name, ids[0], ids[1], "--protocol", app_queue.protocol, "--yes"
    )
    assert (wrong.code, "nothing was changed" in wrong.err) == (1, True)
    assert app_queue.state(ids[1]) is JobState.DEAD
    assert (
        shell("dlq", "replay", app_queue.queue.name, ids[1], "--protocol", app_queue.protocol, "--yes").code
        == 0
    )
    assert app_queue.state(ids[1]) is JobState.WAITING


def test_dead_jobs_of_every_queue_are_replayed_together(
    app_queues: Callable[[str], AppQueue], shell: Shell
) -> None:
    protocols = {protocol: app_queues(protocol) for protocol in ("bullmq", "streams", "bridgemq")}
    died = {protocol: app_queue.work({"fail": "x"})[0] for protocol, app_queue in protocols.items()}
    asked = shell("dlq", "replay")
    assert "put back 2 dead jobs of 'mail' (bullmq: 1), 'mail' (bridgemq: 1)" in asked.err
    assert shell("dlq", "replay", "--yes").code == 0
    states = {protocol: app_queue.state(died[protocol]) for protocol, app_queue in protocols.items()}
    assert states == {"bullmq": JobState.WAITING, "streams": JobState.DEAD, "bridgemq": JobState.WAITING}


def test_dead_jobs_are_discarded(app_queue: AppQueue, shell: Shell) -> None:
    keep, let_go = app_queue.work({"fail": "x", "n": 1}, {"fail": "x", "n": 2})
    words = ("dlq", "discard", *app_queue.words, "--data", '"n": 2')
    assert "delete 1 dead job with data that have" in shell(*words).err
    assert shell(*words, "--yes").code == 0
    assert (app_queue.job(let_go), app_queue.state(keep)) == (None, JobState.DEAD)


# -- finding and asking -------------------------------------------------------------------------------------


def test_a_queue_is_found_in_whichever_protocol_has_it(
    app_queues: Callable[[str], AppQueue], shell: Shell
) -> None:
    bridge = app_queues("bridgemq")
    [job_id] = bridge.add({})
    [document] = shell("queue", "pause", "mail", "--json").documents
    assert document["protocol"] == "bridgemq"
    [job] = shell("job", "show", "mail", job_id, "--json").documents
    assert (job["protocol"], job["id"]) == ("bridgemq", job_id)
    app_queues("bullmq").add({})
    said = shell("queue", "pause", "mail")
    assert (said.code, "is in the protocols bullmq and bridgemq; choose one with --protocol" in said.err) == (
        2,
        True,
    )


def test_a_queue_that_is_not_there_is_told_with_those_that_are(
    app_queue: AppQueue, shell: Shell, server: Server
) -> None:
    app_queue.add({})
    for verb in ("pause", "drain", "clean", "retry", "show"):
        said = shell("queue", verb, "mial")
        assert said.code == 1
        assert f"no queue 'mial' in any protocol at {server.url}; there are: " in said.err
        assert f"'{app_queue.queue.name}' ({app_queue.protocol})" in said.err
    with server.connect() as client:
        assert client.keys("*mial*") == []


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 1, 2), (b"y\n", 0, 0)])
def test_at_a_terminal_it_asks(
    app_queues: Callable[[str], AppQueue], url: str, answer: bytes, code: int, left: int
) -> None:
    app_queue = app_queues("bullmq")
    app_queue.add({}, {})
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "corral.cli", "queue", "drain", "mail", "--url", url],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as command:
            os.write(ours, answer)
            _, told = command.communicate(timeout=30)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"delete 2 waiting jobs of queue 'mail' of protocol 'bullmq'? [y/N]" in told
    assert (b"nothing was changed" in told) == (code == 1)
    assert (command.returncode, app_queue.counts()[JobState.WAITING]) == (code, left)


def test_a_job_of_another_queue_is_left_alone(app_queues: Callable[[str], AppQueue], shell: Shell) -> None:
    app_queue = app_queues("bridgemq")
    [job_id] = app_queue.add({})
    app_queue.app.sync(app_queue.app.queue("sums", "bridgemq").add("add", {}))
    said = shell("job", "remove", "sums", job_id, "--yes")
    assert (said.code, f"no job '{job_id}' in queue 'sums'" in said.err) == (1, True)
    assert app_queue.state(job_id) is JobState.WAITING


# -- completion ---------------------------------------------------------------------------------------------


def complete(line: str, **environment: str) -> set[str]:
    """What a shell is told when the tab key is hit at the end of this line."""
    words = line.split(" ")
    asked = {"_CORRAL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    ended = subprocess.run(
        [sys.executable, "-c", "from corral.cli import main; main()"],
        env={**os.environ, **asked, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return set(ended.stdout.split())


def test_the_shell_completes_verbs_protocols_and_queues(
    app_queues: Callable[[str], AppQueue], url: str
) -> None:
    app_queues("bullmq").add({})
    assert {"pause", "drain", "show"} <= complete("corral queue ")
    assert complete("corral queue ls --protocol b", REDIS_URL=url) == {"bullmq", "bridgemq"}
    assert complete("corral queue pause m", REDIS_URL=url) == {"mail"}
    assert complete("corral queue pause m", REDIS_URL="redis://127.0.0.1:1") == set()
