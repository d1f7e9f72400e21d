"""The bridgemq protocol's Operator: writes on demand."""

from collections.abc import Iterable, Sequence
from typing import Any

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.ports import Jobs
from corral.errors import InvalidOptions
from corral.protocols.bridgemq.inspector import BridgemqInspector
from corral.protocols.bridgemq.keys import NAME
from corral.protocols.bridgemq.options import LACKS
from corral.protocols.bridgemq.scripts import BridgemqPort
from corral.protocols.operator import BaseOperator
from corral.protocols.wire import text
from corral.store.scanning import keys_with_prefix

MOST_IDS = 100
"""Ids in one call: removing one from a long list costs a walk along it."""


class BridgemqOperator(BridgemqPort, BaseOperator):
    """The verbs of every protocol, and below what this one alone has."""

    protocol, lacks = NAME, LACKS

    @property
    def _inspector(self) -> BridgemqInspector:
        return BridgemqInspector(self._binding)

    async def pause(self) -> None:
        await self._run("pause", self._binding.queue, "paused")

    async def resume(self) -> None:
        await self._run("pause", self._binding.queue, "resumed")

    async def retry(self, jobs: Jobs) -> list[str]:
        """Put dead jobs back, and completed ones whose data was kept, with the attempts they have made."""
        return await self._act("replay", jobs, (JobState.DEAD,), "")

    async def replay(self, jobs: Jobs) -> list[str]:
        """Put dead jobs back, and completed ones whose data was kept, with all attempts anew.

        Each batch is one step on the server: whenever this is interrupted, every job is either still a dead
        letter or waiting.
        """
        return await self._act("replay", jobs, (JobState.DEAD,), 1)

    async def promote(self, jobs: Jobs) -> list[str]:
        return await self._act("promote_jobs", jobs, (JobState.DELAYED,))

    async def remove(self, jobs: Jobs) -> list[str]:
        return await self._act("remove", jobs, JobState)

    async def cancel(self, jobs: Jobs) -> list[str]:
        return await self._act("cancel", jobs, JobState)

    async def _act(self, verb: str, jobs: Jobs, states: Iterable[JobState], *args: Any) -> list[str]:
        async def act(ids: Sequence[str]) -> list[str]:
            done: list[str] = []
            for start in range(0, len(ids), MOST_IDS):
                chunk = ids[start : start + MOST_IDS]
                done += map(text, await self._run(verb, self._binding.queue, *args, *chunk))
            return done

        return await self._for_jobs(jobs, states, act)

    async def drain(self, delayed: bool = False) -> None:
        states = {JobState.WAITING, JobState.DELAYED} if delayed else {JobState.WAITING}
        await self.remove(JobFilter(states=frozenset(states)))

    async def keep_events(self, count: int | None) -> None:
        """Keep about the last `count` events of this namespace; None: as each worker is set."""
        if count is None:
            await self._store.call("DEL", self._keys.kept_events)
            return
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidOptions(f"{count!r} events cannot be kept; use a whole number from 1, or None")
        await self._store.call("SET", self._keys.kept_events, count)

    async def audit(self) -> list[tuple[str, int, int]]:
        """Correct the concurrent counters; return (type, counted, really active) of those that were wrong."""
        prefix = self._keys.concurrent("")
        types = [name[len(prefix.encode()) :] for name in await keys_with_prefix(self._store, prefix)]
        flat = await self._run("audit", *types)
        rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return [(text(job_type), int(counted), int(active)) for job_type, counted, active in rows]
