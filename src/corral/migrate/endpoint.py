"""Endpoint: a queue of a protocol, or the queue of another library, by its URL."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from corral.errors import InvalidOptions, RedisResponseError
from corral.protocols import DEFAULT_PROTOCOL, in_one_slot, protocol_named
from corral.protocols.base import Binding, Ports, Protocol
from corral.protocols.wire import text
from corral.store.address import RedisAddress, is_cluster, without_password
from corral.store.client import Store
from corral.store.clock import ServerClock

OWN = ("protocol", "format", "queue", "namespace")
"""The parameters of the URL that are not redis-py's."""
FORM = "redis://host:6379/0?protocol=…&queue=mail"


class Endpoint(Struct, frozen=True, kw_only=True):
    """One side of a move.

    >>> Endpoint.parse("redis://a/0?protocol=bullmq&queue=mail").queue
    'mail'
    """

    url: str
    """The server's, without the parameters that are not redis-py's."""
    protocol_name: str = ""
    """Empty where the queue belongs to another library."""
    format: str = ""
    """That library."""
    queue: str
    namespace: str = ""

    @classmethod
    def parse(cls, url: str, formats: tuple[str, ...] = ()) -> "Endpoint":
        """Return the endpoint; `formats` are the libraries that it may belong to."""
        parts = urlsplit(url)
        if "://" not in url or not parts.scheme:
            raise InvalidOptions(f"address {without_password(url)!r} is no URL; write {FORM}")
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        own: dict[str, str] = {}
        for name, value in pairs:
            if name in OWN:
                if name in own:
                    raise InvalidOptions(f"address {without_password(url)!r} has {name!r} twice; give one")
                own[name] = value
        rest = urlencode([(name, value) for name, value in pairs if name not in OWN])
        server = urlunsplit(parts._replace(query=rest))
        RedisAddress.parse(server)
        return cls._of(server, own, formats, without_password(url))

    @classmethod
    def _of(cls, server: str, own: Mapping[str, str], formats: tuple[str, ...], shown: str) -> "Endpoint":
        kind = own.get("format", "")
        if kind and "protocol" in own:
            raise InvalidOptions(f"address {shown!r} has a protocol and a format; give one of them")
        if kind and kind not in formats:
            known = f"use one of {', '.join(formats)}" if formats else "jobs are moved to a protocol only"
            raise InvalidOptions(f"address {shown!r} has the format {kind!r}; {known}")
        if kind:
            queue = own.get("queue", "")
            return cls(url=server, format=kind, queue=queue, namespace=own.get("namespace", ""))
        protocol = protocol_named(own.get("protocol") or DEFAULT_PROTOCOL)
        spec = protocol.spec
        queue = own.get("queue") or spec.default_queue
        namespace = own.get("namespace", spec.default_namespace)
        if is_cluster(server):
            queue = in_one_slot(protocol, namespace, queue)
        return cls(url=server, protocol_name=spec.name, queue=queue, namespace=namespace)

    @property
    def protocol(self) -> Protocol:
        return protocol_named(self.protocol_name)

    def bind(self, store: Store, clock: ServerClock) -> Ports:
        """Return the ports of the queue."""
        return self.protocol.bind(Binding(store, self.queue, self.namespace, clock))

    def __str__(self) -> str:
        kind = f"format={self.format}" if self.format else f"protocol={self.protocol_name}"
        separator = "&" if "?" in self.url else "?"
        namespace = f"&namespace={self.namespace}" if self.namespace else ""
        return f"{without_password(self.url)}{separator}{kind}&queue={self.queue}{namespace}"


async def is_same_server(one: Store, other: Store) -> bool:
    """Return whether two stores reach the same database, as far as the server says so."""
    try:
        return await _identity(one) == await _identity(other)
    except RedisResponseError:
        # users without the right to ask: their addresses have been compared
        return False


async def _identity(store: Store) -> tuple[str, str]:
    lines = text(await store.call("INFO", "server")).splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    client = text(await store.call("CLIENT", "INFO"))
    database = dict(part.split("=", 1) for part in client.split() if "=" in part).get("db", "")
    return fields.get("run_id", ""), database
