"""Changes by the command line are recorded; and jobs are selected by conditions."""

import getpass

import orjson
import redis

from corral.cli.session import CHANGES
from tests.cli.conftest import Shell
from tests.docs.pages import COMMANDS


def recorded(url: str) -> list[dict[str, str]]:
    """Return the entries of the audit log, the latest first."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return [fields for _, fields in client.xrevrange("corral:audit")]


def test_a_change_is_recorded_with_its_arguments_and_a_read_is_not(shell: Shell, url: str) -> None:
    assert shell("queue", "add", "mail", "send", '{"n": 1}').code == 0
    assert shell("queue", "pause", "mail", "--url", url).code == 0
    shell("queue", "ls")
    shell("job", "remove", "mail", "1", "--yes")
    removed, paused, added = recorded(url)
    assert [entry["action"] for entry in (removed, paused, added)] == [
        "job remove",
        "queue pause",
        "queue add",
    ]
    assert {entry["actor"] for entry in (removed, paused, added)} == {getpass.getuser()}
    assert {entry["via"] for entry in (removed, paused, added)} == {"cli"}
    assert (paused["queue"], paused["outcome"]) == ("mail", "0")
    assert orjson.loads(added["detail"])["data"] == '{"n": 1}'
    assert url not in str(paused), "an address may have a password"


def test_a_change_that_is_refused_is_not_recorded(shell: Shell, url: str) -> None:
    assert shell("queue", "pause", "nothing").code == 1
    assert recorded(url) == []


def test_every_command_that_is_recorded_exists() -> None:
    assert {" ".join(words) for words in COMMANDS} >= CHANGES


def test_jobs_are_selected_by_conditions(shell: Shell) -> None:
    for number in (1, 17):
        shell("queue", "add", "mail", "send", f'{{"user": {{"id": {number}}}}}')
    words = ("queue", "show", "mail", "--state", "waiting", "--json", "--where")
    [job] = shell(*words, "data.user.id = 17").documents
    assert job["data"] == {"user": {"id": 17}}
    wrong = shell(*words, "data.user ? 17")
    assert wrong.code == 2
    assert "is not a condition" in wrong.err
