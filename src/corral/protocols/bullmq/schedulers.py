"""Job schedulers: what makes jobs of its own, by a pattern or every so often."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
from msgspec import Struct

from corral.core import payload
from corral.core.job import Job
from corral.errors import InvalidOptions, short_repr
from corral.protocols.bullmq.bound import Bound, number, text
from corral.protocols.bullmq.codes import refusal
from corral.protocols.bullmq.options import LONG_NAMES, decode_options
from corral.protocols.bullmq.repeats import (
    due_by_pattern,
    is_over,
    made,
    milliseconds,
    repeat_of_next,
    short_options,
)
from corral.protocols.bullmq.zone import local_zone

NO_DATA = b"{}"


class Scheduler(Struct, frozen=True, kw_only=True):
    """A scheduler as it stands; times are ms since the epoch."""

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
    """What its jobs are made from, in the contract's own words; None where it was made without."""


class BullmqSchedulers(Bound):
    """The schedulers of one queue."""

    async def upsert(
        self,
        scheduler_id: str,
        repeat: Mapping[str, Any],
        *,
        name: str | None = None,
        data: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> Job | None:
        """The next job of the scheduler, which is made or changed by this; None where no job follows.

        `repeat` and `options` are in the contract's own words: `every` (ms) or `pattern` (cron, with `tz`),
        `limit`, `startDate`, `endDate`, `immediately`.

        >>> await schedulers.upsert("daily", {"pattern": "0 9 * * *", "tz": "UTC"})  # doctest: +SKIP
        """
        now = self._binding.clock()
        _check(scheduler_id, repeat, now)
        _check_text("the name of its jobs", name)
        if is_over(repeat, now):
            return None
        due = self._due(repeat, now)
        if due is None and not repeat.get("every"):
            return None
        name = scheduler_id if name is None else name
        encoded = payload.encode({} if data is None else data, "data")
        wire = short_options(options or {})
        new = made(name, encoded, {**wire, "repeat": repeat_of_next(repeat)}, scheduler_id, now, due)
        answer = await self._run(
            "upsert_scheduler",
            scheduler_id,
            now,
            "" if due is None else due,
            repeat.get("every") or "",
            _or_nothing(milliseconds("startDate", repeat.get("startDate"))),
            _pack(_fields(name, repeat, wire, encoded)),
            _pack(new),
        )
        if isinstance(answer, int):
            raise refusal(answer, scheduler_id)
        return self._job(text(answer[0]), int(answer[1]), new, now)

    def _due(self, repeat: Mapping[str, Any], now: int) -> int | None:
        if repeat.get("every"):
            return None
        found = due_by_pattern(repeat, now, local_zone())
        return now if repeat.get("immediately") else found

    def _job(self, job_id: str, delay: int, new: Any, now: int) -> Job:
        name, data, head = new[:3]
        opts = head + b',"jobId":' + payload.encode(job_id, "id") + b',"delay":%d}' % delay
        return Job(name=name, data=payload.decode(data), queue=self._binding.queue, id=job_id,
                   options=decode_options(opts), created_at=now)  # fmt: skip

    async def remove(self, scheduler_id: str) -> bool:
        """Delete the scheduler, and its next job while that is delayed; False where there is none."""
        return bool(await self._run("remove_scheduler", scheduler_id))

    async def get(self, scheduler_id: str) -> Scheduler | None:
        """One scheduler; None where there is none."""
        due, flat = await self._pipe(
            ("ZSCORE", self._keys.part("repeat"), scheduler_id),
            ("HGETALL", self._keys.scheduler(scheduler_id)),
        )
        return None if due is None else _decode(scheduler_id, due, flat)

    async def all(self, start: int = 0, end: int = -1, ascending: bool = False) -> list[Scheduler]:
        """Schedulers by when they are due, the last first unless `ascending`."""
        verb = "ZRANGE" if ascending else "ZREVRANGE"
        flat = await self._store.call(verb, self._keys.part("repeat"), start, end, "WITHSCORES")
        due = {text(name): score for name, score in zip(flat[::2], flat[1::2], strict=True)}
        hashes = await self._pipe(*(("HGETALL", self._keys.scheduler(name)) for name in due))
        return [_decode(name, score, found) for (name, score), found in zip(due.items(), hashes, strict=True)]

    async def count(self) -> int:
        """How many schedulers there are."""
        count: int = await self._store.call("ZCARD", self._keys.part("repeat"))
        return count


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
    # the script replaces a scheduler's hash: what no hash can hold must not get as far as that
    if value is not None and not isinstance(value, str):
        raise InvalidOptions(f"{what} is {short_repr(value)}; use text")


def _fields(name: str, repeat: Mapping[str, Any], wire: Mapping[str, Any], data: bytes) -> list[Any]:
    """What stands in the scheduler's hash, besides what the script alone knows."""
    given: dict[str, Any] = {
        "tz": repeat.get("tz"),
        "limit": repeat.get("limit"),
        "pattern": repeat.get("pattern"),
        "startDate": milliseconds("startDate", repeat.get("startDate")),
        "endDate": milliseconds("endDate", repeat.get("endDate")),
        "every": repeat.get("every"),
        "opts": payload.encode(wire, "options") if wire else None,
        "data": data if data != NO_DATA else None,
    }
    flat: list[Any] = ["name", name]
    for field, value in given.items():
        if value:
            flat += (field, value)
    return flat


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=False)
    return packed


def _or_nothing(value: int | None) -> int | str:
    return "" if value is None else value


def _decode(scheduler_id: str, due: bytes, flat: Sequence[bytes]) -> Scheduler:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    options, data = fields.get(b"opts"), fields.get(b"data")

    def words(name: bytes) -> str | None:
        return text(fields[name]) if name in fields else None

    return Scheduler(
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
