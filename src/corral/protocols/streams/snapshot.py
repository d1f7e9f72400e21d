"""The streams protocol's Snapshot: every job as it stands, and which entries of the queue still count."""

from collections.abc import Sequence
from typing import Any

from corral.core.filter import JobFilter
from corral.core.job import Job
from corral.core.ports import Leak, Location
from corral.errors import RedisResponseError
from corral.protocols.operator import encode_filter
from corral.protocols.streams import codec
from corral.protocols.streams.keys import PARKING
from corral.protocols.streams.scripts import SCRIPTS, StreamsPort
from corral.protocols.wire import fields_of, id_bytes, id_text
from corral.store.scanning import PAGE, escape_pattern, memory_of, scan_page

GROUP = "workers"
PENDING, QUEUED = "pending", "queued"


class StreamsSnapshot(StreamsPort):
    """A record has its own state; an entry counts until it was delivered and acknowledged."""

    async def ids(self, cursor: str = "0") -> tuple[list[str], str]:
        prefix = self._keys.job_prefix
        keys, following = await scan_page(self._store, cursor, escape_pattern(prefix) + "*", "hash")
        return [id_text(key[len(prefix.encode()) :]) for key in keys], following

    async def read(self, ids: Sequence[str], jobs: JobFilter) -> list[Job]:
        if not ids:
            return []
        keys = [id_bytes(self._keys.job(job_id)) for job_id in ids]
        rows = await self._store.run(SCRIPTS["snapshot"], keys, (encode_filter(jobs, codec.STATES),))
        return [job for job in map(codec.decode_job, rows) if jobs.has(job)]

    async def listed(self, cursor: str = "0") -> tuple[list[tuple[str, str]], str]:
        """Return pending entries first, then those that were not delivered yet."""
        place, _, after = cursor.partition(":")
        if place in ("0", PENDING):
            rows = await self._pending(after or "-")
            entries = [(row, entry) for row, entry in await self._entries(rows) if entry]
            following = f"{PENDING}:({rows[-1][0].decode()}" if len(rows) == PAGE else f"{QUEUED}:"
            places = [
                (QUEUED if row[1].startswith(PARKING) else PENDING, job_id)
                for row, entry in entries
                for job_id in _job_ids([entry])
            ]
            return places, following
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

    async def _entries(self, rows: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return each pending row with its entry; None where the queue does not have it any more."""
        answers = await self._store.pipe([("XRANGE", self._keys.stream, row[0], row[0]) for row in rows])
        return [(row, answer[0] if answer else None) for row, answer in zip(rows, answers, strict=True)]

    async def _last_delivered(self) -> str:
        try:
            groups = await self._store.call("XINFO", "GROUPS", self._keys.stream)
        except RedisResponseError as error:
            if "no such key" in str(error):
                return "0-0"
            raise
        for flat in groups:
            group = fields_of(flat)
            if group[b"name"] == GROUP.encode():
                return group[b"last-delivered-id"].decode()
        return "0-0"

    async def locate(self, ids: Sequence[str]) -> list[Location]:
        """Return where each of these is, by one walk along the queue: an entry cannot be found by its job."""
        places: dict[str, list[str]] = {job_id: [] for job_id in ids}
        cursor = "0"
        while places:
            listed, cursor = await self.listed(cursor)
            for place, job_id in listed:
                if job_id in places:
                    places[job_id].append(place)
            if cursor == "0":
                break
        exist = await self._store.pipe([("EXISTS", id_bytes(self._keys.job(job_id))) for job_id in places])
        return [
            Location(job_id, exists == 1, tuple(where))
            for (job_id, where), exists in zip(places.items(), exist, strict=True)
        ]

    async def memory(self, ids: Sequence[str]) -> int:
        return await memory_of(self._store, self._keys.of_jobs(ids))

    async def leaks(self) -> list[Leak]:
        """Return entries that a consumer holds although the queue does not have them any more."""
        leaks: list[Leak] = []
        start = "-"
        while rows := await self._pending(start):
            start = f"({rows[-1][0].decode()}"
            for row, entry in await self._entries(rows):
                if entry is None:
                    detail = f"is held by {id_text(row[1])!r}, but is not in the queue any more"
                    leaks.append(Leak("mark", row[0].decode(), detail))
        return leaks


def _job_ids(entries: Sequence[Any]) -> list[str]:
    ids = (dict(zip(flat[::2], flat[1::2], strict=False)).get(b"job_id") for _, flat in entries)
    return [id_text(job_id) for job_id in ids if job_id]
