"""A server that keeps its data on disk, and can crash, restart, freeze and thaw."""

import signal
from pathlib import Path

import redis

from tests.support.servers import Server, free_port, start_valkey


class PersistentServer:
    """Append-only, by default every write on disk before its reply; the same address after each restart."""

    def __init__(self, folder: Path, fsync: str = "always") -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._folder, self._fsync = folder, fsync
        self._server: Server = self._start()

    def _start(self) -> Server:
        return start_valkey(
            "--appendonly", "yes", "--appendfsync", self._fsync, "--dir", str(self._folder), port=self.port
        )

    def connect(self) -> redis.Redis:
        return self._server.connect()

    def crash(self) -> None:
        """SIGKILL."""
        self._server.stop()

    def shut_down(self) -> None:
        """SIGTERM: the data is saved, and clients are disconnected."""
        self._server.process.terminate()
        self._server.process.wait()
        self._server.stop()

    def restart(self) -> None:
        self._server = self._start()

    def freeze(self) -> None:
        self._server.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._server.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._server.stop()
