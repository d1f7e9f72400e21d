"""What Corral workers write about themselves, the same in every protocol."""

from collections.abc import Mapping, Sequence

import msgspec

from corral.core.job import JobState
from corral.core.ports import MINUTE_BOUNDS_MS, Inspector, Minute, WorkerRecord
from corral.protocols.base import Binding, BoundPort
from corral.protocols.wire import fields_of, pack, text, whole
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.protocols")
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
DECLARED_MS = 90 * DAY_MS
MOST_MINUTES = 1440
MOST_RECORD_BYTES = 64 * 1024
"""A larger record is written without the schemas of its handlers."""
UNFINISHED = (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE)
WAITING, DEPTH = "waiting", "depth"
"""Fields of a minute that are set rather than counted."""


class QueueRecords(BoundPort):
    """The records and counts of one queue's workers.

    One key for each worker and one for each hour of the last day, besides the names of workers and those of
    their handlers; all of them expire.
    """

    def __init__(self, binding: Binding, protocol: str, inspector: Inspector) -> None:
        super().__init__(binding)
        self._inspector = inspector
        # namespace and queue have the hash tag, where there is one: all of these keys share a slot
        self._prefix = f"corral:{protocol}:{binding.namespace}:{binding.queue}:"
        self._names = f"{self._prefix}workers"
        self._served = f"{self._prefix}served"
        """When each job name last had a handler: the scripts of the protocols read it."""
        self._declared = f"{self._prefix}schedules"

    async def write(
        self, record: WorkerRecord, counts: Mapping[int, Mapping[str, int]], keep_ms: int
    ) -> None:
        unfinished = await self._inspector.counts()
        depths = {
            WAITING: unfinished.get(JobState.WAITING, 0),
            DEPTH: sum(unfinished.get(state, 0) for state in UNFINISHED),
        }
        this_minute = record.at - record.at % MINUTE_MS
        hours: dict[int, list[str | int]] = {this_minute - this_minute % HOUR_MS: []}
        for minute, fields in counts.items():
            flat = hours.setdefault(minute - minute % HOUR_MS, [])
            for name, count in fields.items():
                flat += (_field(minute, name), count)
        served_ms = max(DAY_MS, 2 * self._binding.profile.unknown_ms)
        for hour, flat in hours.items():
            is_now = hour <= this_minute < hour + HOUR_MS
            values = [
                part
                for name, depth in depths.items()
                if is_now
                for part in (_field(this_minute, name), str(depth))
            ]
            await self._store.run(
                SCRIPTS["record"],
                (self._names, self._record_key(record.name), self._hour_key(hour), self._served),
                (record.name, _encode(record), keep_ms, DAY_MS + HOUR_MS, pack(flat), pack(values),
                 record.at, pack(list(record.handlers)), served_ms),
            )  # fmt: skip

    async def forget(self, worker: str) -> None:
        await self._store.pipe([("DEL", self._record_key(worker)), ("SREM", self._names, worker)])

    async def workers(self) -> dict[str, WorkerRecord]:
        names = sorted(map(text, await self._store.call("SMEMBERS", self._names)))
        if not names:
            return {}
        raw = await self._store.call("MGET", *map(self._record_key, names))
        gone = [name for name, record in zip(names, raw, strict=True) if record is None]
        if gone:
            await self._store.call("SREM", self._names, *gone)
        records = [record for each in raw if each is not None and (record := _decode(each)) is not None]
        return {record.name: record for record in records}

    async def declare_schedules(self, ids: Sequence[str]) -> None:
        now = self._binding.clock()
        fields = [part for schedule_id in ids for part in (schedule_id, now)]
        declared = self._declared
        await self._store.pipe([("HSET", declared, *fields), ("PEXPIRE", declared, DECLARED_MS)])

    async def declared_schedules(self) -> set[str]:
        return set(map(text, await self._store.call("HKEYS", self._declared)))

    async def minutes(self, count: int = 60) -> list[Minute]:
        last = self._binding.clock() // MINUTE_MS * MINUTE_MS
        # one more: what was added is told by the change since the minute before
        first = last - min(count, MOST_MINUTES) * MINUTE_MS
        hours = range(first // HOUR_MS * HOUR_MS, last + 1, HOUR_MS)
        rows = await self._store.pipe([("HGETALL", self._hour_key(hour)) for hour in hours])
        by_hour = {hour: fields_of(row) for hour, row in zip(hours, rows, strict=True)}
        minutes, before = [], None
        for at in range(first, last + 1, MINUTE_MS):
            minute, depth = _minute(at, by_hour[at // HOUR_MS * HOUR_MS], before)
            minutes.append(minute)
            before = depth
        return minutes[1:]

    def _record_key(self, worker: str) -> str:
        return f"{self._prefix}worker:{worker}"

    def _hour_key(self, hour: int) -> str:
        return f"{self._prefix}minutes:{hour}"


def _field(minute: int, name: str) -> str:
    return f"{minute % HOUR_MS // MINUTE_MS}:{name}"


def _minute(at: int, fields: Mapping[bytes, bytes], before: int | None) -> tuple[Minute, int | None]:
    """Return a minute, and how many jobs were unfinished at its end; `before` at its begin."""

    def number(name: str) -> int | None:
        raw = fields.get(_field(at, name).encode())
        return None if raw is None else whole(raw)

    def histogram(name: str) -> tuple[int, ...]:
        counts = tuple(number(f"{name}{index}") or 0 for index in range(len(MINUTE_BOUNDS_MS) + 1))
        return counts if any(counts) else ()

    ended = {name: number(name) or 0 for name in ("completed", "dead", "cancelled")}
    depth = number(DEPTH)
    added = None if depth is None or before is None else max(depth - before + sum(ended.values()), 0)
    minute = Minute(
        at=at,
        added=added,
        retried=number("retried") or 0,
        waiting=number(WAITING),
        waits=histogram("wait"),
        runs=histogram("run"),
        **ended,
    )
    return minute, depth


def _encode(record: WorkerRecord) -> bytes:
    encoded = msgspec.json.encode(record)
    if len(encoded) > MOST_RECORD_BYTES:
        encoded = msgspec.json.encode(
            msgspec.structs.replace(record, handlers=dict.fromkeys(record.handlers))
        )
    return encoded


def _decode(raw: bytes) -> WorkerRecord | None:
    """Return a record; None for what another client wrote there."""
    try:
        return msgspec.json.decode(raw, type=WorkerRecord)
    except msgspec.DecodeError:
        return None


def percentile(histogram: Sequence[int], share: float) -> int | None:
    """Return the upper bound (ms) of the bucket in which that share of the values is reached.

    >>> percentile((0, 5, 4, 1, *[0] * 10), 0.5), percentile((0, 5, 4, 1, *[0] * 10), 0.95)
    (3, 30)
    """
    total, reached = sum(histogram), 0
    for bound, count in zip((*MINUTE_BOUNDS_MS, MINUTE_BOUNDS_MS[-1]), histogram, strict=False):
        reached += count
        if total and reached >= total * share:
            return bound
    return None
