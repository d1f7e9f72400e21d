"""`corral queue` in every protocol."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corral import Corral, JobState
from corral.core.options import Capability
from tests.cli.conftest import AppQueue, Shell
from tests.support.servers import Server
from tests.support.shell import Said


def test_a_job_is_added_and_shown(shell: Shell) -> None:
    added = shell("queue", "add", "mail", "send-email", '{"to": "Ada"}', "--priority", "5", "--attempts", "7")
    assert added == Said(0, "1\n", "")
    shown = shell("job", "show", "mail", "1")
    assert shown.code == 0
    for part in ("send-email", "waiting", '{"to": "Ada"}', "0 made of 7", '"priority": 5'):
        assert part in shown.out


def test_every_option_of_add_reaches_the_job(shell: Shell) -> None:
    words = ["--id", "order-7", "--delay", "60000", "--backoff", '{"type": "fixed", "delay": 9}', "--lifo"]
    added = shell("queue", "add", "mail", "send-email", "[1]", "--json", *words)
    assert added.documents == [{"protocol": "bullmq", "queue": "mail", "id": "order-7", "existed": False}]
    [job] = shell("job", "show", "mail", "order-7", "--json").documents
    assert (job["protocol"], job["queue"], job["id"], job["name"]) == (
        "bullmq",
        "mail",
        "order-7",
        "send-email",
    )
    assert (job["data"], job["state"], job["log"]) == ([1], "delayed", [])
    assert job["options"]["backoff"] == {"kind": "fixed", "delay": 9, "jitter": 0.0}
    assert (job["options"]["delay"], job["options"]["lifo"]) == (60_000, True)


@pytest.mark.parametrize(
    "words",
    [
        ("--unique", "17"),
        ("--unique", "true"),
        ("--throttle", "60000"),
        ("--throttle", '{"key": "ada", "period": 60000}'),
        ("--unique", '{"key": "ada", "period": 60000}'),
    ],
)
def test_a_job_that_counts_as_another_is_not_added_again(shell: Shell, words: tuple[str, ...]) -> None:
    add = ("queue", "add", "mail", "send-email", "{}", "--json", *words)
    first, second = shell(*add).documents[0], shell(*add).documents[0]
    assert (first["id"], first["existed"], second["id"], second["existed"]) == ("1", False, "1", True)


def test_the_last_of_debounced_jobs_is_kept(shell: Shell) -> None:
    for number in range(3):
        shell("queue", "add", "mail", "index", str(number), "--debounce", "60000")
    [job] = shell("queue", "show", "mail", "--state", "delayed", "--json").documents
    assert (job["data"], job["options"]["delay"]) == (2, 60_000)


def test_a_job_has_the_options_of_its_handler_where_the_app_is_named(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typed_shop.py").write_text(
        "from corral import Corral\n"
        "app = Corral()\n"
        "@app.job(queue='mail', attempts=7)\n"
        "async def send(to: str) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    add = ("queue", "add", "mail", "send")
    assert shell(*add, '{"to": "ada"}', "--app", "typed_shop:app").out == "1\n"
    assert shell("job", "show", "mail", "1", "--json").documents[0]["options"]["attempts"] == 7
    refused = shell(*add, '{"to": 5}', "--app", "typed_shop:app")
    assert refused.code != 0
    assert "the data of 'send' does not fit: to: Expected `str`, got `int`" in refused.err


@pytest.mark.parametrize(("backoff", "kind", "delay"), [("250", "fixed", 250), ("fixed", "fixed", 1000)])
def test_a_backoff_may_be_a_number_or_a_word(shell: Shell, backoff: str, kind: str, delay: int) -> None:
    assert shell("queue", "add", "mail", "greet", "--backoff", backoff).code == 0
    [job] = shell("job", "show", "mail", "1", "--json").documents
    assert (job["options"]["backoff"]["kind"], job["options"]["backoff"]["delay"]) == (kind, delay)


def test_data_is_read_from_a_pipe_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"from": "a pipe"}'))
    assert shell("queue", "add", "mail", "greet", "-").code == 0
    [job] = shell("job", "show", "mail", "1", "--json").documents
    assert job["data"] == {"from": "a pipe"}


def test_the_streams_protocol_has_its_own_options(shell: Shell) -> None:
    words = [
        "jobs",
        "embed",
        '{"text": "…"}',
        "--ttl",
        "60",
        "--idempotency-key",
        "k",
        "--protocol",
        "streams",
    ]
    first, second = shell("queue", "add", *words), shell("queue", "add", *words)
    assert first.code == second.code == 0
    assert first.out == second.out
    [job] = shell("--protocol", "streams", "--json", "job", "show", "jobs", first.out.strip()).documents
    assert (job["protocol"], job["options"]["extra"]) == ("streams", {"ttl_s": 60})


def test_options_that_only_one_protocol_has_are_given_by_name(
    app_queues: Callable[[str], AppQueue], shell: Shell
) -> None:
    target = '{"capabilities": ["gpu"]}'
    words = ("queue", "add", "films", "transcode", "--protocol", "bridgemq")
    result = shell(*words, "--option", f"target={target}", "--option", "keep_data=true")
    [job] = shell("job", "show", "films", result.out.strip(), "--json").documents
    assert job["options"]["extra"]["target"]["capabilities"] == ["gpu"]
    for wrong in ("target", "=1", "colour=blue"):
        result = shell(*words, "--option", wrong)
        assert (result.code, result.out) == (2, "")


def test_queues_are_listed_with_counts_pause_and_workers(shell: Shell, url: str) -> None:
    for delay in ("0", "60000"):
        shell("queue", "add", "mail", "greet", "--delay", delay)
    app = Corral(url)
    app.sync(app.queue("mail").pause())
    app.sync(app.close())
    app.sync.close()
    [mail] = shell("queue", "ls", "--json").documents
    counts = {"waiting": 1, "delayed": 1, "active": 0, "completed": 0, "dead": 0}
    assert mail == {"protocol": "bullmq", "queue": "mail", "counts": counts, "paused": True, "workers": []}
    result = shell("queue", "ls")
    titles, row = result.out.splitlines()
    assert " ".join(titles.split()) == "queue protocol waiting delayed active completed dead paused workers"
    assert row.split() == ["mail", "bullmq", "1", "1", "0", "0", "0", "paused", "0"]


def test_without_a_protocol_the_queues_of_every_protocol_in_use_are_listed(shell: Shell) -> None:
    assert shell("queue", "ls").out == "no queues yet; `corral queue add` creates one\n"
    assert shell("queue", "ls", "--json") == Said(0, "", "")
    shell("queue", "add", "mail", "greet")
    assert [row["protocol"] for row in shell("queue", "ls", "--json").documents] == ["bullmq"]
    shell("queue", "add", "jobs", "embed", "--protocol", "streams")
    assert [row["protocol"] for row in shell("queue", "ls", "--json").documents] == ["bullmq", "streams"]


def test_the_queues_of_a_namespace_are_listed(shell: Shell, server: Server) -> None:
    shell("queue", "add", "mail", "greet", "--namespace", "shop")
    with server.connect() as client:
        assert client.exists("shop:mail:1")
    assert shell("queue", "ls", "--json").documents == []
    [found] = shell("queue", "ls", "--namespace", "shop", "--json").documents
    assert found["queue"] == "mail"


def test_a_queue_is_shown_with_its_capabilities_and_its_latest_dead_jobs(
    app_queue: AppQueue, shell: Shell
) -> None:
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
    result = shell("queue", "show", *app_queue.words)
    assert result.code == 0
    assert "no such user" in result.out
    assert dead in result.out


def test_the_jobs_of_a_state_are_listed_and_searched_by_their_data(app_queue: AppQueue, shell: Shell) -> None:
    ids = app_queue.add({"to": "ada"}, {"to": "grace"}, {"to": "adam"})
    result = shell("queue", "show", *app_queue.words, "--state", "waiting", "--data", '"ada', "--json")
    assert [job["id"] for job in result.documents] == [ids[0], ids[2]]
    [one] = shell("queue", "show", *app_queue.words, "--state", "waiting", "--count", "1", "--json").documents
    assert one["id"] == ids[0], "the next to run first"
    assert shell("queue", "show", *app_queue.words, "--state", "dead").out == "no jobs are dead\n"


def test_a_list_goes_on_behind_its_cursor_whatever_moved(shell: Shell, app_queue: AppQueue) -> None:
    ids = app_queue.add(*({"n": n} for n in range(5)))
    words = ("queue", "show", *app_queue.words, "--state", "waiting", "--count", "2")
    *jobs, rest = shell(*words, "--json", "--cursor", "").documents
    app_queue.app.sync(app_queue.queue.cancel(ids[1:3]))
    *more, end = shell(*words, "--json", "--cursor", rest["next"]).documents
    assert [job["id"] for job in [*jobs, *more]] == [ids[0], ids[1], ids[3], ids[4]]
    assert end == {"next": None}
    shown = shell(*words[:-1], "1")
    assert "more: --cursor " in shown.out
    refused = shell(*words, "--cursor", "x")
    assert (refused.code, "cursor 'x' is not valid for waiting jobs" in refused.err) == (2, True)


def test_a_queue_is_paused_and_resumed_or_the_reason_is_given(app_queue: AppQueue, shell: Shell) -> None:
    app_queue.add({})
    result = shell("queue", "pause", *app_queue.words)
    if not app_queue.can(Capability.PAUSE):
        assert (result.code, result.out) == (2, "")
        assert "protocol 'streams' has no pause; stop its workers instead" in result.err
        return
    assert result.out == f"queue 'mail' of protocol '{app_queue.protocol}' is paused\n"
    assert app_queue.app.sync(app_queue.queue.is_paused())
    [document] = shell("queue", "resume", *app_queue.words, "--json").documents
    assert document == {"protocol": app_queue.protocol, "queue": "mail", "paused": False}
    assert not app_queue.app.sync(app_queue.queue.is_paused())


def test_drain_deletes_waiting_jobs_once_it_is_confirmed(app_queue: AppQueue, shell: Shell) -> None:
    app_queue.add({}, {}, {})
    refused = shell("queue", "drain", *app_queue.words)
    assert (refused.code, refused.out) == (2, "")
    question = f"delete 3 waiting jobs of queue '{app_queue.queue.name}' of protocol '{app_queue.protocol}'?"
    assert question in refused.err
    assert "no terminal to ask at; use --yes" in refused.err
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
        assert shell("queue", "add", *app_queue.words, app_queue.name, "--delay", "9").code == 2
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


def test_all_dead_jobs_are_retried_or_the_reason_is_given(app_queue: AppQueue, shell: Shell) -> None:
    ids = app_queue.work({"fail": "x"}, {"fail": "y"})
    unconfirmed = shell("queue", "retry", *app_queue.words)
    assert (unconfirmed.code, "retry 2 dead jobs" in unconfirmed.err) == (2, True)
    result = shell("queue", "retry", *app_queue.words, "--yes")
    if not app_queue.can(Capability.RETRY):
        assert (result.code, "an ended job stays ended" in result.err) == (1, True)
        return
    assert result.code == 0
    assert {app_queue.state(job_id) for job_id in ids} == {JobState.WAITING}
