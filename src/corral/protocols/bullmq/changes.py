"""What can be changed about one job of a BullMQ queue."""

from typing import Any

from corral.core import payload
from corral.core.options import HIGHEST_PRIORITY, LONGEST_DELAY_MS
from corral.errors import InvalidOptions, WrongState, short_repr
from corral.protocols.bullmq.bound import Bound, found
from corral.protocols.bullmq.codes import refusal


class Changes(Bound):
    """Data, delay, priority, progress and log of a job; its parent and children; its removal."""

    async def update_data(self, job_id: str, data: Any) -> None:
        """Give the job other data; `JobMissing` where it is gone."""
        found(await self._run("update_data", job_id, payload.encode(data, "data")), job_id)

    async def change_delay(self, job_id: str, delay: int) -> None:
        """Let a delayed job be due in `delay` ms from now; `WrongState` where it is not delayed."""
        _whole("delay", delay, LONGEST_DELAY_MS)
        code = found(await self._run("change_delay", job_id, self._binding.clock(), delay), job_id)
        if code == -3:
            raise WrongState(f"job {job_id!r} is not delayed; only a delayed job's delay can be changed")

    async def change_priority(self, job_id: str, priority: int = 0, lifo: bool = False) -> None:
        """Give the job another priority, and where it waits another place; `lifo`: before its equals."""
        _whole("priority", priority, HIGHEST_PRIORITY)
        found(await self._run("change_priority", job_id, priority, 1 if lifo else 0), job_id)

    # -- words without a claim ------------------------------------------------------------------------------

    async def update_progress(self, job_id: str, value: Any) -> None:
        """Write the progress of a job, whoever holds it."""
        await self._say("progress", job_id, payload.encode(value, "progress"))

    async def add_log(self, job_id: str, line: str, kept: int | None = None) -> int:
        """Append a line to the job's log, of which the last `kept` stay; how many lines it has now."""
        return await self._say("log", job_id, line, kept or "")

    async def _say(self, verb: str, job_id: str, *args: Any) -> int:
        # an empty receipt asks for no lock
        return found(await self._run(verb, job_id, "", *args), job_id)

    async def clear_log(self, job_id: str, kept: int = 0) -> None:
        """Delete the job's log, all but the last `kept` lines."""
        log = self._keys.logs(job_id)
        if kept:
            await self._store.call("LTRIM", log, -kept, -1)
        else:
            await self._store.call("DEL", log)

    # -- parents and children -------------------------------------------------------------------------------

    async def unbind(self, job_id: str, parent_key: str) -> bool:
        """Let the parent wait for this job no more; False where it did not.

        >>> await operator.unbind("7", "bull:mail:parent")  # doctest: +SKIP
        """
        code = found(await self._run("unbind", job_id, parent_key), job_id)
        if code < 0:
            raise refusal(code, job_id, parent_key)
        return bool(code == 0)

    async def remove_unprocessed_children(self, job_id: str) -> None:
        """Delete the job's children, and theirs, that nobody holds and that have not failed."""
        await self._run("remove_children", job_id)

    async def remove_job(self, job_id: str, children: bool = True) -> bool:
        """Delete one job, with its children; False where it, or one of them, is held.
        `JobBelongsToScheduler` where it is its scheduler's next. A missing job counts as deleted."""
        [code] = await self._run("remove", 1 if children else 0, job_id)
        if code < -1:
            raise refusal(code, job_id)
        return bool(code)


def _whole(name: str, value: Any, highest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        raise InvalidOptions(f"{name} is {short_repr(value)}; use a whole number from 0 to {highest}")
