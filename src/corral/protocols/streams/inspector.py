"""The streams protocol's Inspector: reads."""

from collections.abc import Sequence
from typing import Any

from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.ports import Gauge, WorkerInfo
from corral.errors import RedisResponseError
from corral.protocols.base import Binding, search
from corral.protocols.streams import codec
from corral.protocols.streams.broker import SCRIPTS
from corral.protocols.streams.keys import Keys

COUNT_STEP = 2000
"""Entries counted in one script call, where the server cannot tell the backlog itself."""
STORY = 1000
"""How many of a job's latest events are read for its progress and its start."""
ALIVE_MS = 15_000
"""A worker of ours speaks at least every 5 s, or renews within a quarter of its lock."""
STRANGER_ALIVE_MS = 300_000


class StreamsInspector:
    """Backlog, jobs and workers of `jobs:stream`."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)

    async def counts(self) -> dict[JobState, int]:
        """Waiting (not delivered yet) and active (pending): the contract keeps no list of ended jobs.

        A job that was cancelled or has expired in the queue counts until a worker passes its entry.
        """
        waiting, active, _ = await self._backlog()
        return {JobState.WAITING: waiting, JobState.ACTIVE: active}

    async def _backlog(self) -> tuple[int, int, str]:
        """(undelivered, pending, last delivered id)"""
        waiting, going_on = 0, ""
        while True:
            counted, pending, last, going_on = await self._store.run(
                SCRIPTS["backlog"], [self._keys.stream], (going_on, COUNT_STEP)
            )
            waiting += counted
            if not going_on:
                return waiting, pending, last.decode()

    async def jobs(self, state: JobState, start: int = 0, count: int = 100) -> list[Job]:
        """Jobs in a state; ended ones as far back as `jobs:events` reaches, and only while they live."""
        match state:
            case JobState.WAITING:
                ids = await self._waiting_ids(start + count)
            case JobState.ACTIVE:
                ids = await self._active_ids(start + count)
            case JobState.DELAYED:
                return []
            case _:
                ids = await self._ended_ids(state)
        found = []
        for begin in range(0, len(ids), 500):
            found += [job for job in await self._read(ids[begin : begin + 500]) if job.state is state]
            if len(found) >= start + count:
                break
        return found[start : start + count]

    async def _waiting_ids(self, most: int) -> list[str]:
        _, _, last = await self._backlog()
        entries = await self._store.call("XRANGE", self._keys.stream, f"({last}", "+", "COUNT", most)
        return _job_ids(entries)

    async def _active_ids(self, most: int) -> list[str]:
        try:
            rows = await self._store.call("XPENDING", self._keys.stream, "workers", "-", "+", most)
        except RedisResponseError as error:
            if "NOGROUP" in str(error):
                return []
            raise
        found = await self._store.pipe([("XRANGE", self._keys.stream, row[0], row[0]) for row in rows])
        return _job_ids([entry for entries in found for entry in entries])

    async def _ended_ids(self, state: JobState) -> list[str]:
        word = next(word for word, known in codec.STATES.items() if known is state).encode()
        ids: dict[str, None] = {}
        before = "+"
        while entries := await self._store.call("XREVRANGE", self._keys.events, before, "-", "COUNT", 1000):
            before = f"({entries[-1][0].decode()}"
            for _, flat in entries:
                fields = dict(zip(flat[::2], flat[1::2], strict=True))
                if fields.get(b"type") == word and fields.get(b"job_id"):
                    ids.setdefault(fields[b"job_id"].decode("utf-8", "replace"))
        return list(ids)

    async def job(self, job_id: str) -> Job | None:
        fields, story = await self._store.pipe(
            [
                ("HGETALL", self._keys.job(job_id)),
                ("XREVRANGE", self._keys.job_events(job_id), "+", "-", "COUNT", STORY),
            ]
        )
        return codec.decode_job(fields, story) if fields else None

    async def _read(self, ids: Sequence[str]) -> list[Job]:
        rows = await self._store.pipe([("HGETALL", self._keys.job(job_id)) for job_id in ids])
        return [codec.decode_job(fields) for fields in rows if fields]

    async def search(self, jobs: JobFilter) -> list[Job]:
        return await search(self, jobs)

    async def gauges(self) -> list[Gauge]:
        """Return none: the contract names no metrics."""
        return []

    async def logs(self, job_id: str, start: int = 0, count: int = 1000) -> list[str]:
        """The lines a handler logged: the `log` events of the job's own stream."""
        lines: list[str] = []
        after = "-"
        while len(lines) < start + count:
            entries = await self._store.call(
                "XRANGE", self._keys.job_events(job_id), after, "+", "COUNT", 1000
            )
            if not entries:
                break
            after = f"({entries[-1][0].decode()}"
            events = [codec.decode_event(entry_id, fields) for entry_id, fields in entries]
            lines += [str(event.data["data"]["line"]) for event in events if event.kind == "log"]
        return lines[start : start + count]

    async def workers(self) -> list[WorkerInfo]:
        """Consumers heard of lately; `extra` tells what each has in hand, and whether it is one of ours."""
        try:
            consumers = await self._store.call("XINFO", "CONSUMERS", self._keys.stream, "workers")
        except RedisResponseError as error:
            if "no such key" in str(error) or "NOGROUP" in str(error):
                return []
            raise
        flat = await self._store.call("HGETALL", self._keys.workers)
        ours = {name: value.split() for name, value in zip(flat[::2], flat[1::2], strict=True)}
        now = self._binding.clock()
        found = []
        for row in consumers:
            consumer: dict[bytes, Any] = dict(zip(row[::2], row[1::2], strict=True))
            name, seen_at, patience = consumer[b"name"], now - consumer[b"idle"], STRANGER_ALIVE_MS
            if name in ours:
                # a renewal shows in the group, an idle worker's turn in the registry
                seen_at = max(seen_at, int(ours[name][0]))
                patience = max(int(ours[name][1]), ALIVE_MS)
            if now - seen_at <= patience:
                extra = {"active": consumer[b"pending"], "is_ours": name in ours}
                found.append(WorkerInfo(name=name.decode("utf-8", "replace"), seen_at=seen_at, extra=extra))
        return found

    async def is_paused(self) -> bool:
        """Never: the contract has no pause."""
        return False


def _job_ids(entries: Sequence[tuple[bytes, Sequence[bytes]]]) -> list[str]:
    ids = (dict(zip(flat[::2], flat[1::2], strict=True)).get(b"job_id") for _, flat in entries)
    return [job_id.decode("utf-8", "replace") for job_id in ids if job_id]
