"""Job schedulers, which add jobs by a cron pattern or at an interval, in the contract's own words."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from corral.core import payload
from corral.core.job import Job
from corral.errors import InvalidOptions, short_repr
from corral.protocols.bullmq.inspector import number
from corral.protocols.bullmq.options import LONG_NAMES, decode_options
from corral.protocols.bullmq.schedulers.repeat import (
    JobTemplate,
    due_by_pattern,
    is_over,
    job_template,
    local_zone,
    milliseconds,
    next_repeat,
    short_options,
)
from corral.protocols.bullmq.scripts import BullmqPort, refusal
from corral.protocols.wire import fields_of, pack, text

NO_DATA = b"{}"


class SchedulerRecord(Struct, frozen=True, kw_only=True):
    """A job scheduler as it stands; times are ms since the epoch."""

    id: str
    name: str | None
    next: int | None
    """When its next job is due."""
    every: int | None = None
    pattern: str | None = None
    zone: str | None = None
    limit: int | None = None
    start: int | None = None
    end: int | None = None
    offset: int | None = None
    count: int | None = None
    """How many jobs it has made."""
    data: Any = None
    options: dict[str, Any] | None = None
    """The options of its jobs, in the contract's own words; None where it was made without."""


class JobSchedulers(BullmqPort):
    """The job schedulers of one queue."""

    async def upsert(
        self,
        scheduler_id: str,
        repeat: Mapping[str, Any],
        *,
        name: str | None = None,
        data: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> Job | None:
        """Add a scheduler or change it; return its next job, None where no job follows.

        `repeat` and `options` are in the contract's own words: `every` (ms) or `pattern` (cron, with `tz`),
        `limit`, `startDate`, `endDate`, `immediately`.

        >>> await schedulers.upsert("daily", {"pattern": "0 9 * * *", "tz": "UTC"})  # doctest: +SKIP
        """
        now = self._binding.clock()
        _check(scheduler_id, repeat, now)
        _check_text("the name of its jobs", name)
        if is_over(repeat, now):
            return None
        due = _due(repeat, now)
        if due is None and not repeat.get("every"):
            return None
        name = scheduler_id if name is None else name
        encoded = payload.encode({} if data is None else data, "data")
        wire = short_options(options or {})
        offset = (repeat.get("every") and repeat.get("offset")) or 0
        template = job_template(
            name, encoded, {**wire, "repeat": next_repeat(repeat)}, scheduler_id, now, due, offset
        )
        start = milliseconds("startDate", repeat.get("startDate"))
        answer = await self._run(
            "upsert_scheduler",
            scheduler_id,
            now,
            "" if due is None else due,
            repeat.get("every") or "",
            "" if start is None else start,
            pack(_hash_fields(name, repeat, wire, encoded)),
            pack(template),
            offset,
        )
        if isinstance(answer, int):
            raise refusal(answer, scheduler_id)
        return self._job(text(answer[0]), int(answer[1]), template, now)

    def _job(self, job_id: str, delay: int, template: JobTemplate, now: int) -> Job:
        opts = template.opts + b',"jobId":' + payload.encode(job_id, "id") + b',"delay":%d}' % delay
        return Job(
            name=template.name,
            data=payload.decode(template.data),
            queue=self._binding.queue,
            id=job_id,
            options=decode_options(opts),
            created_at=now,
        )

    async def remove(self, scheduler_id: str) -> bool:
        """Delete a scheduler, and its next job while that is delayed; return whether it existed."""
        return bool(await self._run("remove_scheduler", scheduler_id))

    async def get(self, scheduler_id: str) -> SchedulerRecord | None:
        """Return one scheduler; None where it does not exist."""
        due, flat = await self._pipe(
            ("ZSCORE", self._keys.repeat, scheduler_id),
            ("HGETALL", self._keys.scheduler(scheduler_id)),
        )
        return None if due is None else _decode(scheduler_id, due, flat)

    async def all(self, start: int = 0, end: int = -1, ascending: bool = False) -> list[SchedulerRecord]:
        """Return schedulers by when they are due, the last first unless `ascending`."""
        verb = "ZRANGE" if ascending else "ZREVRANGE"
        scores = fields_of(await self._store.call(verb, self._keys.repeat, start, end, "WITHSCORES"))
        due = {text(name): score for name, score in scores.items()}
        hashes = await self._pipe(*(("HGETALL", self._keys.scheduler(name)) for name in due))
        return [_decode(name, score, flat) for (name, score), flat in zip(due.items(), hashes, strict=True)]

    async def count(self) -> int:
        """Return how many schedulers there are."""
        count: int = await self._store.call("ZCARD", self._keys.repeat)
        return count


def _due(repeat: Mapping[str, Any], now: int) -> int | None:
    if repeat.get("every"):
        return None
    due = due_by_pattern(repeat, now, local_zone())
    return now if repeat.get("immediately") else due


def _check(scheduler_id: str, repeat: Mapping[str, Any], now: int) -> None:
    if not isinstance(scheduler_id, str) or not scheduler_id:
        raise InvalidOptions(f"scheduler id is {short_repr(scheduler_id)}; use text")
    if scheduler_id.count(":") >= 4:
        raise InvalidOptions(f"scheduler id {scheduler_id!r} has more than three ':'; use fewer")
    every, pattern = repeat.get("every"), repeat.get("pattern")
    if bool(every) == bool(pattern):
        raise InvalidOptions(
            f"every is {short_repr(every)} and pattern is {short_repr(pattern)}; use one of them"
        )
    if every and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise InvalidOptions(f"every is {short_repr(every)}; use whole milliseconds, from 1")
    _check_text("tz", repeat.get("tz"))
    if repeat.get("immediately") and repeat.get("startDate"):
        raise InvalidOptions("immediately and startDate are both given; use one of them")
    end = milliseconds("endDate", repeat.get("endDate"))
    if end is not None and end < now:
        raise InvalidOptions(f"endDate {short_repr(repeat['endDate'])} has passed; use a later one")


def _check_text(what: str, value: Any) -> None:
    # the script replaces the whole hash, so what a hash cannot hold is refused before
    if value is not None and not isinstance(value, str):
        raise InvalidOptions(f"{what} is {short_repr(value)}; use text")


def _hash_fields(name: str, repeat: Mapping[str, Any], wire: Mapping[str, Any], data: bytes) -> list[Any]:
    """Return the scheduler's hash as a flat list, besides what only the script knows."""
    fields: dict[str, Any] = {
        "name": name,
        "tz": repeat.get("tz"),
        "limit": repeat.get("limit"),
        "pattern": repeat.get("pattern"),
        "startDate": milliseconds("startDate", repeat.get("startDate")),
        "endDate": milliseconds("endDate", repeat.get("endDate")),
        "every": repeat.get("every"),
        "opts": payload.encode(wire, "options") if wire else None,
        "data": data if data != NO_DATA else None,
    }
    return [part for field, value in fields.items() if value or field == "name" for part in (field, value)]


def _decode(scheduler_id: str, due: bytes, flat: Sequence[bytes]) -> SchedulerRecord:
    fields = fields_of(flat)
    options, data = fields.get(b"opts"), fields.get(b"data")

    def words(name: bytes) -> str | None:
        return text(fields[name]) if name in fields else None

    return SchedulerRecord(
        id=scheduler_id,
        name=words(b"name"),
        next=number(due),
        every=number(fields.get(b"every")),
        pattern=words(b"pattern"),
        zone=words(b"tz"),
        limit=number(fields.get(b"limit")),
        start=number(fields.get(b"startDate")),
        end=number(fields.get(b"endDate")),
        offset=number(fields.get(b"offset")),
        count=number(fields.get(b"ic")),
        data=None if data is None else payload.decode(data),
        options=None if options is None else _long_names(payload.decode(options)),
    )


def _long_names(wire: dict[str, Any]) -> dict[str, Any]:
    return {LONG_NAMES.get(name, name): value for name, value in wire.items()}
