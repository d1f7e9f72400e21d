"""`spark.sql` over events and jobs: tables of the catalog, views, and what of a query the reader answers."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import EqualTo, GreaterThan, In

from corral.core.outcome import Dead
from corral.spark.events import EventReader
from corral.spark.filters import EventFilter
from corral.spark.options import EventReadOptions
from tests.spark.harness import SparkHarness, drain


@pytest.fixture
def sql(spark, bullmq: SparkHarness) -> Iterator[Any]:
    """`spark.sql` beside a queue `mail` with two completed jobs, a dead one and one that waits."""
    bullmq.add(4, "mail")
    bullmq.work("mail", most=2)
    bullmq.work("mail", outcome=lambda claim: Dead("boom"), most=1)
    yield spark.sql
    for table in ("mail_events", "mail_jobs"):
        spark.sql(f"DROP TABLE IF EXISTS {table}")


def first(frame: Any) -> Any:
    return frame.collect()[0][0]


def test_a_table_of_the_catalog_reads_with_the_options_it_was_made_with(
    spark, sql, bullmq: SparkHarness, tmp_path
):
    bullmq.add(1, "sms")
    sql(f"CREATE TABLE mail_events USING corral OPTIONS (url '{bullmq.url}', queue 'mail')")
    sql(f"CREATE TABLE mail_jobs USING corral OPTIONS (url '{bullmq.url}', queue 'mail', `table` 'jobs')")
    counts = sql("SELECT state, count(*) FROM mail_jobs GROUP BY state").collect()
    assert {tuple(row) for row in counts} == {("completed", 2), ("dead", 1), ("waiting", 1)}
    events = len(bullmq.read_events("mail"))
    assert first(sql("SELECT count(*) FROM mail_events")) == events
    assert first(sql("SELECT count(*) FROM mail_events WITH (queue = 'sms')")) == 2, "the query's come first"
    drain(spark.readStream.table("mail_events"), tmp_path)
    assert spark.read.parquet(f"{tmp_path}/out").count() == events


def test_explain_shows_the_conditions_that_the_reader_answers(sql, bullmq: SparkHarness):
    where = f"USING corral OPTIONS (url '{bullmq.url}', queue 'mail'"
    sql(f"CREATE OR REPLACE TEMPORARY VIEW mail_events {where})")
    sql(f"CREATE OR REPLACE TEMPORARY VIEW mail_jobs {where}, `table` 'jobs')")
    events = "SELECT job_id FROM mail_events WHERE event IN ('completed', 'dead') AND queue = 'mail'"
    jobs = "SELECT job_id FROM mail_jobs WHERE state = 'dead'"
    for query, rows in ((events, 3), (jobs, 1)):
        plan = first(sql(f"EXPLAIN FORMATTED {query}"))
        assert "PushedFilters: [" in plan, plan
        assert "Condition : isnotnull(" in plan or "Filter" not in plan.replace("PushedFilters", ""), plan
        assert len(sql(query).collect()) == rows
    assert sql("SELECT * FROM mail_events WHERE queue = 'sms' OR protocol = 'streams'").count() == 0


def test_the_reader_of_events_drops_rows_and_queues_that_nobody_wants(bullmq: SparkHarness):
    bullmq.add(3, "mail")
    bullmq.work("mail", most=1)
    bullmq.add(3, "sms")
    reader = EventReader(bullmq.address("*"), EventReadOptions())
    later = GreaterThan(("ts",), 5)
    assert list(
        reader.pushFilters([EqualTo(("queue",), "mail"), In(("event",), ("added", "dead")), later])
    ) == [later]
    [mail] = reader.partitions()
    rows = [row for batch in reader.read(mail) for row in batch.to_pylist()]
    assert [(row["queue"], row["event"]) for row in rows] == [("mail", "added")] * 3
    assert list(reader.pushFilters([EqualTo(("event",), "completed")])) == []
    assert list(reader.read(mail)) == [], "conditions on one column meet"
    reader.filter = EventFilter({"protocol": frozenset(["streams"])})
    assert reader.partitions() == []


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("CREATE TABLE mail_events USING corral OPTIONS ({url}, qeue 'mail')", "did you mean 'queue'?"),
        ("CREATE TABLE mail_events USING corral OPTIONS (url 'http://x')", "'http://x' cannot be used"),
        ("CREATE TABLE mail_events USING corral OPTIONS (url 'redis://me:secret@db')", "set REDIS_URL where"),
        ("CREATE TABLE mail_events USING corral OPTIONS ({url}, `table` 'tasks')", "no table 'tasks'"),
    ],
)
def test_a_table_that_could_not_be_read_is_not_made(spark, bullmq: SparkHarness, statement: str, says: str):
    with pytest.raises(PySparkException) as refusal:
        spark.sql(statement.format(url=f"url '{bullmq.url}'"))
    assert says in str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert not spark.catalog.tableExists("mail_events")


def test_columns_that_do_not_fit_are_refused(spark, bullmq: SparkHarness):
    with pytest.raises(PySparkException, match="are not those of the table 'events'; leave them out"):
        bullmq.reader(spark).schema("event_id string, at long").load().count()
