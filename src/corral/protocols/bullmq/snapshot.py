"""The bullmq protocol's Snapshot: every job of a queue as it stands."""

from collections.abc import Sequence

from corral.core.filter import JobFilter
from corral.core.job import Job
from corral.core.ports import Leak
from corral.protocols.bullmq import codec
from corral.protocols.bullmq.scripts import BullmqPort
from corral.protocols.operator import encode_filter
from corral.protocols.snapshot import BaseSnapshot, LocatedJob, decode_located
from corral.protocols.wire import id_bytes, id_text
from corral.store.scanning import IdList, escape_pattern, memory_of, scan_page


class BullmqSnapshot(BullmqPort, BaseSnapshot):
    """Records are found by scanning for them, so a job that moves meanwhile is found all the same."""

    @property
    def _lists(self) -> Sequence[IdList]:
        keys = self._keys
        return (
            IdList("wait", keys.wait, "left"),
            IdList("paused", keys.paused, "left"),
            IdList("active", keys.active, "whole"),
            IdList("wait", keys.grouped, "zset"),
            IdList("prioritized", keys.prioritized, "zset"),
            IdList("delayed", keys.delayed, "zset"),
            IdList("waiting-children", keys.waiting_children, "zset"),
            IdList("completed", keys.completed, "zset"),
            IdList("failed", keys.failed, "zset"),
        )

    async def ids(self, cursor: str = "0") -> tuple[list[str], str]:
        prefix = self._keys.prefix
        keys, following = await scan_page(self._store, cursor, escape_pattern(prefix) + "*", "hash")
        return [id_text(key[len(prefix.encode()) :]) for key in keys], following

    async def read(self, ids: Sequence[str], jobs: JobFilter) -> list[Job]:
        if not ids:
            return []
        rows = await self._run("snapshot", encode_filter(jobs, codec.STATES), *map(id_bytes, ids))
        records = (
            codec.decode_job(id_text(job_id), fields, self._binding.queue, codec.STATES.get(state.decode()))
            for job_id, fields, state in rows
        )
        return [job for job in records if jobs.has(job)]

    async def listed(self, cursor: str = "0") -> tuple[list[tuple[str, str]], str]:
        listed, following = await super().listed(cursor)
        # older versions of the contract kept markers of their own among the ids
        return [(place, job_id) for place, job_id in listed if not job_id.startswith("0:")], following

    async def _locate(self, ids: Sequence[str]) -> list[LocatedJob]:
        return list(map(decode_located, await self._run("locate", *map(id_bytes, ids))))

    async def memory(self, ids: Sequence[str]) -> int:
        return await memory_of(
            self._store, (name(job_id) for job_id in ids for name in (self._keys.job, self._keys.logs))
        )

    async def leaks(self) -> list[Leak]:
        """Return locks of jobs that are not active, and suspects of the last sweep that do not exist."""
        leaks = await self._lock_leaks(self._keys.prefix, ":lock")
        for name, key in (("stalled", self._keys.stalled), ("cancelling", self._keys.cancelling)):
            members = [id_text(member) for member in await self._store.call("SMEMBERS", key)]
            for job in await self._locate(members):
                if not job.has_record:
                    leaks.append(Leak("mark", job.id, f"is marked in {name!r}, but does not exist"))
        return leaks
