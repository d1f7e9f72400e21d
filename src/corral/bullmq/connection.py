"""Where a queue lives: whatever people give as `connection` becomes an address, and a Store for each loop."""

import asyncio
from collections.abc import Mapping
from ssl import VerifyMode
from typing import Any, cast
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

import redis.asyncio as redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

from corral.bullmq.types import ConnectionOptions
from corral.errors import InvalidOptions, short_repr
from corral.store.address import Address, Kind
from corral.store.client import Store

_TIMEOUTS = ("socket_timeout", "socket_connect_timeout")
_WAY_OUT = "give host, port, db, username and password, a URL, or a redis.asyncio client made from these"


class Connection:
    """One server as the objects of this package share it."""

    def __init__(self, given: ConnectionOptions | None = None) -> None:
        self.url = address_of(given)
        self._client = cast(redis.Redis, given) if isinstance(given, (redis.Redis, RedisCluster)) else None
        self._owns_client = self._client is None
        self._stores: WeakKeyDictionary[asyncio.AbstractEventLoop, Store] = WeakKeyDictionary()

    def store(self) -> Store:
        """The connections of the running event loop."""
        loop = asyncio.get_running_loop()
        store = self._stores.get(loop)
        if store is None:
            store = self._stores[loop] = Store(self.url)
        return store

    @property
    def client(self) -> redis.Redis:
        """A redis-py client of the same server, for commands of one's own; nothing here goes through it."""
        if self._client is None:
            self._client = _client_of(self.url)
        return self._client

    async def close(self) -> None:
        """Close what was opened here in this event loop; a client that was given stays open."""
        store = self._stores.pop(asyncio.get_running_loop(), None)
        if store is not None:
            await store.close()
        if self._owns_client and self._client is not None:
            client, self._client = self._client, None
            await client.aclose()


def address_of(given: ConnectionOptions | None) -> str:
    """The URL of what was given as a connection.

    >>> address_of({"host": "db", "port": 6380, "password": "a/b"})
    'redis://:a%2Fb@db:6380/0'
    """
    match given:
        case None:
            return _address({})
        case str():
            return given
        case redis.Redis():
            return _address_of_client(given)
        case RedisCluster():
            return _address_of_cluster(given)
        case Sentinel():
            raise InvalidOptions(
                "connection is a Sentinel, which does not say which service is meant; "
                "give sentinel.master_for('name'), or redis+sentinel://host:26379/name"
            )
        case Mapping():
            return _address(given)
    raise InvalidOptions(f"connection is {short_repr(given)}; {_WAY_OUT}")


def _address_of_client(client: redis.Redis) -> str:
    pool = client.connection_pool
    kind, given = pool.connection_class, dict(pool.connection_kwargs)
    if isinstance(pool, SentinelConnectionPool):
        return _address_of_service(pool)
    if issubclass(kind, UnixDomainSocketConnection):
        given["unix_socket_path"] = given.pop("path")
    return _address({**given, "ssl": issubclass(kind, SSLConnection)})


def _address_of_service(pool: SentinelConnectionPool) -> str:
    if not pool.is_master:
        raise InvalidOptions(
            f"connection is a client of the replicas of {pool.service_name!r}, and jobs are written; "
            f"give sentinel.master_for({pool.service_name!r})"
        )
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    given = {**pool.connection_kwargs, "ssl": issubclass(pool.connection_class, SSLConnection)}
    path = f"/{quote(str(pool.service_name), safe='')}/{given.get('db') or 0}"
    login = {f"sentinel_{name}": value for name, value in _login(asked[0]).items()}
    return _url("+sentinel", given, ",".join(map(_host, asked)), path, login)


def _address_of_cluster(cluster: RedisCluster) -> str:
    nodes = [{"host": node.host, "port": node.port} for node in cluster.nodes_manager.startup_nodes.values()]
    given = dict(cluster.connection_kwargs)
    given["ssl"] = issubclass(given.get("connection_class", redis.Connection), SSLConnection)
    return _url("+cluster", given, ",".join(map(_host, nodes)), "")


def _address(given: Mapping[str, Any]) -> str:
    """The URL of redis-py's keyword arguments; those that are about its own client are left out."""
    path = given.get("unix_socket_path")
    if path:
        query = {**_login(given), "db": given.get("db") or 0, **_timeouts(given)}
        return f"unix://{quote(str(path))}?{urlencode(query)}"
    return _url("", given, _host(given), f"/{given.get('db') or 0}")


def _url(
    kind: str, given: Mapping[str, Any], hosts: str, path: str, more: Mapping[str, Any] | None = None
) -> str:
    asked = {**_timeouts(given), **(more or {})}
    scheme = "redis"
    if given.get("ssl"):
        scheme = "rediss"
        asked |= {name: _ssl_word(value) for name, value in given.items() if name.startswith("ssl_")}
        asked = {name: value for name, value in asked.items() if value is not None}
    login = _login(given)
    user = quote(str(login.get("username", "")), safe="")
    password = quote(str(login["password"]), safe="") if "password" in login else None
    who = f"{user}:{password}@" if password is not None else f"{user}@" if user else ""
    where = f"{scheme}{kind}://{who}{hosts}{path}"
    return f"{where}?{urlencode(asked)}" if asked else where


def _host(given: Mapping[str, Any]) -> str:
    host = str(given.get("host") or "localhost")
    return f"{f'[{host}]' if ':' in host else host}:{given.get('port') or 6379}"


def _timeouts(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in _TIMEOUTS if given.get(name) is not None}


def _login(given: Mapping[str, Any]) -> dict[str, Any]:
    if given.get("credential_provider") is not None:
        raise InvalidOptions(f"connection has a credential_provider, which cannot be asked here; {_WAY_OUT}")
    return {name: given[name] for name in ("username", "password") if given.get(name)}


def _ssl_word(value: Any) -> Any:
    if isinstance(value, VerifyMode):
        return value.name.removeprefix("CERT_").lower()
    return str(value) if isinstance(value, bool) else value


def _client_of(url: str) -> redis.Redis:
    """redis-py's client of the server, service or cluster at that address."""
    address = Address.of(url)
    options = _keywords(address.options)
    match address.kind:
        case Kind.SENTINEL:
            sentinel = Sentinel(  # type: ignore[no-untyped-call]
                address.nodes, sentinel_kwargs=_keywords(address.sentinels)
            )
            client: redis.Redis = sentinel.master_for(address.service, decode_responses=True, **options)
            return client
        case Kind.CLUSTER:
            nodes = [ClusterNode(host, port) for host, port in address.nodes]
            # it has the same methods and no common class
            return cast(redis.Redis, RedisCluster(startup_nodes=nodes, decode_responses=True, **options))
    return redis.from_url(url, decode_responses=True)


def _keywords(options: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        name: value for name, value in options.items() if name not in ("connection_class", "host", "port")
    }
    return {**kept, "ssl": True} if issubclass(options["connection_class"], SSLConnection) else kept
