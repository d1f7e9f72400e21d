"""Cluster: a connection to each master that is needed, and every call to the one that serves its keys."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from corral.errors import RedisClusterError, RedisConnectionError, RedisReadOnlyError
from corral.store.address import Node
from corral.store.connection import Connection, Fixed
from corral.store.errors import ConnectError, SlotMovedError
from corral.store.slots import Slots, keys_of, shared_slot, slot_of_pattern

FIRST_PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.1
NEVER = ":never"
"""Behind a script's first key this names one that is never there."""

Send = Callable[[Connection], Awaitable[Any]]


class Cluster:
    """Speaks as a Connection does, to many nodes.

    A call that a node turns away because its slot is elsewhere, on its way or not served just now has not
    run. It is sent again to where the slot is, or a little later, for as long as one answer may take.

    While a slot moves key by key, a script would find some of its keys gone in the middle of its work. So
    each script declares one more key, which never exists: a node that is giving a slot away, or taking it
    in, then turns the whole script away before it starts. Plain commands of one key follow that key.
    """

    def __init__(
        self, slots: Slots, timeout: float, patience: float, name: str = "", *, is_blocking: bool = False
    ) -> None:
        self._slots = slots
        self._timeout = timeout
        self._patience = patience
        self._name = name
        self._is_line = is_blocking
        """One connection at a time: tools count workers by their lines."""
        self._connections: dict[Node, Connection] = {}

    async def call(self, *command: Any) -> Any:
        """The answer of the node that serves the command's keys; of any or all where it has none."""
        match command[0]:
            case "SCAN":
                return await self._scan(command)
            case "CLIENT" | "SCRIPT":
                answers = await self._everywhere(command)
                return _joined(command, answers)
        keys = keys_of(command)
        if not keys:
            return await self._anywhere(command)
        slot = shared_slot(keys, self._slots.shown)
        if command[0] in ("EVAL", "EVALSHA"):
            guarded = _guarded(command)
            return await self._routed(slot, lambda connection: connection.call(*guarded))
        return await self._routed(slot, lambda connection: connection.call(*command), asking=command)

    async def pipe(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to several commands; what is between MULTI and EXEC goes to one node, as one.

        Refused where their keys lie in several slots: they are of one queue, whose name lacks its tag.
        """
        if not commands:
            return []
        keys = [key for command in commands for key in keys_of(command)]
        slot = shared_slot(keys, self._slots.shown) if keys else 0
        if commands[0][0] == "MULTI":
            found: list[Any] = await self._routed(slot, lambda connection: connection.pipe(commands))
            return found
        answers = await asyncio.gather(*(self.call(*command) for command in commands), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def transact(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers to several scripts that run as one; refused where they are of several slots."""
        keys = [key for command in commands for key in keys_of(command)]
        slot = shared_slot(keys, self._slots.shown)
        guarded = [_guarded(command) for command in commands]
        answers: list[Any] = await self._routed(slot, lambda connection: connection.transact(guarded))
        return answers

    def disconnect(self) -> None:
        """Close every connection; the next call dials again."""
        links, self._connections = self._connections, {}
        for connection in links.values():
            connection.disconnect()

    # -- on the way ---------------------------------------------------------------------------------------

    async def _routed(self, slot: int, send: Send, asking: Sequence[Any] | None = None) -> Any:
        """What the slot's master answers; `asking` is what may follow a key that has gone ahead."""
        clock = asyncio.get_running_loop().time
        deadline, pause, is_told = clock() + self._patience, FIRST_PAUSE_S, False
        unreached: Node | None = None
        while True:
            try:
                node = await self._slots.owner(slot)
                return await self._send(node, send, asking)
            except ConnectError:
                # it has not run, so it may go to whoever took over; as long as nobody has, that is said
                self._slots.doubt()
                if node == unreached:
                    raise
                unreached = node
                continue
            except SlotMovedError as fault:
                if clock() > deadline:
                    raise
                if fault.is_for_good and not is_told:
                    is_told = True
                    continue
            except RedisClusterError:
                if clock() > deadline:
                    raise
                self._slots.doubt()
            except (RedisConnectionError, RedisReadOnlyError):
                # it may have run: whoever called decides what comes next
                self._slots.doubt()
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _send(self, node: Node, send: Send, asking: Sequence[Any] | None) -> Any:
        try:
            return await send(self._connection(node))
        except SlotMovedError as fault:
            other = (fault.node[0] or node[0], fault.node[1])
            if fault.is_for_good:
                self._slots.moved(fault.slot, other)
                raise
            if asking is None:
                raise
        return (await self._connection(other).pipe([("ASKING",), asking]))[1]

    def _connection(self, node: Node) -> Connection:
        connection = self._connections.get(node)
        if connection is None:
            if self._is_line:
                self.disconnect()
            shown = f"{self._slots.shown} ({node[0]}:{node[1]})"
            where = Fixed(self._slots.options(node))
            connection = self._connections[node] = Connection(
                where, shown, self._timeout, self._name, is_alone=False
            )
        return connection

    # -- anywhere, everywhere -----------------------------------------------------------------------------

    async def _anywhere(self, command: Sequence[Any]) -> Any:
        """The answer of the first master that gives one; a command without keys only asks."""
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
            self._slots.doubt()
            raise

    async def _scan(self, command: Sequence[Any]) -> list[Any]:
        """One node after the other, by cursors that say which; one alone where the pattern has a tag."""
        _, cursor, *rest = command
        text = cursor.decode() if isinstance(cursor, bytes) else str(cursor)
        slot = slot_of_pattern(rest[rest.index("MATCH") + 1]) if "MATCH" in rest else None
        if slot is not None:
            found: list[Any] = await self._routed(slot, lambda connection: connection.call(*command))
            return found
        place, _, inner = text.rpartition("-")
        if not place:
            self._slots.doubt()
        masters = await self._slots.masters()
        index = int(place or 0)
        if index >= len(masters):
            return [b"0", []]
        following, keys = await self._at(masters[index], ("SCAN", inner, *rest))
        if following != b"0":
            return [b"%d-%s" % (index, following), keys]
        return [b"%d-0" % (index + 1) if index + 1 < len(masters) else b"0", keys]


def _guarded(command: Sequence[Any]) -> Sequence[Any]:
    """The script with a key more that is never there, unless its one key is all it may touch."""
    verb, script, count, *rest = command
    keys, arguments = rest[: int(count)], rest[int(count) :]
    if len(keys) < 2:
        return command
    first = keys[0]
    never = first + (NEVER if isinstance(first, str) else NEVER.encode())
    return (verb, script, len(keys) + 1, *keys, never, *arguments)


def _joined(command: Sequence[Any], answers: Sequence[Any]) -> Any:
    """What all nodes say, as one server would say it."""
    match command[:2]:
        case ("CLIENT", "LIST"):
            return b"".join(answers)
        case ("SCRIPT", "EXISTS"):
            return [min(known) for known in zip(*answers, strict=True)]
    return answers[0]
