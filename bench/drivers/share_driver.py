"""One worker process of several: `python -m bench.drivers.share_driver '{task}'`.

It says "ready", begins at a line on its standard input, and tells its memory at every so many jobs until it
has seen no job for a while.
"""

import asyncio
import json
import resource
import sys
from time import perf_counter
from typing import Any

from corral import Corral, JobContext
from corral.telemetry import logs

QUIET_S = 0.5


def memory_mb() -> float:
    """What this process holds now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1e6


async def main(task: dict[str, Any]) -> None:
    logs.configure(level="error")
    handled, last, memory = 0, 0.0, []

    async with Corral(task["url"]) as app:

        async def nothing(job: JobContext) -> None:
            nonlocal handled, last
            handled += 1
            last = perf_counter()
            if handled % task["every"] == 0:
                memory.append(memory_mb())

        app.job("work", queue=task["queue"])(nothing)
        [worker] = app.workers(queues=[task["queue"]], concurrency=task["concurrency"])
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        began = last = perf_counter()
        await worker.start()
        while perf_counter() - last < QUIET_S:  # noqa: ASYNC110 it is the quiet that is waited for
            await asyncio.sleep(0.05)
        await worker.stop()
    print(json.dumps({"handled": handled, "seconds": last - began, "memory_mb": memory}), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(json.loads(sys.argv[1])))
