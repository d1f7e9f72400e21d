"""The streams protocol's Operator: writes on demand."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from corral.core.job import JobState
from corral.core.ports import Jobs, Limit
from corral.protocols.base import unsupported
from corral.protocols.batches import MOST_ROWS
from corral.protocols.operator import BaseOperator
from corral.protocols.streams.inspector import StreamsInspector
from corral.protocols.streams.keys import NAME
from corral.protocols.streams.scripts import SCRIPTS, StreamsPort

DRAINED = 500
"""Entries deleted in one call."""


class StreamsOperator(StreamsPort, BaseOperator):
    """Cancel, remove, drain and clean; ended jobs as far back as `jobs:events` reaches."""

    @property
    def _inspector(self) -> StreamsInspector:
        return StreamsInspector(self._binding)

    async def remove(self, jobs: Jobs) -> list[str]:
        """Delete jobs that are not running; the queue entry of a waiting one is skipped later."""
        return await self._for_jobs(jobs, JobState, lambda ids: self._run("remove", ids))

    async def cancel(self, jobs: Jobs) -> list[str]:
        """Cancel jobs that are not over; a running handler learns of it when its claim is next renewed."""
        states = (JobState.WAITING, JobState.ACTIVE)
        return await self._for_jobs(jobs, states, lambda ids: self._run("cancel", ids))

    async def _run(self, verb: str, ids: Sequence[str]) -> list[str]:
        done: list[str] = []
        keys = self._keys
        for start in range(0, len(ids), MOST_ROWS):
            chunk = ids[start : start + MOST_ROWS]
            names = [keys.stream, keys.events, *keys.of_jobs(chunk)]
            answer = await self._store.run(SCRIPTS[verb], names, (*self._head(), *chunk))
            done += [job_id.decode() for job_id in answer]
        return done

    async def drain(self, delayed: bool = False) -> None:
        """Delete every job that was not delivered yet, and its queue entry; nothing is ever delayed here."""
        names = [self._keys.stream, self._keys.events]
        while await self._store.run(SCRIPTS["drain"], names, (*self._head(), DRAINED)) == DRAINED:
            pass

    # -- what the contract has no word for --------------------------------------------------------------

    async def pause(self) -> None:
        raise unsupported(NAME, "pause", "stop its workers instead")

    async def resume(self) -> None:
        raise unsupported(NAME, "pause, so there is nothing to resume", "start workers instead")

    async def retry(self, jobs: Jobs) -> list[str]:
        raise unsupported(NAME, "retry: an ended job stays ended", "submit its payload as a new job")

    async def replay(self, jobs: Jobs) -> list[str]:
        return await self.retry(jobs)

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
