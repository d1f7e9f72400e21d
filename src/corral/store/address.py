"""Server addresses: URLs parsed and checked."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from corral.errors import InvalidOptions

Node = tuple[str, int]
"""The host and port of one server."""

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379
IGNORED = ("protocol", "decode_responses", "retry", "retry_on_timeout", "client_name", "max_connections")
"""URL options without effect: the store sets them itself."""
_FOR_SENTINELS = "sentinel_"


class Deployment(Enum):
    """What a URL's hosts are: the server itself, sentinels that know it, or nodes of a cluster."""

    SINGLE = ""
    SENTINEL = "+sentinel"
    CLUSTER = "+cluster"


@dataclass(frozen=True)
class RedisAddress:
    """A parsed URL.

    >>> RedisAddress.parse("redis+sentinel://a:26379,b/shop/2").nodes
    (('a', 26379), ('b', 26379))
    """

    display: str
    """The URL without its password."""
    deployment: Deployment
    nodes: tuple[Node, ...]
    """The hosts of the URL; none for a unix socket."""
    options: dict[str, Any] = field(repr=False)
    """redis-py's connection options: login, database, TLS, path, connection class."""
    service: str = ""
    """The sentinels' name of the server."""
    sentinel_options: dict[str, Any] = field(default_factory=dict, repr=False)
    """redis-py's connection options for the sentinels."""

    @classmethod
    def parse(cls, url: str) -> "RedisAddress":
        """Return the address, or raise `InvalidOptions` with the forms that are understood."""
        try:
            return _parse(url)
        except (ValueError, TypeError) as error:
            # of a password that is not escaped, the error would show a part
            reason = "escape '/', '?' and '#' in its password (%2F, %3F, %23)" if _is_split(url) else error
            raise InvalidOptions(
                f"server address {without_password(url)!r} cannot be used: {reason}; write "
                f"redis://host:6379/0, rediss://host:6379/0, unix:///path/to/socket, "
                f"redis+sentinel://host:26379,host:26379/service or redis+cluster://host:6379,host:6379"
            ) from None

    def node_options(self, node: Node) -> dict[str, Any]:
        """Return redis-py's connection options for one node."""
        return {**self.options, "host": node[0], "port": node[1]}


def is_cluster(url: str | None) -> bool:
    """Return whether the URL is that of a cluster.

    >>> is_cluster("rediss+cluster://a:6379,b:6379"), is_cluster("redis://a:6379")
    (True, False)
    """
    return url is not None and url.partition("://")[0].endswith(Deployment.CLUSTER.value)


def _parse(url: str) -> RedisAddress:
    scheme = url.partition("://")[0]
    base, plus, suffix = scheme.partition("+")
    if not plus:
        return _parse_single(url)
    deployments = {deployment.value: deployment for deployment in Deployment}
    if base not in ("redis", "rediss") or not suffix or f"+{suffix}" not in deployments:
        raise ValueError(f"{scheme!r} is no scheme")
    deployment = deployments[f"+{suffix}"]
    # redis-py reads one host only
    parts = urlsplit(f"{base}://{url.partition('://')[2]}")
    login, at, hosts = parts.netloc.rpartition("@")
    is_sentinel = deployment is Deployment.SENTINEL
    nodes = tuple(_node(host, SENTINEL_PORT if is_sentinel else DEFAULT_PORT) for host in hosts.split(","))
    service, database = _service(parts) if is_sentinel else ("", parts.path)
    options = _options(urlunsplit(parts._replace(netloc=f"{login}{at}host", path=database)))
    for_sentinels = {name: options.pop(name) for name in list(options) if name.startswith(_FOR_SENTINELS)}
    allowed = ("sentinel_username", "sentinel_password") if is_sentinel else ()
    for name in for_sentinels:
        if name not in allowed:
            raise ValueError(f"{name!r} is no option")
    options = _checked(options)
    if not is_sentinel:
        if options.get("db"):
            raise ValueError("a cluster has no other database than 0")
        return RedisAddress(without_password(url), deployment, nodes, options)
    sentinel_options = {
        name: value for name, value in options.items() if name not in ("username", "password", "db")
    } | {name.removeprefix(_FOR_SENTINELS): value for name, value in for_sentinels.items()}
    return RedisAddress(without_password(url), deployment, nodes, options, service, sentinel_options)


def _parse_single(url: str) -> RedisAddress:
    options = _checked(_options(url))
    nodes: tuple[Node, ...] = ()
    if not url.startswith("unix:"):
        nodes = ((options.get("host", "localhost"), options.get("port", DEFAULT_PORT)),)
    elif not options.get("path"):
        raise ValueError("it has no path")
    return RedisAddress(without_password(url), Deployment.SINGLE, nodes, options)


def _options(url: str) -> dict[str, Any]:
    from redis.asyncio.connection import parse_url

    database = urlsplit(url).path.strip("/")
    options: dict[str, Any] = dict(parse_url(url))
    if database and not url.startswith("unix:") and not database.isdecimal():
        raise ValueError(f"{database!r} is not the number of a database")
    return options


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without the ignored ones; raise where redis-py cannot connect with them."""
    from redis.asyncio.connection import Connection

    options = {name: value for name, value in options.items() if name not in IGNORED}
    connection_class = options.pop("connection_class", Connection)
    connection_class(**options)
    return {**options, "connection_class": connection_class}


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
    """Return the service's name, and the rest of the path."""
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("it does not say which service the sentinels monitor")
    return unquote(service), f"/{database}"


def _is_split(url: str) -> bool:
    """Return whether a password with '/', '?' or '#' ends the host of a URL too early."""
    netloc = url.partition("://")[2]
    for end in "/?#":
        netloc = netloc.partition(end)[0]
    port = netloc.rpartition(":")[2] if ":" in netloc and not netloc.endswith("]") else "0"
    return "@" in url and "@" not in netloc and (netloc.startswith(":") or not port.isdecimal())


def without_password(url: str) -> str:
    """Return the URL with its passwords replaced by `***`.

    >>> without_password("redis://me:secret@db:6379/0"), without_password("redis://:se/cret@db")
    ('redis://me:***@db:6379/0', 'redis://***@db')
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("://")[0] + "://…"
    if _is_split(url):
        return f"{url.partition('://')[0]}://***@{url.rpartition('@')[2]}"
    if parts.password is not None:
        host = parts.netloc.rpartition("@")[2]
        parts = parts._replace(netloc=f"{parts.username or ''}:***@{host}")
    query = parse_qsl(parts.query, keep_blank_values=True)
    if any("password" in name for name, _ in query):
        masked = [(name, "***" if "password" in name else value) for name, value in query]
        parts = parts._replace(query=urlencode(masked, safe="*/", quote_via=quote))
    # urlunsplit would lose the empty host of unix:///path
    return url if parts == urlsplit(url) else urlunsplit(parts)
