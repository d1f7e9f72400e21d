"""One protocol of Corral under measurement: `python -m bench.drivers.protocols_driver PROTOCOL '{task}'`."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from bench.drivers.corral_driver import JOB, QUEUE, WARM_UP, WARM_UP_JOBS, fill, server_cpu_s, timed
from corral import Corral, JobContext, JobState
from corral.core.ports import Profile
from corral.protocols.base import Binding
from corral.protocols.bridgemq.broker import BridgemqBroker
from corral.telemetry import logs

TOGETHER = 10
"""Jobs at a time in each worker."""
EVERY = 10_000
"""One job of so many fits the worker that looks for it."""
PADDING = 900
"""With it a job's JSON is about 1 KB long."""
PIPED = 5000


# -- claims by many workers ---------------------------------------------------------------------------------


async def claims(app: Corral, task: dict[str, Any]) -> dict[str, Any]:
    """Fill a queue, then time so many workers until the server holds every job as completed."""
    await _work_off(app, WARM_UP, WARM_UP_JOBS, task["setting"])
    return await _work_off(app, QUEUE, task["count"], task["setting"])


async def _work_off(app: Corral, queue: str, count: int, workers: int) -> dict[str, Any]:
    await fill(app, queue, count)
    handled, all_handled = 0, asyncio.Event()

    async def nothing(job: JobContext) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            all_handled.set()

    app.job(JOB, queue=queue)(nothing)
    inspector = app.queue(queue)
    staff = [worker for _ in range(workers) for worker in app.workers(queues=[queue], concurrency=TOGETHER)]
    async with AsyncExitStack() as stack:
        for worker in staff:
            stack.push_async_callback(worker.stop)

        async def work() -> None:
            for worker in staff:
                await worker.start()
            await all_handled.wait()
            while (await inspector.counts())[JobState.COMPLETED] < count:  # noqa: ASYNC110 the server knows
                await asyncio.sleep(0.001)

        return await timed(app, count, work)


# -- a long list of jobs for others -------------------------------------------------------------------------


async def long_list(app: Corral, task: dict[str, Any]) -> dict[str, Any]:
    """Claim each match among many jobs of others; the calls it took, and the server's time for them."""
    store, count = app.store(), task["count"]
    await _fill_for_others(app, count)
    broker = BridgemqBroker(Binding(store, "default", "bridge", app.clock, Profile(name="w1")))
    await broker.turn([], 0)
    await store.call("CONFIG", "RESETSTAT")
    await store.call("CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "100000")
    needed, cpu = [], await server_cpu_s(app)
    for _ in range(count // EVERY):
        calls = 0
        while True:
            calls += 1
            if (await broker.turn([], 1)).claims:
                break
        needed.append(calls)
    cpu = await server_cpu_s(app) - cpu
    slowest = max(entry[2] for entry in await store.call("SLOWLOG", "GET", "-1") if entry[3][0] == b"EVALSHA")
    stats = (await store.call("INFO", "commandstats")).decode()
    line = next(line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:"))
    stats = dict(part.split("=") for part in line.partition(":")[2].split(","))
    await broker.close()
    return {
        "count": count,
        "needed": needed,
        "calls": int(stats["calls"]),
        "server_us": int(stats["usec"]),
        "server_cpu_s": cpu,
        "slowest_us": int(slowest),
    }


async def _fill_for_others(app: Corral, count: int) -> None:
    commands: list[tuple[str, ...]] = []
    for number in range(count):
        is_match = number % EVERY == EVERY - 1
        target = {} if is_match else {"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"}
        job = {"id": f"j-{number}", "type": JOB, "queue": "default", "target": target, "data": "x" * PADDING}
        commands.append(("SET", f"bridge:jobs:data:j-{number}", json.dumps(job)))
        commands.append(("RPUSH", "bridge:jobs:waiting", f"j-{number}"))
        if len(commands) >= PIPED or number == count - 1:
            await app.store().pipe(commands)
            commands = []


MEASURES = {"claims": claims, "long_list": long_list}


async def main(protocol: str, task: dict[str, Any]) -> None:
    logs.configure(level="error")
    async with Corral(task["url"], protocol=protocol) as app:
        print(json.dumps(await MEASURES[task["measure"]](app, task)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
