"""The processes of a run: workers, which are killed and frozen, and producers."""

import json
import multiprocessing
import os
import select
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.faults.prove import producer_main, worker_main
from tests.faults.prove.queues import LOCK_MS, RECOVER_MS, RunQueue
from tests.support.node import node_binary, node_modules

# each is forked from a server that has read the code
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([producer_main.__name__, worker_main.__name__])

END_S = 10.0
NODE_WORKER = Path(__file__).with_name("node_worker.mjs")


class RunProcess:
    """A process of a run."""

    def __init__(self, name: str, main: Callable[[Any, Any], None], order: Any) -> None:
        self.name = name
        self._ready = PROCESSES.Event()
        """Set by the process when it is at work."""
        self._process = PROCESSES.Process(target=main, args=(order, self._ready), daemon=True)
        self._process.start()

    def wait_ready(self, seconds: float) -> bool:
        """Wait until it is at work; return whether it is."""
        return self._ready.wait(seconds)

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


class NodeWorkerProcess:
    """A worker of BullMQ in Node that serves one queue, without a proxy."""

    def __init__(self, name: str, port: int, run_queue: RunQueue, folder: Path) -> None:
        self.name = name
        order = {
            "name": name, "port": port, "queue": run_queue.name, "concurrency": run_queue.concurrency,
            "lockMs": LOCK_MS, "recoverMs": RECOVER_MS, "maxStalls": run_queue.max_stalls,
            "folder": str(folder),
        }  # fmt: skip
        self._process = subprocess.Popen(
            [str(node_binary()), str(NODE_WORKER), json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "CORRAL_NODE_MODULES": str(node_modules())},
        )

    def wait_ready(self, seconds: float) -> bool:
        """Wait until it is at work; return whether it is."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; a frozen process dies of it too."""
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where it does not end."""
        self.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self.kill()


WorkerProcess = RunProcess | NodeWorkerProcess
