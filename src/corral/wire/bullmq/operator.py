"""The BullMQ room's Operator: writes on demand."""

from collections.abc import Sequence
from typing import Any

import msgpack

from corral.core.ports import Limit
from corral.store.scripts import Script
from corral.wire.bullmq import codec
from corral.wire.bullmq.broker import SCRIPTS
from corral.wire.bullmq.keys import Keys
from corral.wire.place import Place

UNTIL_LIFTED = 2**53 - 1
"""More claims than any limit allows: what a manual limit writes into the counter."""


class BullmqOperator:
    """Pause, retry, promote, remove, cancel; and the settings a queue keeps in its meta key."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._keys = Keys(place.namespace, place.queue)

    async def pause(self) -> None:
        await self._place.store.run(SCRIPTS["pause"], self._keys.fixed, ("paused",))

    async def resume(self) -> None:
        await self._place.store.run(SCRIPTS["pause"], self._keys.fixed, ("resumed",))

    async def retry(self, job_ids: Sequence[str]) -> list[str]:
        reads = [("HGET", self._keys.job(job_id), "opts") for job_id in job_ids]
        options = await self._place.store.pipe(reads)
        rows = [
            (job_id, codec.decode_options(raw).lifo)
            for job_id, raw in zip(job_ids, options, strict=True)
            if raw is not None
        ]
        return await self._run(SCRIPTS["retry"], (msgpack.packb(rows, use_bin_type=False),))

    async def promote(self, job_ids: Sequence[str]) -> list[str]:
        return await self._run(SCRIPTS["promote_jobs"], job_ids)

    async def remove(self, job_ids: Sequence[str]) -> list[str]:
        return await self._run(SCRIPTS["remove"], job_ids)

    async def cancel(self, job_ids: Sequence[str]) -> list[str]:
        return await self._run(SCRIPTS["cancel"], job_ids)

    async def _run(self, script: Script, args: Sequence[Any]) -> list[str]:
        answer = await self._place.store.run(script, self._keys.fixed, args)
        return [job_id.decode() for job_id in answer]

    # -- settings of this contract alone ------------------------------------------------------------------

    async def set_concurrency(self, count: int | None) -> None:
        """At most `count` jobs active in the whole queue; None lifts it."""
        await self._set({"concurrency": count})

    async def set_limit(self, limit: Limit | None) -> None:
        """At most so many claims in a time, for the whole queue; None lifts it."""
        count, duration = (limit.count, limit.duration) if limit else (None, None)
        await self._set({"max": count, "duration": duration})

    async def hold(self, duration_ms: int) -> None:
        """No claims for so long, where a limit is set."""
        await self._place.store.call("SET", self._keys.part("limiter"), UNTIL_LIFTED, "PX", duration_ms)

    async def keep_events(self, count: int) -> None:
        """Keep about the last `count` events."""
        await self._set({"opts.maxLenEvents": count})

    async def _set(self, settings: dict[str, int | None]) -> None:
        meta = self._keys.part("meta")
        for name, value in settings.items():
            if value is None:
                await self._place.store.call("HDEL", meta, name)
            else:
                await self._place.store.call("HSET", meta, name, value)
