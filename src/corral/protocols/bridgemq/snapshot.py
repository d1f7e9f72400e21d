"""The bridgemq protocol's Snapshot: every job of a queue; its lists are shared by all queues."""

from collections import Counter
from collections.abc import Sequence

from corral.core.filter import JobFilter
from corral.core.job import Job
from corral.core.ports import Leak, Location
from corral.protocols.base import Binding
from corral.protocols.bridgemq.broker import SCRIPTS, head
from corral.protocols.bridgemq.inspector import BridgemqInspector
from corral.protocols.bridgemq.keys import Keys
from corral.protocols.bridgemq.options import Settings
from corral.store.scanning import Shelf, literal, scan_all, scan_page, shelves_page

RECORDS = ("data:", "status:", "result:")
"""A job has at least one of these."""


class BridgemqSnapshot:
    """Records are found by scanning for them, so a job that moves meanwhile is met all the same."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)
        self._inspector = BridgemqInspector(binding)
        part = self._keys.part
        self._shelves = [
            Shelf("waiting", part("jobs:waiting"), "right"),
            Shelf("active", part("jobs:active"), "set"),
            Shelf("delayed", part("jobs:delayed"), "zset"),
            Shelf("cron", part("jobs:cron"), "zset"),
            Shelf("deadletter", part("jobs:deadletter"), "right"),
            Shelf("completed", self._keys.completed(binding.queue), "zset"),
        ]

    async def ids(self, cursor: str = "0") -> tuple[list[str], str]:
        prefix = self._keys.part("jobs:")
        keys, following = await scan_page(self._store, cursor, literal(prefix) + "*", "string")
        names = [_text(key[len(prefix.encode()) :]) for key in keys]
        found = [name[len(kind) :] for name in names for kind in RECORDS if name.startswith(kind)]
        return list(dict.fromkeys(found)), following

    async def read(self, ids: Sequence[str], jobs: JobFilter) -> list[Job]:
        records = await self._inspector.read_jobs([_bytes(job_id) for job_id in ids], self._binding.queue)
        return [job for job in records if jobs.has(job)]

    async def listed(self, cursor: str = "0") -> tuple[list[tuple[str, str]], str]:
        found, following = await shelves_page(self._store, self._shelves, cursor)
        return [(place, _text(member)) for place, member in found], following

    async def locate(self, ids: Sequence[str]) -> list[Location]:
        return [Location(found, is_there, places) for found, is_there, _, places in await self._find(ids)]

    async def _find(self, ids: Sequence[str]) -> list[tuple[str, bool, bool, tuple[str, ...]]]:
        if not ids:
            return []
        rows = await self._store.run(
            SCRIPTS["locate"],
            self._keys.fixed,
            (*head(self._binding, Settings.of(self._binding.profile)), *map(_bytes, ids)),
        )
        return [
            (_text(job_id), has_record == 1, has_lock == 1, tuple(sorted(place.decode() for place in places)))
            for job_id, has_record, has_lock, *places in rows
        ]

    async def leaks(self) -> list[Leak]:
        """Locks of jobs that are not active, and counters that count more or less than are."""
        found: list[Leak] = []
        prefix = self._keys.lock("")
        async for keys in scan_all(self._store, literal(prefix) + "*", "string"):
            for job_id, _, has_lock, places in await self._find(
                [_text(key[len(prefix.encode()) :]) for key in keys]
            ):
                if has_lock and "active" not in places:
                    where = " and ".join(places) or "listed nowhere"
                    found.append(Leak("lock", job_id, f"has a lock, but is not active ({where})"))
        return found + await self._miscounted()

    async def _miscounted(self) -> list[Leak]:
        wrong = await self._differences()
        # a claim between two reads looks like a leak, and is gone in the next look
        if wrong:
            again = await self._differences()
            wrong = {name: difference for name, difference in again.items() if wrong.get(name) == difference}
        return [
            Leak("counter", name, f"counts {counted} active jobs, and there are {real}")
            for name, (counted, real) in sorted(wrong.items())
        ]

    async def _differences(self) -> dict[str, tuple[int, int]]:
        """Job type -> (active as counted, as they are), where the two differ."""
        counted = await self._inspector.concurrent()
        ids = list(await self._store.call("SMEMBERS", self._keys.part("jobs:active")))
        real = Counter(job.name for job in await self._inspector.read_jobs(ids, ""))
        return {
            name: (counted.get(name, 0), real[name])
            for name in counted.keys() | real.keys()
            if counted.get(name, 0) != real[name]
        }


def _text(raw: bytes) -> str:
    # ids go back to the server as the bytes they were
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
