"""The bullmq protocol's Inspector: reads, in the words of all protocols and in the contract's own."""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct

from corral.core import payload
from corral.core.job import Job, JobState
from corral.core.naming import RESERVED_IDS
from corral.core.ports import Gauge, JobEnd, Limit, NotEnded, Notice, QueueLimits, WorkerInfo
from corral.protocols.base import broken_job
from corral.protocols.bullmq import codec
from corral.protocols.bullmq.keys import GENERATIONS, LISTS, NAME, STATE_KEYS, noted_generation
from corral.protocols.bullmq.schedulers.legacy import is_legacy
from corral.protocols.bullmq.scripts import BullmqPort
from corral.protocols.cursors import IdSource, ListedIds, SortedIds, found_by_id
from corral.protocols.ends import ended_hashes
from corral.protocols.inspector import BaseInspector
from corral.protocols.wire import text, within
from corral.store.client import Store
from corral.store.scanning import escape_pattern, scan_all

WIRE_STATES = (
    "active", "completed", "delayed", "failed", "paused", "prioritized", "waiting", "waiting-children",
)  # fmt: skip


class EndedCounts(Struct, frozen=True):
    """How many jobs ended: in all, when and at how many the last minute began, and minute by minute."""

    count: int
    previous_at: int
    previous_count: int
    points: list[int]
    total_points: int


class JobResult(Struct, frozen=True):
    """How a job ended: `state` is `completed` or `failed`, None while it has not ended."""

    state: str | None
    value: Any = None


class BullmqInspector(BullmqPort, BaseInspector):
    """Counts, jobs, logs and workers of one queue; its settings and metrics."""

    async def counts(self) -> dict[JobState, int]:
        keys = self._keys
        wait, paused, prioritized, grouped, parents, delayed, active, completed, failed = await self._pipe(
            ("LLEN", keys.wait),
            ("LLEN", keys.paused),
            ("ZCARD", keys.prioritized),
            ("ZCARD", keys.grouped),
            ("ZCARD", keys.waiting_children),
            ("ZCARD", keys.delayed),
            ("LLEN", keys.active),
            ("ZCARD", keys.completed),
            ("ZCARD", keys.failed),
        )
        return {
            JobState.WAITING: wait + paused + prioritized + grouped + parents,
            JobState.DELAYED: delayed,
            JobState.ACTIVE: active,
            JobState.COMPLETED: completed,
            JobState.DEAD: failed,
        }

    def _sources(self, state: JobState) -> Sequence[IdSource]:
        keys, store = self._keys, self._store
        match state:
            case JobState.WAITING:
                return (
                    ListedIds(store, (keys.wait, keys.paused), self._by_id, from_right=True),
                    SortedIds(store, keys.prioritized),
                    SortedIds(store, keys.grouped),
                    SortedIds(store, keys.waiting_children),
                )
            case JobState.ACTIVE:
                return (ListedIds(store, (keys.active,), self._by_id, from_right=True),)
            case JobState.DELAYED:
                return (SortedIds(store, keys.delayed),)
            case JobState.COMPLETED:
                return (SortedIds(store, keys.completed, is_reverse=True),)
            case JobState.DEAD:
                return (SortedIds(store, keys.failed, is_reverse=True),)
            case JobState.CANCELLED:
                return ()

    async def _by_id(self, ids: Sequence[bytes]) -> dict[bytes, Job]:
        return found_by_id(ids, await self._read(list(ids)))

    async def _listed(self, ids: Sequence[bytes], state: JobState) -> dict[bytes, Job]:
        return await self._by_id(ids)

    async def job(self, job_id: str) -> Job | None:
        jobs = await self._read([job_id])
        return jobs[0] if jobs else None

    async def jobs_by_id(self, job_ids: Sequence[str]) -> list[Job | None]:
        """Return these jobs with their states, in order; None where one does not exist."""
        jobs = {job.id: job for job in await self._read(list(job_ids))} if job_ids else {}
        return [jobs.get(job_id) for job_id in job_ids]

    async def _read(self, ids: list[Any]) -> list[Job]:
        # other keys of the queue are not its jobs
        rows = await self._run("read_jobs", *[job_id for job_id in ids if job_id not in RESERVED_IDS])
        queue = self._binding.queue
        return [
            broken_job(text(job_id), queue, codec.STATES.get(text(state)), text(fields))
            if isinstance(fields, bytes)
            else codec.decode_job(job_id, fields, queue, codec.STATES.get(text(state)))
            for job_id, fields, state in rows
        ]

    async def ends(self, ids: Sequence[str]) -> list[JobEnd | NotEnded]:
        # completed or failed, the time it ended is there; a retry takes it away
        return await ended_hashes(
            self._store,
            [self._keys.job(job_id) for job_id in ids],
            ("name", "finishedOn", ""),
            ("returnvalue", "failedReason", "stacktrace", "atm", "attemptsMade"),
            codec.decode_end,
        )

    async def gauges(self) -> list[Gauge]:
        """Return none: the contract's metrics are made of the counts."""
        return []

    async def notices(self) -> list[Notice]:
        """Return the generation of the queue, and what BullMQ 6 does not read of 5."""
        name, version, generation = self._binding.queue, await self.version(), await self.generation()
        if version is None:
            found = "no version in its meta: BullMQ 5 is assumed; where its clients are of 6, give bullmq=6"
        else:
            found = f"it is of BullMQ {generation} ({version})"
        notices = [Notice(f"queue {name!r}: {found}")]
        left, repeatables = await self._pipe(
            ("LLEN", self._keys.paused), ("ZRANGE", self._keys.repeat, 0, -1)
        )
        is_six = generation != GENERATIONS[0]
        if left and (is_six or not await self.is_paused()):
            notices.append(
                Notice(
                    f"{left:,} jobs of queue {name!r} are in the list 'paused', where no worker looks",
                    f"corral queue resume {name} --protocol {NAME}",
                )
            )
        legacy = [text(key) for key in repeatables if is_legacy(key)] if is_six else []
        if legacy:
            notices.append(
                Notice(
                    f"BullMQ 6 ends the repeatables of queue {name!r}: {', '.join(legacy[:10])}",
                    "declare a schedule for each (app.schedule), and remove the repeatable: ZREM "
                    f"{self._keys.repeat} KEY",
                )
            )
        return notices

    async def logs(self, job_id: str, start: int = 0, count: int = 1000) -> list[str]:
        return (await self.log_page(job_id, start, start + count - 1))[0]

    async def workers(self) -> list[WorkerInfo]:
        unnamed = self._keys.connection_name()
        listing = text(await self._store.call("CLIENT", "LIST"))
        workers = []
        for line in listing.splitlines():
            client = dict(field.partition("=")[::2] for field in line.split(" "))
            name = client.get("name", "")
            if name == unnamed or name.startswith(f"{unnamed}:w:"):
                worker = name[len(unnamed) + 3 :]
                workers.append(WorkerInfo(name=worker, address=client.get("addr"), extra=client))
        return workers

    async def is_paused(self) -> bool:
        return bool(await self._store.call("HEXISTS", self._keys.meta, "paused"))

    async def limits(self) -> QueueLimits:
        return QueueLimits(await self.concurrency(), await self.limit())

    # -- in the contract's own words --------------------------------------------------------------------

    async def wire_state(self, job_id: str) -> str:
        """Return `waiting`, `prioritized`, `delayed`, `active`, `waiting-children`, `completed`, `failed`, or
        else `unknown`."""
        [state] = await self._run("job_states", job_id)
        return text(state)

    async def wire_counts(
        self, states: Sequence[str] = WIRE_STATES, requested: Collection[str] = ()
    ) -> dict[str, int]:
        """Return how many jobs are in each of these states; `wait` and `waiting` are the same.

        BullMQ 6 has no state `paused`: it is left out there, unless it is `requested` or has jobs.
        """
        commands = [
            ("LLEN" if STATE_KEYS[state] in LISTS else "ZCARD", self._keys.state(state)) for state in states
        ]
        *numbers, version = await self._pipe(*commands, ("HGET", self._keys.meta, "version"))
        counts = dict(zip(states, numbers, strict=True))
        is_six = self._generation_by(version) != GENERATIONS[0]
        if is_six and "paused" not in requested and not counts.get("paused"):
            counts.pop("paused", None)
        return counts

    def _generation_by(self, version: bytes | None) -> int:
        noted = noted_generation(None if version is None else text(version))
        return noted or self._binding.generation or GENERATIONS[0]

    async def counts_per_priority(self, priorities: Sequence[int]) -> dict[int, int]:
        """Return how many jobs wait with each priority; 0 are those without one."""
        is_paused = await self.is_paused() and await self.generation() == GENERATIONS[0]
        wait = self._keys.paused if is_paused else self._keys.wait
        unique = list(dict.fromkeys(priorities))
        commands: list[Sequence[Any]] = [
            ("LLEN", wait)
            if priority == 0
            else ("ZCOUNT", self._keys.prioritized, priority << 32, ((priority + 1) << 32) - 1)
            for priority in unique
        ]
        return dict(zip(unique, await self._pipe(*commands), strict=True))

    async def ranges(
        self, states: Sequence[str], start: int = 0, end: int = -1, ascending: bool = False
    ) -> list[str]:
        """Return the ids of jobs in these states, `start` to `end` of each, in the order of Node."""
        commands = [self._range(state, start, end, ascending) for state in states]
        ids: list[bytes] = []
        for state, answer in zip(states, await self._pipe(*commands), strict=True):
            ids += reversed(answer) if ascending and STATE_KEYS[state] in LISTS else answer
        return [text(job_id) for job_id in dict.fromkeys(ids)]

    def _range(self, state: str, start: int, end: int, ascending: bool) -> Sequence[Any]:
        key = self._keys.state(state)
        if STATE_KEYS[state] not in LISTS:
            return ("ZRANGE" if ascending else "ZREVRANGE", key, start, end)
        if not ascending:
            return ("LRANGE", key, start, end)
        # the oldest of a list is at its right end, from which ascending positions are counted
        first, last = (0 if position == -1 else -(position + 1) for position in (end, start))
        return ("LRANGE", key, first, last)

    async def log_page(
        self, job_id: str, start: int = 0, end: int = -1, ascending: bool = True
    ) -> tuple[list[str], int]:
        """Return lines of a job's log, and how many it has."""
        first, last = (start, end) if ascending else (-(end + 1), -(start + 1))
        log = self._keys.logs(job_id)
        lines, count = await self._pipe(("LRANGE", log, first, last), ("LLEN", log))
        return [text(line) for line in (lines if ascending else reversed(lines))], count

    async def result(self, job_id: str) -> JobResult | None:
        """Return how the job ended, with its result or reason; None where it does not exist."""
        code, value = await self._run("job_result", job_id)
        if code == -1:
            return None
        if code == 1:
            return JobResult("completed", payload.decode(value))
        return JobResult("failed", text(value)) if code == 2 else JobResult(None)

    async def metrics(self, state: str, start: int = 0, end: int = -1) -> EndedCounts:
        """Return how many jobs `completed` or `failed`, and how many in each minute, newest first."""
        key = self._keys.metrics(state)
        meta, points, total = await self._pipe(
            ("HMGET", key, "count", "prevTS", "prevCount"),
            ("LRANGE", f"{key}:data", start, end),
            ("LLEN", f"{key}:data"),
        )
        count, previous_at, previous_count = (number(part) or 0 for part in meta)
        return EndedCounts(
            count, previous_at, previous_count, [number(point) or 0 for point in points], total
        )

    async def concurrency(self) -> int | None:
        """Return how many jobs may be active in the whole queue; None: any number."""
        return number(await self._store.call("HGET", self._keys.meta, "concurrency"))

    async def limit(self) -> Limit | None:
        """Return how many claims in which time are allowed in the whole queue; None: any number."""
        count, duration = await self._store.call("HMGET", self._keys.meta, "max", "duration")
        return None if count is None or duration is None else Limit(number(count) or 0, number(duration) or 0)

    async def limited_for(self, count: int | None = None) -> int:
        """Return the ms until the rate limit (of `count` claims, or the queue's own) allows a claim.

        As in 5.62.0: 0 where it is not in force, and where no count is set anywhere -1 or -2, the server's
        answer for a counter that stays or does not exist.
        """
        most = count or number(await self._store.call("HGET", self._keys.meta, "max"))
        used, left = await self._pipe(("GET", self._keys.limiter), ("PTTL", self._keys.limiter))
        if most is None:
            return int(left)
        return max(int(left), 0) if most <= (number(used) or 0) else 0

    async def is_maxed(self) -> bool:
        """Return whether as many jobs are active as the whole queue may have."""
        most = await self.concurrency()
        return most is not None and await self._store.call("LLEN", self._keys.active) >= most

    async def version(self) -> str | None:
        """Return the client that wrote the queue's settings last."""
        raw = await self._store.call("HGET", self._keys.meta, "version")
        return None if raw is None else text(raw)

    async def generation(self) -> int:
        """Return the generation of BullMQ that the queue is of."""
        return self._generation_by(await self._store.call("HGET", self._keys.meta, "version"))

    async def deduplicated(self, deduplication_id: str) -> str | None:
        """Return the id of the job added under this deduplication id; None where there is none."""
        raw = await self._store.call("GET", self._keys.deduplication(deduplication_id))
        return None if raw is None else text(raw)


async def bullmq_queues(store: Store, namespace: str) -> list[str]:
    """Return the names of the queues in a namespace: each has a meta key."""
    names: set[str] = set()
    async for keys in scan_all(store, f"{escape_pattern(namespace)}:*:meta", "hash"):
        names |= {text(key[len(namespace.encode()) + 1 : -len(":meta")]) for key in keys}
    return sorted(names)


def number(raw: bytes | None) -> int | None:
    """Return a number as a hash has it; None where there is none, or something else."""
    return None if raw is None else within(raw, -(2**63), 2**63 - 1)
