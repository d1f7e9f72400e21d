"""Job: what producers get back, and what processors are given."""

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import orjson

from corral.bullmq.errors import told
from corral.bullmq.job_children import Kinship
from corral.bullmq.job_moves import Moves
from corral.bullmq.options import encode_data, long_options
from corral.bullmq.queue_base import QueueBase
from corral.bullmq.queue_events import QueueEvents
from corral.core import payload


class Job(Moves, Kinship):
    """One unit of work.

    >>> job = await queue.add("send", {"to": "a@b.c"})               # doctest: +SKIP
    >>> await job.getState()                                         # doctest: +SKIP
    'waiting'
    """

    @classmethod
    async def fromId(cls, queue: QueueBase, jobId: str) -> Self | None:
        """The job as it stands now; None where there is none."""
        if not jobId:
            return None
        raw = await queue.read(str(jobId))
        return None if raw is None else cls.fromJSON(queue, raw, str(jobId))

    # -- words ----------------------------------------------------------------------------------------------

    async def updateData(self, data: Any) -> None:
        """Give the job other data."""
        self.data = data
        with told("updateData", job=self.key):
            await self.queue.operator.update_data(self.key, orjson.Fragment(encode_data(data)))

    async def updateProgress(self, progress: Any) -> None:
        """Say how far the job is: a number, or anything JSON carries."""
        self.progress = progress
        with told("updateProgress", job=self.key):
            encoded = orjson.Fragment(encode_data(progress, "progress"))
            await self.queue.operator.update_progress(self.key, encoded)
        self.queue.emit("progress", self, progress)

    async def log(self, logRow: str) -> int:
        """Append a line to the job's log; how many lines it has now."""
        return await self.addJobLog(self.queue, self.key, logRow, self.opts.get("keepLogs") or 0)

    @staticmethod
    async def addJobLog(queue: QueueBase, jobId: str, logRow: str, keepLogs: int = 0) -> int:
        """Append a line to the log of the job with this id; how many lines it has now."""
        with told("addLog", job=jobId):
            return await queue.operator.add_log(jobId, str(logRow), keepLogs or None)

    async def clearLogs(self, keepLogs: int = 0) -> None:
        """Delete the job's log, all but the last `keepLogs` lines."""
        await self.queue.operator.clear_log(self.key, keepLogs)

    async def remove(self, opts: Mapping[str, Any] | None = None) -> None:
        """Delete the job, with its children unless `{"removeChildren": False}`."""
        with told("removeJob", job=self.key):
            children = bool((opts or {}).get("removeChildren", True))
            removed = await self.queue.operator.remove_job(self.key, children)
        if not removed:
            raise Exception(f"Job {self.id} could not be removed because it is locked by another worker")
        self.queue.emit("removed", self)

    def discard(self) -> None:
        """No other attempt after this one, should it fail."""
        self.discarded = True

    # -- states ---------------------------------------------------------------------------------------------

    async def getState(self) -> str:
        """`waiting`, `active`, `completed`, `failed`, `delayed`, `prioritized`, `waiting-children`; `unknown`
        where the job is gone."""
        return await self.queue.inspector.wire_state(self.key)

    async def isCompleted(self) -> bool:
        return await self.isInZSet("completed")

    async def isFailed(self) -> bool:
        return await self.isInZSet("failed")

    async def isDelayed(self) -> bool:
        return await self.isInZSet("delayed")

    async def isPrioritized(self) -> bool:
        return await self.isInZSet("prioritized")

    async def isWaitingChildren(self) -> bool:
        return await self.isInZSet("waiting-children")

    async def isActive(self) -> bool:
        return await self.isInList("active")

    async def isWaiting(self) -> bool:
        """Does it wait, in a queue that is paused or not?"""
        return await self.isInList("wait") or await self.isInList("paused")

    async def isInZSet(self, set: str) -> bool:
        return await self.queue.store.call("ZSCORE", self.queue.toKey(set), self.key) is not None

    async def isInList(self, list_name: str) -> bool:
        return await self.queue.store.call("LPOS", self.queue.toKey(list_name), self.key) is not None

    async def waitUntilFinished(self, queueEvents: QueueEvents, ttl: float | None = None) -> Any:
        """The job's result when it has completed; an Exception with its reason when it has failed.

        TimeoutError after `ttl` ms. What has ended before is told at once.
        """
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def completed(args: dict[str, Any], _: str) -> None:
            if not ended.done():
                ended.set_result(args.get("returnvalue"))

        def failed(args: dict[str, Any], _: str) -> None:
            if not ended.done():
                ended.set_exception(Exception(args.get("failedReason")))

        heard = {f"completed:{self.id}": completed, f"failed:{self.id}": failed}
        for event, callback in heard.items():
            queueEvents.on(event, callback)
        try:
            async with asyncio.timeout(ttl / 1000 if ttl else None):
                # from here on every event is heard, so what ended before is seen by this one look
                await queueEvents.waitUntilReady()
                await self._look_ended(ended)
                return await ended
        except TimeoutError:
            raise TimeoutError(
                f"Job wait {self.name} timed out before finishing, "
                f"no finish notification arrived after {ttl}ms (id={self.id})"
            ) from None
        finally:
            for event, callback in heard.items():
                queueEvents.off(event, callback)

    async def _look_ended(self, ended: "asyncio.Future[Any]") -> None:
        found = await self.queue.inspector.ended(self.key)
        if ended.done():
            return
        if found is None:
            ended.set_exception(Exception(f"Missing key for job {self.queue.toKey(self.key)}. isFinished"))
        elif found.state == "completed":
            ended.set_result(found.value)
        elif found.state == "failed":
            ended.set_exception(Exception(found.value))


def optsFromJSON(rawOpts: dict[str, Any]) -> dict[str, Any]:
    """Options in the names people write, from those of the wire."""
    return long_options(rawOpts)


def getReturnValue(value: Any) -> Any:
    """What the JSON says; of what is none, the text itself."""
    found = payload.decode(value) if isinstance(value, str | bytes) else value
    return value if isinstance(found, dict) and "_raw" in found else found
