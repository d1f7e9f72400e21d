"""The BullMQ room's Keeper: the contract's own drain and clean, and dead jobs put back."""

from corral.core.job import JobState
from corral.core.keeper import Schedule
from corral.errors import Unsupported
from corral.wire.bullmq.inspector import BullmqInspector
from corral.wire.bullmq.operator import BullmqOperator
from corral.wire.place import Place

PAGE = 500
ENDED = {JobState.COMPLETED: "completed", JobState.DEAD: "failed"}


class BullmqKeeper:
    """Many jobs of one queue."""

    def __init__(self, place: Place) -> None:
        self._inspector = BullmqInspector(place)
        self._operator = BullmqOperator(place)

    async def drain(self, delayed: bool = False) -> None:
        await self._operator.drain(delayed)

    async def clean(self, state: JobState, older_ms: int, most: int) -> list[str]:
        return await self._operator.clean(older_ms, most, ENDED[state])

    async def replay(self, most: int) -> list[str]:
        replayed: list[str] = []
        while len(replayed) < most:
            # the last to die first: they stand at the beginning, and leave it when they are put back
            dead = await self._inspector.jobs(JobState.DEAD, 0, min(PAGE, most - len(replayed)))
            back = await self._operator.retry([job.id for job in dead])
            if not back:
                break
            replayed += back
        return replayed

    async def schedules(self) -> list[Schedule]:
        raise Unsupported("room 'bullmq' lists no schedules here; use the queue's own job schedulers")
