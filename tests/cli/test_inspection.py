"""The command line for looking and adding: `queue`, `job`, `events`."""

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corral import Corral
from tests.support.servers import Server, free_port
from tests.support.shell import Said, corral, start

HOSTILE = "a\x1b[2J\x07[bold red]b[/] \u202ec\u2028d\x9b1m"
"""Clears a screen, rings a bell, is markup, turns the line around, breaks it, and colours it."""

EVENTS = ["events", "tail", "mail", "--from", "-", "--count"]


@pytest.fixture
def shell(url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """`corral …` with the address of an empty server in the environment."""
    monkeypatch.setenv("REDIS_URL", url)
    return corral


def is_harmless(text: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in text)


# -- help ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_help_names_every_command(words: list[str]) -> None:
    said = corral(*words)
    assert all(command in said.out + said.err for command in ("demo", "worker", "queue", "job", "events"))


@pytest.mark.parametrize("command", ["queue ls", "queue add", "job show", "events tail", "worker", "demo"])
def test_every_command_explains_itself(command: str) -> None:
    said = corral(*command.split(), "--help")
    assert said.code == 0
    assert "--json" in said.out
    if command != "demo":
        assert "--url" in said.out


@pytest.mark.parametrize("group", ["", "queue", "job", "dlq", "cron", "events", "lake"])
def test_no_line_of_a_list_of_commands_is_cut_off(group: str) -> None:
    said = corral(*group.split(), "--help")
    assert [line for line in said.out.splitlines()[1:] if line.endswith("...")] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["queue", "show"], "Missing argument 'QUEUE'"),
        (["queue", "pase", "mail"], "No such command 'pase'. Did you mean 'pause'?"),
        (["queue", "ls", "--rom", "bullmq"], "--rom"),
        (["queue", "add", "mail", "greet", "--delay", "soon"], "--delay"),
    ],
)
def test_a_wrong_command_line_is_told_to_people_and_to_programs(words: list[str], told: str) -> None:
    people, program = corral(*words), corral("--json", *words)
    assert (people.code, people.out, program.code, program.out) == (2, "", 2, "")
    assert told in people.err
    document = json.loads(program.err)
    assert (document["error"], told in document["message"]) == ("InvalidOptions", True)


def test_the_version_is_that_of_the_package() -> None:
    from corral import __version__

    assert corral("--version") == Said(0, f"corral {__version__}\n", "")


# -- queue add, job show ------------------------------------------------------------------------------------


def test_a_job_is_added_and_shown(shell: Callable[..., Said]) -> None:
    added = shell("queue", "add", "mail", "send-email", '{"to": "Ada"}', "--priority", "5", "--attempts", "7")
    assert added == Said(0, "1\n", "")
    shown = shell("job", "show", "mail", "1")
    assert shown.code == 0
    for part in ("send-email", "waiting", '{"to": "Ada"}', "0 made of 7", '"priority": 5'):
        assert part in shown.out


def test_every_option_of_add_reaches_the_job(shell: Callable[..., Said]) -> None:
    words = ["--id", "order-7", "--delay", "60000", "--backoff", '{"type": "fixed", "delay": 9}', "--lifo"]
    added = shell("queue", "add", "mail", "send-email", "[1]", "--json", *words)
    assert added.documents == [{"protocol": "bullmq", "queue": "mail", "id": "order-7"}]
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


@pytest.mark.parametrize(("given", "kind", "delay"), [("250", "fixed", 250), ("fixed", "fixed", 1000)])
def test_a_backoff_may_be_a_number_or_a_word(
    shell: Callable[..., Said], given: str, kind: str, delay: int
) -> None:
    assert shell("queue", "add", "mail", "greet", "--backoff", given).code == 0
    [job] = shell("job", "show", "mail", "1", "--json").documents
    assert (job["options"]["backoff"]["kind"], job["options"]["backoff"]["delay"]) == (kind, delay)


def test_data_comes_from_a_pipe_too(shell: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"from": "a pipe"}'))
    assert shell("queue", "add", "mail", "greet", "-").code == 0
    [job] = shell("job", "show", "mail", "1", "--json").documents
    assert job["data"] == {"from": "a pipe"}


def test_the_streams_protocol_has_its_own_options(shell: Callable[..., Said]) -> None:
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


def test_options_may_stand_before_the_command_and_after_it(shell: Callable[..., Said]) -> None:
    shell("queue", "add", "jobs", "embed", "{}", "--protocol", "streams")
    before = shell("--json", "--protocol", "streams", "queue", "ls")
    assert before == shell("queue", "ls", "--protocol", "streams", "--json")
    assert before.documents[0]["counts"] == {"waiting": 1, "active": 0}


# -- queue ls -----------------------------------------------------------------------------------------------


def test_queues_are_listed_with_counts_pause_and_workers(shell: Callable[..., Said], url: str) -> None:
    for delay in ("0", "60000"):
        shell("queue", "add", "mail", "greet", "--delay", delay)
    app = Corral(url)
    app.sync(app.queue("mail").pause())
    app.sync(app.close())
    app.sync.close()
    [mail] = shell("queue", "ls", "--json").documents
    counts = {"waiting": 1, "delayed": 1, "active": 0, "completed": 0, "dead": 0}
    assert mail == {"protocol": "bullmq", "queue": "mail", "counts": counts, "paused": True, "workers": []}
    said = shell("queue", "ls")
    titles, row = said.out.splitlines()
    assert " ".join(titles.split()) == "queue protocol waiting delayed active completed dead paused workers"
    assert row.split() == ["mail", "bullmq", "1", "1", "0", "0", "0", "paused", "0"]


def test_without_a_protocol_every_protocol_that_is_used_is_listed(shell: Callable[..., Said]) -> None:
    assert shell("queue", "ls").out == "no queues here yet; `corral queue add` makes one\n"
    assert shell("queue", "ls", "--json") == Said(0, "", "")
    shell("queue", "add", "mail", "greet")
    assert [row["protocol"] for row in shell("queue", "ls", "--json").documents] == ["bullmq"]
    shell("queue", "add", "jobs", "embed", "--protocol", "streams")
    assert [row["protocol"] for row in shell("queue", "ls", "--json").documents] == ["bullmq", "streams"]


def test_a_namespace_is_looked_into(shell: Callable[..., Said], server: Server) -> None:
    shell("queue", "add", "mail", "greet", "--namespace", "shop")
    with server.connect() as client:
        assert client.exists("shop:mail:1")
    assert shell("queue", "ls", "--json").documents == []
    [found] = shell("queue", "ls", "--namespace", "shop", "--json").documents
    assert found["queue"] == "mail"


def test_without_an_address_the_private_server_of_a_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    folder = ["--folder", str(tmp_path / "data")]
    assert corral("queue", "add", "mail", "greet", '"kept"', *folder).out == "1\n"
    [job] = corral("job", "show", "mail", "1", "--json", *folder).documents
    assert job["data"] == "kept", "the server of the first command is gone, its data are not"


# -- events tail --------------------------------------------------------------------------------------------


def test_events_end_when_nobody_reads_them_any_more(shell: Callable[..., Said], url: str) -> None:
    shell("queue", "add", "mail", "greet")
    tail = start("events", "tail", "mail", "--from", "-", "--json", REDIS_URL=url)
    try:
        assert tail.stdout is not None
        assert tail.stderr is not None
        tail.stdout.readline()
        tail.stdout.close()
        assert tail.wait(30) in (0, 1), "1 where it was just writing"
        assert tail.stderr.read() == ""
    finally:
        tail.kill()
        tail.wait()


def test_events_are_told_from_the_beginning_or_from_an_id(shell: Callable[..., Said]) -> None:
    for _ in range(2):
        shell("queue", "add", "mail", "greet")
    events = shell("events", "tail", "mail", "--from", "-", "--count", "4", "--json").documents
    assert [(event["kind"], event["job_id"]) for event in events] == [
        ("added", "1"),
        ("waiting", "1"),
        ("added", "2"),
        ("waiting", "2"),
    ]
    later = shell("events", "tail", "mail", "--from", events[1]["id"], "--count", "1")
    assert events[2]["id"] in later.out
    assert "added" in later.out
    assert len(later.out.splitlines()) == 1


def test_without_a_name_the_events_of_every_queue_are_told(shell: Callable[..., Said]) -> None:
    for queue in ("mail", "sums"):
        shell("queue", "add", queue, "greet")
    events = shell("events", "tail", "--from", "-", "--count", "4", "--json").documents
    assert sorted(event["queue"] for event in events) == ["mail", "mail", "sums", "sums"]


def test_without_a_protocol_the_events_of_every_protocol_are_told(
    shell: Callable[..., Said], server: Server
) -> None:
    shell("queue", "add", "mail", "greet")
    shell("queue", "add", "jobs", "embed", "--protocol", "streams")
    shell("queue", "add", "mail", "greet", "--protocol", "bridgemq")
    with server.connect() as client:
        count = sum(client.xlen(log) for log in ("bull:mail:events", "jobs:events", "bridge:events"))
    events = shell("events", "tail", "--from", "-", "--count", str(count), "--json").documents
    assert {event["protocol"] for event in events} == {"bullmq", "streams", "bridgemq"}


def test_new_events_are_told_as_they_come(shell: Callable[..., Said], url: str) -> None:
    shell("queue", "add", "mail", "greet")
    tail = start("events", "tail", "mail", "--from", "-", "--json", REDIS_URL=url)
    assert tail.stdout is not None
    try:
        assert [json.loads(tail.stdout.readline())["kind"] for _ in range(2)] == ["added", "waiting"]
        shell("queue", "add", "mail", "greet")
        assert json.loads(tail.stdout.readline())["job_id"] == "2"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(10) == 130
        assert tail.stderr is not None
        assert tail.stderr.read() == ""
    finally:
        tail.kill()


def test_a_reader_that_goes_away_is_no_error_to_talk_about(shell: Callable[..., Said], url: str) -> None:
    app = Corral(url)
    app.sync(app.queue("mail").add_many([("greet", n) for n in range(3000)]))
    app.sync(app.close())
    app.sync.close()
    tail = start("events", "tail", "mail", "--from", "-", REDIS_URL=url)
    assert tail.stdout is not None
    assert tail.stderr is not None
    tail.stdout.readline()
    tail.stdout.close()
    assert tail.wait(20) == 1
    assert "Traceback" not in tail.stderr.read()


# -- what is shown is text ----------------------------------------------------------------------------------


def test_job_data_is_only_ever_printed_as_text(shell: Callable[..., Said], server: Server) -> None:
    shell("queue", "add", "mail", "greet", json.dumps({HOSTILE: HOSTILE}))
    fields = {"failedReason": HOSTILE, "progress": json.dumps(HOSTILE), "stacktrace": json.dumps([HOSTILE]),
              "pb": HOSTILE, HOSTILE: HOSTILE, "name": HOSTILE}  # fmt: skip
    with server.connect() as client:
        client.hset("bull:mail:1", mapping=fields)
        client.rpush("bull:mail:1:logs", HOSTILE, "two\nlines\r\x1b[A")
        client.xadd("bull:mail:events", {"event": HOSTILE, "jobId": HOSTILE, HOSTILE: HOSTILE})
        client.hset(f"bull:{HOSTILE}:meta", "paused", "1")
    for words in (["job", "show", "mail", "1"], ["queue", "ls"], [*EVENTS, "3"]):
        for flags in ([], ["--json"]):
            said = shell(*words, *flags)
            assert said.code == 0, said
            assert is_harmless(said.out), said.out
            assert "[bold red]b[/]" in said.out, "markup is shown, not obeyed"


def test_text_that_no_encoding_has_is_shown_all_the_same(shell: Callable[..., Said], server: Server) -> None:
    with server.connect() as client:
        client.hset("bull:mail:7", mapping={"name": b"\xff\xfe", "data": b'"\\ud800"', "opts": b"\xff"})
        client.hset("bull:mail:meta", "opts.maxLenEvents", 10)
    for flags in ([], ["--json"]):
        said = shell("job", "show", "mail", "7", *flags)
        assert said.code == 0
        assert "ud800" in said.out


def test_very_long_data_is_cut_for_people_and_whole_for_programs(shell: Callable[..., Said]) -> None:
    shell("queue", "add", "mail", "greet", json.dumps("x" * 50_000))
    shown = shell("job", "show", "mail", "1")
    assert "… (50002 characters; --json shows all)" in shown.out
    assert len(shown.out) < 6000
    [job] = shell("job", "show", "mail", "1", "--json").documents
    assert job["data"] == "x" * 50_000


def test_colours_are_left_out_where_nobody_wants_them(
    shell: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("queue", "add", "mail", "greet")
    assert "\x1b" not in shell(*EVENTS, "1").out, "not into a pipe"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[31m" in shell("job", "show", "mail", "9").err.replace("1;31", "31")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in shell("job", "show", "mail", "9").err


# -- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["queue", "add", "mail", "greet", "{to: Ada}"], 2, "the data is no JSON"),
        (["queue", "add", "mail", "greet", "NaN"], 2, "NaN is no JSON number"),
        (["queue", "add", "mail", "greet", "1" + "0" * 69], 2, "64 bits: use text"),
        (["queue", "add", "mail", "greet", "[" * 100_000], 2, "nested too deeply"),
        (["queue", "add", "mail", "greet", "--id", "meta"], 2, "job id 'meta' is the name of one of"),
        (["queue", "add", "mail", "greet", "--delay", "-1"], 2, "delay is -1"),
        (["queue", "add", "mail", "greet", "--delay", "soon"], 2, "Invalid value for '--delay'"),
        (["queue", "add", "mail", "greet", "--backoff", "linear"], 2, "backoff type is 'linear'"),
        (["queue", "add", "mail", "greet", "--ttl", "5"], 2, "there is no option 'ttl_s'"),
        (["queue", "add", "a:b", "greet"], 2, "queue name 'a:b' contains ':'"),
        (["queue", "add", "mail", "embed", "--protocol", "streams"], 2, "'streams' has one queue, 'jobs'"),
        (["queue", "add", "jobs", "greet", "--protocol", "streams"], 2, "'streams' has no task 'greet'"),
        (["queue", "add", "mail"], 2, "Missing argument"),
        (["queue", "ls", "--protocol", "kafka"], 2, "no protocol 'kafka'; use one of bullmq"),
        (["queue", "lst"], 2, "No such command 'lst'"),
        (["job", "show", "mail", "9"], 1, "no job '9' in queue 'mail' of protocol 'bullmq' at redis://127.0.0.1:"),
        (["job", "show", "mail", "meta"], 1, "no job 'meta'"),
        (["job", "show", "mail", "\x1b[2J"], 1, r"no job '\x1b[2J'"),
        (["job", "show", "mail", "9", "--protocol", "streams"], 2, "protocol 'streams' has one queue"),
        (["events", "tail", "mail", "--from", "yesterday"], 2, "--from 'yesterday' is no event id"),
        (["events", "tail"], 1, "no queues are in use at redis://127.0.0.1:"),
        (["events", "tail", "mail", "--count", "0"], 2, "--count"),
        (["queue", "ls", "--url", "http://127.0.0.1"], 2, "cannot be used"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_a_mistake_is_a_line_and_an_exit_code(
    shell: Callable[..., Said], server: Server, words: list[str], code: int, sentence: str
) -> None:
    said = shell(*words)
    assert said.code == code
    assert sentence in " ".join(said.err.split())
    assert said.out == ""
    assert "Traceback" not in said.err
    assert is_harmless(said.err)
    with server.connect() as client:
        assert client.dbsize() == 0


def test_for_programs_a_mistake_is_a_document(shell: Callable[..., Said]) -> None:
    said = shell("queue", "add", "a:b", "greet", "--json")
    assert (said.code, said.out) == (2, "")
    told = json.loads(said.err)
    assert told["error"] == "InvalidName"
    assert told["message"].startswith("queue name 'a:b' contains ':'")


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    port = free_port()
    for command in ("queue ls", "queue add mail greet", "job show mail 1", "events tail"):
        said = corral(*command.split(), "--url", f"redis://me:secret@127.0.0.1:{port}")
        assert said.code == 3
        assert f"no server at redis://me:***@127.0.0.1:{port}" in said.err
        assert "REDIS_URL" in said.err, "and what to try"
        assert "secret" not in said.err
        assert "Traceback" not in said.err


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    (tmp_path / "file").write_text("no folder")
    said = corral("queue", "ls", "--folder", str(tmp_path / "file"))
    assert said.code == 3
    assert f"folder '{tmp_path / 'file'}' cannot hold the embedded server's data" in said.err


def test_the_command_is_installed() -> None:
    assert os.access(Path(sys.executable).parent / "corral", os.X_OK)
