"""A server that keeps its data on disk, and can crash, begin again, freeze and thaw."""

import signal
from pathlib import Path

import redis

from tests.support.servers import Server, free_port, start_valkey


class PersistentServer:
    """Append-only, every answer on disk before it is given; one address through all its lives."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._folder = folder
        self._life: Server = self._start()

    def _start(self) -> Server:
        return start_valkey(
            "--appendonly", "yes", "--appendfsync", "always", "--dir", str(self._folder), port=self.port
        )

    def connect(self) -> redis.Redis:
        return self._life.connect()

    def crash(self) -> None:
        """SIGKILL."""
        self._life.stop()

    def shut_down(self) -> None:
        """SIGTERM: it says good-bye to its disk, and to nobody else."""
        self._life.process.terminate()
        self._life.process.wait()
        self._life.stop()

    def begin_again(self) -> None:
        self._life = self._start()

    def freeze(self) -> None:
        self._life.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._life.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._life.stop()
