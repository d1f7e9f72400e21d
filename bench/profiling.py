"""Where a Corral worker's CPU goes: `python -m bench.profiling [concurrency]`, the 25 dearest functions."""

import asyncio
import cProfile
import pstats
import sys
from time import thread_time
from typing import Any

from tests.support.servers import start_valkey

from bench.drivers import corral_driver
from corral import Corral
from corral.telemetry import logs

JOBS = 30_000
DEAREST = 25


async def main(url: str, concurrency: int) -> None:
    """Work off a queue twice: once for the rate, once under the profiler, which slows it."""
    async with Corral(url) as app:
        await corral_driver.work_off(app, "warm-up", corral_driver.WARM_UP_JOBS, concurrency)
        plain = await corral_driver.work_off(app, "plain", JOBS, concurrency)
        # CPU of this thread only: a busy machine and the waiting for the server do not count
        profile = cProfile.Profile(timer=thread_time)

        async def profiled(app: Corral, count: int, work: corral_driver.Work) -> dict[str, Any]:
            async def watched() -> None:
                profile.enable()
                try:
                    await work()
                finally:
                    profile.disable()

            return await corral_driver.timed(app, count, watched)

        await corral_driver.work_off(app, "profiled", JOBS, concurrency, profiled)
    print(
        f"{JOBS / plain['seconds']:,.0f} jobs/s, {plain['own_cpu_s'] * 1e6 / JOBS:.1f} µs/job here, "
        f"{plain['server_cpu_s'] * 1e6 / JOBS:.1f} µs/job in the server; below, with the profiler's own cost:"
    )
    pstats.Stats(profile).sort_stats("tottime").print_stats(DEAREST)


if __name__ == "__main__":
    logs.configure(level="error")
    server = start_valkey()
    try:
        asyncio.run(main(server.url, int(sys.argv[1]) if len(sys.argv) > 1 else 200))
    finally:
        server.stop()
