"""Bronze: events as they were, once for any reader, whatever is replayed, compacted or lost."""

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars
import pytest
from deltalake import DeltaTable

from corral.errors import InvalidOptions
from corral.spark.lake import maintenance
from corral.spark.lake.backfill import backfill
from corral.spark.lake.bronze import BronzeSink, last_version, reached_by
from corral.spark.lake.convert import convert
from corral.spark.lake.delta import LakeBusy, files_of
from corral.spark.lake.ingest import ingest, prepare, source_name
from corral.spark.lake.maintenance import compact, retain, vacuum
from corral.spark.lake.report.report import report_lake
from corral.spark.lake.tables import BRONZE, BRONZE_SCHEMA, Lake
from corral.spark.offsets import Position
from corral.spark.schema import EVENTS, GAP
from tests.spark.harness import SparkHarness
from tests.spark.lakes import batch, event_ids, filed, plain_ids, run_to_present, version_of


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def sink(lake: Lake, harness: SparkHarness, run: str = "one", first: int = 0) -> BronzeSink:
    lake.table(BRONZE).create(BRONZE_SCHEMA)
    return BronzeSink(lake, source_name(harness.address()), first, run)


def test_a_batch_that_is_replayed_is_there_once_also_after_a_compaction(
    spark, bullmq: SparkHarness, lake: Lake
):
    bullmq.add(20)
    bronze = sink(lake, bullmq)
    first = batch(spark, bullmq)
    bronze(first, 0)
    bronze(first, 0)
    replace(bronze)(first, 0)
    assert plain_ids(lake) == event_ids(bullmq)
    [reached] = reached_by(lake.table(BRONZE), lake.table(BRONZE).open(), bronze.source).positions.values()
    bullmq.add(5)
    second = batch(spark, bullmq, startingOffsets=json.dumps({bullmq.queue: reached._asdict()}))
    bronze(second, 1)
    opened, table = lake.bronze(spark), lake.table(BRONZE).open()
    appended = DeltaTable(table.table_uri)
    bullmq.add(1)
    bronze(batch(spark, bullmq, startingOffsets=json.dumps({bullmq.queue: event_ids(bullmq)[-3]})), 2)
    assert compact(table, after=2) == 2, "what came since it was opened stays as it is"
    assert len(files_of(lake.table(BRONZE).open())) == 3, "two of events, one of positions"
    assert compact(lake.table(BRONZE).open(), after=2) == 2
    assert len(files_of(lake.table(BRONZE).open())) == 2
    bronze(second, 1)
    assert plain_ids(lake) == event_ids(bullmq)
    assert opened.count() == len(event_ids(bullmq)) - 2, "who had begun to read goes on"
    assert appended.version() < version_of(lake.table(BRONZE))


def test_a_process_that_was_overtaken_by_another_is_refused(spark, bullmq: SparkHarness, lake: Lake):
    bullmq.add(2)
    rows = batch(spark, bullmq)
    sink(lake, bullmq, "one")(rows, 0)
    for number in (0, 1):
        with pytest.raises(LakeBusy, match="another process has read events"):
            sink(lake, bullmq, "two")(rows, number)
    assert plain_ids(lake) == event_ids(bullmq)


def test_bronze_is_read_by_every_reader_of_delta_tables(spark, bullmq: SparkHarness, lake: Lake):
    bullmq.add(3)
    filed(spark, lake, bullmq)
    table = lake.bronze(spark)
    assert table.columns == [*EVENTS.fieldNames(), "date"]
    rows = table.collect()
    assert {row["date"] for row in rows} == {row["ts"].astimezone(UTC).date() for row in rows}
    expected, path = event_ids(bullmq), f"{lake.path}/bronze"
    assert sorted(row["event_id"] for row in rows) == expected == plain_ids(lake)
    events = DeltaTable(path).to_pyarrow_dataset()  # noqa: F841
    found = duckdb.sql("SELECT event_id FROM events WHERE date IS NOT NULL ORDER BY 1").fetchall()
    assert [event_id for (event_id,) in found] == expected
    frame = polars.scan_delta(path).filter(polars.col("event") != "position").collect()
    assert sorted(frame["event_id"]) == expected
    pandas = DeltaTable(path).to_pandas()
    assert sorted(pandas[pandas["event"] != "position"]["event_id"]) == expected


def test_a_run_goes_on_from_the_positions_in_bronze_and_counts_what_is_missing(
    spark, bullmq: SparkHarness, lake: Lake
):
    bullmq.add(20)
    filed(spark, lake, bullmq, batch_events=15)
    assert last_version(lake.table(BRONZE).open(), source_name(bullmq.address())) == 2
    bullmq.add(10)
    bullmq.add(3, queue="sms")
    bullmq.trim(2, queue="sms")
    gone = bullmq.trim(11)
    ingest(spark, lake, [bullmq.address("*")])
    kept = [event.id for event in bullmq.read_events()]
    rows = lake.bronze(spark).collect()
    missing = {row["queue"]: json.loads(row["data"])["missing"] for row in rows if row["event"] == GAP}
    assert missing == {bullmq.queue: gone - 40, "sms": 4}
    assert len([row for row in rows if row["queue"] == bullmq.queue]) == 40 + len(kept) + 1
    assert len({row["event_id"] for row in rows}) == len(rows)


def test_days_that_are_old_leave_and_a_replay_does_not_bring_them_back(
    spark, bullmq: SparkHarness, lake: Lake
):
    bullmq.add(4)
    bronze, rows = sink(lake, bullmq), batch(spark, bullmq)
    bronze(rows, 0)
    today = datetime.now(UTC).date()
    assert retain(lake, 2, today) == []
    assert retain(lake, 2, today + timedelta(days=1)) == []
    assert retain(lake, 2, today + timedelta(days=2)) == [today]
    bronze(rows, 0)
    assert lake.bronze(spark).count() == 0
    bullmq.add(1)
    filed(spark, lake, bullmq)
    assert lake.bronze(spark).count() == 2


def test_files_of_a_commit_that_never_came_are_deleted(spark, bullmq: SparkHarness, lake: Lake):
    bullmq.add(2)
    filed(spark, lake, bullmq)
    lost = lake.table(BRONZE).write(lake.bronze(spark), "bullmq-1-00000007")
    assert lake.bronze(spark).count() == 4
    assert vacuum(lake, 1) == 0, "it may still be committed"
    assert vacuum(lake, 0) == len(lost)
    assert plain_ids(lake) == event_ids(bullmq)
    filed(spark, lake, bullmq)
    assert plain_ids(lake) == event_ids(bullmq)


def test_the_log_of_bronze_is_bounded_by_the_number_of_its_versions(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    lake.table(BRONZE).create(BRONZE_SCHEMA)
    bronze = BronzeSink(lake, "bullmq-1", 0, "one")
    for number in range(8):
        bronze.append(number, [], {"mail": Position(f"{number + 1}-0", number)})
    lake.table(BRONZE).open().create_checkpoint()
    log = Path(lake.path, BRONZE, "_delta_log")
    for file in log.glob("*.json"):
        os.utime(file, (time.time() - 3600,) * 2)
    vacuum(lake)
    assert len(list(log.glob("*.json"))) >= 9, "these are few"
    monkeypatch.setattr(maintenance, "MAX_VERSIONS", 3)
    vacuum(lake, 24)
    assert len(list(log.glob("*.json"))) >= 9, "a time that was set is kept"
    vacuum(lake)
    assert len(list(log.glob("*.json"))) <= 4
    [position] = reached_by(lake.table(BRONZE), lake.table(BRONZE).open(), "bullmq-1").positions.values()
    assert position == Position("8-0", 7)
    bronze.append(8, [], {"mail": Position("9-0", 8)})
    assert last_version(lake.table(BRONZE).open(), "bullmq-1") == 8


def test_two_runs_at_once_are_refused(spark, bullmq: SparkHarness, lake: Lake):
    with lake.exclusive(), pytest.raises(LakeBusy, match="another process works on the lake"):
        run_to_present(spark, lake, bullmq)


@pytest.mark.parametrize("path", ["ftp://host/lake", "s3://", "  "])
def test_what_is_neither_a_folder_nor_object_storage_is_refused(path: str):
    with pytest.raises(InvalidOptions):
        Lake(path)


def test_a_folder_with_other_things_in_it_is_no_lake(lake: Lake):
    (lake.folder / "photos").mkdir(parents=True)
    with pytest.raises(InvalidOptions, match=r"has other things in it \(photos\) and is no lake"):
        prepare(lake)
    assert not lake.exists


def test_a_table_with_other_columns_is_refused_and_left_alone(spark, bullmq: SparkHarness, lake: Lake):
    bullmq.add(1)
    polars.DataFrame({"a": [1]}).write_delta(f"{lake.path}/bronze")
    with pytest.raises(InvalidOptions, match="has the columns a, which are not those of a lake"):
        run_to_present(spark, lake, bullmq)
    assert version_of(lake.table(BRONZE)) == 0


def test_a_lake_of_an_earlier_layout_is_refused_and_converted(
    spark, bullmq: SparkHarness, lake: Lake, tmp_path: Path
):
    """A lake as it was written while its tables were plain Parquet, with the column `room`."""
    bullmq.add(3)
    old, source = Lake(str(tmp_path / "old")), source_name(bullmq.address())
    events = bullmq.reader(spark).load().selectExpr("*", "to_date(ts) AS date")
    folder = old.folder / "_store/bronze/00000000" / "batch=a-00000000"
    events.withColumnRenamed("protocol", "room").write.partitionBy("date").parquet(str(folder))
    (old.folder / "bronze").symlink_to("_store/bronze/00000000")
    positions = {bullmq.queue: {"id": event_ids(bullmq)[-1], "added": 6}}
    (folder / "_batch.json").write_text(json.dumps({"source": source, "positions": positions}))
    (old.folder / "_lake.json").write_text(json.dumps({"layout": 1, "sources": {}}))
    before = sorted(old.folder.rglob("*"))
    for use in (lambda: run_to_present(spark, old, bullmq), lambda: backfill(spark, old, bullmq.address()),
                lambda: old.bronze(spark), lambda: report_lake(spark, old)):  # fmt: skip
        with pytest.raises(InvalidOptions, match=r"its tables are not Delta; convert it into a new one"):
            use()
    assert convert(spark, old.folder, lake) == 6
    assert sorted(old.folder.rglob("*")) == before
    bullmq.add(1)
    filed(spark, lake, bullmq)
    assert plain_ids(lake) == event_ids(bullmq)
    assert lake.jobs(spark).count() == 3
    with pytest.raises(InvalidOptions, match="there is a lake in"):
        convert(spark, old.folder, lake)


def test_an_empty_lake_has_empty_tables(spark, lake: Lake):
    assert lake.bronze(spark).count() == 0
    assert lake.jobs(spark).select("outcome", "backfilled", "date").count() == 0
    with lake.exclusive():
        prepare(lake)
    assert lake.bronze(spark).schema == BRONZE_SCHEMA
    assert lake.bronze(spark).count() == 0
