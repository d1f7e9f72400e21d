"""The streams protocol's Inspector: reads."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from corral.core.event import as_json
from corral.core.job import Job, JobState
from corral.core.ports import Gauge, JobEnd, NotEnded, QueueLimits, WorkerInfo
from corral.errors import RedisResponseError
from corral.protocols.base import broken_job
from corral.protocols.cursors import Entries, IdSource, IdStream, found_by_id
from corral.protocols.ends import ended_hashes
from corral.protocols.inspector import BaseInspector
from corral.protocols.streams import codec
from corral.protocols.streams.events import decode_events
from corral.protocols.streams.keys import PARKING, QUEUE
from corral.protocols.streams.scripts import SCRIPTS, StreamsPort
from corral.protocols.wire import entry_order, fields_of, text, time_ms

COUNT_STEP = 2000
"""Entries counted in one script call, where the server cannot tell the backlog itself."""
LATEST_EVENTS = 1000
"""How many of a job's events are read for its progress and its start."""
ALIVE_MS = 15_000
"""A Corral worker beats at least every 5 s, or renews within a quarter of its lock."""
FOREIGN_ALIVE_MS = 300_000
EVENTS = 1000
"""Events read at a time in search of ends."""


class StreamsInspector(StreamsPort, BaseInspector):
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

    def _sources(self, state: JobState) -> Sequence[IdSource]:
        """Return the entries of a state; ended jobs as far back as `jobs:events` reaches, while they live."""
        match state:
            case JobState.WAITING:
                return (IdStream(self._waiting_entries),)
            case JobState.ACTIVE:
                return (IdStream(self._active_entries),)
            case JobState.DELAYED:
                return ()
            case _:
                word = next(word for word, known in codec.STATES.items() if known is state)
                return (IdStream(partial(self._ended_entries, word.encode())),)

    async def _waiting_entries(self, after: bytes, count: int) -> Entries:
        """Return the parked jobs first: workers with a handler for them claim those before others."""
        # read first: what is delivered meanwhile is found among what it was not, and told by its state
        last = (await self._store.run(SCRIPTS["backlog"], [self._keys.stream], ("", 1)))[2]
        entries: list[Sequence[Any]] = []
        if await self._store.call("EXISTS", self._keys.parked):
            parked = await self._pending_entries(after, count, is_parked=True)
            if not parked.is_last:
                return parked
            entries = [*parked.entries]
        start = max(after or b"0-0", last, key=entry_order).decode()
        entries += await self._store.call("XRANGE", self._keys.stream, f"({start}", "+", "COUNT", count)
        return Entries(entries[:count], entries[count - 1][0] if len(entries) >= count else b"", count)

    async def _active_entries(self, after: bytes, count: int) -> Entries:
        return await self._pending_entries(after, count, is_parked=False)

    async def _pending_entries(self, after: bytes, count: int, is_parked: bool) -> Entries:
        start = f"({after.decode()}" if after else "-"
        try:
            rows = await self._store.call("XPENDING", self._keys.stream, "workers", start, "+", count)
        except RedisResponseError as error:
            if "NOGROUP" in str(error):
                return Entries((), b"", 0)
            raise
        answers = await self._store.pipe(
            [
                ("XRANGE", self._keys.stream, row[0], row[0])
                for row in rows
                if row[1].startswith(PARKING) is is_parked
            ]
        )
        entries = [entry for answer in answers for entry in answer]
        return Entries(entries, rows[-1][0] if len(rows) == count else b"", len(rows))

    async def _ended_entries(self, word: bytes, before: bytes, count: int) -> Entries:
        end = f"({before.decode()}" if before else "+"
        rows = await self._store.call("XREVRANGE", self._keys.events, end, "-", "COUNT", EVENTS)
        entries = [row for row in rows if fields_of(row[1]).get(b"type") == word]
        return Entries(entries, rows[-1][0] if len(rows) == EVENTS else b"", len(rows))

    async def _consumers(self) -> list[dict[bytes, Any]]:
        try:
            rows = await self._store.call("XINFO", "CONSUMERS", self._keys.stream, "workers")
        except RedisResponseError as error:
            if "no such key" in str(error) or "NOGROUP" in str(error):
                return []
            raise
        return [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]

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

    async def _listed(self, ids: Sequence[bytes], state: JobState) -> dict[bytes, Job]:
        names = list(map(text, ids))
        rows = await self._store.pipe_each([("HGETALL", self._keys.job(job_id)) for job_id in names])
        jobs = [
            broken_job(job_id, QUEUE, state, fields)
            if isinstance(fields, RedisResponseError)
            else codec.decode_job(fields)
            for job_id, fields in zip(names, rows, strict=True)
            if fields
        ]
        return found_by_id(ids, [job for job in jobs if job.state is state])

    async def ends(self, ids: Sequence[str]) -> list[JobEnd | NotEnded]:
        return await ended_hashes(
            self._store,
            [self._keys.job(job_id) for job_id in ids],
            ("job_id", "status", " done error canceled "),
            ("status", "result", "error"),
            codec.decode_end,
        )

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
