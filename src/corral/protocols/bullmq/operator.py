"""The bullmq protocol's Operator: writes on demand."""

from collections.abc import Sequence
from typing import Any

import msgpack
from msgspec import UNSET
from msgspec.structs import replace

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.ports import Jobs, Limit
from corral.protocols.base import for_jobs
from corral.protocols.bullmq.bound import text
from corral.protocols.bullmq.changes import Changes
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.options import decode_options
from corral.protocols.bullmq.settings import Settings
from corral.protocols.bullmq.sweeps import Sweeps

ENDED = {JobState.COMPLETED: "completed", JobState.DEAD: "failed"}


class BullmqOperator(Changes, Sweeps, Settings):
    """Pause, retry, replay, promote, remove, cancel, drain, clean; and what this contract alone knows."""

    async def pause(self) -> None:
        await self._run("pause", "paused")

    async def resume(self) -> None:
        await self._run("pause", "resumed")

    async def retry(self, jobs: Jobs) -> list[str]:
        return await self._put_back(jobs, is_anew=False)

    async def replay(self, jobs: Jobs) -> list[str]:
        return await self._put_back(jobs, is_anew=True)

    async def _put_back(self, jobs: Jobs, is_anew: bool) -> list[str]:
        async def put_back(ids: Sequence[str]) -> list[str]:
            options = await self._pipe(*(("HGET", self._keys.job(job_id), "opts") for job_id in ids))
            rows = [
                (job_id, decode_options(raw).lifo)
                for job_id, raw in zip(ids, options, strict=True)
                if raw is not None
            ]
            return await self._done("retry", msgpack.packb(rows, use_bin_type=False), 1 if is_anew else "")

        return await for_jobs(self._inspector, jobs, (JobState.DEAD,), put_back)

    async def promote(self, jobs: Jobs) -> list[str]:
        return await for_jobs(
            self._inspector, jobs, (JobState.DELAYED,), lambda ids: self._done("promote_jobs", *ids)
        )

    async def remove(self, jobs: Jobs) -> list[str]:
        async def remove(ids: Sequence[str]) -> list[str]:
            codes = await self._run("remove", 1, *ids)
            return [job_id for job_id, code in zip(ids, codes, strict=True) if code == 1]

        return await for_jobs(self._inspector, jobs, JobState, remove)

    async def cancel(self, jobs: Jobs) -> list[str]:
        return await for_jobs(self._inspector, jobs, JobState, lambda ids: self._done("cancel", *ids))

    async def update(
        self, job_id: str, *, data: Any = UNSET, delay: int | None = None, priority: int | None = None
    ) -> None:
        if data is not UNSET:
            await self.update_data(job_id, data)
        if delay is not None:
            await self.change_delay(job_id, delay)
        if priority is not None:
            await self.change_priority(job_id, priority)

    async def clean(self, jobs: JobFilter) -> list[str]:
        states = jobs.states or frozenset({JobState.COMPLETED})
        if (
            not states <= ENDED.keys()
            or replace(jobs, states=None, ended_until=None, limit=None) != JobFilter()
        ):
            return await self.remove(replace(jobs, states=states))
        now = self._binding.clock()
        grace = 0 if jobs.ended_until is None else now - jobs.ended_until
        gone: list[str] = []
        for state in ENDED:
            left = 0 if jobs.limit is None else jobs.limit - len(gone)
            if state in states and (jobs.limit is None or left > 0):
                gone += await self.clean_state(grace, left, ENDED[state])
        return gone

    async def set_limits(self, concurrency: int | None = None, rate: Limit | None = None) -> None:
        await self.set_concurrency(concurrency)
        await self.set_limit(rate)

    @property
    def _inspector(self) -> BullmqInspector:
        return BullmqInspector(self._binding)

    async def _done(self, verb: str, *args: Any) -> list[str]:
        return [text(job_id) for job_id in await self._run(verb, *args)]
