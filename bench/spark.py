"""Spark beside one redis-py client on the same server, in one run.

`python -m bench.spark [--events N] [--jobs N] [--rounds N]` measures both in turns: events into Parquet
against a client that pages `xrange()`, and a DataFrame written as jobs against Corral's own bulk add.
`python -m bench.spark --sizes 1000000,3000000,10000000 [--publish]` reads more and more events once: time
should grow in step with them, and memory should not. `--commits 20000` commits that many small batches.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.support.servers import Server, start_valkey

from bench import spark_commits, spark_scale
from bench.spark_ground import QUEUE, add_jobs, fill_events, rows_of
from corral.spark import session
from corral.spark.lake import ingest
from corral.spark.lake.tables import Lake
from corral.spark.options import QueueAddress
from corral.telemetry import logs

PAGES = (1_000, 10_000)
"""Entries per page of the baseline; the faster one counts."""
EVENTS_AIM, SUBMIT_AIM = 0.5, 0.5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--events", type=int, default=1_200_000)
    parser.add_argument("--batch", type=int, default=400_000, help="events a micro-batch")
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", help="events to read once, such as 1000000,3000000,10000000")
    parser.add_argument("--publish", action="store_true", help="with --sizes: figures and chart into docs/")
    parser.add_argument("--commits", type=int, help="commits to a lake's bronze, without Spark")
    arguments = parser.parse_args()
    logs.configure(level="error")
    console = Console()
    if arguments.commits:
        spark_commits.run(arguments.commits, console)
        return
    server = start_valkey()
    spark = session("local[2]", name="bench", conf={"spark.driver.memory": "2g", "spark.log.level": "OFF"})
    try:
        if arguments.sizes:
            sizes = [int(size) for size in arguments.sizes.split(",")]
            spark_scale.run(spark, server, sizes, console, arguments.publish)
        else:
            console.print(
                _events(spark, server, arguments.events, arguments.batch, arguments.rounds, console)
            )
            console.print(_jobs(spark, server, arguments.jobs, arguments.rounds, console))
    finally:
        spark.stop()
        server.stop()


# -- events -------------------------------------------------------------------------------------------------


def _events(spark: Any, server: Server, count: int, batch: int, rounds: int, console: Console) -> Table:
    with console.status(f"making {count:,} events"):
        total = asyncio.run(fill_events(server.url, count))
    client, parquet, lake = [], [], []
    with console.status("reading them"):
        events_into_parquet(spark, server.url, total, batch)
        for _ in range(rounds):
            client.append(max(paged(server, page) for page in PAGES))
            parquet.append(events_into_parquet(spark, server.url, total, batch))
            lake.append(events_into_lake(spark, server.url, total, batch))
    title = f"{total:,} events, {batch:,} per batch, {rounds} turns each"
    rates = {"redis-py, xrange()": client, "Spark into Parquet": parquet, "into a lake's bronze": lake}
    return _table(title, "events/s", rates, EVENTS_AIM)


def paged(server: Server, page: int) -> float:
    """Events a second that one client reads."""
    with server.connect() as client:
        start, seen, last = time.perf_counter(), 0, "-"
        while entries := client.xrange(f"bull:{QUEUE}:events", min=last, count=page):
            seen += len(entries)
            last = f"({entries[-1][0].decode()}"
        return seen / (time.perf_counter() - start)


def events_into_parquet(spark: Any, url: str, count: int, batch: int) -> float:
    """Events a second in a steady state: in the full batches after the first."""
    with tempfile.TemporaryDirectory() as folder:
        stream = (
            spark.readStream.format("corral")
            .options(url=url, queue=QUEUE, minPartitions="2", maxOffsetsPerTrigger=str(batch))
            .load()
        )
        query = (
            stream.writeStream.trigger(availableNow=True)
            .format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .option("path", f"{folder}/events")
            .start()
        )
        query.awaitTermination()
        return _steady(query.recentProgress, count, batch)


def events_into_lake(spark: Any, url: str, count: int, batch: int) -> float:
    """Events a second in a steady state, as `corral lake run` reads them."""
    with tempfile.TemporaryDirectory() as folder:
        lake, address = Lake(f"{folder}/lake"), QueueAddress(url, "bullmq", "bull", QUEUE)
        with lake.exclusive(), ingest.in_utc(spark):
            ingest.prepare(lake)
            with ingest.started_queries(spark, lake, [address], batch) as queries:
                queries[0].awaitTermination()
                # a position for each task beside the events
                return _steady(queries[0].recentProgress, count, batch)


def _steady(progress: list[Any], count: int, batch: int) -> float:
    batches = [progress for progress in progress if progress["numInputRows"]]
    read = sum(progress["numInputRows"] for progress in batches)
    if not count <= read <= count + count // 1000:
        raise RuntimeError(f"{read} of {count} events were read")
    # the first batch includes the warm-up, and the last may be small
    steady = [progress for progress in batches[1:] if progress["numInputRows"] >= batch // 2] or batches
    took_ms = sum(progress["durationMs"]["triggerExecution"] for progress in steady)
    return float(sum(progress["numInputRows"] for progress in steady) / took_ms * 1000)


# -- jobs ---------------------------------------------------------------------------------------------------


def _jobs(spark: Any, server: Server, count: int, rounds: int, console: Console) -> Table:
    native, spark_rates = [], []
    with console.status("adding jobs"):
        submitted(spark, server, count)
        for _ in range(rounds):
            native.append(_emptied(server, lambda: asyncio.run(add_jobs(server.url, count))))
            spark_rates.append(_emptied(server, lambda: submitted(spark, server, count)))
    title = f"{count:,} jobs of {len(rows_of(1)[0][1])} characters, {rounds} turns each"
    return _table(title, "jobs/s", {"Corral's bulk add": native, "Spark's write": spark_rates}, SUBMIT_AIM)


def submitted(spark: Any, server: Server, count: int) -> float:
    """Jobs a second that a DataFrame becomes."""
    frame = spark.range(0, count, 1, 2).selectExpr("cast(id as string) AS n", f"'{rows_of(1)[0][1]}' AS text")
    frame = frame.selectExpr("concat('job-', n) AS id", "n", "text")
    start = time.perf_counter()
    options = {"url": server.url, "queue": QUEUE, "name": "send", "idColumn": "id"}
    frame.write.format("corral").options(**options).mode("append").save()
    took = time.perf_counter() - start
    with server.connect() as client:
        there = client.llen(f"bull:{QUEUE}:wait")
    if there != count:
        raise RuntimeError(f"{there} of {count} jobs are there")
    return count / took


def _emptied(server: Server, measure: Callable[[], float]) -> float:
    server.flush()
    return measure()


def _table(title: str, unit: str, rates: dict[str, list[float]], aim: float) -> Table:
    """The first is what the others are compared with."""
    table, (first, *_) = Table("", unit, "from", "to", "ratio", title=title), rates.values()
    for name, each in rates.items():
        ratio = statistics.median(b / a for a, b in zip(first, each, strict=True))
        met = "" if each is first else f"{ratio:.2f}, aim {aim:.2f}, {'met' if ratio >= aim else 'not met'}"
        table.add_row(name, f"{statistics.median(each):,.0f}", f"{min(each):,.0f}", f"{max(each):,.0f}", met)
    return table


if __name__ == "__main__":
    main()
