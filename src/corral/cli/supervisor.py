"""Several processes of one worker command: restarted when they die, and anew when the code changes."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from corral.errors import InvalidOptions
from corral.telemetry.health import HealthServer
from corral.telemetry.logs import logger

NUMBER = "CORRAL_WORKER_NUMBER"
"""In the environment of a worker process: its number, from 1."""
LIFELINE = "CORRAL_LIFELINE_FD"
"""The end of a pipe whose other end only the supervisor has open."""
HEALTH = "CORRAL_HEALTH_FD"
"""The socket on which a worker process serves its health to the supervisor."""

CHECK_S = 0.25
HEALTHY_S = 60.0
"""After this time a process may die again without a longer delay."""
SHORTEST_DELAY_S, LONGEST_DELAY_S = 0.5, 30.0
PROBE_S = 2.0
LAST_TRIP_S = 5.0
"""How long a process may take to end after its grace."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class WorkerProcess:
    """One place among the processes, and the process in it."""

    number: int
    popen: subprocess.Popen[bytes] | None = None
    port: int = 0
    started_at: float = 0.0
    deaths: int = 0
    restart_at: float = 0.0
    has_finished: bool = False

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.popen is not None and self.popen.poll() is None


@dataclass
class Supervisor:
    """Runs this command in `processes` processes until a signal comes or all of them have finished.

    A process that dies is started again, after a delay that grows with each early death. Signals are passed
    on. With `reload` the processes are restarted when a Python file below the current directory changes.
    """

    processes: int
    grace: float
    burst: bool = False
    reload: bool = False
    health: socket.socket | None = None
    _places: list[WorkerProcess] = field(default_factory=list)
    _signals: int = 0
    _changed: list[str] = field(default_factory=list)
    _wake: Event = field(default_factory=Event)
    _was_ready: bool = False

    def run(self) -> int:
        """Return the exit code: 0, or that of a process that cannot start or did not end well."""
        self._log = logger("supervisor")
        self._places = [WorkerProcess(number + 1) for number in range(self.processes)]
        # the write end stays open in this process alone: its end, however it comes, ends the others
        self._lifeline, self._held_end = os.pipe()
        before = {number: signal.signal(number, self._signalled) for number in SIGNALS}
        if self.health is not None:
            HealthServer(self.health, self._is_ready, self._exposition).start()
        if self.reload:
            Thread(target=self._watch, daemon=True).start()
        try:
            for place in self._places:
                self._start(place)
            return self._supervise()
        finally:
            for place in self._places:
                if place.popen is not None and place.is_running:
                    place.popen.kill()
                    place.popen.wait()
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._lifeline)
            os.close(self._held_end)

    def _supervise(self) -> int:
        while True:
            for place in self._places:
                code = self._look_after(place)
                if code:
                    return code
            if all(place.has_finished for place in self._places):
                codes = [place.popen.returncode for place in self._places if place.popen is not None]
                return next((abs(code) for code in codes if code), 0)
            if self._changed and not self._signals:
                self._reload()
            self._wake.wait(CHECK_S)
            self._wake.clear()

    def _look_after(self, place: WorkerProcess) -> int:
        """Start a process that has died again; return an exit code if that is of no use."""
        if place.popen is None or place.has_finished:
            return 0
        now = time.monotonic()
        if place.is_running:
            self._was_ready = self._was_ready or _probe(place.port, "/readyz") is not None
            if place.deaths and now - place.started_at > HEALTHY_S:
                place.deaths = 0
            return 0
        code = place.popen.returncode
        if self._signals or (self.burst and code == 0):
            place.has_finished = True
        elif place.restart_at:
            if now >= place.restart_at:
                self._start(place)
        elif not self._was_ready:
            # none has ever worked: starting it again is of no use, unless the code changes
            return 0 if self.reload else max(code, 1)
        else:
            delay = min(SHORTEST_DELAY_S * 2**place.deaths, LONGEST_DELAY_S)
            place.deaths += 1
            place.restart_at = now + delay
            self._log.warning(
                "a worker process died", process=place.number, exit_code=code, restart_in_s=delay
            )
        return 0

    def _start(self, place: WorkerProcess) -> None:
        environment = {**os.environ, NUMBER: str(place.number), LIFELINE: str(self._lifeline)}
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            place.port = listener.getsockname()[1]
            place.popen = subprocess.Popen(
                [sys.executable, "-m", "corral.cli", *sys.argv[1:]],
                env={**environment, HEALTH: str(listener.fileno())},
                pass_fds=(self._lifeline, listener.fileno()),
                # the terminal's Ctrl-C reaches this process only, which passes it on
                process_group=0,
            )
        place.started_at, place.restart_at = time.monotonic(), 0.0

    def _signalled(self, number: int, _frame: object) -> None:
        self._signals += 1
        for place in self._places:
            if place.popen is not None and place.is_running:
                place.popen.send_signal(number)
        self._wake.set()

    # -- reload -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        from watchfiles import PythonFilter, watch

        for changes in watch(Path.cwd(), watch_filter=PythonFilter(), raise_interrupt=False):
            self._changed = sorted(Path(path).name for _, path in changes)
            self._wake.set()

    def _reload(self) -> None:
        self._log.info("the code changed: restarting", files=self._changed)
        self._changed = []
        running = [place.popen for place in self._places if place.popen is not None and place.is_running]
        for popen in running:
            popen.terminate()
        deadline = time.monotonic() + self.grace + LAST_TRIP_S
        for popen in running:
            try:
                popen.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait()
        if not self._signals:
            self._was_ready = False
            for place in self._places:
                self._start(place)

    # -- health -----------------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        return all(place.is_running and _probe(place.port, "/readyz") is not None for place in self._places)

    def _exposition(self) -> bytes:
        texts = {
            str(place.number): text
            for place in self._places
            if place.is_running and (text := _probe(place.port, "/metrics")) is not None
        }
        return merge_expositions(texts)


def _probe(port: int, path: str) -> str | None:
    """Return what a process answers, or None where that is no 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PROBE_S) as response:
            return str(response.read().decode())
    except (OSError, urllib.error.URLError):
        return None


def merge_expositions(texts: Mapping[str, str]) -> bytes:
    """Return the metrics of several processes as one text, each series with the label `process`.

    >>> merge_expositions({"1": "# TYPE up gauge\\nup 1.0\\n", "2": "# TYPE up gauge\\nup 0.0\\n"}).decode()
    '# HELP up \\n# TYPE up gauge\\nup{process="1"} 1.0\\nup{process="2"} 0.0\\n'
    """
    families: dict[str, Metric] = {}
    for process, text in texts.items():
        for family in text_string_to_metric_families(text):
            merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            merged.samples += [
                sample._replace(labels={**sample.labels, "process": process}) for sample in family.samples
            ]
    registry = CollectorRegistry()
    registry.register(_MergedFamilies(list(families.values())))
    return generate_latest(registry)


class _MergedFamilies(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


# -- in a worker process ------------------------------------------------------------------------------------


def process_number() -> int | None:
    """Return the number of this worker process; None if it has no supervisor."""
    number = os.environ.get(NUMBER)
    return None if number is None else int(number)


def end_with_supervisor() -> None:
    """Stop this process, as a signal does, when its supervisor is gone."""
    lifeline = int(os.environ[LIFELINE])

    def watch() -> None:
        os.read(lifeline, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, name="corral-lifeline", daemon=True).start()


def health_listener(host: str, port: int | None) -> socket.socket | None:
    """Return the socket on which this process serves its health: the supervisor's, or a new one."""
    given = os.environ.get(HEALTH)
    if given is not None:
        return socket.socket(fileno=int(given))
    if port is None:
        return None
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InvalidOptions(
            f"the health of the worker cannot be served at {host}:{port} ({os.strerror(error.errno or 0)}); "
            f"choose another --health-port"
        ) from None
