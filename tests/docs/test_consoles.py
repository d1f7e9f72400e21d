"""Every command on the README and the quickstart is typed, and prints what the page says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from corral import Corral, JobState
from tests.docs.pages import Page, Terminal
from tests.support.polling import eventually

EXCEPTED = ("make demo", "make test")
"""They are tests themselves, or run this one."""


@pytest.fixture
def app(url: str) -> Iterator[Corral]:
    app = Corral(url)
    yield app
    app.sync(app.close())
    app.sync.close()


@pytest.fixture
def terminal(tmp_path: Path, url: str) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, url)
    yield terminal
    terminal.kill()


def is_done(app: Corral) -> bool:
    """Does nothing wait or run in any queue of the usual protocol?"""
    unfinished = (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE)
    queues = app.sync(app.queues())
    counts = [app.sync(queue.counts()) for queue in queues]
    return bool(queues) and not any(count[state] for count in counts for state in unfinished)


@pytest.mark.parametrize("path", ["README.md", "docs/quickstart.md", "docs/tutorial.md"])
def test_the_commands_of_a_page_do_what_it_says(
    path: str, tmp_path: Path, terminal: Terminal, app: Corral
) -> None:
    page = Page(path)
    page.unpack(tmp_path)
    consoles = [
        [typed for typed in block if not typed.command.startswith(EXCEPTED)] for block in page.consoles()
    ]
    assert sum(map(len, consoles)) >= 5
    has_worker = False
    for block in consoles:
        for typed in block:
            terminal.run(typed)
            is_worker = typed.command.startswith("corral worker") and "--burst" not in typed.command
            has_worker = has_worker or is_worker
            if typed.command.startswith("python") and has_worker:
                assert eventually(lambda: is_done(app), 60), "the worker does not do what was added"
        if has_worker:
            assert eventually(lambda: is_done(app), 60), "the worker does not do what was added"
    terminal.close()


@pytest.mark.parametrize("path", ["README.md", "docs/quickstart.md", "docs/tutorial.md"])
def test_every_block_of_a_page_is_run_or_is_what_something_prints(path: str) -> None:
    kinds = [kind for kind, _ in Page(path).blocks]
    assert set(kinds) <= {"python", "console", "text"}, "a block of another kind would be run by no test"
    assert kinds.count("text") <= 1, "only what `make demo` prints"
