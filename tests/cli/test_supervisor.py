"""`corral worker` with several processes, reloading, in a burst, and its health."""

import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from corral import Corral, JobState
from tests.support.polling import eventually
from tests.support.servers import free_port
from tests.support.shell import corral, start

SHOP = """
import asyncio, os
from corral import Corral

app = Corral()
VERSION = 1

@app.job("where", queue="mail")
async def where(job):
    await asyncio.sleep(0.05)
    return [os.getpid(), VERSION]

@app.job("order", queue="orders")
async def order(job):
    return await app.queue("mail").add("where", id=f"of-{job.id}") and None
"""
StartWorker = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an app in `shop.py`; REDIS_URL is set."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.setenv("REDIS_URL", url)
    return tmp_path


@pytest.fixture
def app(url: str) -> Iterator[Corral]:
    app = Corral(url)
    yield app
    app.sync(app.close())
    app.sync.close()


@pytest.fixture
def start_worker(folder: Path) -> Iterator[StartWorker]:
    started: list[subprocess.Popen[str]] = []

    def start_it(*words: str, **environment: str) -> "subprocess.Popen[str]":
        started.append(start("worker", "shop:app", *words, cwd=folder, **environment))
        return started[-1]

    yield start_it
    for process in started:
        if process.poll() is None:
            process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=10)


def run_jobs(app: Corral, count: int = 1) -> set[tuple[int, int]]:
    """Run jobs; return the processes that ran them, each with its version of the code."""
    ids = app.sync(app.queue("mail").add_many([("where", None)] * count))

    def results() -> list[object]:
        jobs = [app.sync(app.queue("mail").job(job_id)) for job_id in ids]
        return [job.result for job in jobs if job is not None and job.state is JobState.COMPLETED]

    assert eventually(lambda: len(results()) == count, 30)
    return {(result[0], result[1]) for result in results() if isinstance(result, list)}


def get(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of a request; 0 where there is no answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_are_restarted_when_they_die_and_end_with_a_signal(
    start_worker: StartWorker, app: Corral
) -> None:
    port = free_port()
    worker = start_worker("-c", "2", "--processes", "2", "--health-port", str(port))
    assert eventually(lambda: get(port, "/readyz")[0] == 200, 30)
    pids: set[int] = set()

    def both_seen() -> bool:
        pids.update(pid for pid, _ in run_jobs(app, 8))
        return len(pids) == 2

    assert eventually(both_seen, 30)
    killed = pids.pop()
    os.kill(killed, signal.SIGKILL)
    assert eventually(lambda: get(port, "/readyz")[0] == 503, 10), "one of two is gone"
    assert eventually(lambda: get(port, "/readyz")[0] == 200, 30), "another has taken its place"
    assert get(port, "/livez") == (200, "ok\n")
    assert get(port, "/other")[0] == 404
    pids.clear()
    assert eventually(both_seen, 30)
    assert killed not in pids
    metrics = get(port, "/metrics")[1]
    for number in (1, 2):
        assert f'corral_redis_up{{process="{number}",protocol="bullmq",queue="mail"}} 1.0' in metrics
    worker.terminate()
    _, log = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "a worker process died" in log
    assert not any(map(is_alive, pids))


def test_processes_end_with_a_supervisor_that_is_killed(start_worker: StartWorker, app: Corral) -> None:
    worker = start_worker("--processes", "2")
    [(pid, _)] = run_jobs(app)
    worker.kill()
    assert eventually(lambda: not is_alive(pid), 20)


def test_a_change_of_the_code_restarts_the_worker(
    start_worker: StartWorker, app: Corral, folder: Path
) -> None:
    worker = start_worker("--reload")
    assert {version for _, version in run_jobs(app)} == {1}
    (folder / "shop.py").write_text(SHOP.replace("VERSION = 1", "VERSION = 2"))
    assert eventually(lambda: {version for _, version in run_jobs(app)} == {2}, 30)
    (folder / "shop.py").write_text("a mistake")
    (folder / "shop.py").write_text(SHOP.replace("VERSION = 1", "VERSION = 3"))
    assert eventually(lambda: {version for _, version in run_jobs(app)} == {3}, 30)
    worker.send_signal(signal.SIGINT)
    _, log = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "shop.py" in log


def test_a_burst_ends_when_all_queues_are_empty(start_worker: StartWorker, app: Corral) -> None:
    ids = app.sync(app.queue("orders").add_many([("order", None)] * 20))
    app.sync(app.queue("mail").add("where", id="later", delay=600_000))
    worker = start_worker("--burst", "-q", "orders=1", "-q", "mail=5")
    _, log = worker.communicate(timeout=30)
    assert worker.returncode == 0
    counts = app.sync(app.queue("mail").counts())
    assert (counts[JobState.COMPLETED], counts[JobState.DELAYED]) == (len(ids), 1)
    assert '"concurrency": 1' in log, "each queue has its own"
    assert '"concurrency": 5' in log


def test_a_burst_leaves_a_paused_queue(start_worker: StartWorker, app: Corral) -> None:
    app.sync(app.queue("mail").add("where"))
    app.sync(app.queue("mail").pause())
    worker = start_worker("--burst", "--processes", "2")
    worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert app.sync(app.queue("mail").counts())[JobState.WAITING] == 1


def test_a_worker_that_cannot_start_ends_with_its_exit_code(start_worker: StartWorker, folder: Path) -> None:
    (folder / "shop.py").write_text("import nothing_of_that_name")
    worker = start_worker("--processes", "2")
    _, log = worker.communicate(timeout=30)
    assert worker.returncode == 1
    assert "nothing_of_that_name" in log


def test_a_private_server_is_announced_or_refused(start_worker: StartWorker, tmp_path: Path) -> None:
    environment = {"REDIS_URL": "", "CORRAL_HOME": str(tmp_path / "data"), "REDIS_URI": "redis://other"}
    announced = start_worker("--burst", **environment)
    _, log = announced.communicate(timeout=30)
    assert announced.returncode == 0
    assert "no Redis address was given" in log
    assert "REDIS_URI is set but not read: the variable is REDIS_URL" in log
    refused = start_worker(**environment, CORRAL_REQUIRE_REDIS="1")
    _, log = refused.communicate(timeout=30)
    assert refused.returncode == 2
    assert "CORRAL_REQUIRE_REDIS forbids a private server; set REDIS_URL" in log


@pytest.mark.parametrize("words", [["-q", "mail=many"], ["-q", "mail=0"], ["--processes", "0"]])
def test_a_number_that_is_none_is_refused(words: list[str]) -> None:
    result = corral("worker", "shop:app", *words)
    assert result.code == 2
    assert words[0].replace("-q", "--queue") in result.err
