"""The streams protocol's Snapshot: every job as it stands, and which entries of the queue still count."""

from collections.abc import Sequence
from typing import Any

from corral.core.filter import JobFilter
from corral.core.job import Job
from corral.core.ports import Leak, Location
from corral.errors import RedisResponseError
from corral.protocols.base import Binding, encode_filter
from corral.protocols.streams import codec
from corral.protocols.streams.broker import SCRIPTS
from corral.protocols.streams.keys import Keys
from corral.store.scanning import literal, scan_page

GROUP = "workers"
PAGE = 1000
PENDING, QUEUED = "pending", "queued"


class StreamsSnapshot:
    """A record tells its own state; an entry counts until it was delivered and acknowledged."""

    def __init__(self, binding: Binding) -> None:
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)

    async def ids(self, cursor: str = "0") -> tuple[list[str], str]:
        prefix = self._keys.job_prefix
        keys, following = await scan_page(self._store, cursor, literal(prefix) + "*", "hash")
        return [_text(key[len(prefix.encode()) :]) for key in keys], following

    async def read(self, ids: Sequence[str], jobs: JobFilter) -> list[Job]:
        if not ids:
            return []
        keys = [_bytes(self._keys.job(job_id)) for job_id in ids]
        rows = await self._store.run(SCRIPTS["snapshot"], keys, (encode_filter(jobs, codec.STATES),))
        return [job for job in map(codec.decode_job, rows) if jobs.has(job)]

    async def listed(self, cursor: str = "0") -> tuple[list[tuple[str, str]], str]:
        """What is in hand first, then what was not delivered yet."""
        place, _, after = cursor.partition(":")
        if place in ("0", PENDING):
            rows = await self._pending(after or "-")
            found = await self._store.pipe([("XRANGE", self._keys.stream, row[0], row[0]) for row in rows])
            entries = [entry for answer in found for entry in answer]
            following = f"{PENDING}:({rows[-1][0].decode()}" if len(rows) == PAGE else f"{QUEUED}:"
            return [(PENDING, job_id) for job_id in _job_ids(entries)], following
        start = after or f"({await self._last_delivered()}"
        entries = await self._store.call("XRANGE", self._keys.stream, start, "+", "COUNT", PAGE) or []
        following = f"{QUEUED}:({entries[-1][0].decode()}" if len(entries) == PAGE else "0"
        return [(QUEUED, job_id) for job_id in _job_ids(entries)], following

    async def _pending(self, start: str) -> list[Any]:
        try:
            return list(await self._store.call("XPENDING", self._keys.stream, GROUP, start, "+", PAGE))
        except RedisResponseError as error:
            if "NOGROUP" in str(error):
                return []
            raise

    async def _last_delivered(self) -> str:
        try:
            groups = await self._store.call("XINFO", "GROUPS", self._keys.stream)
        except RedisResponseError as error:
            if "no such key" in str(error):
                return "0-0"
            raise
        for flat in groups:
            group = dict(zip(flat[::2], flat[1::2], strict=True))
            if group[b"name"] == GROUP.encode():
                return str(group[b"last-delivered-id"], "ascii")
        return "0-0"

    async def locate(self, ids: Sequence[str]) -> list[Location]:
        """One walk along the queue: an entry cannot be found by its job."""
        asked: dict[str, list[str]] = {job_id: [] for job_id in ids}
        cursor = "0"
        while asked:
            found, cursor = await self.listed(cursor)
            for place, job_id in found:
                if job_id in asked:
                    asked[job_id].append(place)
            if cursor == "0":
                break
        there = await self._store.pipe([("EXISTS", _bytes(self._keys.job(job_id))) for job_id in asked])
        return [
            Location(job_id, is_there == 1, tuple(places))
            for (job_id, places), is_there in zip(asked.items(), there, strict=True)
        ]

    async def leaks(self) -> list[Leak]:
        """Entries that a consumer holds although the queue does not have them any more."""
        leaks: list[Leak] = []
        start = "-"
        while rows := await self._pending(start):
            start = f"({rows[-1][0].decode()}"
            found = await self._store.pipe([("XRANGE", self._keys.stream, row[0], row[0]) for row in rows])
            for row, entries in zip(rows, found, strict=True):
                if not entries:
                    told = f"is held by {_text(row[1])!r}, but is not in the queue any more"
                    leaks.append(Leak("mark", row[0].decode(), told))
        return leaks


def _job_ids(entries: Sequence[Any]) -> list[str]:
    ids = (dict(zip(flat[::2], flat[1::2], strict=False)).get(b"job_id") for _, flat in entries)
    return [_text(job_id) for job_id in ids if job_id]


def _text(raw: bytes) -> str:
    # ids go back to the server as the bytes they were
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
