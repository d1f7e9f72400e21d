"""Are all slots of a cluster served, and is each of its masters one that jobs can be trusted to?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from corral.app import Corral
from corral.cli.doctor.findings import Finding, fine, note, unseen, wrong
from corral.cli.doctor.node import ask_info, check_node
from corral.errors import RedisError, RedisResponseError
from corral.protocols import Protocol
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
    def shown(self) -> str:
        return f"{self.host}:{self.port}"


async def check_cluster(app: Corral, protocols: Sequence[Protocol]) -> list[Finding]:
    """What every master says of itself and of the cluster, then what only the whole can tell."""
    masters = masters_of(await app.store().call("CLUSTER", "SLOTS"), urlsplit(app.url).hostname)
    found = [finding for master in masters for finding in await _check_master(master, app.url)]
    if not masters:  # nobody serves anything: the one that was dialled has to do
        found = await _check_one(app.store())
    return [*found, *_replicas(masters), *_tags(app, protocols)]


def masters_of(slots: Sequence[Any], asked: str | None) -> list[Master]:
    """Those that CLUSTER SLOTS names, with the number of their replicas.

    >>> masters_of([[0, 9, [b"10.0.0.1", 6379, b"id"]], [10, 99, [None, 6380, b"id"]]], "10.0.0.9")
    [Master(host='10.0.0.1', port=6379, replicas=0), Master(host='10.0.0.9', port=6380, replicas=0)]
    """
    replicas: dict[tuple[str, int], int] = {}
    for _, _, (host, port, *_), *others in slots:
        # a node that does not know its own address leaves it out: it is where it was asked
        replicas[host.decode() if host else str(asked), port] = len(others)
    return [Master(host, port, count) for (host, port), count in sorted(replicas.items())]


def node_url(url: str, master: Master) -> str:
    """The address of one node, with the login and the options of the cluster's.

    >>> node_url("rediss+cluster://me:x@a:1,b:2?ssl_ca_certs=ca.pem", Master("::1", 7, 0))
    'rediss://me:x@[::1]:7?ssl_ca_certs=ca.pem'
    """
    parts = urlsplit(url)
    scheme = parts.scheme.partition("+")[0]
    host = f"[{master.host}]" if ":" in master.host else master.host
    login, at, _ = parts.netloc.rpartition("@")
    one = parts._replace(
        scheme="redis" if scheme == "unix" else scheme, netloc=f"{login}{at}{host}:{master.port}", path=""
    )
    return urlunsplit(one)


async def _check_master(master: Master, url: str) -> list[Finding]:
    store = Store(node_url(url, master))
    try:
        found = await _check_one(store)
    except RedisError as error:
        mend = "bring it back, or make a replica of it the master: CLUSTER FAILOVER FORCE, said to that one"
        found = [wrong("nodes", f"it serves slots, and does not answer: {error}", mend)]
    finally:
        await store.close()
    return [replace(finding, node=master.shown) for finding in found]


async def _check_one(store: Store) -> list[Finding]:
    return [*await check_node(store, await ask_info(store)), await _slots(store)]


async def _slots(store: Store) -> Finding:
    try:
        state = await ask_info(store, "CLUSTER", "INFO")
    except RedisResponseError as error:
        return unseen("CLUSTER INFO", error, "+cluster|info")
    served = int(state.get("cluster_slots_ok", 0))
    told = f"cluster_state is {state.get('cluster_state')}, {served} of {SLOTS} slots are served"
    if state.get("cluster_state") == "ok" and served == SLOTS:
        return fine("cluster", told)
    return wrong("cluster", told, "redis-cli --cluster fix HOST:PORT, or bring the missing nodes back")


def _replicas(masters: Sequence[Master]) -> Iterator[Finding]:
    alone = [master.shown for master in masters if not master.replicas]
    if alone:
        told = f"without a replica, so that their queues stand still when they do: {', '.join(alone)}"
        yield note("nodes", told, "redis-cli --cluster add-node NEW:PORT HOST:PORT --cluster-slave")
    elif masters:
        yield fine("nodes", f"{len(masters)} masters, each with a replica")


def _tags(app: Corral, protocols: Sequence[Protocol]) -> Iterator[Finding]:
    for protocol in protocols:
        namespace = app.namespace(protocol)
        if not (protocol.spec.tags_queues or has_tag(namespace)):
            advice = f"use a namespace with a hash tag, such as --namespace '{{{namespace or 'corral'}}}'"
            yield note(
                "tags", f"protocol {protocol.spec.name!r} would spread over slots as {namespace!r}", advice
            )
