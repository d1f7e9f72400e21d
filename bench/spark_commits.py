"""Many small batches into bronze by the commit path of the lake: the last should cost what the first did."""

import statistics
import tempfile
import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from rich.console import Console

from corral.spark.lake.bronze import BronzeSink
from corral.spark.lake.delta import FileWriter
from corral.spark.lake.maintenance import COMPACT_AFTER, compact, vacuum
from corral.spark.lake.tables import BRONZE, BRONZE_SCHEMA, Lake
from corral.spark.offsets import Position
from corral.spark.schema import arrow_schema

WINDOW = 1000
MAINTAINED = 60
"""Commits between two compactions: those of ten minutes of a continuous run."""
VACUUMED = 360
"""Commits between two deletions of old versions: those of an hour."""


def run(commits: int, console: Console) -> None:
    """Commit and print the time of each thousand."""
    with tempfile.TemporaryDirectory() as folder:
        lake, schema = Lake(f"{folder}/lake"), arrow_schema(BRONZE_SCHEMA)
        location = lake.table(BRONZE)
        location.create(BRONZE_SCHEMA)
        sink, today = BronzeSink(lake, "bench-0", 0, "bench"), datetime.now(UTC)
        row: dict[str, Any] = {"queue": "mail", "event": "added", "ts": today, "date": today.date()}
        batch = pa.RecordBatch.from_pylist([row] * 10, schema)
        times, means = [], []
        for number in range(commits):
            files = FileWriter(location, f"bench-0-{number:08d}", schema).write(iter([batch]))
            started = time.process_time()
            sink.append(number, files, {"mail": Position(f"{number + 1}-0", number)})
            times.append(time.process_time() - started)
            if number % MAINTAINED == MAINTAINED - 1:
                table = location.open()
                assert table is not None
                compact(table, COMPACT_AFTER)
            if number % VACUUMED == VACUUMED - 1:
                vacuum(lake)
            if number % WINDOW == WINDOW - 1:
                means.append(statistics.mean(times) * 1000)
                console.print(f"{number + 1:,} commits: {means[-1]:.1f} ms of processor time each")
                times = []
        console.print(f"the last thousand takes {means[-1] / means[0]:.2f} of the first")
