"""The README and the quickstart are true: their programs are taken from the page and run."""

import ast
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corral import Corral, JobState
from tests.support.polling import eventually
from tests.support.shell import corral, start

HOME = Path(__file__).parents[2]
PAGES = [str(page.relative_to(HOME)) for page in (*HOME.glob("*.md"), *(HOME / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```python\n# ([\w.]+)(, continued)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def unpack(page: str, folder: Path) -> list[str]:
    """Write the programs of a page into a folder; their names in order."""
    text = (HOME / page).read_text()
    assert text.count("```python") == len(_BLOCK.findall(text)), "every block says which file it is"
    names: list[str] = []
    for name, continued, body in _BLOCK.findall(text):
        ast.parse(body)
        with (folder / name).open("a" if continued else "x") as file:
            file.write(body)
        if name not in names:
            names.append(name)
    return names


def run(program: str, folder: Path) -> str:
    ended = subprocess.run(
        [sys.executable, program], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@contextmanager
def worker(*words: str, folder: Path) -> Iterator[None]:
    """A running worker, stopped by a signal at the end, gracefully."""
    process = start("worker", *words, cwd=folder)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=40)
        assert process.returncode == 0, log
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def folder(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REDIS_URL", url)
    return tmp_path


@pytest.fixture
def app(url: str) -> Iterator[Corral]:
    app = Corral(url)
    yield app
    app.sync(app.close())
    app.sync.close()


ADDED = "added 1 and 1001 more\n[0.1, 0.4, 0.2, 0.4]\n"


def test_the_example_of_the_readme_works(folder: Path, app: Corral) -> None:
    assert unpack("README.md", folder) == ["shop.py", "add.py"]
    mail, images = app.queue("mail"), app.queue("images")
    with worker("shop:app", "--concurrency", "50", folder=folder):
        assert run("add.py", folder) == ADDED
        assert eventually(lambda: app.sync(mail.counts())[JobState.COMPLETED] == 1002, 60)
        assert eventually(lambda: app.sync(images.logs("1")) == ["shrinking cow.jpg to 300 pixels"])
        texts = app.queue(protocol="streams")
        assert eventually(lambda: len(app.sync(texts.jobs(JobState.COMPLETED))) == 1)
    first, slow = app.sync(mail.job("1")), app.sync(mail.job("2"))
    assert first is not None
    assert slow is not None
    assert (first.result, first.attempts_made) == ({"sent": "ada@example.com"}, 1)
    assert (slow.result, slow.attempts_made) == ({"sent": "slow@example.com"}, 2)
    for command in ("queue ls", "job show mail 1", "events tail mail --from - --count 1"):
        assert corral(*command.split()).code == 0


def test_the_example_works_on_a_private_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("CORRAL_HOME", str(tmp_path / "home"))
    unpack("README.md", tmp_path)
    with worker("shop:app", folder=tmp_path):
        assert run("add.py", tmp_path) == ADDED
        done = '"completed": 1002'
        assert eventually(lambda: done in corral("queue", "ls", "--json").out, 60)


def test_the_quickstart_works(folder: Path, app: Corral) -> None:
    names = unpack("docs/quickstart.md", folder)
    assert names == ["barn.py", "add.py", "work.py", "look.py", "views.py"]
    queue = app.queue("animals")
    run("add.py", folder)
    milk = [app.sync(queue.add("milk", kind, attempts=2, backoff=10)).id
            for kind in ("cow", "busy", "goose", "asleep", "not mine", "lost", "typo")]  # fmt: skip
    with subprocess.Popen([sys.executable, "work.py"], cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            assert eventually(lambda: _ended(app) == 2504 + len(milk), 60)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
    jobs = [app.sync(queue.job(job_id)) for job_id in milk]
    assert [(job.state, job.attempts_made) for job in jobs if job] == [
        (JobState.COMPLETED, 1),
        (JobState.DEAD, 2),
        (JobState.DEAD, 1),
        (JobState.COMPLETED, 1),
        (JobState.COMPLETED, 1),
        (JobState.DEAD, 2),
        (JobState.DEAD, 1),
    ]
    looked = run("look.py", folder)
    assert "feeding cow" in looked
    assert run("views.py", folder).strip() == "waiting"


def _ended(app: Corral) -> int:
    counts = app.sync(app.queue("animals").counts())
    return counts[JobState.COMPLETED] + counts[JobState.DEAD]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    text = (HOME / page).read_text()
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not link.startswith(("http://", "https://")):
            assert ((HOME / page).parent / link).exists(), f"{page} links to {link}"


def test_the_commands_of_the_readme_are_there() -> None:
    text, makefile = (HOME / "README.md").read_text(), (HOME / "Makefile").read_text()
    targets = re.findall(r"^\$ make (\w+)", text, re.MULTILINE)
    assert targets == ["demo", "test"]
    assert all(f"\n{target}:" in makefile for target in targets)
    commands = re.findall(r"^\$ corral (worker|\w+ \w+)", text, re.MULTILINE)
    assert commands == ["worker", "queue ls", "job show", "events tail"]
    assert all(corral(*command.split(), "--help").code == 0 for command in commands)
