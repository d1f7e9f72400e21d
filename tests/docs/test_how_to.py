"""The programs and units of the how-to pages are whole: they are written to files, imported and run."""

import configparser
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral import Corral, JobState
from tests.docs.pages import COMMANDS, HOME, Page
from tests.support.polling import eventually
from tests.support.shell import corral, start

PAGES = [
    "retries",
    "cron",
    "logging",
    "integrations",
    "routing",
    "migrate-from-rq",
    "migrate-from-celery",
    "migrate-from-arq",
]
ADDS = {
    "routing": ("studio.py", "films", 2),
    "migrate-from-rq": ("shop.py", "mail", 1),
    "migrate-from-celery": ("shop.py", "mail", 1),
    "migrate-from-arq": ("shop.py", "mail", 1),
}
"""Page -> a program, and how many jobs it adds to which queue."""


@pytest.fixture
def app(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Corral]:
    monkeypatch.setenv("REDIS_URL", url)
    app = Corral(url)
    yield app
    app.sync(app.close())
    app.sync.close()


def run(folder: Path, *words: str) -> str:
    ended = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_can_be_imported(page: str, tmp_path: Path, app: Corral) -> None:
    names = Page(f"docs/how-to/{page}.md").unpack(tmp_path)
    assert names
    for name in names:
        run(tmp_path, "-c", f"import {name.removesuffix('.py')}")


def test_the_tests_on_the_page_about_testing_pass(tmp_path: Path) -> None:
    Page("docs/how-to/testing.md").unpack(tmp_path)
    output = run(tmp_path, "-m", "pytest", "-q", "-p", "corral.testing.plugin", "test_shop.py")
    assert "4 passed" in output


@pytest.mark.parametrize("page", ADDS)
def test_the_programs_that_add_jobs_add_them(page: str, tmp_path: Path, app: Corral) -> None:
    program, queue, count = ADDS[page]
    Page(f"docs/how-to/{page}.md").unpack(tmp_path)
    run(tmp_path, program)
    counts = app.sync(app.queue(queue, "bridgemq" if page == "routing" else None).counts())
    assert counts[JobState.WAITING] + counts[JobState.DELAYED] == count


def test_what_is_tried_again_is_as_the_page_says(tmp_path: Path, app: Corral) -> None:
    Page("docs/how-to/retries.md").unpack(tmp_path)
    queue = app.queue("parcels")
    cases = {"busy": (JobState.DEAD, 2), "nowhere": (JobState.DEAD, 1), "broken": (JobState.DEAD, 1),
             "closed": (JobState.COMPLETED, 1), "not mine": (JobState.COMPLETED, 1),
             "slow": (JobState.COMPLETED, 3)}  # fmt: skip

    def add(to: str) -> str:
        attempts = 3 if to == "slow" else 2
        return app.sync(queue.add("ship", {"to": to}, attempts=attempts, backoff=10)).id

    ids = {to: add(to) for to in cases}
    worker = start("worker", "shop:app", cwd=tmp_path)
    try:

        def is_over() -> bool:
            jobs = [app.sync(queue.job(job_id)) for job_id in ids.values()]
            return all(job is not None and job.state in (JobState.DEAD, JobState.COMPLETED) for job in jobs)

        assert eventually(is_over, 40)
    finally:
        worker.terminate()
        worker.communicate(timeout=40)
    found = {}
    for to, job_id in ids.items():
        job = app.sync(queue.job(job_id))
        assert job is not None
        found[to] = (job.state, job.attempts_made)
    assert found == cases


def test_the_schedules_of_the_page_are_listed_once_a_worker_has_run(tmp_path: Path, app: Corral) -> None:
    Page("docs/how-to/cron.md").unpack(tmp_path)
    run(tmp_path, "ticks.py")
    worker = start("worker", "reports:app", cwd=tmp_path)
    try:

        def schedules() -> set[str]:
            return {found["id"] for found in corral("schedule", "ls", "--json").documents}

        assert eventually(lambda: schedules() == {"berlin", "all-shops", "tick"}, 40)
        assert corral("schedule", "run", "reports", "berlin").out.startswith("berlin@")
        assert corral("schedule", "pause", "reports", "berlin").code == 0
        assert corral("schedule", "resume", "reports", "berlin").code == 0
    finally:
        worker.terminate()
        worker.communicate(timeout=40)


def test_the_units_start_commands_that_are_there(tmp_path: Path) -> None:
    names = Page("docs/how-to/systemd.md").unpack(tmp_path, kind="ini")
    assert names == ["shop-worker@.service", "shop-gateway.service"]
    for name in names:
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read(tmp_path / name)
        words = shlex.split(unit["Service"]["ExecStart"])
        assert Path(words[0]).name == "corral"
        help_text = corral(words[1], "--help").out
        assert all(word in help_text for word in words[2:] if word.startswith("--"))
    worker = configparser.ConfigParser(strict=False, interpolation=None)
    worker.read(tmp_path / names[0])
    grace = float(shlex.split(worker["Service"]["ExecStart"])[-5])
    assert float(worker["Service"]["TimeoutStopSec"]) > grace


@pytest.mark.parametrize("page", sorted((HOME / "docs" / "how-to").glob("*.md")), ids=lambda path: path.stem)
def test_every_command_of_a_page_is_one(page: Path) -> None:
    blocks = Page(str(page.relative_to(HOME))).consoles()
    for typed in (typed for block in blocks for typed in block):
        words = [word for word in shlex.split(typed.command, comments=True) if word]
        if words[0] != "corral":
            continue
        command = COMMANDS.get(tuple(words[1:3])) or COMMANDS.get(tuple(words[1:2]))
        assert command is not None, typed.command
        if command.context_settings.get("ignore_unknown_options"):
            continue  # its options are those of the program that it starts
        known = {option for parameter in command.params for option in parameter.opts}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= known, typed.command
