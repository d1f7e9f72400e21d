"""Slots: which part of a cluster holds which keys, and which node serves it now."""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from corral.errors import InvalidName, RedisClusterError, RedisConnectionError, RedisError, RedisResponseError
from corral.store.address import Address, Node
from corral.store.connection import CONNECT_TIMEOUT_S, Connection, Fixed

KEYLESS = frozenset(
    {
        *("PING", "SCAN", "CLIENT", "SCRIPT", "INFO", "TIME", "CONFIG", "CLUSTER", "HELLO", "ACL"),
        *("FLUSHALL", "MULTI", "EXEC"),
    }
)
_SPECIAL = "*?[\\"


def slot_of(key: str | bytes) -> int:
    """The slot of one key: of what stands in its braces, where there are any.

    >>> slot_of("bull:{mail}:wait") == slot_of("{mail}")
    True
    """
    return key_slot(key if isinstance(key, bytes) else key.encode("utf-8", "surrogateescape"))


def shared_slot(keys: Sequence[str | bytes], shown: str) -> int:
    """The one slot of all these keys; refused where they lie in several, which no script could reach."""
    first = keys[0]
    tagged = _up_to_tag(first)
    slot = slot_of(first)
    for key in keys:
        is_alike = tagged is not None and type(key) is type(first) and key.startswith(tagged)  # type: ignore[arg-type]
        if not is_alike and slot_of(key) != slot:
            raise InvalidName(
                f"keys {_text(first)!r} and {_text(key)!r} lie in different slots of the cluster {shown}; "
                f"put a hash tag into the queue's name or its namespace, as in '{{mail}}' or '{{bull}}', "
                f"the same one for all queues that share a flow"
            )
    return slot


def has_tag(text: str) -> bool:
    """Do all keys that begin so lie in one slot?

    >>> has_tag("bull:{mail}"), has_tag("bull:mail")
    (True, False)
    """
    return _up_to_tag(text) is not None


def _up_to_tag(key: str | bytes) -> str | bytes | None:
    """What keys begin with that have this key's tag at this key's place; None where it has no tag."""
    opening, closing = ("{", "}") if isinstance(key, str) else (b"{", b"}")
    start = key.find(opening)  # type: ignore[arg-type]
    end = key.find(closing, start + 1)  # type: ignore[arg-type]
    return key[: end + 1] if start >= 0 and end > start + 1 else None


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "replace")


def slot_of_pattern(pattern: str | bytes) -> int | None:
    """The slot of every key that matches; None where they may lie in any."""
    text = _text(pattern)
    literal = text[: min((place for mark in _SPECIAL if (place := text.find(mark)) >= 0), default=len(text))]
    return None if _up_to_tag(literal) is None else slot_of(literal)


def keys_of(command: Sequence[Any]) -> Sequence[str | bytes]:
    """The keys of a plain command or a script, as far as they are needed to tell where it goes."""
    match command[0]:
        case "EVAL" | "EVALSHA":
            return command[3 : 3 + int(command[2])]
        case "XINFO" | "XGROUP" | "OBJECT":
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


class Slots:
    """Which master serves which slot, as the cluster last said; asked again when that was wrong."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._owners: list[Node | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._masters: list[Node] = []
        self._answered: list[Node] = []
        """Who told us last: asked first the next time, because others may have died."""
        self._is_doubted = True
        self._asking = asyncio.Lock()

    @property
    def shown(self) -> str:
        """The cluster's URL as it may be shown."""
        return self._address.shown

    def options(self, node: Node) -> dict[str, Any]:
        """What redis-py needs to dial that node."""
        return self._address.at(node)

    async def owner(self, slot: int) -> Node:
        """The master of a slot."""
        if self._is_doubted:
            await self._refresh()
        node = self._owners[slot]
        if node is None:
            self._is_doubted = True
            raise RedisClusterError(f"{self.shown}: no node serves slot {slot}")
        return node

    async def masters(self) -> list[Node]:
        """All masters that serve slots, in an order that stays; there is at least one."""
        if self._is_doubted:
            await self._refresh()
        if not self._masters:
            self._is_doubted = True
            raise RedisClusterError(f"{self.shown}: no node serves any slot")
        return self._masters

    def moved(self, slot: int, node: Node) -> None:
        """A node has said who serves this slot now."""
        self._owners[slot] = node
        if node not in self._masters:
            self._is_doubted = True

    def doubt(self) -> None:
        """Something was not as the cluster last said: ask it again before the next call."""
        self._is_doubted = True

    async def _refresh(self) -> None:
        async with self._asking:
            if not self._is_doubted:
                return
            said: RedisError | None = None
            for node in dict.fromkeys([*self._answered, *self._masters, *self._address.nodes]):
                try:
                    self._learn(await self._ask(node), node)
                    self._answered = [node]
                    return
                except RedisResponseError:
                    raise
                except RedisError as fault:
                    said = fault
            raise RedisConnectionError(f"{self.shown}: no node answers ({said})")

    async def _ask(self, node: Node) -> Sequence[Any]:
        where = Fixed({"socket_connect_timeout": CONNECT_TIMEOUT_S, **self.options(node)})
        connection = Connection(
            where, f"{self.shown} ({node[0]}:{node[1]})", CONNECT_TIMEOUT_S, is_alone=False
        )
        try:
            answer: Sequence[Any] = await connection.call("CLUSTER", "SLOTS")
        except RedisResponseError as refused:
            if "cluster support disabled" in str(refused):
                raise RedisResponseError(f"{refused}; it is no cluster: write redis://host:port") from None
            raise
        finally:
            connection.disconnect()
        return answer

    def _learn(self, answer: Sequence[Any], asked: Node) -> None:
        owners: list[Node | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        for start, end, (host, port, *_), *_ in answer:
            # a node that does not know its own address leaves it out: it is where it was asked
            node = (host.decode() if host else asked[0], port)
            owners[start : end + 1] = [node] * (end + 1 - start)
        self._owners = owners
        self._masters = sorted({node for node in owners if node is not None})
        self._is_doubted = False
