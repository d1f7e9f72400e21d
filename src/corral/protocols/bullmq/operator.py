"""The bullmq protocol's Operator: writes on demand, in calls that take a bounded time each."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from corral.core import payload
from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.options import HIGHEST_PRIORITY, LONGEST_DELAY_MS
from corral.core.ports import Jobs, Limit
from corral.errors import InvalidOptions, QueueInUse, WrongState, short_repr
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.options import decode_options
from corral.protocols.bullmq.scripts import BullmqPort, existing, refusal
from corral.protocols.operator import BaseOperator
from corral.protocols.wire import pack, text

MOST = 1000
"""Jobs looked at in one call."""
BLOCKING_COUNT = 2**53 - 1
"""More claims than any limit allows: what a manual rate limit writes into the counter."""
ENDED = {JobState.COMPLETED: "completed", JobState.DEAD: "failed"}
CLEANED = (
    "completed", "wait", "active", "paused", "prioritized", "delayed", "failed", "waiting-children",
)  # fmt: skip
"""The states that can be cleaned, in the contract's words; `waiting` is another word for `wait`."""


class BullmqOperator(BullmqPort, BaseOperator):
    """The verbs of every protocol, and below what this contract alone has."""

    @property
    def _inspector(self) -> BullmqInspector:
        return BullmqInspector(self._binding)

    async def pause(self) -> None:
        await self._set_paused("paused")

    async def resume(self) -> None:
        await self._set_paused("resumed")

    async def _set_paused(self, event: str) -> None:
        left = await self._run("pause", event, "")
        while left:
            left = await self._run("pause", event, 1)

    async def retry(self, jobs: Jobs) -> list[str]:
        return await self._requeue(jobs, is_anew=False)

    async def replay(self, jobs: Jobs) -> list[str]:
        return await self._requeue(jobs, is_anew=True)

    async def _requeue(self, jobs: Jobs, is_anew: bool) -> list[str]:
        async def requeue(ids: Sequence[str]) -> list[str]:
            options = await self._pipe(*(("HGET", self._keys.job(job_id), "opts") for job_id in ids))
            rows = [
                (job_id, decode_options(raw).lifo)
                for job_id, raw in zip(ids, options, strict=True)
                if raw is not None
            ]
            return await self._ids("retry", pack(rows), 1 if is_anew else "")

        return await self._for_jobs(jobs, (JobState.DEAD,), requeue)

    async def promote(self, jobs: Jobs) -> list[str]:
        return await self._for_jobs(jobs, (JobState.DELAYED,), lambda ids: self._ids("promote_jobs", *ids))

    async def remove(self, jobs: Jobs) -> list[str]:
        async def remove(ids: Sequence[str]) -> list[str]:
            codes = await self._run("remove", 1, *ids)
            return [job_id for job_id, code in zip(ids, codes, strict=True) if code == 1]

        return await self._for_jobs(jobs, JobState, remove)

    async def cancel(self, jobs: Jobs) -> list[str]:
        return await self._for_jobs(jobs, JobState, lambda ids: self._ids("cancel", *ids))

    async def _ids(self, verb: str, *args: Any) -> list[str]:
        return [text(job_id) for job_id in await self._run(verb, *args)]

    async def update(
        self, job_id: str, *, data: Any = UNSET, delay: int | None = None, priority: int | None = None
    ) -> None:
        if data is not UNSET:
            await self.update_data(job_id, data)
        if delay is not None:
            await self.change_delay(job_id, delay)
        if priority is not None:
            await self.change_priority(job_id, priority)

    async def drain(self, delayed: bool = False) -> None:
        """Delete all waiting jobs, with `delayed` the delayed ones too, but not a scheduler's next job."""
        for name in ("wait", "paused", *(("delayed",) if delayed else ()), "prioritized", "grouped"):
            skipped, looked_at = 0, MOST
            while looked_at == MOST:
                looked_at, kept = await self._run("drain", name, MOST, skipped)
                skipped += kept

    async def clean(self, jobs: JobFilter) -> list[str]:
        states = jobs.states or frozenset({JobState.COMPLETED})
        other = replace(jobs, states=None, ended_until=None, limit=None)
        if not states <= ENDED.keys() or other != JobFilter():
            return await super().clean(jobs)
        grace = 0 if jobs.ended_until is None else self._binding.clock() - jobs.ended_until
        removed: list[str] = []
        for state, name in ENDED.items():
            left = 0 if jobs.limit is None else jobs.limit - len(removed)
            if state in states and (jobs.limit is None or left > 0):
                removed += await self.clean_state(grace, left, name)
        return removed

    async def set_limits(self, concurrency: int | None = None, rate: Limit | None = None) -> None:
        await self.set_concurrency(concurrency)
        await self.set_rate(rate)

    async def obliterate(self, force: bool = False, count: int = MOST) -> None:
        """Delete the queue and all that is in it, `count` jobs a call; it is paused first.

        `QueueInUse` where it has active jobs, unless `force`; it stays paused then.
        """
        await self.pause()
        code = 1
        while code == 1:
            code = await self._run("obliterate", count, 1 if force else 0)
        if code == -1:
            raise QueueInUse(f"queue {self._binding.queue!r} was resumed meanwhile; the rest still exists")
        if code == -2:
            raise QueueInUse(
                f"queue {self._binding.queue!r} has active jobs; wait until they end, or use force=True"
            )

    # -- many jobs, as Node does it ---------------------------------------------------------------------

    async def clean_state(self, grace: int, limit: int = 0, state: str = "completed") -> list[str]:
        """Delete jobs of a state that are older than `grace` ms, looking at `limit` of them at most (0: at
        all); return their ids. Locked jobs and the next job of each scheduler stay."""
        state = "wait" if state == "waiting" else state
        if state not in CLEANED:
            raise InvalidOptions(
                f"state {short_repr(state)} cannot be cleaned; use one of {', '.join(CLEANED)}"
            )
        moment = self._binding.clock() - grace
        removed: list[str] = []
        seen = 0
        while True:
            most = min(MOST, limit - seen) if limit else MOST
            is_last = limit and seen + most >= limit
            looked_at, ids = await self._run(
                "clean", state, moment, most, seen - len(removed), len(removed), 1 if is_last else 0
            )
            removed += map(text, ids)
            seen += looked_at
            if is_last or looked_at < most:
                return removed

    async def retry_all(self, state: str = "failed", count: int = MOST, timestamp: int | None = None) -> None:
        """Put all jobs that completed or failed until `timestamp` (now) back in the queue, `count` a call.

        As in 5.62.0, their priority and their parents are ignored.
        """
        if state not in ("completed", "failed"):
            raise InvalidOptions(f"state {short_repr(state)} cannot be retried; use 'completed' or 'failed'")
        await self._move(state, count, self._binding.clock() if timestamp is None else timestamp)

    async def promote_all(self, count: int = MOST) -> None:
        """Make all delayed jobs claimable now, `count` a call; as in 5.62.0 their priority is ignored."""
        await self._move("delayed", count, "+inf")

    async def _move(self, state: str, count: int, highest_score: int | str) -> None:
        if count < 1:
            raise InvalidOptions(f"count is {short_repr(count)}; use how many to move in one call, from 1")
        moved = count
        while moved == count:
            moved = await self._run("move_jobs", state, count, highest_score)

    async def trim_events(self, count: int) -> int:
        """Keep about the last `count` events; return how many were dropped."""
        dropped: int = await self._store.call("XTRIM", self._keys.events, "MAXLEN", "~", count)
        return dropped

    # -- one job ----------------------------------------------------------------------------------------

    async def update_data(self, job_id: str, data: Any) -> None:
        """Replace a job's data; `JobMissing` where it does not exist."""
        existing(await self._run("update_data", job_id, payload.encode(data, "data")), job_id)

    async def change_delay(self, job_id: str, delay: int) -> None:
        """Make a delayed job due in `delay` ms from now; `WrongState` where it is not delayed."""
        _check_whole("delay", delay, LONGEST_DELAY_MS)
        code = existing(await self._run("change_delay", job_id, self._binding.clock(), delay), job_id)
        if code == -3:
            raise WrongState(f"job {job_id!r} is not delayed; only a delayed job's delay can be changed")

    async def change_priority(self, job_id: str, priority: int = 0, lifo: bool = False) -> None:
        """Change a job's priority, and its position where it waits; `lifo`: before its equals."""
        _check_whole("priority", priority, HIGHEST_PRIORITY)
        existing(await self._run("change_priority", job_id, priority, 1 if lifo else 0), job_id)

    async def update_progress(self, job_id: str, value: Any) -> None:
        """Write the progress of a job, whoever holds its lock."""
        existing(await self._run("progress", job_id, "", payload.encode(value, "progress")), job_id)

    async def add_log(self, job_id: str, line: str, kept: int | None = None) -> int:
        """Append a line to a job's log, of which the last `kept` stay; return how many lines it has."""
        return existing(await self._run("log", job_id, "", line, kept or "", "", ""), job_id)

    async def clear_log(self, job_id: str, kept: int = 0) -> None:
        """Delete a job's log but the last `kept` lines."""
        log = self._keys.logs(job_id)
        if kept:
            await self._store.call("LTRIM", log, -kept, -1)
        else:
            await self._store.call("DEL", log)

    async def remove_job(self, job_id: str, children: bool = True) -> bool:
        """Delete one job, with its children; False where it, or one of them, is locked.

        `JobBelongsToScheduler` where it is its scheduler's next. A job that does not exist counts as deleted.
        """
        [code] = await self._run("remove", 1 if children else 0, job_id)
        if code < -1:
            raise refusal(code, job_id)
        return bool(code)

    # -- settings ---------------------------------------------------------------------------------------

    async def set_concurrency(self, count: int | None) -> None:
        """Allow `count` active jobs in the whole queue; None: any number."""
        await self._set({"concurrency": count})

    async def set_rate(self, limit: Limit | None) -> None:
        """Allow so many claims in a time in the whole queue; None: any number."""
        count, duration = (limit.count, limit.duration) if limit else (None, None)
        await self._set({"max": count, "duration": duration})

    async def block_claims(self, duration_ms: int) -> None:
        """Allow no claims for so long, where a rate limit is set."""
        await self._store.call("SET", self._keys.limiter, BLOCKING_COUNT, "PX", duration_ms)

    async def reset_limiter(self) -> bool:
        """Forget the claims that the rate limit has counted; return whether there were any."""
        return bool(await self._store.call("DEL", self._keys.limiter))

    async def keep_events(self, count: int) -> None:
        """Keep about the last `count` events."""
        await self._set({"opts.maxLenEvents": count})

    async def release_deduplication(self, deduplication_id: str) -> bool:
        """Allow a job under this deduplication id at once; return whether another was added under it."""
        return bool(await self._store.call("DEL", self._keys.deduplication(deduplication_id)))

    async def _set(self, settings: dict[str, int | None]) -> None:
        for name, value in settings.items():
            if value is None:
                await self._store.call("HDEL", self._keys.meta, name)
            else:
                await self._store.call("HSET", self._keys.meta, name, value)


def _check_whole(name: str, value: Any, highest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        raise InvalidOptions(f"{name} is {short_repr(value)}; use a whole number from 0 to {highest}")
