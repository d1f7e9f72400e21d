"""The ends of jobs that are hashes: read for many at once, without the data of those that go on."""

from collections.abc import Callable, Sequence
from typing import Any

from corral.core.ports import JobEnd, NotEnded
from corral.store.client import Store
from corral.store.streams import SCRIPTS

PAGE = 1000
_NOT_ENDED = {0: NotEnded.PENDING, -1: NotEnded.MISSING}


async def ended_hashes(
    store: Store,
    keys: Sequence[str],
    mark: tuple[str, str, str],
    fields: Sequence[str],
    decode: Callable[[Sequence[Any]], JobEnd],
) -> list[JobEnd | NotEnded]:
    """Return how the jobs with these keys ended.

    `mark`: a field of every job, the field that shows an end, and its values that do (see lua/ended.lua).
    `decode` makes an end of the values of `fields`.
    """
    ends: list[JobEnd | NotEnded] = []
    for start in range(0, len(keys), PAGE):
        rows = await store.run(SCRIPTS["ended"], keys[start : start + PAGE], (*mark, *fields))
        ends += [_NOT_ENDED[row] if isinstance(row, int) else decode(row) for row in rows]
    return ends
