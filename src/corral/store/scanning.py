"""Walks over many keys or members a page at a time, with cursors of plain text."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from corral.store.client import Store

SCANNED = 1000
"""Keys looked at in one call."""
WINDOW = 1000


def literal(text: str) -> str:
    """The text as a pattern that matches only itself."""
    return "".join(f"\\{char}" if char in "*?[]\\^" else char for char in text)


async def scan_page(store: Store, cursor: str, pattern: str, kind: str) -> tuple[list[bytes], str]:
    """Some keys of a kind, and the cursor for more ("0": that was all)."""
    following, keys = await store.call("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED, "TYPE", kind)
    return keys, following.decode()


async def scan_all(store: Store, pattern: str, kind: str) -> AsyncIterator[list[bytes]]:
    """Pages of keys of a kind until all were seen."""
    cursor = "0"
    while True:
        keys, cursor = await scan_page(store, cursor, pattern, kind)
        if keys:
            yield keys
        if cursor == "0":
            return


class Shelf:
    """One key that lists ids: how it is walked so that what stays where it is, is met."""

    def __init__(self, place: str, key: str, kind: str) -> None:
        self.place = place
        self.key = key
        self.kind = kind
        """`left`: a list whose members leave at the right; `right`: at the left; `whole`: a short list;
        `set`, `zset`."""

    async def page(self, store: Store, cursor: str) -> tuple[list[bytes], str]:
        """Some members, and the cursor for more ("0": that was all)."""
        if self.kind in ("set", "zset"):
            command = "SSCAN" if self.kind == "set" else "ZSCAN"
            following, flat = await store.call(command, self.key, cursor, "COUNT", SCANNED)
            return list(flat[::2] if self.kind == "zset" else flat), following.decode()
        if self.kind == "whole":
            return list(await store.call("LRANGE", self.key, 0, -1)), "0"
        start = int(cursor)
        low, high = start, start + WINDOW - 1
        window = (low, high) if self.kind == "left" else (-high - 1, -low - 1)
        members = list(await store.call("LRANGE", self.key, *window))
        return members, str(start + WINDOW) if len(members) == WINDOW else "0"


async def shelves_page(
    store: Store, shelves: Sequence[Shelf], cursor: str
) -> tuple[list[tuple[str, bytes]], str]:
    """Some (place, member) of several shelves, one after the other."""
    number, _, inner = cursor.partition(":")
    index = int(number)
    shelf = shelves[index]
    members, following = await shelf.page(store, inner or "0")
    found: list[tuple[str, Any]] = [(shelf.place, member) for member in members]
    if following != "0":
        return found, f"{index}:{following}"
    return found, f"{index + 1}:0" if index + 1 < len(shelves) else "0"
