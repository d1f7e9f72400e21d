"""Workers in tasks of Spark beside as many plain worker processes, on the same server, in one run.

`python -m bench.spark_work [--tasks 8] [--jobs 100000] [--rounds 3] [--master local[8]]` measures both in
turns: the queue is paused while it is filled and while all workers start, so what is measured is work alone.
Without a master, a standalone cluster of two workers is started.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from tests.spark.clusters import environment, standalone
from tests.support.polling import eventually
from tests.support.servers import Server, start_valkey

from corral import Corral
from corral.core.job import JobState

AIM = 0.85
QUEUE = "bench"
STARTS_S = 300
MEMORY = ("--conf", "spark.executor.memory=1g", "--conf", "spark.ui.enabled=false")

app = Corral()


@app.job(queue=QUEUE)
async def echo(n: int) -> int:
    """Do nothing: what is left is what a worker itself takes."""
    return n


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_work", description=__doc__)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master")
    arguments = parser.parse_args()
    server = start_valkey()
    try:
        with ExitStack() as stack, app.replaced(url=server.url):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            cluster = arguments.master or stack.enter_context(
                standalone(folder, workers=2, cores=-(-arguments.tasks // 2))
            )
            kinds = {"worker processes": (), "tasks of Spark": ("--on", cluster, *MEMORY)}
            rates: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(arguments.rounds):
                for kind, words in kinds.items():
                    rates[kind].append(_measure(server, arguments.tasks, arguments.jobs, words))
        Console().print(_table(arguments.tasks, arguments.jobs, rates))
    finally:
        server.stop()


def _measure(server: Server, tasks: int, jobs: int, words: tuple[str, ...]) -> float:
    """Jobs a second, from the moment the queue is resumed."""
    server.flush()
    queue = app.queue(QUEUE)
    app.sync(queue.pause())
    app.sync(echo.add_many(range(jobs)))
    with _workers(server, tasks, words):
        if not eventually(lambda: len(app.sync(queue.workers())) >= tasks, STARTS_S, pause=0.2):
            raise RuntimeError(f"{tasks} workers did not start")
        start = time.perf_counter()
        app.sync(queue.resume())
        while app.sync(queue.counts()).get(JobState.COMPLETED, 0) < jobs:
            time.sleep(0.02)
        return jobs / (time.perf_counter() - start)


@contextmanager
def _workers(server: Server, tasks: int, words: tuple[str, ...]) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "corral.cli",
        "worker",
        f"{__spec__.name}:app",
        "-p",
        str(tasks),
        "-c",
        "50",
    ]
    started = subprocess.Popen(
        [*command, "--log-level", "error", *words],
        env={**environment(), "REDIS_URL": server.url},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)


def _table(tasks: int, jobs: int, rates: dict[str, list[float]]) -> Table:
    table = Table(
        title=f"{jobs:,} jobs, {tasks} workers, {len(next(iter(rates.values())))} turns each", box=None
    )
    for title in ("", "jobs/s", "share", "aim"):
        table.add_column(title, justify="left" if not title else "right")
    plain, on_spark = (median(rounds) for rounds in rates.values())
    for kind, rounds in rates.items():
        share = "" if kind == "worker processes" else f"{on_spark / plain:.0%}"
        table.add_row(kind, f"{median(rounds):,.0f}", share, f"{AIM:.0%}" if share else "")
    return table


if __name__ == "__main__":
    main()
