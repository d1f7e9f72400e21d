"""The bridgemq protocol's Snapshot: every job of a queue; its lists are shared by all queues."""

from collections import Counter
from collections.abc import Sequence

from corral.core.filter import JobFilter
from corral.core.job import Job
from corral.core.ports import Leak
from corral.protocols.bridgemq.inspector import BridgemqInspector
from corral.protocols.bridgemq.scripts import BridgemqPort
from corral.protocols.snapshot import BaseSnapshot, LocatedJob, decode_located
from corral.protocols.wire import id_bytes, id_text
from corral.store.scanning import IdList, escape_pattern, memory_of, scan_page

RECORDS = ("data:", "status:", "result:")
"""A job has at least one of these."""


class BridgemqSnapshot(BridgemqPort, BaseSnapshot):
    """Records are found by scanning for them, so a job that moves meanwhile is found all the same."""

    @property
    def _inspector(self) -> BridgemqInspector:
        return BridgemqInspector(self._binding)

    @property
    def _lists(self) -> Sequence[IdList]:
        keys = self._keys
        return (
            IdList("waiting", keys.waiting, "right"),
            IdList("waiting", keys.grouped, "zset"),
            IdList("active", keys.active, "set"),
            IdList("delayed", keys.delayed, "zset"),
            IdList("cron", keys.cron, "zset"),
            IdList("deadletter", keys.dead_letters, "right"),
            IdList("completed", keys.completed, "zset"),
        )

    async def ids(self, cursor: str = "0") -> tuple[list[str], str]:
        prefix = self._keys.jobs
        keys, following = await scan_page(self._store, cursor, escape_pattern(prefix) + "*", "string")
        names = [id_text(key[len(prefix.encode()) :]) for key in keys]
        ids = [name[len(kind) :] for name in names for kind in RECORDS if name.startswith(kind)]
        return list(dict.fromkeys(ids)), following

    async def read(self, ids: Sequence[str], jobs: JobFilter) -> list[Job]:
        records = await self._inspector.read_jobs(list(map(id_bytes, ids)), self._binding.queue)
        return [job for job in records if jobs.has(job)]

    async def _locate(self, ids: Sequence[str]) -> list[LocatedJob]:
        return list(map(decode_located, await self._run("locate", *map(id_bytes, ids))))

    async def memory(self, ids: Sequence[str]) -> int:
        return await memory_of(self._store, self._keys.of_jobs(ids))

    async def leaks(self) -> list[Leak]:
        """Return locks of jobs that are not active, and counters that differ from the active jobs."""
        return await self._lock_leaks(self._keys.lock("")) + await self._wrong_counters()

    async def _wrong_counters(self) -> list[Leak]:
        wrong = await self._differences()
        # a claim between two reads looks like a leak, and is not there in the next read
        if wrong:
            again = await self._differences()
            wrong = {name: difference for name, difference in again.items() if wrong.get(name) == difference}
        return [
            Leak("counter", name, f"counts {counted} active jobs, and there are {active}")
            for name, (counted, active) in sorted(wrong.items())
        ]

    async def _differences(self) -> dict[str, tuple[int, int]]:
        """Return job type -> (active as counted, active), where the two differ."""
        counted = await self._inspector.concurrent()
        ids = list(await self._store.call("SMEMBERS", self._keys.active))
        active = Counter(job.name for job in await self._inspector.read_jobs(ids, ""))
        return {
            name: (counted.get(name, 0), active[name])
            for name in counted.keys() | active.keys()
            if counted.get(name, 0) != active[name]
        }
