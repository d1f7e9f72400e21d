"""The BullMQ protocol's Keeper: the contract's own drain and clean, dead jobs put back, its schedulers."""

from corral.core import payload
from corral.core.job import Job, JobState
from corral.core.keeper import Schedule
from corral.protocols.binding import Binding
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.operator import BullmqOperator
from corral.protocols.bullmq.options import decode_options
from corral.protocols.bullmq.schedulers import BullmqSchedulers, Scheduler

PAGE = 500
ENDED = {JobState.COMPLETED: "completed", JobState.DEAD: "failed"}


class BullmqKeeper:
    """Many jobs of one queue."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._inspector = BullmqInspector(binding)
        self._operator = BullmqOperator(binding)

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
        found = await BullmqSchedulers(self._binding).all(ascending=True)
        return [_schedule(one, self._binding.queue) for one in found]


def _schedule(scheduler: Scheduler, queue: str) -> Schedule:
    """A job scheduler: what its jobs are made of, and the rule they come by."""
    rule = {
        "pattern": scheduler.pattern,
        "tz": scheduler.zone,
        "every": scheduler.every,
        "limit": scheduler.limit,
        "count": scheduler.count,
    }
    template = Job(
        name=scheduler.name or scheduler.id,
        data={} if scheduler.data is None else scheduler.data,
        queue=queue,
        id=scheduler.id,
        options=decode_options(payload.encode(scheduler.options or {}, "options")),
        extra={word: value for word, value in rule.items() if value is not None},
    )
    return Schedule(id=scheduler.id, job=template, next_at=scheduler.next)
