"""The BullMQ protocol's Inspector: reads."""

from collections.abc import Sequence
from typing import Any

from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.naming import RESERVED_IDS
from corral.core.ports import Gauge, WorkerInfo
from corral.protocols.base import search
from corral.protocols.bullmq import codec
from corral.protocols.bullmq.children import ChildReads
from corral.protocols.bullmq.reads import Reads
from corral.store.client import Store


class BullmqInspector(Reads, ChildReads):
    """Counts, jobs, logs and workers of one queue; and what this contract alone knows."""

    async def counts(self) -> dict[JobState, int]:
        part = self._keys.part
        wait, paused, prioritized, parents, delayed, active, completed, failed = await self._pipe(
            ("LLEN", part("wait")),
            ("LLEN", part("paused")),
            ("ZCARD", part("prioritized")),
            ("ZCARD", part("waiting-children")),
            ("ZCARD", part("delayed")),
            ("LLEN", part("active")),
            ("ZCARD", part("completed")),
            ("ZCARD", part("failed")),
        )
        return {
            JobState.WAITING: wait + paused + prioritized + parents,
            JobState.DELAYED: delayed,
            JobState.ACTIVE: active,
            JobState.COMPLETED: completed,
            JobState.DEAD: failed,
        }

    async def jobs(self, state: JobState, start: int = 0, count: int = 100) -> list[Job]:
        ids = await self._ids(state, start, count)
        return await self._read(ids) if ids else []

    async def _ids(self, state: JobState, start: int, count: int) -> list[bytes]:
        part, end = self._keys.part, start + count - 1
        match state:
            case JobState.WAITING:
                paused, wait, prioritized, parents = await self._pipe(
                    ("LRANGE", part("paused"), -end - 1, -1),
                    ("LRANGE", part("wait"), -end - 1, -1),
                    ("ZRANGE", part("prioritized"), 0, end),
                    ("ZRANGE", part("waiting-children"), 0, end),
                )
                return [*reversed(wait), *reversed(paused), *prioritized, *parents][start : end + 1]
            case JobState.ACTIVE:
                return list(await self._store.call("LRANGE", part("active"), start, end))
            case JobState.DELAYED:
                return list(await self._store.call("ZRANGE", part("delayed"), start, end))
            case JobState.COMPLETED | JobState.DEAD:
                name = "completed" if state is JobState.COMPLETED else "failed"
                return list(await self._store.call("ZREVRANGE", part(name), start, end))
            case JobState.CANCELLED:
                return []

    async def job(self, job_id: str) -> Job | None:
        found = await self._read([job_id])
        return found[0] if found else None

    async def jobs_by_id(self, job_ids: Sequence[str]) -> list[Job | None]:
        """These jobs with their states, in order; None where one is gone."""
        there = {job.id: job for job in await self._read(list(job_ids))} if job_ids else {}
        return [there.get(job_id) for job_id in job_ids]

    async def _read(self, ids: list[Any]) -> list[Job]:
        # other keys of the queue are not its jobs, whoever asks for them
        rows = await self._run("state", *[job_id for job_id in ids if job_id not in RESERVED_IDS])
        queue = self._binding.queue
        return [codec.decode_job(row[0], row[1], queue, codec.STATES.get(row[2].decode())) for row in rows]

    async def search(self, jobs: JobFilter) -> list[Job]:
        return await search(self, jobs)

    async def gauges(self) -> list[Gauge]:
        """Return none: the contract's metrics are made of the counts."""
        return []

    async def logs(self, job_id: str, start: int = 0, count: int = 1000) -> list[str]:
        lines = await self._store.call("LRANGE", self._keys.logs(job_id), start, start + count - 1)
        return [line.decode("utf-8", "replace") for line in lines]

    async def workers(self) -> list[WorkerInfo]:
        unnamed = self._keys.connection_name()
        listing = (await self._store.call("CLIENT", "LIST")).decode("utf-8", "replace")
        found = []
        for line in listing.splitlines():
            client = dict(field.partition("=")[::2] for field in line.split(" "))
            name = client.get("name", "")
            if name == unnamed or name.startswith(f"{unnamed}:w:"):
                shown = name[len(unnamed) + 3 :]
                found.append(WorkerInfo(name=shown, address=client.get("addr"), extra=client))
        return found


async def bullmq_queues(store: Store, namespace: str) -> list[str]:
    """Names of the queues under a namespace: each has a meta key."""
    pattern = f"{_literal(namespace)}:*:meta"
    found: set[str] = set()
    cursor = b"0"
    while True:
        cursor, keys = await store.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000, "TYPE", "hash")
        found |= {key[len(namespace) + 1 : -len(":meta")].decode("utf-8", "replace") for key in keys}
        if cursor == b"0":
            return sorted(found)


def _literal(text: str) -> str:
    """The text as a pattern that matches only itself."""
    return "".join(f"\\{char}" if char in "*?[]\\^" else char for char in text)
