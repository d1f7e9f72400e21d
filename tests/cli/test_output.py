"""Output: job data are printed as text, colours only in a terminal."""

import json

import pytest

from tests.cli.conftest import Shell, is_printable
from tests.support.servers import Server

HOSTILE = "a\x1b[2J\x07[bold red]b[/] \u202ec\u2028d\x9b1m"
"""Clears a screen, rings a bell, is markup, reverses the line, breaks it, and colours it."""
EVENTS = ["events", "tail", "mail", "--from", "-", "--count"]


def test_job_data_is_only_ever_printed_as_text(shell: Shell, server: Server) -> None:
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
            result = shell(*words, *flags)
            assert result.code == 0, result
            assert is_printable(result.out), result.out
            assert "[bold red]b[/]" in result.out, "markup is shown, not obeyed"


def test_text_that_cannot_be_encoded_is_shown_all_the_same(shell: Shell, server: Server) -> None:
    with server.connect() as client:
        client.hset("bull:mail:7", mapping={"name": b"\xff\xfe", "data": b'"\\ud800"', "opts": b"\xff"})
        client.hset("bull:mail:meta", "opts.maxLenEvents", 10)
    for flags in ([], ["--json"]):
        result = shell("job", "show", "mail", "7", *flags)
        assert result.code == 0
        assert "ud800" in result.out


def test_there_are_no_colours_in_a_pipe_or_with_no_color(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("queue", "add", "mail", "greet")
    assert "\x1b" not in shell(*EVENTS, "1").out, "not into a pipe"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[31m" in shell("job", "show", "mail", "9").err.replace("1;31", "31")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in shell("job", "show", "mail", "9").err
