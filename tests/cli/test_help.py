"""`corral --help`, usage errors, the version, and completion."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from corral.cli import COMMANDS, GROUPS, LateCommand, root
from tests.cli.conftest import AppQueue
from tests.support.shell import Said, corral


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_help_names_every_command(words: list[str]) -> None:
    result = corral(*words)
    assert all(command in result.out + result.err for command in ("demo", "worker", "queue", "job", "events"))


@pytest.mark.parametrize(("name", "line"), [*COMMANDS.items(), *GROUPS.items()])
def test_the_line_in_the_help_is_the_first_of_the_commands_own_help(name: str, line: str) -> None:
    command = typer.main.get_command(root).commands[name]  # type: ignore[attr-defined]
    assert isinstance(command, LateCommand)
    assert command.load().get_short_help_str(limit=100) == line


@pytest.mark.parametrize("command", ["queue ls", "queue add", "job show", "events tail", "worker", "demo"])
def test_every_command_explains_itself(command: str) -> None:
    result = corral(*command.split(), "--help")
    assert result.code == 0
    assert "--json" in result.out
    if command != "demo":
        assert "--url" in result.out


@pytest.mark.parametrize("group", ["", "queue", "job", "dlq", "schedule", "events", "lake"])
def test_no_line_of_a_list_of_commands_is_cut_off(group: str) -> None:
    result = corral(*group.split(), "--help")
    assert [line for line in result.out.splitlines()[1:] if line.endswith("...")] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["queue", "show"], "Missing argument 'QUEUE'"),
        (["quue", "ls"], "No such command 'quue'. Did you mean 'queue'?"),
        (["queue", "pase", "mail"], "No such command 'pase'. Did you mean 'pause'?"),
        (["queue", "ls", "--protcol", "bullmq"], "--protcol"),
        (["queue", "add", "mail", "greet", "--delay", "soon"], "--delay"),
    ],
)
def test_a_usage_error_is_printed_as_text_or_as_json(words: list[str], message: str) -> None:
    text, program = corral(*words), corral("--json", *words)
    assert (text.code, text.out, program.code, program.out) == (2, "", 2, "")
    assert message in text.err
    document = json.loads(program.err)
    assert (document["error"], message in document["message"]) == ("InvalidOptions", True)


def test_the_version_is_that_of_the_package() -> None:
    from corral import __version__

    assert corral("--version") == Said(0, f"corral {__version__}\n", "")


def test_the_command_is_installed() -> None:
    assert os.access(Path(sys.executable).parent / "corral", os.X_OK)


def complete(line: str, **environment: str) -> set[str]:
    """Return the completions of this line."""
    words = line.split(" ")
    request = {"_CORRAL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    ended = subprocess.run(
        [sys.executable, "-c", "from corral.cli import main; main()"],
        env={**os.environ, **request, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return set(ended.stdout.split())


def test_the_shell_completes_commands_protocols_and_queues(
    app_queues: Callable[[str], AppQueue], url: str
) -> None:
    app_queues("bullmq").add({})
    assert {"pause", "drain", "show"} <= complete("corral queue ")
    assert complete("corral queue ls --protocol b", REDIS_URL=url) == {"bullmq", "bridgemq"}
    assert complete("corral queue pause m", REDIS_URL=url) == {"mail"}
    assert complete("corral queue pause m", REDIS_URL="redis://127.0.0.1:1") == set()
