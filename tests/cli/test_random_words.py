"""Commands with random words: each ends with an exit code and a message, never with a traceback."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import AppQueue, Shell
from tests.cli.test_every_command import SERVED, busy_queue  # noqa: F401
from tests.docs.pages import COMMANDS
from tests.support.worker_processes import scaled

FEW, MANY = 60, 3000
ENDLESS = {"events tail", "job tail", "top", "doctor"}
"""Commands that follow something; and one that measures the machine."""
CODES = {0, 1, 2, 3}
VALUES = st.sampled_from(
    [
        "", "mail", "films", "nothing", "1", "2", "later", "daily", "-1", "0", "1.5", "nan", "9" * 30,
        "1e400", "5m", "-5s", "99999999999d", "*", "{", "{}", '{"n": 1}', "[1]", "null", "ü€", "a:b", "{a}",
        "a b", "x" * 300, "bullmq", "streams", "bridgemq", "dead", "waiting", "active", "*/5 * * * *", "-",
        "--", "$", "1-0", "@x", "2026-01-01", "2026-13-45T99:00", "\n", "true",
    ]
)  # fmt: skip


def words_of(command: str) -> st.SearchStrategy[list[str]]:
    """Words for a command: its options with values that fit or do not, and arguments."""
    names = [
        name for option in COMMANDS[tuple(command.split())].params for name in option.opts if name[:1] == "-"
    ]
    word = VALUES | st.sampled_from(sorted({*names, "--json", "--yes"} - {"--url", "-u"}))
    return st.lists(word, max_size=7) | st.lists(VALUES, max_size=3).map(
        lambda more: [*SERVED[command], *more]
    )


def run_random_words(shell: Shell, examples: int) -> None:
    commands = sorted(SERVED.keys() - ENDLESS)

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.sampled_from(commands), st.data())
    def check(command: str, data: st.DataObject) -> None:
        words = data.draw(words_of(command))
        result = shell(*command.split(), *words)
        assert result.code in CODES, result
        assert "Traceback" not in result.err
        assert result.code == 0 or result.err or result.out, "an error says what is wrong"

    check()
    listed = shell("--json", "queue", "ls")
    assert listed.code == 0, "the queues can be read after all of it"


def test_random_words_end_in_an_exit_code_and_a_message(busy_queue: AppQueue, shell: Shell) -> None:  # noqa: F811
    run_random_words(shell, FEW)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_very_many_random_words_end_in_an_exit_code_and_a_message(busy_queue: AppQueue, shell: Shell) -> None:  # noqa: F811
    run_random_words(shell, scaled(MANY, least=FEW))
