"""The streams room's Keeper: drain and clean; what the contract has no word for is refused."""

from corral.core.job import JobState
from corral.core.keeper import Schedule, remove_listed
from corral.errors import Unsupported
from corral.wire.place import Place
from corral.wire.streams.broker import SCRIPTS, head
from corral.wire.streams.codec import Settings
from corral.wire.streams.inspector import StreamsInspector
from corral.wire.streams.keys import Keys
from corral.wire.streams.operator import StreamsOperator

DRAINED = 500
"""Entries deleted in one call."""


class StreamsKeeper:
    """Waiting jobs by the stream, ended ones as far back as `jobs:events` reaches."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._keys = Keys(place.namespace, place.queue)
        self._settings = Settings.of(place.profile)

    async def drain(self, delayed: bool = False) -> None:
        """Delete every job that was not delivered yet, and its queue entry; nothing is ever delayed here."""
        start = head(self._place, self._keys, self._settings)
        names = [self._keys.stream, self._keys.events]
        while await self._place.store.run(SCRIPTS["drain"], names, (*start, DRAINED)) == DRAINED:
            pass

    async def clean(self, state: JobState, older_ms: int, most: int) -> list[str]:
        moment = self._place.clock() - older_ms
        return await remove_listed(
            StreamsInspector(self._place),
            StreamsOperator(self._place),
            state,
            lambda job: (job.finished_at or moment) <= moment,
            most,
        )

    async def replay(self, most: int) -> list[str]:
        raise Unsupported("room 'streams' has no retry: an ended job stays ended; submit its payload anew")

    async def schedules(self) -> list[Schedule]:
        raise Unsupported("room 'streams' has no cron, so there are no schedules; use a room that has it")
