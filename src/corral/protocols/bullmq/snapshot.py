"""The BullMQ protocol's Snapshot: every job of a queue as it stands."""

from collections.abc import Sequence

from corral.core.filter import JobFilter
from corral.core.job import Job
from corral.core.ports import Leak, Location
from corral.protocols.base import Binding, encode_filter
from corral.protocols.bullmq import codec
from corral.protocols.bullmq.broker import SCRIPTS
from corral.protocols.bullmq.keys import Keys
from corral.store.scanning import Shelf, literal, scan_all, scan_page, shelves_page

LOCK = ":lock"
SHELVES = (
    ("wait", "left"),
    ("paused", "left"),
    ("active", "whole"),
    ("prioritized", "zset"),
    ("delayed", "zset"),
    ("waiting-children", "zset"),
    ("completed", "zset"),
    ("failed", "zset"),
)


class BullmqSnapshot:
    """Records are found by scanning for them, so a job that moves meanwhile is met all the same."""

    def __init__(self, binding: Binding) -> None:
        self._store = binding.store
        self._queue = binding.queue
        self._keys = Keys(binding.namespace, binding.queue)
        self._shelves = [Shelf(name, self._keys.part(name), kind) for name, kind in SHELVES]

    async def ids(self, cursor: str = "0") -> tuple[list[str], str]:
        keys, following = await scan_page(self._store, cursor, literal(self._keys.prefix) + "*", "hash")
        return [self._id(key) for key in keys], following

    def _id(self, key: bytes) -> str:
        return _text(key[len(self._keys.prefix.encode()) :])

    async def read(self, ids: Sequence[str], jobs: JobFilter) -> list[Job]:
        if not ids:
            return []
        rows = await self._store.run(
            SCRIPTS["snapshot"],
            self._keys.fixed,
            (encode_filter(jobs, codec.STATES), *map(_bytes, ids)),
        )
        records = (
            codec.decode_job(_text(job_id), fields, self._queue, codec.STATES.get(state.decode()))
            for job_id, fields, state in rows
        )
        return [job for job in records if jobs.has(job)]

    async def listed(self, cursor: str = "0") -> tuple[list[tuple[str, str]], str]:
        found, following = await shelves_page(self._store, self._shelves, cursor)
        # older generations of this contract kept markers of their own among the ids
        return [(place, _text(member)) for place, member in found if not member.startswith(b"0:")], following

    async def locate(self, ids: Sequence[str]) -> list[Location]:
        return [Location(found, is_there, places) for found, is_there, _, places in await self._find(ids)]

    async def _find(self, ids: Sequence[str]) -> list[tuple[str, bool, bool, tuple[str, ...]]]:
        if not ids:
            return []
        rows = await self._store.run(SCRIPTS["locate"], self._keys.fixed, list(map(_bytes, ids)))
        return [
            (_text(job_id), has_record == 1, has_lock == 1, tuple(sorted(place.decode() for place in places)))
            for job_id, has_record, has_lock, *places in rows
        ]

    async def leaks(self) -> list[Leak]:
        """Locks of jobs that are not active, and suspects of the last sweep that are not either."""
        found: list[Leak] = []
        async for keys in scan_all(self._store, f"{literal(self._keys.prefix)}*{LOCK}", "string"):
            ids = [self._id(key)[: -len(LOCK)] for key in keys]
            for job_id, _, has_lock, places in await self._find(ids):
                if has_lock and "active" not in places:
                    where = " and ".join(places) or "listed nowhere"
                    found.append(Leak("lock", job_id, f"has a lock, but is not active ({where})"))
        for name in ("stalled", "cancelling"):
            members = [_text(member) for member in await self._store.call("SMEMBERS", self._keys.part(name))]
            for job_id, has_record, _, _ in await self._find(members):
                if not has_record:
                    found.append(Leak("mark", job_id, f"is marked in {name!r}, but does not exist"))
        return found


def _text(raw: bytes) -> str:
    # ids go back to the server as the bytes they were
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
