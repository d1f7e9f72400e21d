"""A lake with a history that was made up: its tables are written by deltalake, without Spark."""

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from corral.spark.lake.tables import ATTEMPTS, BRONZE, Lake

MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
_MOMENT = pa.timestamp("us", "UTC")
_ATTEMPTS = pa.schema(
    {
        "protocol": pa.string(), "queue": pa.string(), "job_id": pa.string(), "generation": pa.int32(),
        "name": pa.string(), "attempt": pa.int32(), "queued_at": _MOMENT, "started_at": _MOMENT,
        "ended_at": _MOMENT, "waited_ms": pa.int64(), "ran_ms": pa.int64(), "outcome": pa.string(),
        "backfilled": pa.bool_(), "date": pa.date32(),
    }
)  # fmt: skip


def attempt(number: int, at: datetime, ran_ms: int, **columns: Any) -> dict[str, Any]:
    """One attempt of a job that was claimed at once."""
    ended = at + timedelta(milliseconds=ran_ms)
    row = {
        "protocol": "bullmq", "queue": "mail", "job_id": str(number), "generation": 1, "name": "send",
        "attempt": 1, "queued_at": at, "started_at": at, "ended_at": ended, "waited_ms": 0,
        "ran_ms": ran_ms, "outcome": "completed", "backfilled": False, "date": at.date(),
    }  # fmt: skip
    return row | columns


def poisson(
    count: int, per_second: float, mean_ms: float, begin: datetime = MONDAY, seed: int = 1, **columns: Any
) -> Iterator[dict[str, Any]]:
    """Attempts that arrive at random, and run for times that are exponentially distributed."""
    draw, at = random.Random(seed), begin
    for number in range(count):
        at += timedelta(seconds=draw.expovariate(per_second))
        yield attempt(number, at, round(draw.expovariate(1 / mean_ms)), **columns)


def history_lake(folder: Path, attempts: Iterable[dict[str, Any]]) -> Lake:
    """Write a lake with these attempts, and four events for each."""
    lake, rows = Lake(str(folder)), list(attempts)
    write_deltalake(lake.table(ATTEMPTS).uri, pa.Table.from_pylist(rows, _ATTEMPTS), partition_by=["date"])
    events = pa.Table.from_pylist(
        [{name: row[name] for name in ("protocol", "queue", "date")} for row in rows for _ in range(4)],
        pa.schema({"protocol": pa.string(), "queue": pa.string(), "date": pa.date32()}),
    )
    write_deltalake(lake.table(BRONZE).uri, events, partition_by=["date"])
    return lake
