"""Address: what a server's URL says, read once, and refused where it cannot be used."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from redis.asyncio.connection import Connection, parse_url

from corral.errors import InvalidOptions

Node = tuple[str, int]
"""The host and port of one server."""

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379
OURS = ("protocol", "decode_responses", "retry", "retry_on_timeout", "client_name", "max_connections")
"""Options of an address that mean nothing here: the store decides them for itself."""
_FOR_SENTINELS = "sentinel_"


class Kind(Enum):
    """Who is dialled: the server itself, the sentinels that know it, or some nodes of a cluster."""

    ONE = ""
    SENTINEL = "+sentinel"
    CLUSTER = "+cluster"


@dataclass(frozen=True)
class Address:
    """Where the servers are and how they are spoken to.

    >>> Address.of("redis+sentinel://a:26379,b/shop/2").nodes
    (('a', 26379), ('b', 26379))
    """

    shown: str
    """The URL as it may be shown."""
    kind: Kind
    nodes: tuple[Node, ...]
    """Where to begin; none for a unix socket."""
    options: dict[str, Any]
    """What redis-py needs to dial: login, database, TLS, path, and whether it is TCP, TLS or a socket."""
    service: str = ""
    """What the sentinels call the server."""
    sentinels: dict[str, Any] = field(default_factory=dict)
    """What redis-py needs to dial them."""

    @classmethod
    def of(cls, url: str) -> "Address":
        """The address that a URL stands for."""
        try:
            return _read(url)
        except (ValueError, TypeError) as error:
            raise InvalidOptions(
                f"server address {without_password(url)!r} cannot be used: {error}; write "
                f"redis://host:6379/0, rediss://host:6379/0, unix:///path/to/socket, "
                f"redis+sentinel://host:26379,host:26379/service or redis+cluster://host:6379,host:6379"
            ) from None

    def at(self, node: Node) -> dict[str, Any]:
        """What redis-py needs to dial one node."""
        return {**self.options, "host": node[0], "port": node[1]}


def is_cluster(url: str | None) -> bool:
    """Does this URL stand for a cluster?

    >>> is_cluster("rediss+cluster://a:6379,b:6379"), is_cluster("redis://a:6379")
    (True, False)
    """
    return url is not None and url.partition("://")[0].endswith(Kind.CLUSTER.value)


def _read(url: str) -> Address:
    scheme = url.partition("://")[0]
    base, _, suffix = scheme.partition("+")
    if not suffix:
        return _read_one(url)
    kinds = {kind.value: kind for kind in Kind}
    if base not in ("redis", "rediss") or f"+{suffix}" not in kinds:
        raise ValueError(f"{scheme!r} is no scheme")
    kind = kinds[f"+{suffix}"]
    # the port of two hosts is no port, so redis-py is shown one host
    parts = urlsplit(f"{base}://{url.partition('://')[2]}")
    login, at, hosts = parts.netloc.rpartition("@")
    nodes = _nodes(hosts, SENTINEL_PORT if kind is Kind.SENTINEL else DEFAULT_PORT)
    service, database = _service(parts) if kind is Kind.SENTINEL else ("", parts.path)
    one = parts._replace(netloc=f"{login}{at}host", path=database)
    given = _options(urlunsplit(one))
    sentinels = {name: given.pop(name) for name in list(given) if name.startswith(_FOR_SENTINELS)}
    known = ("sentinel_username", "sentinel_password") if kind is Kind.SENTINEL else ()
    strange = [name for name in sentinels if name not in known]
    if strange:
        raise ValueError(f"{strange[0]!r} is no option")
    options = _checked(given)
    if kind is Kind.CLUSTER:
        if options.get("db"):
            raise ValueError("a cluster has no other database than 0")
        return Address(without_password(url), kind, nodes, options)
    spoken = {name: value for name, value in options.items() if name not in ("username", "password", "db")}
    spoken |= {name.removeprefix(_FOR_SENTINELS): value for name, value in sentinels.items()}
    return Address(without_password(url), kind, nodes, options, service, spoken)


def _read_one(url: str) -> Address:
    options = _checked(_options(url))
    if url.startswith("unix:"):
        if not options.get("path"):
            raise ValueError("it has no path")
        return Address(without_password(url), Kind.ONE, (), options)
    node = (options.get("host", "localhost"), options.get("port", DEFAULT_PORT))
    return Address(without_password(url), Kind.ONE, (node,), options)


def _options(url: str) -> dict[str, Any]:
    """What redis-py reads in a URL."""
    database = urlsplit(url).path.strip("/")
    options: dict[str, Any] = dict(parse_url(url))
    if database and not url.startswith("unix:") and not database.isdecimal():
        raise ValueError(f"{database!r} is not the number of a database")
    return options


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """The same without what the store decides for itself; wrong where redis-py could not dial by them."""
    options = {name: value for name, value in given.items() if name not in OURS}
    kind = options.pop("connection_class", Connection)
    kind(**options)
    return {**options, "connection_class": kind}


def _nodes(hosts: str, default_port: int) -> tuple[Node, ...]:
    return tuple(_node(host, default_port) for host in hosts.split(","))


def _node(text: str, default_port: int) -> Node:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    host = unquote(host.removeprefix("[").removesuffix("]"))
    if not host:
        raise ValueError(f"{text!r} names no host")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{port!r} is not a port")
    return host, int(port)


def _service(parts: SplitResult) -> tuple[str, str]:
    """What the sentinels are asked for, and the path that is left."""
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("it does not say which service the sentinels should name")
    return unquote(service), f"/{database}"


def without_password(url: str) -> str:
    """The URL as it may be shown.

    >>> without_password("redis://me:secret@db:6379/0")
    'redis://me:***@db:6379/0'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("://")[0] + "://…"
    if parts.password is not None:
        host = parts.netloc.rpartition("@")[2]
        parts = parts._replace(netloc=f"{parts.username or ''}:***@{host}")
    query = parse_qsl(parts.query, keep_blank_values=True)
    if any("password" in name for name, _ in query):
        shown = [(name, "***" if "password" in name else value) for name, value in query]
        parts = parts._replace(query=urlencode(shown, safe="*/", quote_via=quote))
    # putting it together again would lose the empty host of unix:///path
    return url if parts == urlsplit(url) else urlunsplit(parts)
