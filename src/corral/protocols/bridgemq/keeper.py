"""The BridgeMQ protocol's Keeper: lists looked through page by page, dead letters put back, schedules."""

from corral.core.job import JobState
from corral.core.keeper import Schedule, remove_listed
from corral.protocols.binding import Binding
from corral.protocols.bridgemq.inspector import BridgemqInspector
from corral.protocols.bridgemq.operator import BridgemqOperator


class BridgemqKeeper:
    """Many jobs of one queue."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._inspector = BridgemqInspector(binding)
        self._operator = BridgemqOperator(binding)

    async def drain(self, delayed: bool = False) -> None:
        for state in (JobState.WAITING, JobState.DELAYED) if delayed else (JobState.WAITING,):
            await remove_listed(self._inspector, self._operator, state, lambda job: True, None)

    async def clean(self, state: JobState, older_ms: int, most: int) -> list[str]:
        moment = self._binding.clock() - older_ms
        return await remove_listed(
            self._inspector, self._operator, state, lambda job: (job.finished_at or moment) <= moment, most
        )

    async def replay(self, most: int) -> list[str]:
        return await self._operator.replay(most=most)

    async def schedules(self) -> list[Schedule]:
        found = await self._inspector.schedules()
        return [Schedule(id=one.job.id, job=one.job, next_at=one.next_due) for one in found]
