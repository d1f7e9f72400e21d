"""Redis Cluster: the slot of a command's keys, the node that serves it, and connections to those nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from corral.errors import (
    InvalidName,
    RedisClusterError,
    RedisConnectionError,
    RedisError,
    RedisReadOnlyError,
    RedisResponseError,
)
from corral.store.address import Node, RedisAddress
from corral.store.connection import CONNECT_TIMEOUT_S, Connection, StaticResolver
from corral.store.errors import ConnectError, SlotMovedError

FIRST_PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.1
SLOTS = 16_384
"""The slots of every cluster."""
GUARD = ":never"
"""Appended to a script's first key, the name of a key that never exists."""
KEYLESS = frozenset(
    {
        *("PING", "SCAN", "CLIENT", "SCRIPT", "INFO", "DBSIZE", "TIME", "CONFIG", "CLUSTER", "HELLO", "ACL"),
        *("FLUSHALL", "MULTI", "EXEC"),
    }
)

Key = str | bytes
Send = Callable[[Connection], Awaitable[Any]]


# -- slots of keys ------------------------------------------------------------------------------------------


def slot_of(key: Key) -> int:
    """Return the slot of one key, by its hash tag where it has one.

    >>> slot_of("bull:{mail}:wait") == slot_of("{mail}")
    True
    """
    from redis.crc import key_slot

    return key_slot(key if isinstance(key, bytes) else key.encode("utf-8", "surrogateescape"))


def shared_slot(keys: Sequence[Key], address: str) -> int:
    """Return the slot of all these keys; raise where they are in several, which no script can reach."""
    first = keys[0]
    slot, end = slot_of(first), _tag_end(first)
    prefix = first[:end]
    for key in keys:
        # the same text up to and including the tag: the same slot
        if (not end or key[:end] != prefix) and slot_of(key) != slot:
            raise InvalidName(
                f"keys {_text(first)!r} and {_text(key)!r} lie in different slots of the cluster {address}; "
                f"put a hash tag into the queue's name or its namespace, as in '{{mail}}' or '{{bull}}', "
                f"the same one for all queues that share a flow"
            )
    return slot


def has_tag(prefix: str) -> bool:
    """Return whether all keys with this prefix are in one slot.

    >>> has_tag("bull:{mail}"), has_tag("bull:mail")
    (True, False)
    """
    return _tag_end(prefix) > 0


def _tag_end(key: Key) -> int:
    """Return the position behind the key's hash tag; 0 where it has none."""
    if isinstance(key, str):
        start = key.find("{")
        end = key.find("}", start + 1)
    else:
        start = key.find(b"{")
        end = key.find(b"}", start + 1)
    return end + 1 if start >= 0 and end > start + 1 else 0


def _text(key: Key) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "replace")


def _slot_of_pattern(pattern: Key) -> int | None:
    """Return the slot of every key that matches; None where they may be in any."""
    text = _text(pattern)
    literal = text[: min((index for mark in "*?[\\" if (index := text.find(mark)) >= 0), default=len(text))]
    return slot_of(literal) if has_tag(literal) else None


def _keys_of(command: Sequence[Any]) -> Sequence[Key]:
    """Return the keys of a command or a script, as far as they are needed to route it."""
    match command[0]:
        case "EVAL" | "EVALSHA":
            return command[3 : 3 + int(command[2])]
        case "XINFO" | "XGROUP" | "OBJECT" | "MEMORY":
            return command[2:3]
        case "XREAD" | "XREADGROUP":
            words = [word if isinstance(word, str) else "" for word in command]
            streams = command[words.index("STREAMS") + 1 :]
            return streams[: len(streams) // 2]
        case "MGET" | "DEL" | "UNLINK" | "EXISTS":
            return command[1:]
        case word if word in KEYLESS:
            return ()
    return command[1:2]


# -- nodes of slots -----------------------------------------------------------------------------------------


class SlotMap:
    """Which master serves which slot, read again from the cluster when it was found to be outdated."""

    def __init__(self, address: RedisAddress) -> None:
        self.display = address.display
        """The cluster's URL without its password."""
        self._address = address
        self._owners: list[Node | None] = [None] * SLOTS
        self._masters: list[Node] = []
        self._last_source: list[Node] = []
        """The node that answered last: used first the next time, because others may have died."""
        self._is_outdated = True
        self._refreshing = asyncio.Lock()

    def connection(self, node: Node, timeout: float, name: str = "", **options: Any) -> Connection:
        """Return a new connection to one node."""
        resolver = StaticResolver({**options, **self._address.node_options(node)})
        address = f"{self.display} ({node[0]}:{node[1]})"
        return Connection(resolver, address, timeout, name, is_single=False)

    async def owner(self, slot: int) -> Node:
        """Return the master of a slot."""
        if self._is_outdated:
            await self._refresh()
        node = self._owners[slot]
        if node is None:
            self._is_outdated = True
            raise RedisClusterError(f"{self.display}: no node serves slot {slot}")
        return node

    async def masters(self) -> list[Node]:
        """Return all masters that serve slots, at least one, in a stable order."""
        if self._is_outdated:
            await self._refresh()
        if not self._masters:
            self._is_outdated = True
            raise RedisClusterError(f"{self.display}: no node serves any slot")
        return self._masters

    def move(self, slot: int, node: Node) -> None:
        """Record that `node` serves this slot now."""
        self._owners[slot] = node
        if node not in self._masters:
            self._is_outdated = True

    def invalidate(self) -> None:
        """Read the map again before the next call."""
        self._is_outdated = True

    async def _refresh(self) -> None:
        async with self._refreshing:
            if not self._is_outdated:
                return
            last_error: RedisError | None = None
            for node in dict.fromkeys([*self._last_source, *self._masters, *self._address.nodes]):
                try:
                    self._load(await self._read(node), node)
                    self._last_source = [node]
                    return
                except RedisResponseError:
                    raise
                except RedisError as error:
                    last_error = error
            raise RedisConnectionError(f"{self.display}: no node answers ({last_error})")

    async def _read(self, node: Node) -> Sequence[Any]:
        connection = self.connection(node, CONNECT_TIMEOUT_S, socket_connect_timeout=CONNECT_TIMEOUT_S)
        try:
            reply: Sequence[Any] = await connection.call("CLUSTER", "SLOTS")
        except RedisResponseError as error:
            if "cluster support disabled" in str(error):
                raise RedisResponseError(f"{error}; it is no cluster: write redis://host:port") from None
            raise
        finally:
            connection.disconnect()
        return reply

    def _load(self, reply: Sequence[Any], source: Node) -> None:
        owners: list[Node | None] = [None] * SLOTS
        for start, end, (host, port, *_), *_ in reply:
            # a node that does not know its own address leaves it out
            node = (host.decode() if host else source[0], port)
            owners[start : end + 1] = [node] * (end + 1 - start)
        self._owners = owners
        self._masters = sorted({node for node in owners if node is not None})
        self._is_outdated = False


# -- connections to nodes -----------------------------------------------------------------------------------


class ClusterConnection:
    """The interface of a Connection, for the nodes of a cluster.

    A call that a node refuses because its slot is elsewhere, moving or not served has not run. It is sent
    again to the slot's node, or a little later, for as long as a reply may take.

    While a slot moves key by key, a script could find some of its keys missing halfway. So each script
    declares one more key, which never exists: a node that exports or imports the slot then refuses the
    whole script before it starts. Commands of one key follow that key.
    """

    def __init__(
        self,
        slots: SlotMap,
        timeout: float,
        redirect_timeout: float,
        name: str = "",
        *,
        is_blocking: bool = False,
    ) -> None:
        self._slots = slots
        self._timeout = timeout
        self._redirect_timeout = redirect_timeout
        self._name = name
        self._is_blocking = is_blocking
        """One connection at a time: tools count workers by their blocking connections."""
        self._connections: dict[Node, Connection] = {}

    async def call(self, *command: Any) -> Any:
        """Return the reply of the node that serves the command's keys; of any or all where it has none."""
        match command[0]:
            case "SCAN":
                return await self._scan(command)
            case "CLIENT" | "SCRIPT":
                return _merged(command, await self._everywhere(command))
        keys = _keys_of(command)
        if not keys:
            return await self._anywhere(command)
        slot = shared_slot(keys, self._slots.display)
        if command[0] in ("EVAL", "EVALSHA"):
            guarded = _guarded(command)
            return await self._routed(slot, lambda connection: connection.call(*guarded))
        return await self._routed(slot, lambda connection: connection.call(*command), asking=command)

    async def pipe(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the replies to several commands; what is between MULTI and EXEC goes to one node, as one.

        Refused where their keys are in several slots: they are of one queue, whose name lacks its tag.
        """
        if not commands:
            return []
        keys = [key for command in commands for key in _keys_of(command)]
        slot = shared_slot(keys, self._slots.display) if keys else 0
        if commands[0][0] == "MULTI":
            replies: list[Any] = await self._routed(slot, lambda connection: connection.pipe(commands))
            return replies
        replies = await asyncio.gather(*(self.call(*command) for command in commands), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return replies

    async def pipe_to(self, key: Key, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the replies of the node that has a key, also to commands without keys."""
        replies: list[Any] = await self._routed(slot_of(key), lambda connection: connection.pipe(commands))
        return replies

    async def transact(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the replies to several scripts run in a transaction; refused for several slots."""
        keys = [key for command in commands for key in _keys_of(command)]
        slot = shared_slot(keys, self._slots.display)
        guarded = [_guarded(command) for command in commands]
        replies: list[Any] = await self._routed(slot, lambda connection: connection.transact(guarded))
        return replies

    def disconnect(self) -> None:
        """Close every connection; the next call connects again."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.disconnect()

    async def _routed(self, slot: int, send: Send, asking: Sequence[Any] | None = None) -> Any:
        """Return the reply of the slot's master; `asking` is sent on to the node an ASK names."""
        clock = asyncio.get_running_loop().time
        deadline, pause, was_moved = clock() + self._redirect_timeout, FIRST_PAUSE_S, False
        unreachable: Node | None = None
        while True:
            try:
                node = await self._slots.owner(slot)
                return await self._send(node, send, asking)
            except ConnectError:
                # it has not run, so it may go to a new master; without one the error is raised
                self._slots.invalidate()
                if node == unreachable:
                    raise
                unreachable = node
                continue
            except SlotMovedError as error:
                if clock() > deadline:
                    raise
                if error.is_permanent and not was_moved:
                    was_moved = True
                    continue
            except RedisClusterError:
                if clock() > deadline:
                    raise
                self._slots.invalidate()
            except (RedisConnectionError, RedisReadOnlyError):
                # it may have run: the caller decides what comes next
                self._slots.invalidate()
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _send(self, node: Node, send: Send, asking: Sequence[Any] | None) -> Any:
        try:
            return await send(self._connection(node))
        except SlotMovedError as error:
            other = (error.node[0] or node[0], error.node[1])
            if error.is_permanent:
                self._slots.move(error.slot, other)
                raise
            if asking is None:
                raise
        return (await self._connection(other).pipe([("ASKING",), asking]))[1]

    def _connection(self, node: Node) -> Connection:
        connection = self._connections.get(node)
        if connection is None:
            if self._is_blocking:
                self.disconnect()
            connection = self._connections[node] = self._slots.connection(node, self._timeout, self._name)
        return connection

    async def _anywhere(self, command: Sequence[Any]) -> Any:
        """Return the reply of the first master that can be reached."""
        *others, last = await self._slots.masters()
        for node in others:
            with suppress(RedisConnectionError):
                return await self._at(node, command)
        return await self._at(last, command)

    async def _everywhere(self, command: Sequence[Any]) -> list[Any]:
        masters = await self._slots.masters()
        return await asyncio.gather(*(self._at(node, command) for node in masters))

    async def _at(self, node: Node, command: Sequence[Any]) -> Any:
        try:
            return await self._connection(node).call(*command)
        except RedisConnectionError:
            self._slots.invalidate()
            raise

    async def _scan(self, command: Sequence[Any]) -> list[Any]:
        """Scan one node after the other, by cursors that name it; only one where the pattern has a tag."""
        _, cursor, *rest = command
        slot = _slot_of_pattern(rest[rest.index("MATCH") + 1]) if "MATCH" in rest else None
        if slot is not None:
            reply: list[Any] = await self._routed(slot, lambda connection: connection.call(*command))
            return reply
        number, _, inner = (cursor.decode() if isinstance(cursor, bytes) else str(cursor)).rpartition("-")
        if not number:
            self._slots.invalidate()
        masters = await self._slots.masters()
        index = int(number or 0)
        if index >= len(masters):
            return [b"0", []]
        following, keys = await self._at(masters[index], ("SCAN", inner, *rest))
        if following != b"0":
            return [b"%d-%s" % (index, following), keys]
        return [b"%d-0" % (index + 1) if index + 1 < len(masters) else b"0", keys]


def _guarded(command: Sequence[Any]) -> Sequence[Any]:
    """Return the script with one more key that never exists, unless it has one key only."""
    verb, script, count, *rest = command
    keys, arguments = rest[: int(count)], rest[int(count) :]
    if len(keys) < 2:
        return command
    first = keys[0]
    guard = first + (GUARD if isinstance(first, str) else GUARD.encode())
    return (verb, script, len(keys) + 1, *keys, guard, *arguments)


def _merged(command: Sequence[Any], replies: Sequence[Any]) -> Any:
    """Return the replies of all nodes as one server would give them."""
    match command[:2]:
        case ("CLIENT", "LIST"):
            return b"".join(replies)
        case ("SCRIPT", "EXISTS"):
            return [min(known) for known in zip(*replies, strict=True)]
    return replies[0]
