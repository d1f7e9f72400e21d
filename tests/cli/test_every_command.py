"""Every verb, one after the other: documents for programs, what is asked and what is told."""

import json
from collections.abc import Callable

import pytest

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
    "cron ls": (),
    "cron run": ("films", "daily"),
    "cron pause": ("films", "daily"),
    "cron resume": ("films", "daily"),
    "workers": (),
    "events tail": ("mail", "--from", "-", "--count", "2"),
    "doctor": (),
    "top": ("--once", "--interval", "0.2"),
}
"""What each verb is given that talks to a server and ends."""
ELSEWHERE = {"demo", "worker", "gateway", "bench", "lake run", "lake report", "lake audit", "lake backfill"}
"""Those that go on until they are stopped, or start a Spark: they have tests of their own."""
ASKS = {"queue drain", "queue clean", "queue retry", "job remove", "job cancel", "dlq replay", "dlq discard"}
SILENT = {"workers"}
"""Nobody works here."""


@pytest.fixture
def busy(app_queues: Callable[[str], AppQueue]) -> AppQueue:
    """A queue with one job of each kind, and a schedule in another protocol."""
    app_queue = app_queues("bullmq")
    app_queue.work({"log": "a line"}, {"fail": "no such user"})
    app_queue.add({}, id="later", delay=60_000)
    films = app_queue.app.job("film", queue="films", protocol="bridgemq")(_film)
    app_queue.app.sync(films.add({}))
    app_queue.app.sync(app_queue.app.schedule("film", cron="0 9 * * *", id="daily").start())
    return app_queue


async def _film(job: object) -> None:
    """Nobody runs it."""


def test_every_verb_is_tried_here_or_elsewhere() -> None:
    assert {" ".join(words) for words in COMMANDS} == SERVED.keys() | ELSEWHERE
    assert {verb for verb, words in SERVED.items() if "--yes" in words} == ASKS


@pytest.mark.parametrize("verb", SERVED)
def test_a_verb_tells_programs_in_documents(busy: AppQueue, shell: Shell, verb: str) -> None:
    said = shell("--json", *verb.split(), *SERVED[verb])
    assert said.code == (1 if verb == "doctor" else 0), said
    assert said.err == ""
    assert bool(said.documents) == (verb not in SILENT)
    assert said.out.isascii()


@pytest.mark.parametrize("verb", SERVED)
def test_without_json_a_verb_tells_people(busy: AppQueue, shell: Shell, verb: str) -> None:
    said = shell(*verb.split(), *SERVED[verb])
    assert said.code == (1 if verb == "doctor" else 0), said
    assert said.err == ""
    assert said.out.strip()
    assert "\x1b" not in said.out, "no colours where there is no terminal"
    assert not said.out.startswith(("{", "[")), "people are told in words"


@pytest.mark.parametrize("verb", sorted(ASKS))
def test_a_verb_that_destroys_shows_the_count_and_changes_nothing_unasked(
    busy: AppQueue, shell: Shell, server: Server, verb: str
) -> None:
    if verb == "queue drain":
        busy.add({}, {})
    before = busy.counts()
    words = tuple(word for word in SERVED[verb] if word != "--yes")
    said = shell("--json", *verb.split(), *words)
    assert (said.code, said.out) == (2, "")
    message = json.loads(said.err)["message"]
    assert "say --yes to do it. Nothing was changed" in message
    assert any(told in message.partition("?")[0] for told in ("1", "2", "'later'")), "how many, or which"
    assert busy.counts() == before


# `queue add` makes queues, `events tail` waits for them
ON_A_QUEUE = [verb for verb, words in SERVED.items() if words[:1] in (("mail",), ("films",))]


@pytest.mark.parametrize("verb", sorted({*ON_A_QUEUE} - {"queue add", "events tail"}))
def test_a_queue_that_is_not_there_is_told_and_not_made(
    busy: AppQueue, shell: Shell, server: Server, verb: str
) -> None:
    said = shell("--json", *verb.split(), "mial", *SERVED[verb][1:])
    assert (said.code, said.out) == (1, ""), said
    assert "'mial'" in json.loads(said.err.splitlines()[0])["message"]
    with server.connect() as client:
        assert client.keys("*mial*") == []
