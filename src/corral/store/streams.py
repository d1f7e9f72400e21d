"""Ranged reads of a stream, tails that survive a reconnect, and how far a stream reaches."""

import asyncio
from collections.abc import AsyncIterator

from corral.core.event import Extent
from corral.errors import StoreFault, StoreRefused
from corral.store.connect import Reconnect, Store

BLOCK_MS = 5000
PAGE = 1000

Entry = tuple[bytes, list[bytes]]


async def read_range(store: Store, stream: str, after: str, count: int) -> list[Entry]:
    """Up to `count` entries later than `after` ("-": from the beginning)."""
    start = after if after == "-" else f"({after}"
    answer = await store.call("XRANGE", stream, start, "+", "COUNT", count)
    return [(entry[0], entry[1]) for entry in answer or []]


async def entry_before(store: Store, stream: str, entry_id: bytes) -> list[bytes]:
    """The fields of the entry just before this one; empty where there is none."""
    answer = await store.call("XREVRANGE", stream, b"(" + entry_id, "-", "COUNT", 1)
    return list(answer[0][1]) if answer else []


async def extent(store: Store, stream: str) -> Extent:
    """What is kept of a stream, and how much was ever added where the server tells (Redis 7 on)."""
    try:
        answer = await store.call("XINFO", "STREAM", stream)
    except StoreRefused as error:
        if "no such key" in str(error):
            return Extent(first=None, last=None, length=0, added=0)
        raise
    info = dict(zip(answer[::2], answer[1::2], strict=True))
    first = info[b"first-entry"]
    return Extent(
        first=first[0].decode() if first else None,
        last=info[b"last-generated-id"].decode(),
        length=info[b"length"],
        added=info.get(b"entries-added"),
    )


async def follow(store: Store, stream: str, after: str) -> AsyncIterator[list[Entry]]:
    """Pages of entries as they come, on a connection of its own; goes on by itself after an outage."""
    position = (await extent(store, stream)).last or "0-0" if after == "$" else after
    if position == "-":
        position = "0-0"
    line = store.line("corral:tail", BLOCK_MS / 1000)
    reconnect, tries = Reconnect(), 0
    try:
        while True:
            try:
                answer = await line.call(
                    "XREAD", "COUNT", PAGE, "BLOCK", BLOCK_MS, "STREAMS", stream, position
                )
                tries = 0
            except StoreRefused:
                raise
            except StoreFault:
                await asyncio.sleep(reconnect.delay(tries))
                tries += 1
                continue
            if answer:
                entries = [(entry[0], entry[1]) for entry in answer[0][1]]
                position = entries[-1][0].decode()
                yield entries
    finally:
        await line.hang_up()
