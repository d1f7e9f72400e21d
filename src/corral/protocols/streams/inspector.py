"""The streams protocol's Inspector: reads."""

from collections.abc import Sequence
from typing import Any

from corral.core.event import as_json
from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.ports import Gauge, JobEnd, NotEnded, QueueLimits, WorkerInfo
from corral.errors import RedisResponseError
from corral.protocols.base import broken_job
from corral.protocols.ends import ended_hashes
from corral.protocols.operator import search
from corral.protocols.streams import codec
from corral.protocols.streams.events import decode_events
from corral.protocols.streams.keys import PARKING, QUEUE
from corral.protocols.streams.scripts import SCRIPTS, StreamsPort
from corral.protocols.wire import fields_of, text, time_ms

COUNT_STEP = 2000
"""Entries counted in one script call, where the server cannot tell the backlog itself."""
LATEST_EVENTS = 1000
"""How many of a job's events are read for its progress and its start."""
ALIVE_MS = 15_000
"""A Corral worker beats at least every 5 s, or renews within a quarter of its lock."""
FOREIGN_ALIVE_MS = 300_000


class StreamsInspector(StreamsPort):
    """Backlog, jobs and workers of `jobs:stream`."""

    async def counts(self) -> dict[JobState, int]:
        """Return waiting (undelivered, or left to workers with a handler for them) and active (pending) jobs:
        the contract keeps no list of ended ones.

        A job that was cancelled or has expired in the queue counts until a worker skips its entry.
        """
        waiting, active, _ = await self._backlog()
        return {JobState.WAITING: waiting, JobState.ACTIVE: active}

    async def _backlog(self) -> tuple[int, int, str]:
        """Return (undelivered or parked, pending for workers, last delivered id)."""
        waiting, after = 0, ""
        while True:
            counted, pending, last, after = await self._store.run(
                SCRIPTS["backlog"], [self._keys.stream], (after, COUNT_STEP)
            )
            waiting += counted
            if not after:
                return waiting, pending, last.decode()

    async def jobs(self, state: JobState, start: int = 0, count: int = 100) -> list[Job]:
        """Return jobs in a state; ended ones as far back as `jobs:events` reaches, while they live."""
        match state:
            case JobState.WAITING:
                ids = await self._waiting_ids(start + count)
            case JobState.ACTIVE:
                ids = await self._active_ids(start + count)
            case JobState.DELAYED:
                return []
            case _:
                ids = await self._ended_ids(state)
        jobs: list[Job] = []
        for begin in range(0, len(ids), 500):
            jobs += [job for job in await self._read(ids[begin : begin + 500], state) if job.state is state]
            if len(jobs) >= start + count:
                break
        return jobs[start : start + count]

    async def _waiting_ids(self, most: int) -> list[str]:
        """Return the parked jobs first: workers with a handler for them claim those before others."""
        ids: list[str] = []
        if await self._store.call("EXISTS", self._keys.parked):
            for consumer in await self._consumers():
                if consumer[b"name"].startswith(PARKING) and len(ids) < most:
                    ids += await self._pending_ids("-", "+", most - len(ids), consumer[b"name"])
        _, _, last = await self._backlog()
        entries = await self._store.call("XRANGE", self._keys.stream, f"({last}", "+", "COUNT", most)
        return (ids + job_ids_of(entries))[:most]

    async def _active_ids(self, most: int) -> list[str]:
        parked = (await self._backlog())[0] if await self._store.call("EXISTS", self._keys.parked) else 0
        return await self._pending_ids("-", "+", most + parked)

    async def _pending_ids(self, *criteria: Any) -> list[str]:
        try:
            rows = await self._store.call("XPENDING", self._keys.stream, "workers", *criteria)
        except RedisResponseError as error:
            if "NOGROUP" in str(error):
                return []
            raise
        answers = await self._store.pipe([("XRANGE", self._keys.stream, row[0], row[0]) for row in rows])
        return job_ids_of([entry for entries in answers for entry in entries])

    async def _consumers(self) -> list[dict[bytes, Any]]:
        try:
            rows = await self._store.call("XINFO", "CONSUMERS", self._keys.stream, "workers")
        except RedisResponseError as error:
            if "no such key" in str(error) or "NOGROUP" in str(error):
                return []
            raise
        return [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]

    async def _ended_ids(self, state: JobState) -> list[str]:
        word = next(word for word, known in codec.STATES.items() if known is state).encode()
        ids: dict[str, None] = {}
        before = "+"
        while entries := await self._store.call("XREVRANGE", self._keys.events, before, "-", "COUNT", 1000):
            before = f"({entries[-1][0].decode()}"
            for _, flat in entries:
                fields = fields_of(flat)
                if fields.get(b"type") == word and fields.get(b"job_id"):
                    ids.setdefault(text(fields[b"job_id"]))
        return list(ids)

    async def job(self, job_id: str) -> Job | None:
        fields, entries = await self._store.pipe_each(
            [
                ("HGETALL", self._keys.job(job_id)),
                ("XREVRANGE", self._keys.job_events(job_id), "+", "-", "COUNT", LATEST_EVENTS),
            ]
        )
        if isinstance(fields, RedisResponseError) or not fields:
            return None
        # a job's events may be of another kind: the job itself is shown all the same
        return codec.decode_job(
            fields, [] if isinstance(entries, RedisResponseError) else decode_events(entries)
        )

    async def _read(self, ids: Sequence[str], state: JobState) -> list[Job]:
        rows = await self._store.pipe_each([("HGETALL", self._keys.job(job_id)) for job_id in ids])
        return [
            broken_job(job_id, QUEUE, state, fields)
            if isinstance(fields, RedisResponseError)
            else codec.decode_job(fields)
            for job_id, fields in zip(ids, rows, strict=True)
            if fields
        ]

    async def ends(self, ids: Sequence[str]) -> list[JobEnd | NotEnded]:
        return await ended_hashes(
            self._store,
            [self._keys.job(job_id) for job_id in ids],
            ("job_id", "status", " done error canceled "),
            ("status", "result", "error"),
            codec.decode_end,
        )

    async def search(self, jobs: JobFilter) -> list[Job]:
        return await search(self, jobs)

    async def gauges(self) -> list[Gauge]:
        """Return none: the contract names no metrics."""
        return []

    async def logs(self, job_id: str, start: int = 0, count: int = 1000) -> list[str]:
        """Return the lines a handler logged: the `log` events of the job's own stream."""
        lines: list[str] = []
        after = "-"
        while len(lines) < start + count:
            entries = await self._store.call(
                "XRANGE", self._keys.job_events(job_id), after, "+", "COUNT", 1000
            )
            if not entries:
                break
            after = f"({entries[-1][0].decode()}"
            events = decode_events(entries)
            lines += [_line(event.data.get("data")) for event in events if event.kind == "log"]
        return lines[start : start + count]

    async def workers(self) -> list[WorkerInfo]:
        """Return recently seen consumers; `extra` has their active jobs, and whether they are Corral's."""
        consumers = await self._consumers()
        registry = fields_of(await self._store.call("HGETALL", self._keys.workers))
        ours = {name: value.split() for name, value in registry.items()}
        now = self._binding.clock()
        workers = []
        for consumer in consumers:
            if consumer[b"name"].startswith(PARKING):
                continue
            name, seen_at, alive_ms = consumer[b"name"], now - consumer[b"idle"], FOREIGN_ALIVE_MS
            if name in ours:
                # a renewal shows in the group, an idle worker's turn in the registry
                beat, interval = [*map(time_ms, ours[name]), 0, 0][:2]
                seen_at, alive_ms = max(seen_at, beat), max(interval, ALIVE_MS)
            if now - seen_at <= alive_ms:
                extra = {"active": consumer[b"pending"], "is_ours": name in ours}
                workers.append(WorkerInfo(name=text(name), seen_at=seen_at, extra=extra))
        return workers

    async def is_paused(self) -> bool:
        """Return False: the contract has no pause."""
        return False

    async def limits(self) -> QueueLimits:
        """Return none: the contract has no limits."""
        return QueueLimits()


def _line(data: Any) -> str:
    """Return the line of a log event; a foreign worker's may have another shape."""
    return str(data["line"]) if isinstance(data, dict) and "line" in data else as_json(data).decode()


def job_ids_of(entries: Sequence[Sequence[Any]]) -> list[str]:
    """Return the job ids of queue entries."""
    ids = (fields_of(flat).get(b"job_id") for _, flat in entries)
    return [text(job_id) for job_id in ids if job_id]
