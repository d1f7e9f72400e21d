"""What every driver of the field shares; it runs in the peers' environments, so it needs nothing else."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from time import perf_counter, process_time
from typing import Any

WARM_UP_JOBS = 1000
BATCH = 1000
UNDER_WAY = 50


def data(number: int) -> dict[str, Any]:
    """About 200 bytes of JSON, the same for everyone."""
    return {"number": number, "text": "x" * 170}


def batches(count: int) -> list[range]:
    """The numbers of the jobs in batches of 1,000."""
    return [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]


class Handled:
    """Counts the jobs that a worker has handled; `all_handled` is called at the last of them.

    The clock starts when a fifth of them is handled, so that starting up is on nobody's account; and it stops
    in the last handler, before that job's end is written. Both are in the peer's favour.
    """

    def __init__(self, count: int, all_handled: Callable[[], object]) -> None:
        self._warm_up = count // 5
        self._count = count
        self._handled = 0
        self._all_handled = all_handled
        self._began = self._ended = self._cpu = 0.0

    def one(self) -> None:
        """One more is handled."""
        self._handled += 1
        if self._handled == self._warm_up:
            self._cpu, self._began = process_time(), perf_counter()
        elif self._handled == self._count:
            self._ended = perf_counter()
            self._cpu = process_time() - self._cpu
            self._all_handled()

    def reading(self) -> dict[str, Any]:
        count = self._count - self._warm_up
        return {"count": count, "seconds": self._ended - self._began, "own_cpu_s": self._cpu}


def timed_fill(count: int, fill: Callable[[int], object]) -> dict[str, Any]:
    """A reading of how long adding takes."""
    fill(WARM_UP_JOBS)
    cpu, began = process_time(), perf_counter()
    fill(count)
    return {"count": count, "seconds": perf_counter() - began, "own_cpu_s": process_time() - cpu}


def read_task() -> dict[str, Any]:
    """Return the task: `measure`, `url`, `count`, and for processing `setting`."""
    task: dict[str, Any] = json.loads(sys.argv[-1])
    return task


def tell(reading: dict[str, Any]) -> None:
    """The answer, as the last line."""
    print(json.dumps(reading), flush=True)


def drive(
    fill: Callable[[str, int], Coroutine[Any, Any, None]],
    process: Callable[[str, int, int], Coroutine[Any, Any, Handled]],
) -> None:
    """Carry out the task with a peer of asyncio's."""
    task = read_task()
    url, count = task["url"], task["count"]
    if task["measure"] == "bulk_add":
        tell(timed_fill(count, lambda count: asyncio.run(fill(url, count))))
    else:
        tell(asyncio.run(process(url, count, task["setting"])).reading())


async def add_side_by_side(count: int, add: Callable[[int], Awaitable[object]]) -> None:
    """Many single adds under way at once, for peers that have no bulk add."""
    numbers = iter(range(count))

    async def one_after_the_other() -> None:
        for number in numbers:
            await add(number)

    await asyncio.gather(*(one_after_the_other() for _ in range(UNDER_WAY)))
