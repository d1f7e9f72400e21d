"""Reads of a stream by range and page, tails that survive a reconnect, and its extent."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from corral.core.event import EventColumns, EventPage, Extent, Marks
from corral.errors import RedisError, RedisResponseError
from corral.store.client import Reconnect, Store
from corral.store.errors import error_from_reply
from corral.store.scripts import Scripts

BLOCK_MS = 5000
PAGE = 1000
MOST_MARKED = 5000
"""Entries counted in one script call: about 10 ms of the server's time."""

SCRIPTS = Scripts("corral.store")

Entry = tuple[bytes, list[bytes]]


async def read_range(
    store: Store, stream: str, after: str, count: int, max_bytes: int | None = None
) -> list[Entry]:
    """Return up to `count` entries later than `after` ("-": from the beginning).

    With `max_bytes`, only as many as fit into it, and at least one: fewer are then not always the last.
    """
    if max_bytes is not None:
        return (await read_bytes(store, stream, after, count, max_bytes))[0]
    start = after if after == "-" else f"({after}"
    answer = await store.call("XRANGE", stream, start, "+", "COUNT", count)
    return [(entry[0], entry[1]) for entry in answer or []]


async def read_bytes(
    store: Store, stream: str, after: str, count: int, max_bytes: int
) -> tuple[list[Entry], bytes, bool]:
    """Return the entries that fit, the first id that the stream keeps, and whether there may be more."""
    start = after if after == "-" else f"({after}"
    rows, first, has_more = await store.run(SCRIPTS["range"], [stream], (start, count, max_bytes))
    return [(entry[0], entry[1]) for entry in rows], first, has_more == 1


async def entry_before(store: Store, stream: str, entry_id: bytes) -> list[bytes]:
    """Return the fields of the entry just before this one; empty where there is none."""
    answer = await store.call("XREVRANGE", stream, b"(" + entry_id, "-", "COUNT", 1)
    return list(answer[0][1]) if answer else []


async def extent(store: Store, stream: str) -> Extent:
    """Return what is kept of a stream, and how much was ever added (from Redis 7 on)."""
    try:
        answer = await store.call("XINFO", "STREAM", stream)
    except RedisResponseError as error:
        if _is_missing(error):
            return _extent([])
        raise
    return _extent(answer)


async def read_page(
    store: Store, stream: str, after: str, until: str, count: int
) -> tuple[Extent, list[bytes], Sequence[Sequence[Any]]]:
    """Return the extent of a stream, the fields of the entry at `after`, and up to `count` entries behind it.

    All are of one moment: what is missing between `after` and the first entry was trimmed before, not since.
    """
    before, start = ("-", "-") if after == "-" else (after, f"({after}")
    *_, (info, behind, entries) = await store.pipe(
        [
            ("MULTI",),
            ("XINFO", "STREAM", stream),
            ("XREVRANGE", stream, before, "-", "COUNT", 1),
            ("XRANGE", stream, start, until, "COUNT", count),
            ("EXEC",),
        ]
    )
    if isinstance(info, Exception):
        fault = error_from_reply(str(info), stream)
        if not _is_missing(fault):
            raise fault
        info = []
    return _extent(info), behind[0][1] if behind else [], entries


def page_of(columns: EventColumns, extent: Extent, entries: Sequence[Sequence[Any]]) -> EventPage:
    """Return the columns of these entries, and what a reader needs to go on behind them."""
    # estimated from every sixteenth
    sample = entries[::16]
    size = sum(40 + sum(map(len, flat)) for _, flat in sample) * len(entries) // max(len(sample), 1)
    last = entries[-1][0].decode() if entries else None
    return EventPage(columns, extent, size, len(entries), last)


async def mark(store: Store, stream: str, after: str, until: str, first: int, step: int) -> Marks:
    """Count the entries later than `after` and no later than `until`, a bounded number of them a call."""
    start = after if after == "-" else f"({after}"
    counted, flat, last, is_whole, info = await store.run(
        SCRIPTS["marks"], [stream], (start, until, first, step, MOST_MARKED)
    )
    marks = [(place, entry_id.decode()) for place, entry_id in zip(flat[::2], flat[1::2], strict=True)]
    return Marks(counted, marks, last.decode() or None, is_whole == 1, _extent(info))


async def last_id(store: Store, stream: str) -> str:
    """Return the id of the last entry; "0-0" where there is none."""
    answer = await store.call("XREVRANGE", stream, "+", "-", "COUNT", 1)
    return answer[0][0].decode() if answer else "0-0"


class StreamWaiter:
    """Waits for entries of a stream, on a connection of its own."""

    def __init__(self, store: Store, stream: str) -> None:
        self._stream = stream
        self._connection = store.blocking_connection("corral:wait", BLOCK_MS / 1000)
        self._reconnect, self._tries = Reconnect(), 0

    async def wait(self, after: str, seconds: float) -> None:
        """Return when there is an entry later than `after`, at most so many seconds from now."""
        block_ms = max(min(round(seconds * 1000), BLOCK_MS), 1)
        try:
            await self._connection.call(
                "XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", self._stream, after
            )
            self._tries = 0
        except RedisResponseError:
            raise
        except RedisError:
            await asyncio.sleep(self._reconnect.delay(self._tries))
            self._tries += 1

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.disconnect()


def _is_missing(error: RedisError) -> bool:
    return isinstance(error, RedisResponseError) and "no such key" in str(error)


def _extent(flat: Sequence[Any]) -> Extent:
    """Return the extent from the server's answer, which is empty where there is no stream."""
    if not flat:
        return Extent(first=None, last=None, length=0, added=0)
    info = dict(zip(flat[::2], flat[1::2], strict=True))
    first = info[b"first-entry"]
    return Extent(
        first=first[0].decode() if first else None,
        last=info[b"last-generated-id"].decode(),
        length=info[b"length"],
        added=info.get(b"entries-added"),
    )


async def follow(store: Store, stream: str, after: str) -> AsyncIterator[list[Entry]]:
    """Yield pages of entries as they come, on a connection of its own; resumes after an outage."""
    position = (await extent(store, stream)).last or "0-0" if after == "$" else after
    if position == "-":
        position = "0-0"
    connection = store.blocking_connection("corral:tail", BLOCK_MS / 1000)
    reconnect, tries = Reconnect(), 0
    try:
        while True:
            try:
                answer = await connection.call(
                    "XREAD", "COUNT", PAGE, "BLOCK", BLOCK_MS, "STREAMS", stream, position
                )
                tries = 0
            except RedisResponseError:
                raise
            except RedisError:
                await asyncio.sleep(reconnect.delay(tries))
                tries += 1
                continue
            if answer:
                entries = [(entry[0], entry[1]) for entry in answer[0][1]]
                position = entries[-1][0].decode()
                yield entries
    finally:
        await connection.disconnect()
