"""A pool of real worker processes that can be killed, stopped and continued."""

import multiprocessing
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from threading import Thread
from typing import Any

from tests.support import worker_process_main
from tests.support.polling import eventually

START_S = 60.0
"""How long a worker process may take to be ready on a busy machine."""

# hundreds are started: each is forked from a server that has read the code, not from the tests
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", worker_process_main.__name__])


def scaled(number: int, least: int = 1) -> int:
    """So much of it as CORRAL_FAULTS_SCALE says (1: all of it); a smaller run is a smoke, not the proof."""
    return max(int(number * float(os.environ.get("CORRAL_FAULTS_SCALE", "1"))), least)


def seeded() -> Random:
    """Chance that can be repeated: CORRAL_FAULTS_SEED, or a fresh seed, which is printed."""
    seed = int(os.environ.get("CORRAL_FAULTS_SEED") or secrets.randbits(32))
    print(f"CORRAL_FAULTS_SEED={seed}")
    return Random(seed)


class WorkerProcess:
    """One worker process."""

    def __init__(self, name: str, order: dict[str, Any]) -> None:
        self.name = name
        self.reported: list[tuple[str, str | None]] = []
        """What it said, in order: what happened, and to which job."""
        self._receiver, sender = PROCESSES.Pipe(duplex=False)
        self._process = PROCESSES.Process(
            target=worker_process_main.main, args=({**order, "name": name}, sender)
        )
        self._process.start()
        sender.close()
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        with self._receiver:
            while True:
                try:
                    self.reported.append(self._receiver.recv())
                except (EOFError, OSError):  # the last words of a killed process may be cut short
                    return

    def jobs_reported(self, happening: str) -> list[str | None]:
        """The jobs of which it said this."""
        return [job_id for what, job_id in self.reported if what == happening]

    @property
    def is_ready(self) -> bool:
        return bool(self.jobs_reported("ready"))

    def wait_ready(self) -> "WorkerProcess":
        assert eventually(lambda: self.is_ready or not self.is_alive, START_S), f"{self.name} did not start"
        assert self.is_alive, f"{self.name} ended with {self._process.exitcode} before it was ready"
        return self

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def _signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: no last words, no last trip; a frozen process dies of it too."""
        self._process.kill()
        self._process.join()
        self._listener.join(5)


class WorkerPool:
    """Worker processes of one protocol on one server; all of them are gone at the end of the block."""

    def __init__(self, url: str, protocol: str, *, concurrency: int = 8, **profile: Any) -> None:
        self._order = {"url": url, "protocol": protocol, "concurrency": concurrency, "profile": profile}
        self._names = (f"worker-{number}" for number in count(1))
        self.processes: list[WorkerProcess] = []

    def start(self) -> WorkerProcess:
        """Start one more."""
        process = WorkerProcess(next(self._names), self._order)
        self.processes.append(process)
        return process

    def wait_for_two(self) -> None:
        """Return when two are at work: one to be killed, another to mend it."""
        assert eventually(lambda: len(self._at_work()) > 1, START_S), "not two hands are at work"

    def kill_one(self, random: Random) -> None:
        """Kill one of those that are at work."""
        victim = random.choice(self._at_work())
        assert victim.is_alive, f"{victim.name} ended by itself: {victim.reported}"
        self.processes.remove(victim)
        victim.kill()

    def _at_work(self) -> list[WorkerProcess]:
        return [process for process in self.processes if process.is_ready]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
        self.processes.clear()


@contextmanager
def worker_pool(url: str, protocol: str, size: int, **options: Any) -> Iterator[WorkerPool]:
    """So many workers at work."""
    pool = WorkerPool(url, protocol, **options)
    try:
        for _ in range(size):
            pool.start()
        for process in list(pool.processes):
            process.wait_ready()
        yield pool
    finally:
        pool.stop()
