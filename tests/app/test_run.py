"""`app.run` until a signal comes: the first ends gently, the second at once, and nothing is lost."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from corral import Corral, InvalidOptions, JobState
from corral.errors import RedisConnectionError
from tests.support.polling import eventually
from tests.support.servers import Server, free_port

PROGRAM = """
import asyncio, logging, os, pathlib, sys
from corral import Corral

logging.basicConfig(level="INFO")

app = Corral()
go = pathlib.Path(sys.argv[1])

@app.job("wait", queue="mail")
async def wait(job):
    while not go.exists():
        await asyncio.sleep(0.01)
    return "went"

@app.job("block", queue="mail")
def block(job):
    import threading
    threading.Event().wait(60)

@app.job("embed", protocol="streams")
async def embed(job):
    while not go.exists():
        await asyncio.sleep(0.01)

if __name__ == "__main__":
    asyncio.run(app.run(concurrency=int(sys.argv[2]), grace=float(sys.argv[3])))
    print("left", flush=True)
"""


class WorkerProgram:
    """A process that works, and the queue it works on."""

    def __init__(self, url: str, folder: Path, concurrency: int, grace: float, **options: Any) -> None:
        (folder / "program.py").write_text(PROGRAM)
        self._go = folder / "go"
        self._log = folder / "log"
        words = [sys.executable, "program.py", str(self._go), str(concurrency), str(grace)]
        with self._log.open("wb") as log:
            options = {"stdout": log, "stderr": subprocess.STDOUT, **options}
            self.process = subprocess.Popen(
                words, cwd=folder, env={**os.environ, "REDIS_URL": url}, **options
            )

    def log(self) -> str:
        return self._log.read_text()

    def finish_handlers(self) -> None:
        """The handlers may end."""
        self._go.touch()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self, seconds: float = 20.0) -> int:
        """How it ended, within that time."""
        return self.process.wait(seconds)


@pytest.fixture
def start_program(url: str, tmp_path: Path) -> Iterator[Callable[..., WorkerProgram]]:
    opened: list[WorkerProgram] = []

    def start_program(
        concurrency: int = 1, grace: float = 30.0, address: str = url, **options: Any
    ) -> WorkerProgram:
        opened.append(WorkerProgram(address, tmp_path, concurrency, grace, **options))
        return opened[-1]

    yield start_program
    for one in opened:
        one.process.kill()
        one.process.wait()


@pytest.fixture
def app(url: str) -> Iterator[Corral]:
    """The same queue, seen from here through `app.sync`."""
    app = Corral(url)
    yield app
    app.sync(app.close())
    app.sync.close()


def state(app: Corral, job_id: str, protocol: str = "bullmq") -> JobState | None:
    queue = app.queue("mail") if protocol == "bullmq" else app.queue(protocol=protocol)
    job = app.sync(queue.job(job_id))
    return None if job is None else job.state


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_claiming_and_lets_running_jobs_end(
    app: Corral, start_program: Callable[..., WorkerProgram], number: signal.Signals
) -> None:
    first, second = app.sync(app.queue("mail").add_many([("wait", 1), ("wait", 2)]))
    worker = start_program(concurrency=1)
    assert eventually(lambda: state(app, first) is JobState.ACTIVE), worker.log()
    worker.send(number)
    assert eventually(lambda: "stopping" in worker.log())
    assert state(app, first) is JobState.ACTIVE
    worker.finish_handlers()
    assert worker.exit_code() == 0
    assert state(app, first) is JobState.COMPLETED
    assert state(app, second) is JobState.WAITING, "no job was claimed after the signal"
    assert worker.log().rstrip().endswith("left")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_whose_log_nobody_reads_ends_as_ever(
    app: Corral, start_program: Callable[..., WorkerProgram], number: signal.Signals
) -> None:
    job = app.sync(app.queue("mail").add("wait"))
    worker = start_program(grace=0.2, stderr=subprocess.PIPE)
    assert eventually(lambda: state(app, job.id) is JobState.ACTIVE)
    assert worker.process.stderr is not None
    worker.process.stderr.close()
    worker.send(number)
    assert worker.exit_code() == 0
    assert state(app, job.id) is JobState.WAITING
    assert worker.log().rstrip().endswith("left")


@pytest.mark.parametrize("kind", ["wait", "block"])
def test_what_still_runs_after_the_grace_is_given_back(
    app: Corral, start_program: Callable[..., WorkerProgram], server: Server, kind: str
) -> None:
    job = app.sync(app.queue("mail").add(kind))
    worker = start_program(grace=0.2)
    assert eventually(lambda: state(app, job.id) is JobState.ACTIVE), worker.log()
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0
    found = app.sync(app.queue("mail").job(job.id))
    assert found is not None
    assert (found.state, found.attempts_made) == (JobState.WAITING, 0), "given back, and no attempt spent"
    with server.connect() as client:
        assert not client.exists(f"bull:mail:{job.id}:lock")


def test_the_second_signal_ends_at_once_and_gives_everything_back(
    app: Corral, start_program: Callable[..., WorkerProgram]
) -> None:
    ids = app.sync(app.queue("mail").add_many([("wait", n) for n in range(20)]))
    worker = start_program(concurrency=5, grace=600)
    assert eventually(lambda: sum(state(app, job_id) is JobState.ACTIVE for job_id in ids) == 5), worker.log()
    worker.send(signal.SIGTERM)
    assert eventually(lambda: "stopping" in worker.log())
    worker.send(signal.SIGTERM)
    assert worker.exit_code(10) == 0
    jobs = [app.sync(app.queue("mail").job(job_id)) for job_id in ids]
    assert {(job.state, job.attempts_made) for job in jobs if job} == {(JobState.WAITING, 0)}
    listed = app.sync(app.queue("mail").jobs(JobState.WAITING))
    assert sorted(int(job.id) for job in listed) == sorted(map(int, ids)), "each is there once"


def test_both_protocols_are_left_by_the_same_signal(
    app: Corral, start_program: Callable[..., WorkerProgram]
) -> None:
    mail = app.sync(app.queue("mail").add("wait"))
    text = app.sync(app.queue(protocol="streams").add("embed", {}))
    worker = start_program(grace=0.2)
    assert eventually(lambda: state(app, mail.id) is state(app, text.id, "streams") is JobState.ACTIVE), (
        worker.log()
    )
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0
    assert state(app, mail.id) is state(app, text.id, "streams") is JobState.WAITING


def test_a_signal_before_the_server_answers_is_not_lost(
    app: Corral, start_program: Callable[..., WorkerProgram], server: Server
) -> None:
    job = app.sync(app.queue("mail").add("wait"))
    with slow_server(server.port) as (address, is_dialled, answer):
        worker = start_program(grace=30, address=address)
        assert is_dialled()
        worker.send(signal.SIGTERM)
        worker.finish_handlers()
        answer()
        assert worker.exit_code() == 0, worker.log()
    assert state(app, job.id) in (JobState.WAITING, JobState.COMPLETED)


def test_two_signals_end_a_worker_whose_server_is_silent(
    start_program: Callable[..., WorkerProgram], server: Server
) -> None:
    with slow_server(server.port) as (address, is_dialled, _):
        worker = start_program(address=address)
        assert is_dialled()
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGINT)
        assert worker.exit_code(8) == 0, worker.log()


@contextmanager
def slow_server(upstream: int) -> Iterator[tuple[str, Callable[[], bool], Callable[[], None]]]:
    """An address that accepts connections and replies only when released."""
    callers: list[socket.socket] = []
    answering = False
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                callers.append(caller)
                if answering:
                    connect(caller)

        def connect(caller: socket.socket) -> None:
            far = socket.create_connection(("127.0.0.1", upstream))
            for source, sink in ((caller, far), (far, caller)):
                Thread(target=pump, args=(source, sink), daemon=True).start()

        def answer() -> None:
            nonlocal answering
            answering = True
            for caller in list(callers):
                connect(caller)

        Thread(target=accept, daemon=True).start()
        port = listener.getsockname()[1]
        yield f"redis://127.0.0.1:{port}", lambda: eventually(lambda: callers, 20), answer
        # closing alone would leave the thread inside accept
        listener.shutdown(socket.SHUT_RDWR)
    for caller in callers:
        caller.close()


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while chunk := source.recv(65_536):
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


async def test_a_first_connection_that_fails_says_what_was_dialled() -> None:
    port = free_port()
    async with Corral(f"redis://me:secret@127.0.0.1:{port}") as app:
        app.job("greet")(lambda job: None)
        with pytest.raises(RedisConnectionError, match=r"no server at .*REDIS_URL") as caught:
            await app.run()
    assert f"redis://me:***@127.0.0.1:{port}" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_run_without_handlers_or_for_a_queue_without_says_so(url: str) -> None:
    async with Corral(url) as app:
        with pytest.raises(InvalidOptions, match="no handler for any queue; there are some for: none"):
            await app.run()
        app.job("greet", queue="mail")(lambda job: None)
        with pytest.raises(InvalidOptions, match="no handler for queue 'mial'; there are some for: mail"):
            await app.run(queues=["mail", "mial"])
        with pytest.raises(InvalidOptions, match="no handler for queue 'mail' of protocol 'streams'"):
            await app.run(queues=["mail"], protocol="streams")
        app.job("embed", protocol="streams")(lambda job: None)
        assert [worker.queue for worker in app.workers()] == ["mail", "jobs"]
        assert [worker.queue for worker in app.workers(protocol="streams")] == ["jobs"]
        with pytest.raises(InvalidOptions, match=r"concurrency 0 is outside 1\.\.10000"):
            await app.run(concurrency=0)


def test_a_program_that_forgot_its_guard_is_told_and_makes_no_second_worker(
    app: Corral, url: str, tmp_path: Path
) -> None:
    """A spawned process imports the program first; `app.run` in there would make a second worker."""
    (tmp_path / "herd.py").write_text(
        "import logging\nlogging.basicConfig(level='INFO')\nfrom corral import Corral\napp = Corral()\n"
        "@app.job('weigh', queue='mail', process=True)\ndef weigh(job):\n    return 1\n"
    )
    (tmp_path / "work.py").write_text("import asyncio\nfrom herd import app\nasyncio.run(app.run())\n")
    job = app.sync(app.queue("mail").add("weigh", attempts=1))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "work.py"],
            cwd=tmp_path,
            env={**os.environ, "REDIS_URL": url},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        assert eventually(lambda: state(app, job.id) is JobState.DEAD, 30)
    finally:
        process.terminate()
        process.wait(20)
    said = (tmp_path / "log").read_text()
    assert "put app.run(…) under `if __name__ == '__main__':`" in said
    assert said.count("INFO:corral.worker:working") == 1
