"""The streams protocol's Operator: writes on demand."""

from collections.abc import Sequence

from corral.core.job import JobState
from corral.core.ports import Jobs
from corral.protocols.batches import MOST_ROWS
from corral.protocols.operator import BaseOperator
from corral.protocols.streams.inspector import StreamsInspector
from corral.protocols.streams.keys import NAME
from corral.protocols.streams.options import LACKS
from corral.protocols.streams.scripts import SCRIPTS, StreamsPort

DRAINED = 500
"""Entries deleted in one call."""


class StreamsOperator(StreamsPort, BaseOperator):
    """Cancel, remove, drain and clean; ended jobs as far back as `jobs:events` reaches."""

    protocol, lacks = NAME, LACKS

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
        raise LACKS["pause"].error(NAME)

    async def resume(self) -> None:
        raise LACKS["resume"].error(NAME)

    async def retry(self, jobs: Jobs) -> list[str]:
        raise LACKS["retry"].error(NAME)

    async def replay(self, jobs: Jobs) -> list[str]:
        raise LACKS["replay"].error(NAME)

    async def promote(self, jobs: Jobs) -> list[str]:
        raise LACKS["promote"].error(NAME)
