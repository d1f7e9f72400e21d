"""The BridgeMQ room's Keeper: lists looked through page by page, dead letters put back, schedules."""

from corral.core.job import JobState
from corral.core.keeper import Schedule, remove_listed
from corral.wire.bridgemq.inspector import BridgemqInspector
from corral.wire.bridgemq.operator import BridgemqOperator
from corral.wire.place import Place


class BridgemqKeeper:
    """Many jobs of one queue."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._inspector = BridgemqInspector(place)
        self._operator = BridgemqOperator(place)

    async def drain(self, delayed: bool = False) -> None:
        for state in (JobState.WAITING, JobState.DELAYED) if delayed else (JobState.WAITING,):
            await remove_listed(self._inspector, self._operator, state, lambda job: True, None)

    async def clean(self, state: JobState, older_ms: int, most: int) -> list[str]:
        moment = self._place.clock() - older_ms
        return await remove_listed(
            self._inspector, self._operator, state, lambda job: (job.finished_at or moment) <= moment, most
        )

    async def replay(self, most: int) -> list[str]:
        return await self._operator.replay(most=most)

    async def schedules(self) -> list[Schedule]:
        found = await self._inspector.schedules()
        return [Schedule(id=one.job.id, job=one.job, next_at=one.next_due) for one in found]
