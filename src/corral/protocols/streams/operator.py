"""The streams protocol's Operator: writes on demand."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.ports import Jobs, Limit
from corral.protocols.base import Binding, for_jobs, unsupported
from corral.protocols.batches import MOST_ROWS
from corral.protocols.streams.broker import SCRIPTS, head
from corral.protocols.streams.codec import Settings
from corral.protocols.streams.inspector import StreamsInspector
from corral.protocols.streams.keys import NAME, Keys

DRAINED = 500
"""Entries deleted in one call."""


class StreamsOperator:
    """Cancel, remove, drain and clean; ended jobs as far back as `jobs:events` reaches."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    async def pause(self) -> None:
        raise unsupported(NAME, "pause", "stop its workers instead")

    async def resume(self) -> None:
        raise unsupported(NAME, "pause, so there is nothing to resume", "start workers instead")

    async def retry(self, jobs: Jobs) -> list[str]:
        raise unsupported(NAME, "retry: an ended job stays ended", "submit its payload as a new job")

    async def replay(self, jobs: Jobs) -> list[str]:
        raise unsupported(NAME, "retry: an ended job stays ended", "submit its payload as a new job")

    async def promote(self, jobs: Jobs) -> list[str]:
        way_out = "a queued job runs as soon as a worker is free"
        raise unsupported(NAME, "delay, so there is nothing to promote", way_out)

    async def update(
        self, job_id: str, *, data: Any = UNSET, delay: int | None = None, priority: int | None = None
    ) -> None:
        raise unsupported(NAME, "changes of a job", "cancel it, and submit another")

    async def set_limits(self, concurrency: int | None = None, rate: Limit | None = None) -> None:
        raise unsupported(NAME, "rate limits", "start fewer workers, or limit clients at the gateway")

    async def obliterate(self, force: bool = False) -> None:
        raise unsupported(NAME, "queue besides its one", "drain and clean it instead")

    async def remove(self, jobs: Jobs) -> list[str]:
        """Delete jobs that are not running; the queue entry of a waiting one is skipped later."""
        return await for_jobs(StreamsInspector(self._binding), jobs, JobState, self._remove)

    async def cancel(self, jobs: Jobs) -> list[str]:
        """Cancel jobs that are not over; a running handler hears of it when its claim is next renewed."""
        living = (JobState.WAITING, JobState.ACTIVE)
        return await for_jobs(
            StreamsInspector(self._binding), jobs, living, lambda ids: self._run("cancel", ids)
        )

    async def drain(self, delayed: bool = False) -> None:
        """Delete every job that was not delivered yet, and its queue entry; nothing is ever delayed here."""
        start = head(self._binding, self._keys, self._settings)
        names = [self._keys.stream, self._keys.events]
        while await self._binding.store.run(SCRIPTS["drain"], names, (*start, DRAINED)) == DRAINED:
            pass

    async def clean(self, jobs: JobFilter) -> list[str]:
        states = jobs.states or frozenset({JobState.COMPLETED})
        return await self.remove(replace(jobs, states=states))

    async def _remove(self, ids: Sequence[str]) -> list[str]:
        return await self._run("remove", ids)

    async def _run(self, verb: str, job_ids: Sequence[str]) -> list[str]:
        done: list[str] = []
        keys = self._keys
        for start in range(0, len(job_ids), MOST_ROWS):
            chunk = job_ids[start : start + MOST_ROWS]
            names = [keys.stream, keys.events, *keys.of_jobs(chunk)]
            answer = await self._binding.store.run(
                SCRIPTS[verb], names, (*head(self._binding, keys, self._settings), *chunk)
            )
            done += [job_id.decode() for job_id in answer]
        return done
