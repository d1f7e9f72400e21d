"""Store: commands, scripts and blocking connections to the server of a URL."""

from asyncio import AbstractEventLoop, gather, get_running_loop, run_coroutine_threadsafe
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import random
from typing import Any
from weakref import WeakKeyDictionary

from corral.core.options import milliseconds
from corral.errors import RedisConnectionError, RedisResponseError
from corral.store.address import Deployment, RedisAddress
from corral.store.clock import ServerClock
from corral.store.cluster import ClusterConnection, SlotMap
from corral.store.connection import Connection, StaticResolver
from corral.store.errors import NoScriptError
from corral.store.scripts import Script
from corral.store.sentinel import SentinelResolver

REPLY_TIMEOUT_S = 10.0


class Store:
    """The connections of one event loop to a server, to the master sentinels name, or to a cluster.

    `redis://`, `rediss://` (TLS) and `unix://` addresses, `redis+sentinel://host,host/service` and
    `redis+cluster://host,host` (`rediss+…` for TLS); options of redis-py after a `?`, such as
    `?socket_timeout=30`. A script may have run although its reply was lost, so a call is repeated only
    where the server said that it did not run.

    >>> store = Store("redis://127.0.0.1:6379")
    >>> store.address
    'redis://127.0.0.1:6379'
    """

    def __init__(self, url: str, reply_timeout: float = REPLY_TIMEOUT_S) -> None:
        self.url = url
        self._redis_address = RedisAddress.parse(url)
        self._reply_timeout: float = self._redis_address.options.pop("socket_timeout", reply_timeout)
        is_cluster = self._redis_address.deployment is Deployment.CLUSTER
        self._slots = SlotMap(self._redis_address) if is_cluster else None
        self._connection = self._connect(self._reply_timeout)

    @property
    def address(self) -> str:
        """The URL without its password."""
        return self._redis_address.display

    @property
    def connection(self) -> Connection | ClusterConnection:
        """The connection that all calls share."""
        return self._connection

    def blocking_connection(self, name: str, block_s: float) -> "BlockingConnection":
        """Return a connection of its own, named `name`, for calls that block up to `block_s`."""
        return BlockingConnection(self._connect(block_s + self._reply_timeout, name, is_blocking=True))

    def _connect(
        self, timeout: float, name: str = "", *, is_blocking: bool = False
    ) -> Connection | ClusterConnection:
        address = self._redis_address
        if self._slots is not None:
            return ClusterConnection(self._slots, timeout, self._reply_timeout, name, is_blocking=is_blocking)
        if address.deployment is Deployment.SENTINEL:
            return Connection(SentinelResolver(address), self.address, timeout, name)
        return Connection(StaticResolver(address.options), self.address, timeout, name)

    async def call(self, *command: Any) -> Any:
        """Return the reply to one command."""
        return await self.connection.call(*command)

    async def pipe(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the replies to commands sent together, not as a transaction."""
        return await self.connection.pipe(commands)

    async def pipe_each(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the same replies; a command that the server refuses has its error in its place."""
        try:
            return await self.pipe(commands)
        except RedisResponseError:
            # all of them are reads, and a refused one is rare
            replies = await gather(*(self.call(*command) for command in commands), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(reply, RedisResponseError):
                raise reply
        return replies

    async def run(self, script: Script, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        """Return the reply to a script, which is sent in full where the server does not know it."""
        call = self.connection.call
        try:
            return await call("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            # the script did not run, so sending it again cannot run it twice
            return await call("EVAL", script.text, len(keys), *keys, *args)

    async def run_together(
        self, script: Script, calls: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    ) -> list[Any]:
        """Return the replies to one script called with several (keys, args) in one transaction."""
        if not calls:
            return []
        commands = [("EVALSHA", script.sha, len(keys), *keys, *args) for keys, args in calls]
        try:
            return await self.connection.transact(commands)
        except NoScriptError:
            # none of the calls ran; the first one loads the script
            keys, args = calls[0]
            first = ("EVAL", script.text, len(keys), *keys, *args)
            return await self.connection.transact([first, *commands[1:]])

    async def check_connection(self) -> None:
        """Return when the server replies; else raise an error with its address and the way out."""
        try:
            await self.call("PING")
        except RedisConnectionError as error:
            raise RedisConnectionError(
                f"no server at {self.address} ({error.__cause__ or error}); "
                f"start one there, or give another address by REDIS_URL or Corral(url)"
            ) from error

    async def compare_clocks(self, clock: ServerClock) -> None:
        """Compare a clock with the server's."""
        sent_at = clock.local()
        try:
            seconds, microseconds = await self.call("TIME")
        except RedisResponseError:
            # a user without this right relies on the machine's clock
            clock.compare(None, sent_at)
        else:
            clock.compare(int(seconds) * 1000 + int(microseconds) // 1000, sent_at)

    async def close(self) -> None:
        """Close every connection."""
        self.connection.disconnect()


class PerLoopStore(Store):
    """A Store for several event loops: each call uses the connections of the running one.

    So a port may be made in one event loop, or without any, and be used in another.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._stores: WeakKeyDictionary[AbstractEventLoop, Store] = WeakKeyDictionary()

    def current(self) -> Store:
        """Return the Store of the running event loop."""
        loop = get_running_loop()
        store = self._stores.get(loop)
        if store is None:
            store = self._stores[loop] = Store(self._url())
        return store

    @property
    def address(self) -> str:
        return self.current().address

    @property
    def connection(self) -> Connection | ClusterConnection:
        return self.current().connection

    def blocking_connection(self, name: str, block_s: float) -> "BlockingConnection":
        return self.current().blocking_connection(name, block_s)

    def reset(self) -> None:
        """Close the connections of every event loop: the next calls open others."""
        stores, self._stores = self._stores, WeakKeyDictionary()
        for loop, store in stores.items():
            if loop.is_running():
                run_coroutine_threadsafe(store.close(), loop)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        store = self._stores.pop(get_running_loop(), None)
        if store is not None:
            await store.close()


class BlockingConnection:
    """A connection for one caller's blocking calls; opened when first used."""

    def __init__(self, connection: Connection | ClusterConnection) -> None:
        self._connection = connection

    async def call(self, *command: Any) -> Any:
        """Return the reply to one command; a call that fails or is cancelled closes the connection."""
        try:
            return await self._connection.call(*command)
        except BaseException:
            self._connection.disconnect()
            raise

    async def pipe_to(self, key: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the replies of the server that has a key to commands sent together; a failure closes."""
        try:
            return await self._connection.pipe_to(key, commands)
        except BaseException:
            self._connection.disconnect()
            raise

    async def disconnect(self) -> None:
        """Close the connection; the next call opens another."""
        self._connection.disconnect()


@dataclass(frozen=True)
class Reconnect:
    """How long to wait before connecting again: 100 ms doubling to 30 s, ±20 %, without end by default."""

    first_ms: int | timedelta = 100
    most_ms: int | timedelta = 30_000
    """Milliseconds, or a timedelta, like the first."""
    max_tries: int = 0
    """Tries before the worker ends; 0: without end."""

    def delay(self, tries: int) -> float:
        """Return the seconds to wait after `tries` failed tries (the first is 0)."""
        first, most = milliseconds(self.first_ms), milliseconds(self.most_ms)
        return float(min(first << min(tries, 32), most) * (0.8 + 0.4 * random()) / 1000)
