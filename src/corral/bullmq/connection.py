"""RedisConnection: from a `connection` option to an address, and to a Store for each event loop."""

from collections.abc import Mapping, Sequence
from ssl import VerifyMode
from typing import Any, cast
from urllib.parse import quote, urlencode

import redis.asyncio as redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

from corral.bullmq.types import ConnectionOptions
from corral.errors import InvalidOptions, short_repr
from corral.store.address import Deployment, RedisAddress
from corral.store.client import PerLoopStore, Store
from corral.store.clock import ServerClock
from corral.telemetry.logs import warn_of_clock
from corral.worker import wall_clock

_SUPPORTED = "give host, port, db, username and password, a URL, or a redis.asyncio client made from these"


class RedisConnection:
    """One server, shared by the objects that use it."""

    def __init__(self, connection: ConnectionOptions | None = None) -> None:
        self.url = address_of(connection)
        self._owns_client = not isinstance(connection, (redis.Redis, RedisCluster))
        self._client = None if self._owns_client else cast(redis.Redis, connection)
        self.store = PerLoopStore(lambda: self.url)
        self.clock = ServerClock(wall_clock, warn_of_clock)

    @property
    def client(self) -> redis.Redis:
        """A redis-py client of the same server for the caller's own commands; Corral does not use it."""
        if self._client is None:
            self._client = _client(self.url)
        return self._client

    async def check_clock(self, store: Store | None = None) -> None:
        """Compare the clock with the server's, unless that was done within the last minute."""
        if self.clock.is_outdated:
            await (store or self.store).compare_clocks(self.clock)

    async def close(self) -> None:
        """Close what was opened here in this event loop; a client passed as `connection` stays open."""
        await self.store.close()
        if self._owns_client and self._client is not None:
            client, self._client = self._client, None
            await client.aclose()


def address_of(connection: ConnectionOptions | None) -> str:
    """Return the URL of a `connection` option.

    >>> address_of({"host": "db", "port": 6380, "password": "a/b"})
    'redis://:a%2Fb@db:6380/0'
    """
    match connection:
        case None:
            return _server_url({})
        case str():
            return connection
        case redis.Redis():
            return _client_url(connection)
        case RedisCluster():
            return _cluster_url(connection)
        case Sentinel():
            raise InvalidOptions(
                "connection is a Sentinel, which does not name a service; "
                "give sentinel.master_for('name'), or redis+sentinel://host:26379/name"
            )
        case Mapping():
            return _server_url(connection)
    raise InvalidOptions(f"connection is {short_repr(connection)}; {_SUPPORTED}")


def _client_url(client: redis.Redis) -> str:
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return _sentinel_url(pool)
    options = {**pool.connection_kwargs, "ssl": issubclass(pool.connection_class, SSLConnection)}
    if issubclass(pool.connection_class, UnixDomainSocketConnection):
        options["unix_socket_path"] = options.pop("path")
    return _server_url(options)


def _sentinel_url(pool: SentinelConnectionPool) -> str:
    service = pool.service_name
    if not pool.is_master:
        raise InvalidOptions(
            f"connection is a client of the replicas of {service!r}, and jobs are written; "
            f"give sentinel.master_for({service!r})"
        )
    sentinels = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    options = {**pool.connection_kwargs, "ssl": issubclass(pool.connection_class, SSLConnection)}
    login = {f"sentinel_{name}": value for name, value in _login(sentinels[0]).items()}
    path = f"/{quote(str(service), safe='')}/{options.get('db') or 0}"
    return _url("+sentinel", options, sentinels, path, login)


def _cluster_url(cluster: RedisCluster) -> str:
    nodes = [{"host": node.host, "port": node.port} for node in cluster.nodes_manager.startup_nodes.values()]
    options = dict(cluster.connection_kwargs)
    options["ssl"] = issubclass(options.get("connection_class", redis.Connection), SSLConnection)
    return _url("+cluster", options, nodes, "")


def _server_url(options: Mapping[str, Any]) -> str:
    """Return the URL of redis-py's keyword arguments, without those that configure its own client."""
    path = options.get("unix_socket_path")
    if path:
        query = {**_login(options), "db": options.get("db") or 0, **_timeouts(options)}
        return f"unix://{quote(str(path))}?{urlencode(query)}"
    return _url("", options, [options], f"/{options.get('db') or 0}")


def _url(
    kind: str,
    options: Mapping[str, Any],
    nodes: Sequence[Mapping[str, Any]],
    path: str,
    query: Mapping[str, Any] | None = None,
) -> str:
    parameters = {**_timeouts(options), **(query or {})}
    scheme = "redis"
    if options.get("ssl"):
        scheme = "rediss"
        tls = {name: _tls_value(value) for name, value in options.items() if name.startswith("ssl_")}
        parameters |= {name: value for name, value in tls.items() if value is not None}
    login = {name: quote(str(value), safe="") for name, value in _login(options).items()}
    credentials = login.get("username", "")
    if "password" in login:
        credentials += f":{login['password']}"
    authority = f"{credentials}@" if credentials else ""
    hosts = ",".join(map(_host, nodes))
    return f"{scheme}{kind}://{authority}{hosts}{path}" + (f"?{urlencode(parameters)}" if parameters else "")


def _host(options: Mapping[str, Any]) -> str:
    host = str(options.get("host") or "localhost")
    return f"{f'[{host}]' if ':' in host else host}:{options.get('port') or 6379}"


def _timeouts(options: Mapping[str, Any]) -> dict[str, Any]:
    names = ("socket_timeout", "socket_connect_timeout")
    return {name: options[name] for name in names if options.get(name) is not None}


def _login(options: Mapping[str, Any]) -> dict[str, Any]:
    if options.get("credential_provider") is not None:
        raise InvalidOptions(f"connection has a credential_provider, which is not supported; {_SUPPORTED}")
    return {name: options[name] for name in ("username", "password") if options.get(name)}


def _tls_value(value: Any) -> Any:
    if isinstance(value, VerifyMode):
        return value.name.removeprefix("CERT_").lower()
    return str(value) if isinstance(value, bool) else value


def _client(url: str) -> redis.Redis:
    """Return redis-py's client of the server, service or cluster at this URL."""
    address = RedisAddress.parse(url)
    options = _keywords(address.options)
    match address.deployment:
        case Deployment.SENTINEL:
            sentinel = Sentinel(  # type: ignore[no-untyped-call]
                address.nodes, sentinel_kwargs=_keywords(address.sentinel_options)
            )
            client: redis.Redis = sentinel.master_for(address.service, decode_responses=True, **options)
            return client
        case Deployment.CLUSTER:
            nodes = [ClusterNode(host, port) for host, port in address.nodes]
            # a cluster's client has the same methods and no common class
            return cast(redis.Redis, RedisCluster(startup_nodes=nodes, decode_responses=True, **options))
    return redis.from_url(url, decode_responses=True)


def _keywords(options: Mapping[str, Any]) -> dict[str, Any]:
    left_out = ("connection_class", "host", "port")
    keywords = {name: value for name, value in options.items() if name not in left_out}
    return {**keywords, "ssl": True} if issubclass(options["connection_class"], SSLConnection) else keywords
