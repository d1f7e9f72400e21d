"""Every kind of server that Corral is meant to run on, besides the one that all other tests use."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tests.support.cluster import cluster_of
from tests.support.sentinel import sentinels_of
from tests.support.servers import Server, free_port, redis6_binary, redis_server_binary, start_valkey
from tests.support.tls import client_query, make_certificates, server_settings

ROOT = Path(__file__).resolve().parents[3]
ACL_PAGE = ROOT / "docs" / "how-to" / "acl.md"


@dataclass
class Served:
    """A running server of some kind: its address, and a way to look behind it."""

    url: str
    connect: Callable[[], Any]
    """A plain client that may do everything."""
    namespaces: dict[str, str] = field(default_factory=dict)
    """Those of protocols that cannot have their usual ones there."""
    queue: str | None = None
    """What a queue is called there where the usual name will not do."""

    def flush(self) -> None:
        with self.connect() as client:
            client.flushall()


@dataclass(frozen=True)
class Kind:
    """A kind of server, how one is started, and what is missing where it cannot be."""

    name: str
    start: Callable[[], AbstractContextManager[Served]]
    missing: str | None = None


@contextmanager
def _plain(*options: str, binary: str | None = None) -> Iterator[Server]:
    server = start_valkey(*options, binary=binary)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def _by_binary(binary: str | None) -> Iterator[Served]:
    with _plain(binary=binary) as server:
        yield Served(server.url, server.connect)


@contextmanager
def _unix_socket() -> Iterator[Served]:
    with _plain("--unixsocket", "corral.sock", "--unixsocketperm", "700") as server:
        yield Served(f"unix://{server.folder}/corral.sock", server.connect)


@contextmanager
def _password() -> Iterator[Served]:
    with _plain() as server:
        with server.connect() as client:
            client.config_set("requirepass", "p@ss/word:1")

        def connect() -> redis.Redis:
            return redis.Redis(port=server.port, protocol=2, password="p@ss/word:1")

        yield Served(f"redis://:p%40ss%2Fword%3A1@127.0.0.1:{server.port}", connect)


def documented_rules(where: str | None = None) -> list[str]:
    """The rules of a user that may do what Corral needs and nothing else, as the page gives them.

    `where` is the beginning of a row of its table: what is needed there besides.
    """
    page = ACL_PAGE.read_text()
    [block] = re.findall(r"```text\nACL SETUSER corral (.*?)```", page, re.DOTALL)
    rules = block.replace("\\\n", " ").split()
    if where is not None:
        [more] = re.findall(rf"^\| {where} .*?\| `(.*?)`", page, re.MULTILINE)
        rules += more.replace("\\|", "|").split()
    return rules


@contextmanager
def _narrow_user() -> Iterator[Served]:
    with _plain() as server:
        with server.connect() as client:
            client.execute_command("ACL", "SETUSER", "corral", *documented_rules())
        yield Served(f"redis://corral:secret@127.0.0.1:{server.port}", server.connect)


@contextmanager
def _tls() -> Iterator[Served]:
    """Whoever calls must show a certificate too; the plain port is for looking behind it."""
    port = free_port()
    with _plain(binary=redis_server_binary()) as server:
        make_certificates(server.folder)
        settings = server_settings(server.folder, port)
        with server.connect() as client:
            # one call: the files make sense together only
            client.execute_command("CONFIG", "SET", *(word for pair in settings.items() for word in pair))
        yield Served(f"rediss://127.0.0.1:{port}{client_query(server.folder)}", server.connect)


@contextmanager
def _cluster(binary: str | None = None) -> Iterator[Served]:
    with cluster_of(3, binary) as cluster:
        first = cluster.nodes[0].port

        def connect() -> redis.RedisCluster:
            return redis.RedisCluster(host="127.0.0.1", port=first, protocol=2)

        namespaces = {"bridgemq": "{bridge}", "streams": "{shop}"}
        for index in range(3):
            patterns = [f"~{namespace}:*" for namespace in namespaces.values()]
            rules = [*documented_rules("Cluster"), *patterns]
            cluster.client(index).execute_command("ACL", "SETUSER", "corral", *rules)
        url = cluster.url.replace("://", "://corral:secret@")
        yield Served(url, connect, namespaces=namespaces, queue="{default}")


@contextmanager
def _sentinel() -> Iterator[Served]:
    with sentinels_of() as service:
        for server in service.data:
            with server.connect() as client:
                client.execute_command("ACL", "SETUSER", "corral", *documented_rules("Sentinel"))
        yield Served(service.url.replace("://", "://corral:secret@"), service.data[0].connect)


_NO_DEBIAN = None if redis_server_binary() else "redis-server is not installed"
_NO_OPENSSL = None if shutil.which("openssl") else "openssl is not installed"
_NO_REDIS6 = None if redis6_binary() else "Redis 6.2 could not be fetched"

KINDS = [
    Kind("redis-6.2", lambda: _by_binary(redis6_binary()), _NO_REDIS6),
    Kind("redis-7", lambda: _by_binary(redis_server_binary()), _NO_DEBIAN),
    Kind("unix-socket", _unix_socket),
    Kind("password", _password),
    Kind("narrow-user", _narrow_user),
    Kind("tls", _tls, _NO_DEBIAN or _NO_OPENSSL),
    Kind("cluster", _cluster),
    Kind("sentinel", _sentinel),
]
HERE = [kind for kind in KINDS if kind.missing is None]
