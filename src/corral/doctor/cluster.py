"""Check a cluster: its slots, its replicas, and each of its masters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from corral.app import Corral
from corral.doctor.node import check_node, read_info
from corral.doctor.results import CheckResult, fine, not_permitted, note, wrong
from corral.errors import RedisError, RedisResponseError
from corral.protocols.base import Protocol
from corral.store.client import Store
from corral.store.cluster import has_tag

SLOTS = 16_384


@dataclass(frozen=True)
class Master:
    """A node that serves slots."""

    host: str
    port: int
    replicas: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


async def check_cluster(app: Corral, protocols: Sequence[Protocol]) -> list[CheckResult]:
    """Check every master, then the cluster as a whole."""
    masters = masters_of(await app.store().call("CLUSTER", "SLOTS"), urlsplit(app.url).hostname)
    results = [result for master in masters for result in await _check_master(master, app.url)]
    if not masters:  # no slots are served: check the node that the address names
        results = await _check_node(app.store())
    return [*results, *_check_replicas(masters), *_check_tags(app, protocols)]


def masters_of(slots: Sequence[Any], default_host: str | None) -> list[Master]:
    """Return the masters that CLUSTER SLOTS names, with the number of their replicas.

    >>> masters_of([[0, 9, [b"10.0.0.1", 6379, b"id"]], [10, 99, [None, 6380, b"id"]]], "10.0.0.9")
    [Master(host='10.0.0.1', port=6379, replicas=0), Master(host='10.0.0.9', port=6380, replicas=0)]
    """
    replicas: dict[tuple[str, int], int] = {}
    for _, _, (host, port, *_), *others in slots:
        # a node that does not know its own address leaves it out: it has the address of the request
        replicas[host.decode() if host else str(default_host), port] = len(others)
    return [Master(host, port, count) for (host, port), count in sorted(replicas.items())]


def node_url(url: str, master: Master) -> str:
    """Return the address of one node, with the login and the options of the cluster's.

    >>> node_url("rediss+cluster://me:x@a:1,b:2?ssl_ca_certs=ca.pem", Master("::1", 7, 0))
    'rediss://me:x@[::1]:7?ssl_ca_certs=ca.pem'
    """
    parts = urlsplit(url)
    scheme = parts.scheme.partition("+")[0]
    host = f"[{master.host}]" if ":" in master.host else master.host
    login, at, _ = parts.netloc.rpartition("@")
    node = parts._replace(
        scheme="redis" if scheme == "unix" else scheme, netloc=f"{login}{at}{host}:{master.port}", path=""
    )
    return urlunsplit(node)


async def _check_master(master: Master, url: str) -> list[CheckResult]:
    store = Store(node_url(url, master))
    try:
        results = await _check_node(store)
    except RedisError as error:
        mend = "restart it, or promote one of its replicas: CLUSTER FAILOVER FORCE on that replica"
        results = [wrong("nodes", f"it serves slots, but does not answer: {error}", mend)]
    finally:
        await store.close()
    return [replace(result, node=master.address) for result in results]


async def _check_node(store: Store) -> list[CheckResult]:
    return [*await check_node(store, await read_info(store)), await _check_slots(store)]


async def _check_slots(store: Store) -> CheckResult:
    try:
        state = await read_info(store, "CLUSTER", "INFO")
    except RedisResponseError as error:
        return not_permitted("CLUSTER INFO", error, "+cluster|info")
    served = int(state.get("cluster_slots_ok", 0))
    finding = f"cluster_state is {state.get('cluster_state')}, {served} of {SLOTS} slots are served"
    if state.get("cluster_state") == "ok" and served == SLOTS:
        return fine("cluster", finding)
    return wrong("cluster", finding, "redis-cli --cluster fix HOST:PORT, or restart the missing nodes")


def _check_replicas(masters: Sequence[Master]) -> Iterator[CheckResult]:
    alone = [master.address for master in masters if not master.replicas]
    if alone:
        finding = f"masters without a replica, whose queues stop when they fail: {', '.join(alone)}"
        yield note("nodes", finding, "redis-cli --cluster add-node NEW:PORT HOST:PORT --cluster-slave")
    elif masters:
        yield fine("nodes", f"{len(masters)} masters, each with a replica")


def _check_tags(app: Corral, protocols: Sequence[Protocol]) -> Iterator[CheckResult]:
    for protocol in protocols:
        namespace = app.namespace(protocol)
        if not (protocol.spec.tags_queues or has_tag(namespace)):
            yield note(
                "tags",
                f"the keys of protocol {protocol.spec.name!r} would be in several slots as {namespace!r}",
                f"use a namespace with a hash tag, such as --namespace '{{{namespace or 'corral'}}}'",
            )
