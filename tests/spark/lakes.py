"""A lake over a harness, as the tests of the lake use it."""

from typing import Any

from corral.spark.lake.delta import LakeTable
from corral.spark.lake.ingest import ingest
from corral.spark.lake.run import RunOptions, RunResult, run_lake
from corral.spark.lake.tables import BRONZE, Lake
from tests.spark.harness import SparkHarness


def run_to_present(
    spark: Any, lake: Lake, harness: SparkHarness, queue: str | None = None, **options: Any
) -> RunResult:
    """Run the lake to the present end of a harness's events."""
    return run_lake(spark, lake, [harness.address(queue)], RunOptions(**options))


def plain_ids(lake: Lake) -> list[str]:
    """The event ids that a reader of Delta tables sees; rows without a day are positions."""
    rows = lake.table(BRONZE).dataset().to_table(["event_id", "date"]).to_pylist()
    return sorted(row["event_id"] for row in rows if row["date"] is not None)


def event_ids(harness: SparkHarness, queue: str | None = None) -> list[str]:
    return sorted(event.id for event in harness.read_events(queue))


def version_of(table: LakeTable) -> int:
    opened = table.open()
    return -1 if opened is None else opened.version()


def filed(spark: Any, lake: Lake, harness: SparkHarness, **options: Any) -> None:
    """Bring bronze alone up to the present end of a harness's events."""
    ingest(spark, lake, [harness.address()], **options)


def batch(spark: Any, harness: SparkHarness, **options: Any) -> Any:
    """A batch as a query of the lake hands it to bronze: the events there are now, and their positions."""
    return harness.reader(spark, includePositions="true", failOnDataLoss="false", **options).load()
