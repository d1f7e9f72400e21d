"""Durability: an add returns when its jobs are on the server's disk, or at a replica of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from corral.core.options import Durability, checked_durability
from corral.errors import RedisError, RedisResponseError, Unsupported

if TYPE_CHECKING:
    from corral.queue import Queue
    from corral.store.client import Store

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 5.0
MARK_MS = 60_000
"""How long the key lives whose write is waited for."""


class DurabilityWaiter:
    """Waits for the writes of one queue, in one event loop, on a connection of its own.

    A server answers `WAIT` for the writes of the connection that asks, and holds back what is behind it. So
    this connection writes a key of its own, later than the jobs, and waits for that. One wait serves all adds
    that were answered before it began.
    """

    def __init__(self, store: "Store", key: str, level: Durability, timeout_s: float) -> None:
        self._store = store
        self._key = key
        self._level = level
        self._timeout_s = timeout_s
        self._connection = store.blocking_connection("corral:durability", timeout_s)
        self._server: str | None = None
        self._waiting: asyncio.Task[str | None] | None = None
        self._next: asyncio.Task[str | None] | None = None

    async def server(self) -> str:
        """Return the id of the server's run, which a restart and a failover change.

        `Unsupported` where that server cannot keep this durability.
        """
        if self._server is None:
            info = _fields(await self._call("INFO"))
            complaint = await self._complaint(info)
            if complaint is not None:
                raise Unsupported(
                    f"durability={self._level!r} cannot be kept by {self._store.address}: {complaint}, "
                    f"or ask for durability='memory'"
                )
            self._server = info["run_id"]
        return self._server

    async def is_durable(self, before: str) -> bool:
        """Return whether the server has kept, in time, what was added since `before` was returned."""
        if self._next is None:
            self._next = asyncio.create_task(self._wait_after(self._waiting))
        # a caller that is cancelled leaves the wait to the others
        server = await asyncio.shield(self._next)
        if server != before:
            self._server = None
        return server == before

    async def _wait_after(self, waiting: "asyncio.Task[str | None] | None") -> str | None:
        if waiting is not None:
            await asyncio.wait([waiting])
        self._waiting, self._next = self._next, None
        try:
            return await self._wait()
        except RedisError:
            return None

    async def _wait(self) -> str | None:
        """Return the server that has kept everything up to now; None where it has not in time."""
        limit = max(1, int(self._timeout_s * 1000))
        wait = ("WAITAOF", 1, 0, limit) if self._level == "disk" else ("WAIT", 1, limit)
        _, kept, info = await self._connection.pipe_to(
            self._key, [("SET", self._key, "", "PX", MARK_MS), wait, ("INFO", "server")]
        )
        count = kept[0] if isinstance(kept, list) else kept
        return _fields(info)["run_id"] if count >= 1 else None

    async def _call(self, *command: Any) -> Any:
        [reply] = await self._connection.pipe_to(self._key, [command])
        return reply

    async def _complaint(self, info: Mapping[str, str]) -> str | None:
        """Return why this server cannot keep this durability, and what to do; None where it can."""
        if self._level == "replicas":
            is_alone = info.get("connected_slaves", "0") == "0"
            return "it has no replica; connect one" if is_alone else None
        if info.get("aof_enabled") != "1":
            return "it has no append-only file; set `appendonly yes` there"
        try:
            [_, policy] = await self._call("CONFIG", "GET", "appendfsync")
        except RedisResponseError:
            return "this user may not read its setting `appendfsync`; allow CONFIG|GET"
        match policy.decode():
            case "always":
                pass
            case "everysec" if _tells_when_on_disk(info):
                pass
            case other:
                return (
                    f"with `appendfsync {other}` it does not tell when data are on disk; set `always` there"
                )
        return None if _version(info) >= (7, 2) else "it has no WAITAOF; use Redis 7.2 or Valkey"

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.disconnect()


def _fields(info: bytes) -> dict[str, str]:
    lines = info.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _version(info: Mapping[str, str]) -> tuple[int, ...]:
    return tuple(int(part) for part in info["redis_version"].split("."))


def _tells_when_on_disk(info: Mapping[str, str]) -> bool:
    """Return whether WAITAOF waits for the fsync of each second; Valkey and Redis 7.4.0 to 7.4.2 do not."""
    is_valkey = "valkey_version" in info or info.get("server_name") == "valkey"
    return not is_valkey and not (7, 4) <= _version(info) < (7, 4, 3)


class DurabilityWaiters:
    """The waiters of an app: one for each event loop, queue and durability."""

    def __init__(self, level: Any, timeout_s: float) -> None:
        self.default = checked_durability(level)
        self.timeout_s = timeout_s
        self._waiters: WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[tuple[str, str, Durability], DurabilityWaiter]
        ] = WeakKeyDictionary()

    def of(self, queue: "Queue", level: Durability) -> DurabilityWaiter:
        """Return the waiter of a queue, in the running event loop."""
        waiters = self._waiters.setdefault(asyncio.get_running_loop(), {})
        where = queue.protocol.spec.name, queue.name, level
        waiter = waiters.get(where)
        if waiter is None:
            namespace = queue.app.namespace(queue.protocol)
            # namespace and queue have the hash tag, where there is one: the key is where the jobs are
            key = f"corral:{queue.protocol.spec.name}:{namespace}:{queue.name}:durability"
            waiter = waiters[where] = DurabilityWaiter(queue.app.store(), key, level, self.timeout_s)
        return waiter

    async def kept(
        self, queue: "Queue", level: Durability, add: Callable[[], Awaitable[T]]
    ) -> tuple[T, bool]:
        """Return what an add returns, and whether its jobs are as durable as they should be."""
        if level == "memory":
            return await add(), True
        waiter = self.of(queue, level)
        server = await waiter.server()
        added = await add()
        return added, await waiter.is_durable(server)

    async def check(self, queue: "Queue") -> None:
        """Refuse a server that cannot do what the app asks of every add."""
        if self.default != "memory":
            await self.of(queue, self.default).server()

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        for waiter in self._waiters.pop(asyncio.get_running_loop(), {}).values():
            await waiter.close()

    def reset(self) -> None:
        """Forget every connection: another server is used."""
        self._waiters.clear()
