"""A real master with a replica, and three sentinels that watch them."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis

from corral.store.supervisor import dies_with_parent
from tests.support.polling import eventually
from tests.support.servers import Server, free_port, start_valkey, valkey_binary
from tests.support.tls import client_query, server_settings

SERVICE = "shop"
DOWN_AFTER_MS = 500


@dataclass
class SentinelServer:
    """The servers of one service, the first of which began as its master."""

    data: list[Server]
    sentinels: list[Server]
    certificates: Path | None = None
    client_ports: dict[int, int] = field(default_factory=dict)
    """A server's plain port, for tests -> the port for clients, which uses TLS where they do."""

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{self.client_port(sentinel)}" for sentinel in self.sentinels)
        if self.certificates is not None:
            return f"rediss+sentinel://{hosts}/{SERVICE}{client_query(self.certificates)}"
        return f"redis+sentinel://{hosts}/{SERVICE}"

    def client_port(self, server: Server) -> int:
        """The port for clients, which uses TLS where they do."""
        return self.client_ports[server.port]

    def master(self) -> Server:
        """The server that the sentinels name now."""
        port = int(self._ask()[1])
        return next(server for server in self.data if self.client_port(server) == port)

    def _ask(self) -> list[bytes]:
        for sentinel in self.sentinels:
            with suppress(redis.RedisError), sentinel.connect() as client:
                found: list[bytes] = client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", SERVICE)
                return found
        raise AssertionError("no sentinel answers")

    def is_replicated(self) -> bool:
        """Whether every replica has read everything that was written."""
        with self.master().connect() as client:
            info = client.info("replication")
        replicas = [info[name] for name in info if name.startswith("slave") and name[5:].isdigit()]
        return bool(replicas) and all(
            replica["state"] == "online" and int(replica["offset"]) == info["master_repl_offset"]
            for replica in replicas
        )

    def send_on(self) -> None:
        """Return when the replica has all that the master was given until now."""
        with self.master().connect() as client:
            offset = client.info("replication")["master_repl_offset"]
        [replica] = [server for server in self.data if server is not self.master()]
        with replica.connect() as client:
            assert eventually(lambda: client.info("replication")["slave_repl_offset"] >= offset, 30)

    def kill_master(self) -> Server:
        """Kill the master; return its server."""
        master = self.master()
        os.kill(master.process.pid, signal.SIGKILL)
        master.process.wait()
        return master

    def fail_over(self) -> None:
        """Make the sentinels promote the replica."""
        before = self.master()
        with self.sentinels[0].connect() as client:
            client.execute_command("SENTINEL FAILOVER", SERVICE)
        assert eventually(lambda: self.master() is not before, 30), "there was no failover"

    def flush(self) -> None:
        with self.master().connect() as client:
            client.flushall()

    def stop(self) -> None:
        for server in (*self.sentinels, *self.data):
            server.stop()


@contextmanager
def sentinels_of(binary: str | None = None, *, certificates: Path | None = None) -> Iterator[SentinelServer]:
    """A service whose sentinels know its replica and each other; with certificates, all of them speak TLS."""
    server = SentinelServer([], [], certificates)
    try:
        for is_replica in (False, True):
            following = (
                ("--replicaof", f"127.0.0.1 {server.client_port(server.data[0])}") if is_replica else ()
            )
            settings = _secure(certificates)
            words = [word for name, value in settings.items() for word in (f"--{name}", value)]
            started = start_valkey("--repl-diskless-sync-delay", "0", *words, *following, binary=binary)
            server.data.append(started)
            server.client_ports[started.port] = int(settings.get("tls-port", started.port))
        for _ in range(3):
            settings = _secure(certificates)
            started = _start_sentinel(binary or valkey_binary(), server.client_port(server.data[0]), settings)
            server.sentinels.append(started)
            server.client_ports[started.port] = int(settings.get("tls-port", started.port))
        assert eventually(server.is_replicated, 30), "the replica did not come up"
        assert eventually(lambda: all(map(_knows_all, server.sentinels)), 30), "the sentinels did not meet"
        yield server
    finally:
        server.stop()


def _secure(certificates: Path | None) -> dict[str, str]:
    """Settings of a server that uses TLS in both directions; its plain port is for tests."""
    if certificates is None:
        return {}
    return {**server_settings(certificates, free_port()), "tls-replication": "yes"}


def _start_sentinel(binary: str, master_port: int, secure: dict[str, str]) -> Server:
    folder = Path(tempfile.mkdtemp(prefix="corral-test-"))
    port = free_port()
    settings = folder / "sentinel.conf"
    settings.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        + "".join(f"{name} {value}\n" for name, value in secure.items())
        + f"sentinel monitor {SERVICE} 127.0.0.1 {master_port} 2\n"
        f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
        f"sentinel failover-timeout {SERVICE} 5000\n"
        f"sentinel parallel-syncs {SERVICE} 1\n"
    )
    process = subprocess.Popen(
        [binary, str(settings), "--sentinel"], stdout=subprocess.DEVNULL, preexec_fn=dies_with_parent()
    )
    server = Server(f"redis://127.0.0.1:{port}", port, process, folder)
    assert server.answers(10), "a sentinel did not start"
    return server


def _knows_all(sentinel: Server) -> bool:
    with sentinel.connect() as client:
        known = client.execute_command("SENTINEL MASTERS")
    flat = known[0] if isinstance(known, list) else [word for pair in known[SERVICE].items() for word in pair]
    words = [word.decode() if isinstance(word, bytes) else word for word in flat]
    found = dict(zip(words[::2], words[1::2], strict=True))
    return int(found["num-other-sentinels"]) == 2 and int(found["num-slaves"]) == 1
