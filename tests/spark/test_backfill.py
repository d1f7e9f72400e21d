"""Backfill: what a snapshot knows of jobs whose events are gone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from corral.core.outcome import Dead
from corral.spark.lake import silver
from corral.spark.lake.backfill import BackfillResult, backfill, derived_events
from corral.spark.lake.tables import Lake
from tests.spark.harness import SparkHarness
from tests.spark.lakes import run_to_present

START = datetime(2025, 1, 31, 12, 0, 0, tzinfo=UTC)


def test_a_record_tells_begin_start_and_end(spark):
    moments = [START + timedelta(seconds=seconds) for seconds in (0, 2, 5)]
    shape = (
        "protocol string, queue string, job_id string, name string, state string, created_at timestamp, "
        "started_at timestamp, finished_at timestamp, worker string, reason string, is_begun boolean"
    )
    rows = [
        ("bullmq", "mail", "1", "send", "dead", *moments, "anna", "boom", False),
        ("bullmq", "mail", "2", "send", "active", *moments[:2], None, None, None, False),
        ("bullmq", "mail", "3", "send", "completed", *moments, None, None, True),
    ]
    events = derived_events(spark.createDataFrame(rows, shape))
    assert sorted((row["job_id"], row["event"]) for row in events.collect()) == [
        ("1", "active"), ("1", "added"), ("1", "dead"), ("2", "active"), ("2", "added"), ("3", "added"),
    ]  # fmt: skip
    assert all('"backfilled":true' in row["data"] for row in events.collect())
    [dead] = silver.jobs(events.where("job_id = '1'")).collect()
    assert (dead["outcome"], dead["reason"]) == ("dead", "boom")
    assert (dead["waited_ms"], dead["ran_ms"], dead["worker"]) == (2000, 3000, "anna")


def test_jobs_whose_events_are_gone_are_told_once_and_marked(spark, bullmq: SparkHarness, tmp_path: Path):
    lake = Lake(str(tmp_path / "lake"))
    bullmq.add(6)
    bullmq.work(outcome=lambda claim: Dead("boom"), most=4)
    bullmq.trim(1)
    bullmq.add(3)
    assert backfill(spark, lake, bullmq.address()) == BackfillResult(snapshot=9, whole=5, begun=1)
    found = {row["job_id"]: row for row in lake.jobs(spark).collect()}
    assert len(found) == 9 == lake.jobs(spark).count()
    assert sum(row["backfilled"] for row in found.values()) == 6
    assert sorted(row["outcome"] for row in found.values()) == ["alive"] * 5 + ["dead"] * 4
    assert all(row["added_at"] is not None for row in found.values())
    bullmq.work()
    run_to_present(spark, lake, bullmq)
    again = lake.jobs(spark).collect()
    assert sorted(row["outcome"] for row in again) == ["completed"] * 5 + ["dead"] * 4
    assert backfill(spark, lake, bullmq.address()) == BackfillResult(snapshot=9, whole=0, begun=0)
    assert lake.bronze(spark).where("data like '%backfilled%'").count() == 0, "bronze has real events only"
