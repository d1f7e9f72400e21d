"""Submitting jobs through a broker, where a test wants their ids."""

from collections.abc import Sequence

from corral.core.job import Job
from corral.core.ports import Added, Broker


async def submit(broker: Broker, jobs: Sequence[Job]) -> list[str]:
    """Return the ids of the submitted jobs."""
    return [added.id for added in await broker.submit(jobs) if isinstance(added, Added)]
