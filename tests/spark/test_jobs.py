"""The table `jobs`: a snapshot of a real queue, also while it is worked."""

import json
import threading
from datetime import timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.datasource import EqualTo, In

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.outcome import Completed, Dead, Released
from corral.spark.filters import narrow_jobs
from corral.spark.jobs import JobPartition, JobReader, read_partition
from corral.spark.options import JobReadOptions
from corral.spark.schema import JOBS
from tests.spark.harness import SparkHarness, drain


def test_every_job_is_a_row_in_its_state(spark, harness: SparkHarness):
    ids = harness.add(30)
    harness.work(most=3, outcome=lambda claim: Dead("boom"))
    harness.work(most=7, outcome=lambda claim: Completed(b'{"big":130775545883395173}'))
    table = harness.reader(spark, table="jobs").load()
    assert table.schema == JOBS
    rows = {row["job_id"]: row for row in table.collect()}
    assert sorted(rows) == sorted(ids)
    by_state = {state: [row for row in rows.values() if row["state"] == state] for state in JobState}
    assert (len(by_state["dead"]), len(by_state["completed"]), len(by_state["waiting"])) == (3, 7, 20)
    assert all(row["reason"] == "boom" for row in by_state["dead"])
    assert all(row["result"] == '{"big":130775545883395173}' for row in by_state["completed"])
    assert sorted(json.loads(row["data"])["n"] for row in by_state["waiting"]) == list(range(10, 30))
    assert {(row["protocol"], row["queue"], row["name"]) for row in rows.values()} == {
        (harness.protocol.spec.name, harness.queue, harness.job_name)
    }
    assert all(row["finished_at"] >= row["created_at"] for row in by_state["completed"])


def test_filters_reach_the_server_and_change_nothing_else(spark, bullmq: SparkHarness):
    bullmq.add(20)
    bullmq.work(most=5)
    table = bullmq.reader(spark, table="jobs").load()
    waiting = table.where((sf.col("state") == "waiting") & sf.col("name").isin("work", "other"))
    assert waiting.count() == 15
    newest = table.agg(sf.max("created_at")).first()[0]
    assert table.where(sf.col("created_at") > newest + timedelta(seconds=1)).count() == 0
    assert table.where(sf.col("created_at") <= newest).count() == 20
    plan = waiting._jdf.queryExecution().executedPlan().toString()
    left = [line for line in plan.splitlines() if "Filter" in line and " = " in line]
    assert left == [], "nothing but nulls is left for Spark to look for"


def test_a_spark_that_pushes_no_filters_reads_the_same(spark, bullmq: SparkHarness):
    bullmq.add(6)
    bullmq.work(most=2)
    plain = spark.newSession()
    plain.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert bullmq.reader(plain, table="jobs").load().where("state = 'completed'").count() == 2


def test_filters_on_one_column_meet():
    jobs, _ = narrow_jobs(JobFilter(), In(("state",), ("waiting", "dead", "no such state")))
    jobs, is_exact = narrow_jobs(jobs, EqualTo(("state",), "dead"))
    assert is_exact
    assert jobs.states == {JobState.DEAD}
    assert narrow_jobs(JobFilter(), EqualTo(("job_id",), "1")) == (JobFilter(), False)


def test_a_filter_is_answered_by_the_server(bullmq: SparkHarness):
    bullmq.add(10)
    bullmq.work(most=4)
    reader = JobReader(bullmq.address(), JobReadOptions(1, 5.0))
    assert list(reader.pushFilters([EqualTo(("state",), "completed")])) == []
    rows = [row for batch in reader.read(JobPartition(bullmq.queue, 0, 1)) for row in batch.to_pylist()]
    assert len(rows) == 4


def test_shares_are_disjoint_and_complete(bullmq: SparkHarness):
    ids = bullmq.add(300)
    seen = [
        row["job_id"]
        for index in range(3)
        for batch in read_partition(
            bullmq.address(), JobReadOptions(), JobPartition(bullmq.queue, index, 3), JobFilter()
        )
        for row in batch.to_pylist()
    ]
    assert sorted(seen) == sorted(ids)


def test_jobs_that_change_their_state_all_the_while_appear_exactly_once(spark, bullmq: SparkHarness):
    ids = bullmq.add(1000)
    stop = threading.Event()
    turns = 0

    def churn() -> None:
        nonlocal turns
        with SparkHarness(bullmq.server, "bullmq") as other:
            while not stop.is_set():
                turns += other.work(most=40, outcome=lambda claim: Released())

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(2):
            before = turns
            table = bullmq.reader(spark, table="jobs", numPartitions=3).load()
            rows = table.select("job_id", "state").collect()
            assert turns > before, "the queue was worked meanwhile"
            assert sorted(row["job_id"] for row in rows) == sorted(ids)
    finally:
        stop.set()
        thread.join()


def test_a_snapshot_cannot_be_streamed(spark, bullmq: SparkHarness, tmp_path):
    with pytest.raises(PySparkException, match="is a snapshot and cannot be streamed"):
        drain(bullmq.stream(spark, table="jobs"), tmp_path)
