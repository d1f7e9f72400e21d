"""Bronze: events as they were, once for any Parquet reader, whatever is replayed, folded or lost."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset
import pytest

from corral.errors import InvalidOptions
from corral.spark.lake import bronze
from corral.spark.lake.backfill import backfill
from corral.spark.lake.ingest import LakeFailed, prepare, source_name
from corral.spark.lake.maintenance import compact, retain
from corral.spark.lake.refresh import COVERS
from corral.spark.lake.report.report import report_lake
from corral.spark.lake.tables import BRONZE, JOBS, MINUTES, Lake
from corral.spark.lake.versions import LakeBusy, visible
from corral.spark.schema import EVENTS, GAP
from tests.spark.harness import SparkHarness
from tests.spark.lakes import event_ids, filed, leftovers, plain_ids, run_to_present


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def arrow_ids(lake: Lake) -> list[str]:
    """What a reader without Spark sees."""
    table = pyarrow.dataset.dataset(f"{lake.path}/bronze", partitioning="hive").to_table(["event_id"])
    return sorted(table.column("event_id").to_pylist())


def commits(lake: Lake, harness: SparkHarness) -> Path:
    return lake.checkpoint(source_name(harness.address())) / "commits"


def forget_last_commit(lake: Lake, harness: SparkHarness) -> int:
    last = max((file for file in commits(lake, harness).iterdir() if file.name.isdecimal()), key=_number)
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    return _number(last)


def _number(file: Path) -> int:
    return int(file.name)


def test_a_batch_that_is_replayed_is_filed_once_also_after_it_was_folded(
    spark, bullmq: SparkHarness, lake: Lake
):
    bullmq.add(50)
    filed(spark, lake, bullmq, batch_events=30)
    assert len(bronze.batches(lake)) == 4
    assert all((batch.folder / "_SUCCESS").exists() for batch in bronze.batches(lake))
    assert [batch.rows for batch in bronze.batches(lake)] == [30, 30, 30, 10]
    forget_last_commit(lake, bullmq)
    bullmq.add(5)
    filed(spark, lake, bullmq)
    assert plain_ids(spark, lake) == arrow_ids(lake) == event_ids(bullmq)
    # as if silver had seen them all: only such batches are folded
    lake.versions(MINUTES).advance({COVERS: bronze.reached(lake)})
    opened = lake.bronze(spark)
    assert compact(spark, lake, after=3) == 5
    assert bronze.batches(lake) == []
    assert plain_ids(spark, lake) == arrow_ids(lake) == event_ids(bullmq)
    assert opened.count() == len(event_ids(bullmq)), "who had begun to read goes on"
    forget_last_commit(lake, bullmq)
    bullmq.add(1)
    filed(spark, lake, bullmq)
    assert plain_ids(spark, lake) == arrow_ids(lake) == event_ids(bullmq)
    assert leftovers(lake) == []


def test_bronze_has_the_columns_of_events_and_days(spark, bullmq: SparkHarness, lake: Lake):
    bullmq.add(3)
    filed(spark, lake, bullmq)
    table = lake.bronze(spark)
    assert table.columns == [*EVENTS.fieldNames(), "date"]
    assert {row["date"] for row in table.collect()} == {row["ts"].date() for row in table.collect()}
    plain = spark.read.parquet(f"{lake.path}/bronze")
    assert dict(plain.dtypes)["date"] == "date"


def test_a_lake_that_lost_its_checkpoint_goes_on_where_it_was(spark, bullmq: SparkHarness, lake: Lake):
    bullmq.add(20)
    filed(spark, lake, bullmq)
    shutil.rmtree(lake.checkpoint(source_name(bullmq.address())))
    bullmq.add(10)
    gone = bullmq.trim(11)
    filed(spark, lake, bullmq)
    kept = [event.id for event in bullmq.read_events()]
    rows = lake.bronze(spark).collect()
    [gap] = [row for row in rows if row["event"] == GAP]
    assert json.loads(gap["data"])["missing"] == gone - 40
    assert len(rows) == 40 + len(kept) + 1
    assert len({row["event_id"] for row in rows}) == len(rows)


def test_a_checkpoint_that_is_older_than_the_lake_is_refused(
    spark, bullmq: SparkHarness, lake: Lake, tmp_path: Path
):
    bullmq.add(2)
    filed(spark, lake, bullmq)
    checkpoint = lake.checkpoint(source_name(bullmq.address()))
    shutil.copytree(checkpoint, tmp_path / "kept")
    bullmq.add(2)
    filed(spark, lake, bullmq)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "kept", checkpoint)
    bullmq.add(2)
    with pytest.raises(LakeFailed, match="is older than the lake: it forgot a batch"):
        filed(spark, lake, bullmq)
    shutil.rmtree(checkpoint)
    filed(spark, lake, bullmq)
    assert plain_ids(spark, lake) == event_ids(bullmq)


def test_days_that_are_old_leave_and_a_replay_does_not_bring_them_back(
    spark, bullmq: SparkHarness, lake: Lake
):
    bullmq.add(4)
    filed(spark, lake, bullmq)
    today = datetime.now(UTC).date()
    assert retain(lake, 2, today) == []
    assert retain(lake, 2, today + timedelta(days=1)) == []
    assert retain(lake, 2, today + timedelta(days=2)) == [today]
    assert lake.bronze(spark).count() == 0
    forget_last_commit(lake, bullmq)
    bullmq.add(1)
    filed(spark, lake, bullmq)
    assert lake.bronze(spark).count() == 2


def test_a_batch_that_was_broken_off_leaves_nothing_behind(spark, bullmq: SparkHarness, lake: Lake):
    bullmq.add(2)
    prepare(lake, [bullmq.address()])
    half = lake.work / "batch-half" / "date=2025-01-31"
    half.mkdir(parents=True)
    (half / "part.parquet").write_bytes(b"half a file")
    filed(spark, lake, bullmq)
    assert leftovers(lake) == []
    assert plain_ids(spark, lake) == event_ids(bullmq)


def test_a_generation_whose_maker_died_is_made_again(lake: Lake):
    table = lake.versions(JOBS)
    first = table.advance({"covers": {}})
    abandoned = first.parent / "00000001"
    abandoned.mkdir()
    (abandoned / "half").touch()
    table.advance({"covers": {"a": 1}})
    assert list(visible(table.current())) == []
    assert table.manifest()["covers"] == {"a": 1}


def test_old_generations_go_when_nobody_can_be_reading_them(lake: Lake):
    table = lake.versions(JOBS)
    for _ in range(3):
        table.advance({})
    folders = table.current().parent
    assert len(list(folders.iterdir())) == 3
    table.expire(grace_s=0)
    assert [folder.name for folder in folders.iterdir()] == ["00000002"]


def test_two_runs_at_once_are_refused(spark, bullmq: SparkHarness, lake: Lake):
    with lake.exclusive(), pytest.raises(LakeBusy, match="another process works on the lake"):
        run_to_present(spark, lake, bullmq)


@pytest.mark.parametrize("path", ["s3://bucket/lake", "  "])
def test_a_lake_is_a_folder(path: str):
    with pytest.raises(InvalidOptions):
        Lake(path)


def test_a_folder_with_other_things_in_it_is_no_lake(bullmq: SparkHarness, lake: Lake):
    lake.root.mkdir()
    (lake.root / "photos").mkdir()
    with pytest.raises(InvalidOptions, match="is no lake"):
        prepare(lake, [bullmq.address()])
    assert not lake.exists


def test_a_lake_with_the_columns_of_an_earlier_layout_is_refused_and_left_alone(
    spark, bullmq: SparkHarness, lake: Lake
):
    """A lake as it was written while the column `protocol` was called `room`."""
    old = spark.createDataFrame([("bullmq", "mail", "1-0")], "room string, queue string, event_id string")
    old.write.parquet(f"{lake.path}/_store/bronze/00000000")
    (lake.root / "bronze").symlink_to("_store/bronze/00000000")
    lake.settings_file.write_text(json.dumps({"layout": 1, "sources": {}}))
    before = sorted(lake.root.rglob("*"))
    for use in (lambda: run_to_present(spark, lake, bullmq), lambda: backfill(spark, lake, bullmq.address()),
                lambda: lake.bronze(spark), lambda: report_lake(spark, lake)):  # fmt: skip
        with pytest.raises(InvalidOptions, match=r"column 'room' in place of 'protocol'; make a new one"):
            use()
    assert sorted(lake.root.rglob("*")) == before


def test_an_empty_lake_has_empty_tables(spark, lake: Lake):
    assert lake.bronze(spark).count() == 0
    assert lake.jobs(spark).select("outcome", "backfilled", "date").count() == 0
    assert lake.versions(BRONZE).current() is None
