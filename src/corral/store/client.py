"""A URL becomes a Store: calls, scripts and blocking lines, with errors of our own."""

from collections.abc import Sequence
from random import random
from typing import Any

from corral.errors import RedisConnectionError
from corral.store.address import Address, Kind
from corral.store.address import without_password as without_password
from corral.store.cluster import Cluster
from corral.store.connection import Connection, Fixed
from corral.store.errors import NoScriptError
from corral.store.scripts import Script
from corral.store.sentinel import Sentinels
from corral.store.slots import Slots

ANSWER_TIMEOUT_S = 10.0


class Store:
    """One server as one event loop sees it; or the master that sentinels name, or the nodes of a cluster.

    `redis://`, `rediss://` (TLS) and `unix://` addresses, `redis+sentinel://host,host/service` and
    `redis+cluster://host,host` (`rediss+…` for TLS); options of redis-py after a `?`, such as
    `?socket_timeout=30`. Scripts may have run although their answer was lost, so no client here repeats a
    call by itself, unless the server has said that it did not run.

    >>> store = Store("redis://127.0.0.1:6379")
    >>> store.dialled
    'redis://127.0.0.1:6379'
    """

    def __init__(self, url: str, answer_timeout: float = ANSWER_TIMEOUT_S) -> None:
        self.url = url
        self._address = Address.of(url)
        self.dialled = self._address.shown
        self._answer_timeout: float = self._address.options.pop("socket_timeout", answer_timeout)
        self._slots = Slots(self._address) if self._address.kind is Kind.CLUSTER else None
        self._connection = self._connect(self._answer_timeout)

    def blocking_connection(self, name: str, block_s: float) -> "BlockingConnection":
        """A connection of its own, named `name`, for calls that block up to `block_s`."""
        return BlockingConnection(self._connect(block_s + self._answer_timeout, name, is_blocking=True))

    def _connect(self, timeout: float, name: str = "", *, is_blocking: bool = False) -> Connection | Cluster:
        if self._slots is not None:
            return Cluster(self._slots, timeout, self._answer_timeout, name, is_blocking=is_blocking)
        is_asked = self._address.kind is Kind.SENTINEL
        where = Sentinels(self._address) if is_asked else Fixed(self._address.options)
        return Connection(where, self.dialled, timeout, name)

    async def call(self, *command: Any) -> Any:
        """The answer to one plain command."""
        return await self._connection.call(*command)

    async def pipe(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to several plain commands sent together, not as a transaction."""
        return await self._connection.pipe(commands)

    async def run(self, script: Script, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        """The answer to a script; the server is taught it first where it does not know it."""
        call = self._connection.call
        try:
            return await call("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            # the script did not run, so sending it again cannot run it twice
            return await call("EVAL", script.text, len(keys), *keys, *args)

    async def run_together(
        self, script: Script, calls: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    ) -> list[Any]:
        """The answers to one script called with several (keys, args): nobody sees the server in between."""
        if not calls:
            return []
        rest = [("EVALSHA", script.sha, len(keys), *keys, *args) for keys, args in calls]
        try:
            return await self._connection.transact(rest)
        except NoScriptError:
            # a server that does not know the script has run none of the calls; the first one teaches it
            keys, args = calls[0]
            return await self._connection.transact(
                [("EVAL", script.text, len(keys), *keys, *args), *rest[1:]]
            )

    async def close(self) -> None:
        """Close every connection."""
        self._connection.disconnect()


class BlockingConnection:
    """A connection for one caller's blocking calls; opened when first used."""

    def __init__(self, connection: Connection | Cluster) -> None:
        self._connection = connection

    async def call(self, *command: Any) -> Any:
        """The answer to one command; a call that fails or is cancelled leaves the line hung up."""
        try:
            return await self._connection.call(*command)
        except BaseException:
            self._connection.disconnect()
            raise

    async def disconnect(self) -> None:
        """Close the connection; the next call opens another."""
        self._connection.disconnect()


class Reconnect:
    """How long to wait before dialling again: 100 ms doubling to 30 s, ±20 %, without end by default."""

    def __init__(self, first_ms: int = 100, most_ms: int = 30_000, max_tries: int | None = None) -> None:
        self.first_ms = first_ms
        self.most_ms = most_ms
        self.max_tries = max_tries

    def delay(self, tries: int) -> float:
        """Seconds to wait after `tries` failed tries (the first is 0)."""
        return min(self.first_ms << min(tries, 32), self.most_ms) * (0.8 + 0.4 * random()) / 1000


async def first_contact(store: Store) -> None:
    """Return when the server answers; say what was dialled where it does not."""
    try:
        await store.call("PING")
    except RedisConnectionError as error:
        raise RedisConnectionError(
            f"no server at {store.dialled} ({error.__cause__ or error}); "
            f"start one there, or give another address by REDIS_URL or Corral(url)"
        ) from error
