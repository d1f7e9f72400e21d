"""Scans of keys and members a page at a time, with cursors of plain text."""

from collections.abc import AsyncIterator, Iterable, Sequence

from corral.store.client import Store

PAGE = 1000
"""Keys or members looked at in one call."""


def escape_pattern(literal: str) -> str:
    """Return a pattern that matches only this text."""
    return "".join(f"\\{char}" if char in "*?[]\\^" else char for char in literal)


async def scan_page(store: Store, cursor: str, pattern: str, kind: str) -> tuple[list[bytes], str]:
    """Return some keys of a kind, and the cursor for more ("0": that was all)."""
    following, keys = await store.call("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE, "TYPE", kind)
    return keys, following.decode()


async def scan_all(store: Store, pattern: str, kind: str) -> AsyncIterator[list[bytes]]:
    """Yield pages of keys of a kind until the scan is complete."""
    cursor = "0"
    while True:
        keys, cursor = await scan_page(store, cursor, pattern, kind)
        if keys:
            yield keys
        if cursor == "0":
            return


class IdList:
    """A key that lists ids, and the way to walk it that misses no member that stays."""

    def __init__(self, place: str, key: str, kind: str) -> None:
        self.place = place
        self.key = key
        self.kind = kind
        """`left`: a list whose members leave at the right; `right`: at the left; `whole`: a short list;
        `set`, `zset`."""

    async def page(self, store: Store, cursor: str) -> tuple[list[bytes], str]:
        """Return some members, and the cursor for more ("0": that was all)."""
        if self.kind in ("set", "zset"):
            command = "SSCAN" if self.kind == "set" else "ZSCAN"
            following, flat = await store.call(command, self.key, cursor, "COUNT", PAGE)
            return list(flat[::2] if self.kind == "zset" else flat), following.decode()
        if self.kind == "whole":
            return list(await store.call("LRANGE", self.key, 0, -1)), "0"
        low, high = int(cursor), int(cursor) + PAGE - 1
        window = (low, high) if self.kind == "left" else (-high - 1, -low - 1)
        members = list(await store.call("LRANGE", self.key, *window))
        return members, str(high + 1) if len(members) == PAGE else "0"


async def lists_page(
    store: Store, lists: Sequence[IdList], cursor: str
) -> tuple[list[tuple[str, bytes]], str]:
    """Return some (place, member) of several lists, one after the other, and the cursor for more."""
    number, _, inner = cursor.partition(":")
    index = int(number)
    members, following = await lists[index].page(store, inner or "0")
    listed = [(lists[index].place, member) for member in members]
    if following != "0":
        return listed, f"{index}:{following}"
    return listed, f"{index + 1}:0" if index + 1 < len(lists) else "0"


async def keys_with_prefix(store: Store, prefix: str, kind: str = "string") -> list[bytes]:
    """Return all keys of a kind whose names begin so, in order."""
    pages = [page async for page in scan_all(store, escape_pattern(prefix) + "*", kind)]
    return sorted({key for page in pages for key in page})


async def memory_of(store: Store, keys: Iterable[str]) -> int:
    """Return how many bytes these keys take; those that do not exist take none."""
    sizes = await store.pipe([("MEMORY", "USAGE", key) for key in keys])
    return sum(size or 0 for size in sizes)
