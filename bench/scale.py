"""`python -m bench.scale [--publish]`: is it as fast when queues are long, runs are long, workers many?"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

from rich.console import Console
from tests.support.servers import start_valkey

from bench.drivers import corral_driver
from bench.peer import ROOT
from bench.publish import put_between
from corral import Corral
from corral.telemetry import logs

BEGIN, END = "<!-- scale: begin -->", "<!-- scale: end -->"
DEPTHS = (10_000, 100_000, 1_000_000)
SAMPLE = 20_000
ROUNDS = 5
"""Medians are taken of so many."""
PROCESSES = (1, 2, 4)
SHARED_JOBS = 80_000
LONG_RUN = 1_000_000
CONCURRENCY = 200
QUEUE = "bench"

Rows = list[list[str]]


def main() -> None:
    """Measure, and show it."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--publish", action="store_true", help="put the tables into docs/performance.md")
    arguments = parser.parse_args()
    logs.configure(level="error")
    console = Console()
    server = start_valkey()
    try:
        text = asyncio.run(_measured(server.url, console))
    finally:
        server.stop()
    if arguments.publish:
        page = put_between(ROOT / "docs" / "performance.md", BEGIN, END, text)
        console.print(f"published in {page.relative_to(ROOT)}")


async def _measured(url: str, console: Console) -> str:
    parts = []
    async with Corral(url) as app:
        await corral_driver.fill(app, "warm-up", corral_driver.WARM_UP_JOBS)
        for title, head, measure in (
            ("Long queues", ["jobs waiting", "server µs/add", "server µs/job processed"], _depths),
            ("Several worker processes", ["processes", "jobs/s together", "server's CPU in use"], _shares),
            ("A long run", ["jobs handled", "worker's memory, MB"], _long_run),
        ):
            with console.status(title):
                rows = await measure(app)
            table = _table(head, rows)
            console.print(f"{title}\n{table}\n", markup=False)
            parts.append(f"**{title}**\n\n{table}")
    return "\n\n".join(parts)


def _table(head: Iterable[str], rows: Rows) -> str:
    lines = [list(head), ["---:" for _ in head], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


async def _depths(_: Corral) -> Rows:
    """What one job costs the server while so many others wait.

    Each depth has a server of its own and they take turns: a mood of the machine meets all of them.
    """
    async with AsyncExitStack() as stack:
        apps = []
        for depth in DEPTHS:
            server = start_valkey()
            stack.callback(server.stop)
            apps.append(await stack.enter_async_context(Corral(server.url)))
            await corral_driver.fill(apps[-1], QUEUE, depth)
        costs: list[tuple[list[float], list[float]]] = [([], []) for _ in DEPTHS]
        for _ in range(ROUNDS):
            for app, (adding, working) in zip(apps, costs, strict=True):
                before = await corral_driver.server_cpu_s(app)
                await corral_driver.fill(app, QUEUE, SAMPLE)
                adding.append((await corral_driver.server_cpu_s(app) - before) * 1e6 / SAMPLE)
                working.append(await _work_some(app, SAMPLE))
    return [
        [f"{depth:,}", f"{median(adding):.1f}", f"{median(working):.1f}"]
        for depth, (adding, working) in zip(DEPTHS, costs, strict=True)
    ]


async def _work_some(app: Corral, count: int) -> float:
    """The server's µs for each of `count` jobs or a few more."""
    handled, enough = 0, asyncio.Event()

    async def nothing(job: Any) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            enough.set()

    before = await corral_driver.server_cpu_s(app)
    async with Corral(app.url) as other, corral_driver.worker(other, QUEUE, nothing, CONCURRENCY) as serving:
        await serving.start()
        await enough.wait()
    return (await corral_driver.server_cpu_s(app) - before) * 1e6 / handled


async def _shares(app: Corral) -> Rows:
    """How far more processes help: until the server, or the machine, is full."""
    rates: dict[int, list[float]] = {processes: [] for processes in PROCESSES}
    in_use: dict[int, list[float]] = {processes: [] for processes in PROCESSES}
    for processes in [*PROCESSES] * ROUNDS:
        await app.store().call("FLUSHALL", "SYNC")
        await corral_driver.fill(app, QUEUE, SHARED_JOBS)
        before = await corral_driver.server_cpu_s(app)
        readings = await asyncio.to_thread(_work_together, app.url, processes, SHARED_JOBS)
        used = await corral_driver.server_cpu_s(app) - before
        seconds = max(one["seconds"] for one in readings)
        rates[processes].append(SHARED_JOBS / seconds)
        in_use[processes].append(used / seconds)
    return [
        [str(processes), f"{median(rates[processes]):,.0f}", f"{median(in_use[processes]):.0%}"]
        for processes in PROCESSES
    ]


async def _long_run(app: Corral) -> Rows:
    """One worker process over a million jobs, finished ones removed."""
    await app.store().call("FLUSHALL", "SYNC")
    target = app.queue(QUEUE)
    for start in range(0, LONG_RUN, 10_000):
        jobs = [(corral_driver.JOB, corral_driver.data(number)) for number in range(start, start + 10_000)]
        await target.add_many(jobs, remove_on_complete=True)
    [reading] = await asyncio.to_thread(_work_together, app.url, 1, LONG_RUN // 10)
    tenth = LONG_RUN // 10
    return [[f"{place * tenth:,}", f"{mb:.1f}"] for place, mb in enumerate(reading["memory_mb"], start=1)]


def _work_together(url: str, processes: int, every: int) -> list[dict[str, Any]]:
    task = json.dumps({"url": url, "queue": QUEUE, "concurrency": CONCURRENCY, "every": every})
    command = [sys.executable, "-m", "bench.drivers.share_driver", task]
    running = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    return [json.loads(one.communicate()[0].splitlines()[-1]) for one in running]


if __name__ == "__main__":
    main()
