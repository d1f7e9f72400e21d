"""Many jobs at once: one that is refused is named by its place among them."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from corral.core.job import Job
from corral.errors import Refused

Row = TypeVar("Row")


def encode_all(jobs: Sequence[Job], encode: Callable[[Job], Row]) -> list[Row]:
    """What `encode` makes of each job; where it refuses one, the error tells its `position`."""
    try:
        return [encode(job) for job in jobs]
    except Refused:
        # which one it was is looked for only now: the usual batch should not pay for counting
        for position, job in enumerate(jobs):
            try:
                encode(job)
            except Refused as error:
                error.position = position
                raise error from None
        raise


def refused_at(position: int, error: Refused) -> Refused:
    """The same refusal, for whoever gave many jobs and must know which one is meant."""
    told = type(error)(f"job {position} of this call: {error}")
    told.position = position
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    return told
