"""Every command, one after the other: JSON, text, confirmation."""

import json
from collections.abc import Callable

import pytest

from corral import JobContext
from tests.cli.conftest import AppQueue, Shell
from tests.docs.pages import COMMANDS
from tests.support.servers import Server

Words = tuple[str, ...]

SERVED: dict[str, Words] = {
    "queue ls": (),
    "queue show": ("mail",),
    "queue add": ("mail", "send", '{"n": 1}'),
    "queue pause": ("mail",),
    "queue resume": ("mail",),
    "queue drain": ("mail", "--yes"),
    "queue clean": ("mail", "--yes"),
    "queue retry": ("mail", "--yes"),
    "job show": ("mail", "1"),
    "job logs": ("mail", "1"),
    "job tail": ("mail", "1"),
    "job retry": ("mail", "2"),
    "job promote": ("mail", "later"),
    "job remove": ("mail", "1", "--yes"),
    "job cancel": ("mail", "later", "--yes"),
    "dlq ls": (),
    "dlq show": ("mail", "2"),
    "dlq replay": ("mail", "--yes"),
    "dlq discard": ("mail", "--yes"),
    "schedule ls": (),
    "schedule run": ("films", "daily"),
    "schedule pause": ("films", "daily"),
    "schedule resume": ("films", "daily"),
    "workers": (),
    "events tail": ("mail", "--from", "-", "--count", "2"),
    "doctor": (),
    "top": ("--once", "--interval", "0.2"),
}
"""The arguments of each command that talks to a server and ends."""
LAKE = {
    f"lake {name}" for name in ("run", "report", "audit", "backfill", "capacity", "sql", "history", "convert")
}
ELSEWHERE = {"schedule prune", "demo", "worker", "gateway", "bench", "prove", "scripts export", "migrate"}
ELSEWHERE |= LAKE
"""Commands that run until they are stopped, start Spark or need no server: they have tests of their own."""
CONFIRMED = {
    "queue drain",
    "queue clean",
    "queue retry",
    "job remove",
    "job cancel",
    "dlq replay",
    "dlq discard",
}
SILENT = {"workers"}
"""Commands without output: no worker runs."""


@pytest.fixture
def busy_queue(app_queues: Callable[[str], AppQueue]) -> AppQueue:
    """A queue with one job of each kind, and a schedule in another protocol."""
    app_queue = app_queues("bullmq")
    app_queue.work({"log": "a line"}, {"fail": "no such user"})
    app_queue.add({}, id="later", delay=60_000)
    films = app_queue.app.job("film", queue="films", protocol="bridgemq")(_film)
    app_queue.app.sync(films.add({}))
    app_queue.app.sync(app_queue.app.schedule("film", cron="0 9 * * *", id="daily").start())
    return app_queue


async def _film(job: JobContext) -> None:
    """No worker runs it."""


def test_every_command_is_tried_here_or_elsewhere() -> None:
    assert {" ".join(words) for words in COMMANDS} == SERVED.keys() | ELSEWHERE
    assert {command for command, words in SERVED.items() if "--yes" in words} == CONFIRMED


@pytest.mark.parametrize("command", SERVED)
def test_a_command_prints_json_documents(busy_queue: AppQueue, shell: Shell, command: str) -> None:
    result = shell("--json", *command.split(), *SERVED[command])
    assert result.code == (1 if command == "doctor" else 0), result
    assert result.err == ""
    assert bool(result.documents) == (command not in SILENT)
    assert result.out.isascii()


@pytest.mark.parametrize("command", SERVED)
def test_without_json_a_command_prints_text(busy_queue: AppQueue, shell: Shell, command: str) -> None:
    result = shell(*command.split(), *SERVED[command])
    assert result.code == (1 if command == "doctor" else 0), result
    assert result.err == ""
    assert result.out.strip()
    assert "\x1b" not in result.out, "no colours where there is no terminal"
    assert not result.out.startswith(("{", "[")), "text, not JSON"


@pytest.mark.parametrize("command", sorted(CONFIRMED))
def test_a_destructive_command_names_the_count_and_changes_nothing_unconfirmed(
    busy_queue: AppQueue, shell: Shell, server: Server, command: str
) -> None:
    if command == "queue drain":
        busy_queue.add({}, {})
    before = busy_queue.counts()
    words = tuple(word for word in SERVED[command] if word != "--yes")
    result = shell("--json", *command.split(), *words)
    assert (result.code, result.out) == (2, "")
    message = json.loads(result.err)["message"]
    assert "use --yes to confirm. Nothing was changed" in message
    assert any(part in message.partition("?")[0] for part in ("1", "2", "'later'")), "how many, or which one"
    assert busy_queue.counts() == before


# `queue add` creates queues, `events tail` waits for them
ON_A_QUEUE = [command for command, words in SERVED.items() if words[:1] in (("mail",), ("films",))]


@pytest.mark.parametrize("command", sorted({*ON_A_QUEUE} - {"queue add", "events tail"}))
def test_a_missing_queue_is_an_error_and_is_not_created(
    busy_queue: AppQueue, shell: Shell, server: Server, command: str
) -> None:
    result = shell("--json", *command.split(), "mial", *SERVED[command][1:])
    assert (result.code, result.out) == (1, ""), result
    assert "'mial'" in json.loads(result.err.splitlines()[0])["message"]
    with server.connect() as client:
        assert client.keys("*mial*") == []
