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
from corral.core.capability import Capability
from tests.cli.conftest import Shell, Yard
from tests.support.apps import ended, working
from tests.support.servers import Server


def test_a_queue_is_shown_with_what_it_can_and_what_died_last(yard: Yard, shell: Shell) -> None:
    yard.add({"n": 1})
    [dead] = yard.work({"fail": "no such user"})
    yard.add({"n": 2})
    [document] = shell("queue", "show", *yard.words, "--json").documents
    assert (document["protocol"], document["queue"], document["paused"]) == (
        yard.protocol,
        yard.queue.name,
        False,
    )
    assert document["counts"]["waiting"] == 1
    assert document["capabilities"] == sorted(yard.queue.protocol.capabilities)
    said = shell("queue", "show", *yard.words)
    assert said.code == 0
    assert "no such user" in said.out
    assert dead in said.out


def test_the_jobs_of_a_state_are_listed_and_searched_by_their_data(yard: Yard, shell: Shell) -> None:
    ids = yard.add({"to": "ada"}, {"to": "grace"}, {"to": "adam"})
    said = shell("queue", "show", *yard.words, "--state", "waiting", "--data", '"ada', "--json")
    assert [job["id"] for job in said.documents] == [ids[0], ids[2]]
    [one] = shell("queue", "show", *yard.words, "--state", "waiting", "--count", "1", "--json").documents
    assert one["id"] == ids[0], "the next to run first"
    assert shell("queue", "show", *yard.words, "--state", "dead").out == "no jobs are dead\n"


def test_a_queue_is_paused_and_resumed_or_the_reason_is_given(yard: Yard, shell: Shell) -> None:
    yard.add({})
    said = shell("queue", "pause", *yard.words)
    if not yard.can(Capability.PAUSE):
        assert (said.code, said.out) == (2, "")
        assert "protocol 'streams' has no pause; stop its workers instead" in said.err
        return
    assert said.out == f"queue 'mail' of protocol '{yard.protocol}' is paused\n"
    assert yard.app.sync(yard.queue.inspector.is_paused())
    [document] = shell("queue", "resume", *yard.words, "--json").documents
    assert document == {"protocol": yard.protocol, "queue": "mail", "paused": False}
    assert not yard.app.sync(yard.queue.inspector.is_paused())


def test_drain_deletes_what_waits_once_it_is_agreed(yard: Yard, shell: Shell) -> None:
    yard.add({}, {}, {})
    refused = shell("queue", "drain", *yard.words)
    assert (refused.code, refused.out) == (2, "")
    what = f"delete 3 waiting jobs of queue '{yard.queue.name}' of protocol '{yard.protocol}'?"
    assert what in refused.err
    assert "no terminal to ask at; say --yes" in refused.err
    assert yard.counts()[JobState.WAITING] == 3
    done = shell("queue", "drain", *yard.words, "--yes", "--json")
    assert done.documents == [{"protocol": yard.protocol, "queue": yard.queue.name, "deleted": 3, "left": 0}]
    assert yard.counts()[JobState.WAITING] == 0
    again = shell("queue", "drain", *yard.words)
    assert (again.code, again.err) == (0, ""), "nothing to delete is nothing to ask"


def test_delayed_jobs_are_drained_only_when_they_are_named(yard: Yard, shell: Shell) -> None:
    if not yard.can(Capability.DELAY):
        assert shell("queue", "add", *yard.words[:1], yard.name, *yard.words[1:], "--delay", "9").code == 2
        return
    yard.add({}, delay=60_000)
    assert shell("queue", "drain", *yard.words, "--yes").code == 0
    assert yard.counts()[JobState.DELAYED] == 1
    assert "delete 1 waiting and delayed jobs" in shell("queue", "drain", *yard.words, "--delayed").err
    assert shell("queue", "drain", *yard.words, "--delayed", "--yes").code == 0
    assert yard.counts()[JobState.DELAYED] == 0


def test_clean_deletes_ended_jobs_that_are_old_enough(yard: Yard, shell: Shell) -> None:
    [done] = yard.work({})
    [dead] = yard.work({"fail": "x"})
    assert "of 1 completed jobs" in shell("queue", "clean", *yard.words).err
    assert shell("queue", "clean", *yard.words, "--older", "3600", "--yes").out.startswith("deleted 0")
    [document] = shell("queue", "clean", *yard.words, "--yes", "--json").documents
    assert document["deleted"] == [done]
    assert yard.job(done) is None
    assert shell("queue", "clean", *yard.words, "--state", "dead", "--yes").code == 0
    assert yard.job(dead) is None
    wrong = shell("queue", "clean", *yard.words, "--state", "active", "--yes")
    assert (wrong.code, "use completed or dead" in wrong.err) == (2, True)


def test_dead_jobs_are_put_back_all_together_or_the_reason_is_given(yard: Yard, shell: Shell) -> None:
    ids = yard.work({"fail": "x"}, {"fail": "y"})
    asked = shell("queue", "retry", *yard.words)
    assert (asked.code, "put back 2 dead jobs" in asked.err) == (2, True)
    said = shell("queue", "retry", *yard.words, "--yes")
    if not yard.can(Capability.RETRY):
        assert (said.code, "an ended job stays ended" in said.err) == (1, True)
        return
    assert said.code == 0
    assert {yard.state(job_id) for job_id in ids} == {JobState.WAITING}


# -- job ----------------------------------------------------------------------------------------------------


def test_one_job_is_retried_where_its_state_and_its_protocol_allow(yard: Yard, shell: Shell) -> None:
    [dead] = yard.work({"fail": "x"})
    said = shell("job", "retry", yard.queue.name, dead, "nobody", "--protocol", yard.protocol, "--json")
    assert said.code == 1
    if not yard.can(Capability.RETRY):
        assert "has no retry" in said.err
        return
    assert said.documents == [
        {"protocol": yard.protocol, "queue": "mail", "done": [dead], "not_done": ["nobody"]}
    ]
    assert "no job 'nobody' in queue 'mail'" in said.err
    again = shell("job", "retry", yard.queue.name, dead, "--protocol", yard.protocol)
    assert again.code == 1
    assert f"job '{dead}' of queue 'mail' is waiting now, and cannot be put back" in again.err


def test_a_delayed_job_is_brought_forward(yard: Yard, shell: Shell) -> None:
    if not yard.can(Capability.DELAY):
        [job_id] = yard.add({})
        said = shell("job", "promote", yard.queue.name, job_id, "--protocol", yard.protocol)
        assert (said.code, "nothing to promote" in said.err) == (1, True)
        return
    [job_id] = yard.add({}, delay=60_000)
    assert shell("job", "promote", yard.queue.name, job_id, "--protocol", yard.protocol).code == 0
    assert yard.state(job_id) is JobState.WAITING
    assert (
        "is waiting now" in shell("job", "promote", yard.queue.name, job_id, "--protocol", yard.protocol).err
    )


def test_options_that_only_one_protocol_has_are_given_by_name(
    yards: Callable[[str], Yard], shell: Shell
) -> None:
    target = '{"capabilities": ["gpu"]}'
    words = ("queue", "add", "films", "transcode", "--protocol", "bridgemq")
    said = shell(*words, "--option", f"target={target}", "--option", "keep_data=true")
    [job] = shell("job", "show", "films", said.out.strip(), "--json").documents
    assert job["options"]["extra"]["target"]["capabilities"] == ["gpu"]
    for wrong in ("target", "=1", "colour=blue"):
        said = shell(*words, "--option", wrong)
        assert (said.code, said.out) == (2, "")


def test_jobs_are_removed_once_it_is_agreed(yard: Yard, shell: Shell) -> None:
    first, second = yard.add({}, {})
    words = ("job", "remove", yard.queue.name, first, second, "--protocol", yard.protocol)
    refused = shell(*words)
    assert (refused.code, "delete 2 jobs of" in refused.err) == (2, True)
    assert yard.state(first) is JobState.WAITING
    assert shell(*words, "-y").code == 0
    assert yard.job(first) is None
    assert yard.job(second) is None


def test_a_waiting_job_is_cancelled(yard: Yard, shell: Shell) -> None:
    [job_id] = yard.add({})
    assert shell("job", "cancel", yard.queue.name, job_id, "--protocol", yard.protocol).code == 2
    assert shell("job", "cancel", yard.queue.name, job_id, "--protocol", yard.protocol, "--yes").code == 0
    assert yard.state(job_id) in (None, JobState.CANCELLED)


def test_what_a_handler_logged_is_printed(yard: Yard, shell: Shell) -> None:
    [job_id] = yard.work({"log": "two\nlines\x1b[2J"})
    place = (yard.queue.name, job_id, "--protocol", yard.protocol)
    assert shell("job", "logs", *place).out == "two\nlines\\x1b[2J\n"
    assert shell("job", "logs", *place, "--json").documents == [{"line": 0, "text": "two\nlines\x1b[2J"}]
    missing = shell("job", "logs", yard.queue.name, "nobody", "--protocol", yard.protocol)
    assert (missing.code, "no job 'nobody'" in missing.err) == (1, True)


@pytest.mark.parametrize(("data", "code", "last"), [({}, 0, "completed"), ({"fail": "x"}, 1, "dead")])
def test_a_job_is_followed_from_its_first_event_to_its_end(
    yard: Yard, shell: Shell, data: dict[str, str], code: int, last: str
) -> None:
    [job_id] = yard.work(data)
    yard.work({})
    said = shell("job", "tail", yard.queue.name, job_id, "--protocol", yard.protocol, "--json")
    assert said.code == code, said
    kinds = [event["kind"] for event in said.documents]
    assert (kinds[-1], {event["job_id"] for event in said.documents}) == (last, {job_id})
    assert "active" in kinds


def test_a_job_that_has_not_ended_is_followed_live(yard: Yard, shell: Shell, url: str) -> None:
    [job_id] = yard.add({"log": "x"})
    words = ["job", "tail", yard.queue.name, job_id, "--protocol", yard.protocol, "--json", "--url", url]
    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli", *words], stdout=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        first = tail.stdout.readline()
        yard.work({})
        rest = tail.stdout.read()
        assert tail.wait(30) == 0
    assert f'"{job_id}"' in first
    assert '"completed"' in rest


def test_a_dead_job_that_was_put_back_is_followed_to_its_new_end(yard: Yard, shell: Shell, url: str) -> None:
    [job_id] = yard.work({"fail": "x"})
    if shell("job", "retry", *yard.words[:1], job_id, *yard.words[1:]).code:
        return  # this protocol's failures are final
    words = ["job", "tail", yard.queue.name, job_id, "--protocol", yard.protocol, "--json", "--url", url]
    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli", *words], stdout=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        told = []
        while "dead" not in told:
            told.append(json.loads(tail.stdout.readline())["kind"])
        yard.work({})
        told += [json.loads(line)["kind"] for line in tail.stdout]
        assert tail.wait(30) == 1
    assert told.count("dead") == told.count("active") == 2


def test_a_job_that_ends_while_its_past_is_told_is_told_to_its_end(yards: Callable[[str], Yard]) -> None:
    yard = yards("bullmq")
    [job_id] = yard.add({})

    async def told() -> list[str]:
        job = await yard.queue.inspector.job(job_id)
        assert job is not None
        kinds = []
        async with aclosing(among_others(yard.queue, job)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, JobState):
                    return [*kinds, f"ended {event.value}"]
                if not kinds:
                    async with working(yard.app, queues=[yard.queue.name]):
                        await ended(yard.queue, job_id)
                kinds.append(event.kind)
        raise AssertionError(kinds)

    assert yard.app.sync(told()) == ["added", "waiting", "active", "completed", "ended completed"]


def test_a_job_that_is_gone_when_it_ends_has_ended_as_its_event_says(
    yards: Callable[[str], Yard], url: str
) -> None:
    yard = yards("bullmq")
    [job_id] = yard.add({}, remove_on_complete=True)
    words = ["job", "tail", "mail", job_id, "--json", "--url", url]
    with subprocess.Popen(
        [sys.executable, "-m", "corral.cli", *words], stdout=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        tail.stdout.readline()
        yard.work({})
        assert '"completed"' in tail.stdout.read()
        assert tail.wait(30) == 0
    assert yard.job(job_id) is None


# -- dlq ----------------------------------------------------------------------------------------------------


def test_dead_jobs_of_every_protocol_are_listed_the_last_first(
    yards: Callable[[str], Yard], shell: Shell
) -> None:
    died = [
        (protocol, yards(protocol).work({"fail": f"in {protocol}"})[0])
        for protocol in ("bullmq", "streams", "bridgemq")
    ]
    assert shell("dlq", "ls", "--reason", "nowhere").out == (
        "no dead jobs with a reason that has 'nowhere' here\n"
    )
    said = shell("dlq", "ls", "--json")
    assert [(job["protocol"], job["id"]) for job in said.documents] == list(reversed(died))
    [found] = shell("dlq", "ls", "--reason", "in bridge", "--json").documents
    assert found["protocol"] == "bridgemq"


def test_a_dead_job_is_shown_with_its_traces(yard: Yard, shell: Shell) -> None:
    dead, fine = yard.work({"fail": "no such user"}, {})
    said = shell("dlq", "show", yard.queue.name, dead, "--protocol", yard.protocol)
    assert said.code == 0
    assert "no such user" in said.out
    other = shell("dlq", "show", yard.queue.name, fine, "--protocol", yard.protocol)
    assert (other.code, "is completed, not dead" in other.err) == (1, True)


def test_dead_jobs_are_replayed_by_reason_and_by_id(yard: Yard, shell: Shell) -> None:
    ids = yard.work({"fail": "timed out"}, {"fail": "no such user"}, {"fail": "timed out twice"})
    words = ("dlq", "replay", *yard.words, "--reason", "timed out")
    assert "put back 2 dead jobs with a reason that has 'timed out'" in shell(*words).err
    said = shell(*words, "--yes")
    if not yard.can(Capability.RETRY):
        assert (said.code, "has no retry" in said.err) == (1, True)
        return
    assert [yard.state(job_id) for job_id in ids] == [JobState.WAITING, JobState.DEAD, JobState.WAITING]
    wrong = shell("dlq", "replay", yard.queue.name, ids[0], ids[1], "--protocol", yard.protocol, "--yes")
    assert (wrong.code, "nothing was changed" in wrong.err) == (1, True)
    assert yard.state(ids[1]) is JobState.DEAD
    assert shell("dlq", "replay", yard.queue.name, ids[1], "--protocol", yard.protocol, "--yes").code == 0
    assert yard.state(ids[1]) is JobState.WAITING


def test_dead_jobs_of_every_queue_are_replayed_together(yards: Callable[[str], Yard], shell: Shell) -> None:
    protocols = {protocol: yards(protocol) for protocol in ("bullmq", "streams", "bridgemq")}
    died = {protocol: yard.work({"fail": "x"})[0] for protocol, yard in protocols.items()}
    asked = shell("dlq", "replay")
    assert "put back 2 dead jobs of 'mail' (bullmq: 1), 'mail' (bridgemq: 1)" in asked.err
    assert shell("dlq", "replay", "--yes").code == 0
    states = {protocol: yard.state(died[protocol]) for protocol, yard in protocols.items()}
    assert states == {"bullmq": JobState.WAITING, "streams": JobState.DEAD, "bridgemq": JobState.WAITING}


def test_dead_jobs_are_discarded(yard: Yard, shell: Shell) -> None:
    keep, let_go = yard.work({"fail": "x", "n": 1}, {"fail": "x", "n": 2})
    words = ("dlq", "discard", *yard.words, "--data", '"n": 2')
    assert "delete 1 dead job with data that have" in shell(*words).err
    assert shell(*words, "--yes").code == 0
    assert (yard.job(let_go), yard.state(keep)) == (None, JobState.DEAD)


# -- finding and asking -------------------------------------------------------------------------------------


def test_a_queue_is_found_in_whichever_protocol_has_it(yards: Callable[[str], Yard], shell: Shell) -> None:
    bridge = yards("bridgemq")
    [job_id] = bridge.add({})
    [document] = shell("queue", "pause", "mail", "--json").documents
    assert document["protocol"] == "bridgemq"
    [job] = shell("job", "show", "mail", job_id, "--json").documents
    assert (job["protocol"], job["id"]) == ("bridgemq", job_id)
    yards("bullmq").add({})
    said = shell("queue", "pause", "mail")
    assert (said.code, "is in the protocols bullmq and bridgemq; choose one with --protocol" in said.err) == (
        2,
        True,
    )


def test_a_queue_that_is_not_there_is_told_with_those_that_are(
    yard: Yard, shell: Shell, server: Server
) -> None:
    yard.add({})
    for verb in ("pause", "drain", "clean", "retry", "show"):
        said = shell("queue", verb, "mial")
        assert said.code == 1
        assert f"no queue 'mial' in any protocol at {server.url}; there are: " in said.err
        assert f"'{yard.queue.name}' ({yard.protocol})" in said.err
    with server.connect() as client:
        assert client.keys("*mial*") == []


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 1, 2), (b"y\n", 0, 0)])
def test_at_a_terminal_it_asks(
    yards: Callable[[str], Yard], url: str, answer: bytes, code: int, left: int
) -> None:
    yard = yards("bullmq")
    yard.add({}, {})
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
    assert (command.returncode, yard.counts()[JobState.WAITING]) == (code, left)


def test_a_job_of_another_queue_is_left_alone(yards: Callable[[str], Yard], shell: Shell) -> None:
    yard = yards("bridgemq")
    [job_id] = yard.add({})
    yard.app.sync(yard.app.queue("sums", "bridgemq").add("add", {}))
    said = shell("job", "remove", "sums", job_id, "--yes")
    assert (said.code, f"no job '{job_id}' in queue 'sums'" in said.err) == (1, True)
    assert yard.state(job_id) is JobState.WAITING


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


def test_the_shell_completes_verbs_protocols_and_queues(yards: Callable[[str], Yard], url: str) -> None:
    yards("bullmq").add({})
    assert {"pause", "drain", "show"} <= complete("corral queue ")
    assert complete("corral queue ls --protocol b", REDIS_URL=url) == {"bullmq", "bridgemq"}
    assert complete("corral queue pause m", REDIS_URL=url) == {"mail"}
    assert complete("corral queue pause m", REDIS_URL="redis://127.0.0.1:1") == set()
