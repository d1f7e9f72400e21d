"""What can be read of a BullMQ queue in the contract's own words."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from corral.core import payload
from corral.core.ports import Limit
from corral.protocols.bullmq.bound import Bound, number, text

LISTS = frozenset({"wait", "paused", "active"})
STATES = ("active", "completed", "delayed", "failed", "paused", "prioritized", "waiting", "waiting-children")


class Metrics(Struct, frozen=True):
    """How many jobs ended: in all, when and at how many the last minute began, and minute by minute."""

    count: int
    previous_at: int
    previous_count: int
    points: list[int]
    total_points: int


class Ended(Struct, frozen=True):
    """Has the job ended, and with what? `state` is `completed`, `failed`, None while it has not."""

    state: str | None
    value: Any = None


class Reads(Bound):
    """States, counts, ranges, logs, metrics and settings."""

    async def wire_state(self, job_id: str) -> str:
        """`waiting`, `prioritized`, `delayed`, `active`, `waiting-children`, `completed`, `failed`, or else
        `unknown`."""
        [row] = await self._run("wire_state", job_id)
        return text(row)

    async def wire_counts(self, states: Sequence[str] = STATES) -> dict[str, int]:
        """How many jobs are in each of these states; `wait` and `waiting` are the same."""
        names = [_key_name(state) for state in states]
        commands = [("LLEN" if name in LISTS else "ZCARD", self._keys.part(name)) for name in names]
        return dict(zip(states, await self._pipe(*commands), strict=True))

    async def counts_per_priority(self, priorities: Sequence[int]) -> dict[int, int]:
        """How many jobs wait with each priority; 0 are those without one."""
        wait = self._keys.part("paused" if await self.is_paused() else "wait")
        commands: list[Sequence[Any]] = [
            ("LLEN", wait)
            if priority == 0
            else ("ZCOUNT", self._keys.part("prioritized"), priority << 32, ((priority + 1) << 32) - 1)
            for priority in dict.fromkeys(priorities)
        ]
        return dict(zip(dict.fromkeys(priorities), await self._pipe(*commands), strict=True))

    async def ranges(
        self, states: Sequence[str], start: int = 0, end: int = -1, ascending: bool = False
    ) -> list[str]:
        """Ids of the jobs in these states, `start` to `end` of each, in the order Node gives them."""
        commands = [self._range(_key_name(state), start, end, ascending) for state in states]
        ids: list[bytes] = []
        for state, answer in zip(states, await self._pipe(*commands), strict=True):
            ids += reversed(answer) if ascending and _key_name(state) in LISTS else answer
        return [text(job_id) for job_id in dict.fromkeys(ids)]

    def _range(self, name: str, start: int, end: int, ascending: bool) -> Sequence[Any]:
        key = self._keys.part(name)
        if name not in LISTS:
            return ("ZRANGE" if ascending else "ZREVRANGE", key, start, end)
        if not ascending:
            return ("LRANGE", key, start, end)
        # the oldest of a list is at its right end, so what counts from there is counted backwards
        first, last = (0 if place == -1 else -(place + 1) for place in (end, start))
        return ("LRANGE", key, first, last)

    async def is_paused(self) -> bool:
        """Is the queue paused?"""
        return bool(await self._store.call("HEXISTS", self._keys.part("meta"), "paused"))

    async def log_page(
        self, job_id: str, start: int = 0, end: int = -1, ascending: bool = True
    ) -> tuple[list[str], int]:
        """Lines of a job's log, and how many it has."""
        first, last = (start, end) if ascending else (-(end + 1), -(start + 1))
        log = self._keys.logs(job_id)
        lines, count = await self._pipe(("LRANGE", log, first, last), ("LLEN", log))
        return [text(line) for line in (lines if ascending else reversed(lines))], count

    async def ended(self, job_id: str) -> Ended | None:
        """Whether the job has ended, and its result or reason; None where it is gone."""
        code, value = await self._run("ended", job_id)
        if code == -1:
            return None
        if code == 1:
            return Ended("completed", payload.decode(value))
        return Ended("failed", text(value)) if code == 2 else Ended(None)

    async def metrics(self, state: str, start: int = 0, end: int = -1) -> Metrics:
        """How many jobs `completed` or `failed`, and how many in each of the last minutes, newest first."""
        key = self._keys.part(f"metrics:{state}")
        meta, points, total = await self._pipe(
            ("HMGET", key, "count", "prevTS", "prevCount"),
            ("LRANGE", f"{key}:data", start, end),
            ("LLEN", f"{key}:data"),
        )
        count, previous_at, previous_count = (number(part) or 0 for part in meta)
        return Metrics(count, previous_at, previous_count, [number(point) or 0 for point in points], total)

    # -- settings -------------------------------------------------------------------------------------------

    async def concurrency(self) -> int | None:
        """How many jobs may be active in the whole queue; None: any number."""
        return number(await self._store.call("HGET", self._keys.part("meta"), "concurrency"))

    async def limit(self) -> Limit | None:
        """How many claims in which time are allowed in the whole queue; None: any number."""
        count, duration = await self._store.call("HMGET", self._keys.part("meta"), "max", "duration")
        return None if count is None or duration is None else Limit(number(count) or 0, number(duration) or 0)

    async def limited_for(self, count: int | None = None) -> int:
        """Milliseconds until the rate limit lets go (of `count` claims, or of the queue's own limit).

        As 5.62.0 answers: 0 where it does not hold now, and where no count is known anywhere -1 or -2, as the
        server says of a counter that stays or is not there.
        """
        limiter = self._keys.part("limiter")
        most = count or number(await self._store.call("HGET", self._keys.part("meta"), "max"))
        used, left = await self._pipe(("GET", limiter), ("PTTL", limiter))
        if most is None:
            return int(left)
        return max(int(left), 0) if most <= (number(used) or 0) else 0

    async def is_maxed(self) -> bool:
        """Are as many jobs active as the whole queue may have?"""
        most = await self.concurrency()
        return most is not None and await self._store.call("LLEN", self._keys.part("active")) >= most

    async def version(self) -> str | None:
        """Which client wrote the queue's settings last."""
        raw = await self._store.call("HGET", self._keys.part("meta"), "version")
        return None if raw is None else text(raw)

    async def deduplicated(self, text_id: str) -> str | None:
        """The id of the job that stands for this deduplication id; None where none does."""
        raw = await self._store.call("GET", self._keys.deduplication(text_id))
        return None if raw is None else text(raw)


def _key_name(state: str) -> str:
    return "wait" if state == "waiting" else state
