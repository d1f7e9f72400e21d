"""What all commands at a server share: the queue, the confirmation, mistakes."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corral import JobState
from tests.cli.conftest import AppQueue, Shell, is_printable
from tests.support.servers import Server, free_port
from tests.support.shell import corral


def test_options_may_stand_before_the_command_and_after_it(shell: Shell) -> None:
    shell("queue", "add", "jobs", "embed", "{}", "--protocol", "streams")
    before = shell("--json", "--protocol", "streams", "queue", "ls")
    assert before == shell("queue", "ls", "--protocol", "streams", "--json")
    assert before.documents[0]["counts"] == {"waiting": 1, "active": 0}


def test_without_an_address_the_private_server_of_a_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    folder = ["--folder", str(tmp_path / "data")]
    assert corral("queue", "add", "mail", "greet", '"kept"', *folder).out == "1\n"
    [job] = corral("job", "show", "mail", "1", "--json", *folder).documents
    assert job["data"] == "kept", "the server of the first command is gone, its data are not"


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
    result = shell("queue", "pause", "mail")
    assert result.code == 2
    assert "is in the protocols bullmq and bridgemq; choose one with --protocol" in result.err


def test_a_missing_queue_is_an_error_that_lists_the_existing_ones(
    app_queue: AppQueue, shell: Shell, server: Server
) -> None:
    app_queue.add({})
    for verb in ("pause", "drain", "clean", "retry", "show"):
        result = shell("queue", verb, "mial")
        assert result.code == 1
        assert f"no queue 'mial' in any protocol at {server.url}; there are: " in result.err
        assert f"'{app_queue.queue.name}' ({app_queue.protocol})" in result.err
    with server.connect() as client:
        assert client.keys("*mial*") == []


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 1, 2), (b"y\n", 0, 0)])
def test_at_a_terminal_a_confirmation_is_requested(
    app_queues: Callable[[str], AppQueue], url: str, answer: bytes, code: int, left: int
) -> None:
    app_queue = app_queues("bullmq")
    app_queue.add({}, {})
    terminal, device = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "corral.cli", "queue", "drain", "mail", "--url", url],
            stdin=device,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as command:
            os.write(terminal, answer)
            _, errors = command.communicate(timeout=30)
    finally:
        os.close(terminal)
        os.close(device)
    assert b"delete 2 waiting jobs of queue 'mail' of protocol 'bullmq'? [y/N]" in errors
    assert (b"nothing was changed" in errors) == (code == 1)
    assert (command.returncode, app_queue.counts()[JobState.WAITING]) == (code, left)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["queue", "add", "mail", "greet", "{to: Ada}"], 2, "the data is not JSON"),
        (["queue", "add", "mail", "greet", "NaN"], 2, "NaN is not a JSON number"),
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
        (["events", "tail", "mail", "--from", "yesterday"], 2, "--from 'yesterday' is not an event id"),
        (["events", "tail"], 1, "no queues are in use at redis://127.0.0.1:"),
        (["events", "tail", "mail", "--count", "0"], 2, "--count"),
        (["queue", "ls", "--url", "http://127.0.0.1"], 2, "cannot be used"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_a_mistake_is_a_line_and_an_exit_code(
    shell: Shell, server: Server, words: list[str], code: int, sentence: str
) -> None:
    result = shell(*words)
    assert result.code == code
    assert sentence in " ".join(result.err.split())
    assert result.out == ""
    assert "Traceback" not in result.err
    assert is_printable(result.err)
    with server.connect() as client:
        assert client.dbsize() == 0


def test_with_json_a_mistake_is_a_document(shell: Shell) -> None:
    result = shell("queue", "add", "a:b", "greet", "--json")
    assert (result.code, result.out) == (2, "")
    document = json.loads(result.err)
    assert document["error"] == "InvalidName"
    assert document["message"].startswith("queue name 'a:b' contains ':'")


def test_an_unreachable_server_is_named_without_its_password() -> None:
    port = free_port()
    for command in ("queue ls", "queue add mail greet", "job show mail 1", "events tail"):
        result = corral(*command.split(), "--url", f"redis://me:secret@127.0.0.1:{port}")
        assert result.code == 3
        assert f"no server at redis://me:***@127.0.0.1:{port}" in result.err
        assert "REDIS_URL" in result.err, "and what to try"
        assert "secret" not in result.err
        assert "Traceback" not in result.err


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    (tmp_path / "file").write_text("no folder")
    result = corral("queue", "ls", "--folder", str(tmp_path / "file"))
    assert result.code == 3
    assert f"folder '{tmp_path / 'file'}' cannot hold the embedded server's data" in result.err
