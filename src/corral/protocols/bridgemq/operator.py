"""The bridgemq protocol's Operator: writes on demand."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.ports import Jobs, Limit
from corral.errors import InvalidOptions
from corral.protocols.base import Binding, for_jobs, unsupported
from corral.protocols.bridgemq.broker import SCRIPTS, head
from corral.protocols.bridgemq.inspector import BridgemqInspector
from corral.protocols.bridgemq.keys import NAME, Keys
from corral.protocols.bridgemq.options import Settings
from corral.protocols.bridgemq.scheduling import audit

MOST_IDS = 100
"""Ids in one call: taking one out of a long list costs a walk along it."""


class BridgemqOperator:
    """Pause, retry, replay, promote, remove, cancel, drain, clean; and the counters."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    def _head(self) -> tuple[Any, ...]:
        return head(self._binding, self._settings)

    async def pause(self) -> None:
        await self._set_pause("paused")

    async def resume(self) -> None:
        await self._set_pause("resumed")

    async def _set_pause(self, word: str) -> None:
        await self._store.run(SCRIPTS["pause"], self._keys.fixed, (*self._head(), self._binding.queue, word))

    async def retry(self, jobs: Jobs) -> list[str]:
        """Put dead jobs back, and completed ones whose data was kept, with the attempts they have made."""
        return await self._for_jobs("replay", jobs, (JobState.DEAD,), "")

    async def replay(self, jobs: Jobs) -> list[str]:
        """Put dead jobs back, and completed ones whose data was kept, with all attempts anew.

        Each batch is one step on the server: whenever this is interrupted, every job is either still a dead
        letter or waiting.
        """
        return await self._for_jobs("replay", jobs, (JobState.DEAD,), 1)

    async def promote(self, jobs: Jobs) -> list[str]:
        return await self._for_jobs("promote_jobs", jobs, (JobState.DELAYED,))

    async def remove(self, jobs: Jobs) -> list[str]:
        return await self._for_jobs("remove", jobs, JobState)

    async def cancel(self, jobs: Jobs) -> list[str]:
        return await self._for_jobs("cancel", jobs, JobState)

    async def _for_jobs(self, verb: str, jobs: Jobs, states: Iterable[JobState], *args: Any) -> list[str]:
        async def act(ids: Sequence[str]) -> list[str]:
            done: list[str] = []
            for start in range(0, len(ids), MOST_IDS):
                chunk = ids[start : start + MOST_IDS]
                answer = await self._store.run(
                    SCRIPTS[verb], self._keys.fixed, (*self._head(), self._binding.queue, *args, *chunk)
                )
                done += [job_id.decode("utf-8", "replace") for job_id in answer]
            return done

        return await for_jobs(BridgemqInspector(self._binding), jobs, states, act)

    async def update(
        self, job_id: str, *, data: Any = UNSET, delay: int | None = None, priority: int | None = None
    ) -> None:
        raise unsupported(NAME, "changes of a job", "remove it, and add another")

    async def drain(self, delayed: bool = False) -> None:
        states = {JobState.WAITING, JobState.DELAYED} if delayed else {JobState.WAITING}
        await self.remove(JobFilter(states=frozenset(states)))

    async def clean(self, jobs: JobFilter) -> list[str]:
        states = jobs.states or frozenset({JobState.COMPLETED})
        return await self.remove(replace(jobs, states=states))

    async def set_limits(self, concurrency: int | None = None, rate: Limit | None = None) -> None:
        raise unsupported(NAME, "limits of a queue", "limit a job type by the option rate={'concurrent': …}")

    async def obliterate(self, force: bool = False) -> None:
        raise unsupported(NAME, "key of a single queue", "drain and clean it, and remove its schedules")

    async def keep_events(self, count: int | None) -> None:
        """Keep about the last `count` events of this namespace, whoever writes them; None: as each says."""
        if count is None:
            await self._store.call("DEL", self._keys.part("events:kept"))
            return
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidOptions(f"{count!r} events cannot be kept; use a whole number from 1, or None")
        await self._store.call("SET", self._keys.part("events:kept"), count)

    async def audit(self) -> list[tuple[str, int, int]]:
        """Correct the concurrent counters; return (type, counted, really active) of those that were wrong."""
        return await audit(self._binding, self._keys, self._settings)
