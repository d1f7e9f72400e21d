"""More and more events into Parquet, once each: time should grow in step with them, memory should not."""

import asyncio
import os
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from tests.support.servers import Server

from bench.peer import ROOT
from bench.publish import put_between
from bench.spark_ground import QUEUE, fill_events

BEGIN, END = "<!-- spark: begin -->", "<!-- spark: end -->"
BATCH_EVENTS = 500_000
LOOK_S = 0.2

Row = tuple[int, float, float, float, float]
"""events, seconds, events/s, MB at the peak, of these MB of Python"""


class Memory:
    """The peak of what this process and its children hold, without the server, sampled."""

    def __init__(self) -> None:
        self.peak_mb = self.python_mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            sizes = _resident(os.getpid())
            java, python = (
                sum(mb for name, mb in sizes.items() if word in name) for word in ("java", "python")
            )
            self.peak_mb = max(self.peak_mb, java + python)
            self.python_mb = max(self.python_mb, python)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()


def run(spark: Any, server: Server, sizes: list[int], console: Console, is_published: bool) -> None:
    """Read each size once and print."""
    rows: list[Row] = []
    _read(spark, server.url, asyncio.run(fill_events(server.url, 50_000)))
    for size in sizes:
        with console.status(f"making {size:,} events"):
            total = asyncio.run(fill_events(server.url, size))
        with console.status(f"reading {total:,} events"):
            rows.append(_read(spark, server.url, total))
        console.print(_table(rows[-1:]))
    table = _table(rows)
    console.print(table)
    if is_published:
        _draw(ROOT / "docs" / "images" / "spark.png", rows)
        text = f"{table}\n\n![Time and memory by the number of events](../images/spark.png)"
        put_between(ROOT / "docs" / "explanation" / "lake.md", BEGIN, END, text)


def _read(spark: Any, url: str, count: int) -> Row:
    with tempfile.TemporaryDirectory() as folder, Memory() as memory:
        start = time.perf_counter()
        options = {
            "url": url,
            "queue": QUEUE,
            "minPartitions": "2",
            "maxOffsetsPerTrigger": str(BATCH_EVENTS),
        }
        stream = spark.readStream.format("corral").options(**options).load()
        writer = stream.writeStream.trigger(availableNow=True).format("parquet")
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint").option(
            "path", f"{folder}/events"
        )
        query = writer.start()
        query.awaitTermination()
        took = time.perf_counter() - start
        there = spark.read.parquet(f"{folder}/events").count()
    if there != count:
        raise RuntimeError(f"{there} of {count} events are there")
    return count, took, count / took, memory.peak_mb, memory.python_mb


def _table(rows: list[Row]) -> str:
    lines = ["| events | seconds | events/s | memory, MB | of it Python, MB |", "|---:|---:|---:|---:|---:|"]
    lines += [
        f"| {count:,} | {took:,.1f} | {rate:,.0f} | {peak:,.0f} | {python:,.0f} |"
        for count, took, rate, peak, python in rows
    ]
    return "\n".join(lines)


def _draw(path: Path, rows: list[Row]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    picture, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4))
    events = [row[0] / 1e6 for row in rows]
    left.plot(events, [row[1] for row in rows], "o-", color="#2f6f9f")
    left.set(xlabel="million events", ylabel="seconds", title="Events into Parquet, local[2]")
    right.plot(events, [row[3] for row in rows], "o-", color="#b5762f", label="all")
    right.plot(events, [row[4] for row in rows], "o-", color="#3f9f6f", label="Python")
    right.set(xlabel="million events", ylabel="MB", title="Memory at the peak")
    right.legend()
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    picture.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)
    plt.close(picture)


def _resident(root: int) -> dict[str, float]:
    """ "pid name" -> MB, of a process and all that descend from it."""
    parents: dict[int, int] = {}
    sizes: dict[int, tuple[str, float]] = {}
    page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue  # it has just ended
        name, fields = stat.partition("(")[2].rpartition(")")[0], stat.rpartition(")")[2].split()
        parents[int(entry)] = int(fields[1])
        sizes[int(entry)] = (f"{entry} {name}", int(fields[21]) * page_mb)
    family = {root}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family |= more
        grown = bool(more)
    return {sizes[pid][0]: sizes[pid][1] for pid in family if pid in sizes}
