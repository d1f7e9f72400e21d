"""The BullMQ protocol's Operator: writes on demand."""

from collections.abc import Sequence
from typing import Any

import msgpack

from corral.protocols.bullmq.bound import text
from corral.protocols.bullmq.changes import Changes
from corral.protocols.bullmq.options import decode_options
from corral.protocols.bullmq.settings import Settings
from corral.protocols.bullmq.sweeps import Sweeps


class BullmqOperator(Changes, Sweeps, Settings):
    """Pause, retry, promote, remove, cancel; and what this contract alone knows."""

    async def pause(self) -> None:
        await self._run("pause", "paused")

    async def resume(self) -> None:
        await self._run("pause", "resumed")

    async def retry(self, job_ids: Sequence[str]) -> list[str]:
        options = await self._pipe(*(("HGET", self._keys.job(job_id), "opts") for job_id in job_ids))
        rows = [
            (job_id, decode_options(raw).lifo)
            for job_id, raw in zip(job_ids, options, strict=True)
            if raw is not None
        ]
        return await self._done("retry", msgpack.packb(rows, use_bin_type=False))

    async def promote(self, job_ids: Sequence[str]) -> list[str]:
        return await self._done("promote_jobs", *job_ids)

    async def remove(self, job_ids: Sequence[str]) -> list[str]:
        codes = await self._run("remove", 1, *job_ids)
        return [job_id for job_id, code in zip(job_ids, codes, strict=True) if code == 1]

    async def cancel(self, job_ids: Sequence[str]) -> list[str]:
        return await self._done("cancel", *job_ids)

    async def _done(self, verb: str, *args: Any) -> list[str]:
        return [text(job_id) for job_id in await self._run(verb, *args)]
