"""`corral worker module:app`: importing the app, signals, and mistakes."""

import json
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
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

@app.job("where", queue="mail")
async def where(job):
    return [type(asyncio.get_running_loop()).__module__, os.getcwd()]

@app.job("heavy", queue="mail", process=True)
def heavy(job):
    return os.getpid()

@app.job("add", queue="sums")
def add(job):
    return sum(job.data)
"""


@pytest.fixture
def folder(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an app in `shop.py`, as the current directory; REDIS_URL is set."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.setenv("REDIS_URL", url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path
    # a module that a command imported from here must not stay for the next test
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def app(url: str) -> Iterator[Corral]:
    app = Corral(url)
    yield app
    app.sync(app.close())
    app.sync.close()


class WorkerProcess:
    """A worker process."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self._process = start("worker", *words, cwd=cwd)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; return the exit code, the output and the log."""
        self._process.send_signal(number)
        out, err = self._process.communicate(timeout=30)
        return self._process.returncode, out, err

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def result(app: Corral, queue: str, job_id: str) -> object:
    """Wait for the end of a job, and return its result."""
    handle = app.queue(queue)

    def has_ended() -> bool:
        job = app.sync(handle.job(job_id))
        return job is not None and job.state in (JobState.COMPLETED, JobState.DEAD)

    assert eventually(has_ended, 30)
    job = app.sync(handle.job(job_id))
    assert job is not None
    assert job.state is JobState.COMPLETED, job.reason
    return job.result


# -- at work ------------------------------------------------------------------------------------------------


def test_a_worker_runs_the_app_of_its_folder_until_a_signal(folder: Path, app: Corral) -> None:
    ids = [app.sync(app.queue("mail").add(name)).id for name in ("where", "heavy")]
    total = app.sync(app.queue("sums").add("add", [1, 2, 3])).id
    with WorkerProcess("shop:app", "--concurrency", "3", "--name", "shop-1", cwd=folder) as worker:
        loop, directory = result(app, "mail", ids[0])  # type: ignore[misc]
        assert directory == str(folder)
        assert loop == "uvloop", "the faster loop is used where it is installed"
        assert isinstance(result(app, "mail", ids[1]), int), "a child process finds the module too"
        assert result(app, "sums", total) == 6
        assert [seen.name for seen in app.sync(app.queue("mail").workers())] == ["shop-1"]
        code, out, log = worker.stop()
    assert (code, out) == (0, "")
    lines = [json.loads(line) for line in log.splitlines()]
    assert {line["event"] for line in lines} >= {"working", "stopping", "stopped"}
    assert {line["concurrency"] for line in lines if line["event"] == "working"} == {3}


def test_a_worker_serves_only_the_queues_it_is_given(folder: Path, app: Corral) -> None:
    mail = app.sync(app.queue("mail").add("where")).id
    total = app.sync(app.queue("sums").add("add", [4])).id
    with WorkerProcess("shop", "--queue", "sums", cwd=folder) as worker:
        assert result(app, "sums", total) == 4
        assert worker.stop(signal.SIGINT)[0] == 0
    job = app.sync(app.queue("mail").job(mail))
    assert job is not None
    assert job.state is JobState.WAITING


def test_metrics_are_served_at_the_given_port(folder: Path, app: Corral) -> None:
    port = free_port()
    total = app.sync(app.queue("sums").add("add", [4])).id
    with WorkerProcess("shop:app", "--health-port", str(port), cwd=folder) as worker:
        assert result(app, "sums", total) == 4

        def exposition() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())

        line = 'corral_jobs_total{outcome="completed",protocol="bullmq",queue="sums"} 1.0'
        assert eventually(lambda: line in exposition())
        assert worker.stop()[0] == 0


def test_an_address_on_the_command_line_is_that_of_an_app_without_one(
    folder: Path, app: Corral, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_URL")
    total = app.sync(app.queue("sums").add("add", [5])).id
    with WorkerProcess("shop:app", "--url", url, cwd=folder) as worker:
        assert result(app, "sums", total) == 5
        assert worker.stop()[0] == 0


# -- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["shed:app"], 2, "there is no module 'shed' here ({folder}) or among the installed packages"),
        (["shed.shop:app"], 2, "there is no module 'shed.shop'"),
        (["shop:store"], 2, "module 'shop' has no 'store'; use shop:app"),
        (["shop:os"], 2, "'shop:os' is a module, not a Corral; use shop:app"),
        (["shop/app.py"], 2, "'shop/app.py' is not an app; write module:name"),
        ([""], 2, "'' is not an app"),
        (["missing:app"], 1, "importing 'missing' fails: ModuleNotFoundError: No module named 'nowhere'"),
        (["crooked:app"], 1, "importing 'crooked' fails: SyntaxError"),
        (["falls:app"], 1, "importing 'falls' fails: RuntimeError: it is raining \\x1b[2J"),
        (["empty:app"], 2, "module 'empty' has no 'app'; it has no Corral at its top level"),
        (["idle:app"], 2, "no handler for any queue"),
        (["shop:app", "-q", "mial"], 2, "no handler for queue 'mial'; there are some for: mail, sums"),
        (["shop:app", "--protocol", "streams"], 2, "no handler for any queue of protocol 'streams'"),
        (["shop:app", "--protocol", "kafka"], 2, "no protocol 'kafka'; use one of bullmq"),
        (["shop:app", "-c", "0"], 2, "concurrency 0 is outside 1..10000"),
        (["shop:app", "--name", "two words"], 2, "worker name 'two words' does not fit"),
        (["shop:app", "--log-level", "loud"], 2, "'loud' is not one of debug, info"),
        (["shop:app", "--health-port", "70000"], 2, "--health-port"),
        (["shop:app", "--on", "kafka://h:1"], 2, "--on is 'kafka://h:1', which is no master of Spark"),
        (["shop:app", "--on", "spark://nowhere"], 2, "write host and port, such as spark://host:7077"),
        (["shop:app", "--on", "spark://127.0.0.1:1"], 2, "no Spark master answers at spark://127.0.0.1:1"),
        (["shop:store", "--on", "local[2]"], 2, "module 'shop' has no 'store'; use shop:app"),
        (["shop:app", "--on", "local[2]", "-q", "mial"], 2, "no handler for queue 'mial'"),
        (["shop:app", "--on", "local[2]", "--conf", "memory"], 2, "--conf is 'memory'; use one such as"),
        (["shop:app", "--on", "local[2]", "--reload"], 2, "it is not for workers on Spark"),
        (["shop:app", "--conf", "spark.driver.memory=1g"], 2, "name a master too: --on local[4]"),
        (["own:app", "--url", "redis://127.0.0.1:6"], 2, "own:app has an address of its own, redis://:***@127.0.0.1:7"),
        (["own:app"], 3, "no server at redis://:***@127.0.0.1:7"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_mistake_is_an_error_and_an_exit_code(
    folder: Path, words: list[str], code: int, sentence: str
) -> None:
    (folder / "missing.py").write_text("import nowhere\n")
    (folder / "crooked.py").write_text("app = (\n")
    (folder / "falls.py").write_text("raise RuntimeError('it is raining \\x1b[2J')\n")
    (folder / "empty.py").write_text("")
    (folder / "idle.py").write_text("from corral import Corral\napp = Corral()\n")
    (folder / "own.py").write_text(
        "from corral import Corral\napp = Corral('redis://:secret@127.0.0.1:7')\n"
        "@app.job('greet')\ndef greet(job): ...\n"
    )
    ended = corral("worker", *words)
    assert ended.code == code, ended
    assert sentence.format(folder=folder) in ended.err
    assert "Traceback" not in ended.err
    assert "secret" not in ended.err
    assert "\x1b" not in ended.err


def test_the_line_of_a_failing_import_is_named(folder: Path) -> None:
    (folder / "falls.py").write_text("import os\n\n\nos.environ['NOWHERE']\n")
    ended = corral("worker", "falls:app")
    assert "KeyError: 'NOWHERE'" in ended.err
    assert "falls.py, line 4" in ended.err or "line 4: os.environ['NOWHERE']" in ended.err


def test_a_port_that_is_taken_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = corral("worker", "shop:app", "--health-port", str(port))
    assert ended.code == 2
    assert (
        f"the health of the worker cannot be served at 127.0.0.1:{port} (Address already in use)" in ended.err
    )


def test_no_process_of_a_worker_is_left_behind(folder: Path, app: Corral) -> None:
    heavy = app.sync(app.queue("mail").add("heavy")).id
    with WorkerProcess("shop:app", cwd=folder) as worker:
        child = result(app, "mail", heavy)
        assert Path(f"/proc/{child}").exists()
        assert worker.stop()[0] == 0
    assert eventually(lambda: not Path(f"/proc/{child}").exists())


def test_options_that_belong_to_the_app_are_refused(folder: Path) -> None:
    for option in (["--namespace", "shop"], ["--folder", "data"]):
        ended = corral(*option, "worker", "shop:app")
        assert ended.code == 2
        assert option[0] in ended.err
