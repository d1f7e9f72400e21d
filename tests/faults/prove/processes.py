"""The processes of a run: workers, which are killed and frozen, and producers."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from tests.faults.prove import producer_main, worker_main

# each is forked from a server that has read the code
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([producer_main.__name__, worker_main.__name__])

END_S = 10.0


class RunProcess:
    """A process of a run."""

    def __init__(self, name: str, main: Callable[[Any, Any], None], order: Any) -> None:
        self.name = name
        self.ready = PROCESSES.Event()
        """Set by the process when it is at work."""
        self._process = PROCESSES.Process(target=main, args=(order, self.ready), daemon=True)
        self._process.start()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL; a frozen process dies of it too."""
        self._process.kill()
        self._process.join()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where it does not end."""
        self.signal(signal.SIGTERM)
        self._process.join(END_S)
        if self._process.is_alive():
            self.kill()

    def join(self, seconds: float) -> bool:
        """Wait until it has ended; return whether it has."""
        self._process.join(seconds)
        return not self._process.is_alive()
