"""Where a queue lives: whatever people give as `connection` becomes an address, and a Store for each loop."""

import asyncio
from collections.abc import Mapping
from ssl import VerifyMode
from typing import Any
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

import redis.asyncio as redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelConnectionPool

from corral.bullmq.types import ConnectionOptions
from corral.core.shown import shown
from corral.errors import InvalidOptions
from corral.store.connect import Store

_TIMEOUTS = ("socket_timeout", "socket_connect_timeout")
_WAY_OUT = "give host, port, db, username and password, a URL, or a redis.asyncio client made from these"


class Connection:
    """One server as the objects of this package share it."""

    def __init__(self, given: ConnectionOptions | None = None) -> None:
        self.url = address_of(given)
        self._client = given if isinstance(given, redis.Redis) else None
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
            self._client = redis.from_url(self.url, decode_responses=True)
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
            node = given.get_default_node() or next(iter(given.nodes_manager.startup_nodes.values()))
            return _address({**given.connection_kwargs, "host": node.host, "port": node.port})
        case Mapping():
            return _address(given)
    raise InvalidOptions(f"connection is {shown(given)}; {_WAY_OUT}")


def _address_of_client(client: redis.Redis) -> str:
    pool = client.connection_pool
    kind, given = pool.connection_class, dict(pool.connection_kwargs)
    if isinstance(pool, SentinelConnectionPool):
        raise InvalidOptions(f"connection is a client that asks sentinels; {_WAY_OUT}")
    if issubclass(kind, UnixDomainSocketConnection):
        given["unix_socket_path"] = given.pop("path")
    return _address({**given, "ssl": issubclass(kind, SSLConnection)})


def _address(given: Mapping[str, Any]) -> str:
    """The URL of redis-py's keyword arguments; those that are about its own client are left out."""
    if given.get("credential_provider") is not None:
        raise InvalidOptions(f"connection has a credential_provider, which cannot be asked here; {_WAY_OUT}")
    asked = {name: given[name] for name in _TIMEOUTS if given.get(name) is not None}
    path = given.get("unix_socket_path")
    if path:
        query = {**_login(given), "db": given.get("db") or 0, **asked}
        return f"unix://{quote(str(path))}?{urlencode(query)}"
    scheme = "redis"
    if given.get("ssl"):
        scheme = "rediss"
        asked |= {name: _ssl_word(value) for name, value in given.items() if name.startswith("ssl_")}
        asked = {name: value for name, value in asked.items() if value is not None}
    login = _login(given)
    user = quote(str(login.get("username", "")), safe="")
    password = quote(str(login["password"]), safe="") if "password" in login else None
    who = f"{user}:{password}@" if password is not None else f"{user}@" if user else ""
    host = str(given.get("host") or "localhost")
    host = f"[{host}]" if ":" in host else host
    where = f"{scheme}://{who}{host}:{given.get('port') or 6379}/{given.get('db') or 0}"
    return f"{where}?{urlencode(asked)}" if asked else where


def _login(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("username", "password") if given.get(name)}


def _ssl_word(value: Any) -> Any:
    if isinstance(value, VerifyMode):
        return value.name.removeprefix("CERT_").lower()
    return str(value) if isinstance(value, bool) else value
