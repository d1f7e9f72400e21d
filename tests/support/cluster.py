"""A real cluster of masters on loopback, whose slots can be moved."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import redis

from corral.store.cluster import slot_of
from tests.support.polling import eventually
from tests.support.servers import Server, free_port, start_valkey
from tests.support.tls import client_query, server_settings

SLOTS = 16384
BUS = 10_000
SETTINGS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
MOVED_AT_ONCE = 20
"""Keys in one step of a move."""


class ClusterServer:
    """Some masters, the slots shared evenly among them."""

    def __init__(self, nodes: list[Server], ports: list[int], certificates: Path | None) -> None:
        self.nodes = nodes
        self._ports = ports
        self._certificates = certificates
        self._stack = ExitStack()
        self._clients = [self._stack.enter_context(node.connect()) for node in nodes]
        self._ids = [client.execute_command("CLUSTER MYID").decode() for client in self._clients]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        if self._certificates is not None:
            return f"rediss+cluster://{hosts}{client_query(self._certificates)}"
        return f"redis+cluster://{hosts}"

    def client(self, index: int) -> redis.Redis:
        """A plain client of one node."""
        return self._clients[index]

    def flush(self) -> None:
        for client in self._clients:
            client.flushall()

    def owner(self, key: str) -> int:
        """Return the node that serves the key, as the node itself says."""
        slot = slot_of(key)
        for index, client in enumerate(self._clients):
            for start, end, master, *_ in client.execute_command("CLUSTER SLOTS"):
                if start <= slot <= end and _id_of(master) == self._ids[index]:
                    return index
        raise AssertionError(f"no node serves slot {slot} of {key!r}")

    def begin_move(self, key: str, target: int) -> tuple[int, int]:
        """Mark the key's slot as migrating on both nodes; return the slot and its present node."""
        slot, source = slot_of(key), self.owner(key)
        assert source != target
        self._clients[target].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", self._ids[source])
        self._clients[source].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", self._ids[target])
        return slot, source

    def carry_some(self, slot: int, source: int, target: int, count: int = MOVED_AT_ONCE) -> int:
        """Migrate some keys; return how many (0: all have moved)."""
        keys = self._clients[source].execute_command("CLUSTER GETKEYSINSLOT", slot, count)
        if keys:
            self.carry(keys, source, target)
        return len(keys)

    def carry(self, keys: Sequence[str | bytes], source: int, target: int) -> None:
        """Migrate these keys."""
        there = ("127.0.0.1", self.nodes[target].port)
        self._clients[source].execute_command("MIGRATE", *there, "", 0, 5000, "KEYS", *keys)

    def end_move(self, slot: int, target: int) -> None:
        """Assign the slot to its new node on all nodes, the new owner first."""
        order = [target, *(index for index in range(len(self.nodes)) if index != target)]
        for index in order:
            self._clients[index].execute_command("CLUSTER SETSLOT", slot, "NODE", self._ids[target])

    def move_at_once(self, key: str, target: int) -> None:
        """Move the whole slot by the server's own command (Valkey 9)."""
        source = self.owner(key)
        slot = slot_of(key)
        self._clients[source].execute_command(
            "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self._ids[target]
        )
        assert eventually(lambda: self.owner(key) == target, 20)

    @contextmanager
    def replica_of(self, index: int) -> Iterator[Server]:
        """A replica of one of the masters, which takes over from it."""
        replica = _start_node("--repl-diskless-sync-delay", "0")
        try:
            with replica.connect() as client:
                client.execute_command("CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
                assert eventually(lambda: len(_known(client)) == len(self.nodes) + 1, 30)
                client.execute_command("CLUSTER REPLICATE", self._ids[index])
                assert eventually(lambda: client.info("replication")["master_link_status"] == "up", 30)
            yield replica
        finally:
            replica.stop()

    def has_all(self, replica: Server, index: int) -> bool:
        """Whether the replica has read everything its master has written."""
        with replica.connect() as client:
            read = client.info("replication")["slave_repl_offset"]
        return bool(read == self._clients[index].info("replication")["master_repl_offset"])

    def stop(self) -> None:
        self._stack.close()
        for node in self.nodes:
            node.stop()


@contextmanager
def cluster_of(
    count: int = 3, binary: str | None = None, *options: str, certificates: Path | None = None
) -> Iterator[ClusterServer]:
    """Masters that agree on who serves which slots; with certificates, they use TLS."""
    nodes: list[Server] = []
    ports: list[int] = []
    try:
        for _ in range(count):
            secure = {} if certificates is None else server_settings(certificates, _port())
            more = [word for name, value in secure.items() for word in (f"--{name}", value)]
            more += ["--tls-cluster", "yes"] if secure else []
            nodes.append(_start_node(*options, *more, binary=binary))
            ports.append(int(secure.get("tls-port", nodes[-1].port)))
        bounds = [SLOTS * index // count for index in range(count + 1)]
        for epoch, (node, (start, end)) in enumerate(zip(nodes, pairwise(bounds), strict=True), 1):
            with node.connect() as client:
                # ADDSLOTSRANGE came with Redis 7
                client.execute_command("CLUSTER ADDSLOTS", *range(start, end))
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", epoch)
                client.execute_command("CLUSTER MEET", "127.0.0.1", ports[0])
        for node in nodes:
            with node.connect() as client:
                assert eventually(partial(_is_formed, client, count), 30), "the cluster did not form"
        server = ClusterServer(nodes, ports, certificates)
    except BaseException:
        for node in nodes:
            node.stop()
        raise
    try:
        yield server
    finally:
        server.stop()


def _start_node(*options: str, binary: str | None = None) -> Server:
    """A node that belongs to no cluster yet; the nodes speak to each other 10,000 ports above."""
    for _ in range(5):
        with suppress(RuntimeError):  # another process was quicker
            return start_valkey(*SETTINGS, *options, binary=binary, port=_port())
    raise RuntimeError("no node of a cluster would start")


def _port() -> int:
    port = free_port()
    while port + BUS > 65535 or not _is_free(port + BUS):
        port = free_port()
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _id_of(master: Any) -> str:
    found = master[2]
    return found.decode() if isinstance(found, bytes) else str(found)


def _known(client: redis.Redis) -> Any:
    """The nodes that a node knows."""
    return client.execute_command("CLUSTER NODES")


def _is_formed(client: redis.Redis, count: int) -> bool:
    info = client.execute_command("CLUSTER INFO")
    return bool(info["cluster_state"] == "ok" and int(info["cluster_size"]) == count)
