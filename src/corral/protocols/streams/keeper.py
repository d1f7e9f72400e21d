"""The streams protocol's Keeper: drain and clean; what the contract has no word for is refused."""

from corral.core.job import JobState
from corral.core.keeper import Schedule, remove_listed
from corral.errors import Unsupported
from corral.protocols.binding import Binding
from corral.protocols.streams.broker import SCRIPTS, head
from corral.protocols.streams.codec import Settings
from corral.protocols.streams.inspector import StreamsInspector
from corral.protocols.streams.keys import Keys
from corral.protocols.streams.operator import StreamsOperator

DRAINED = 500
"""Entries deleted in one call."""


class StreamsKeeper:
    """Waiting jobs by the stream, ended ones as far back as `jobs:events` reaches."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    async def drain(self, delayed: bool = False) -> None:
        """Delete every job that was not delivered yet, and its queue entry; nothing is ever delayed here."""
        start = head(self._binding, self._keys, self._settings)
        names = [self._keys.stream, self._keys.events]
        while await self._binding.store.run(SCRIPTS["drain"], names, (*start, DRAINED)) == DRAINED:
            pass

    async def clean(self, state: JobState, older_ms: int, most: int) -> list[str]:
        moment = self._binding.clock() - older_ms
        return await remove_listed(
            StreamsInspector(self._binding),
            StreamsOperator(self._binding),
            state,
            lambda job: (job.finished_at or moment) <= moment,
            most,
        )

    async def replay(self, most: int) -> list[str]:
        raise Unsupported(
            "protocol 'streams' has no retry: an ended job stays ended; submit its payload anew"
        )

    async def schedules(self) -> list[Schedule]:
        raise Unsupported(
            "protocol 'streams' has no cron, so there are no schedules; use a protocol that has it"
        )
