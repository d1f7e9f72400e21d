"""A lake over a harness, as the tests of the lake use it."""

from pathlib import Path
from typing import Any

from corral.spark.lake.ingest import ingest
from corral.spark.lake.run import RunOptions, RunResult, run_lake
from corral.spark.lake.tables import Lake
from tests.spark.harness import SparkHarness


def run_to_present(
    spark: Any, lake: Lake, harness: SparkHarness, queue: str | None = None, **options: Any
) -> RunResult:
    """Run the lake to the present end of a harness's events."""
    return run_lake(spark, lake, [harness.address(queue)], RunOptions(**options))


def plain_ids(spark: Any, lake: Lake) -> list[str]:
    """The event ids that a reader sees who knows nothing but the folder's name."""
    return sorted(row["event_id"] for row in spark.read.parquet(f"{lake.path}/bronze").collect())


def event_ids(harness: SparkHarness, queue: str | None = None) -> list[str]:
    return sorted(event.id for event in harness.read_events(queue))


def leftovers(lake: Lake) -> list[Path]:
    return sorted(lake.work.iterdir())


def filed(spark: Any, lake: Lake, harness: SparkHarness, **options: Any) -> None:
    """Bring bronze alone up to the present end of a harness's events."""
    ingest(spark, lake, [harness.address()], **options)
