"""A run of the lake: bronze, silver and gold from a room's events."""

import pytest

from corral.core.outcome import Dead
from corral.spark.lake import gold, silver
from corral.spark.lake.layout import Lake
from tests.spark.lakes import brought_up, leftovers, plain_ids, told_ids
from tests.spark.support import Ranch


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def rows(table):
    return sorted(map(repr, table.collect()))


def expect_as_from_scratch(spark, lake: Lake):
    """Silver and gold are what the pure functions make of all of bronze at once."""
    events = lake.bronze(spark)
    attempts, jobs = silver.attempts(events), silver.jobs(events)
    assert rows(lake.attempts(spark).drop("backfilled")) == rows(attempts)
    assert rows(lake.jobs(spark).drop("backfilled")) == rows(jobs)
    assert rows(lake.minutes(spark)) == rows(gold.minutes(attempts, jobs))


def test_a_run_files_every_event_once_and_tells_of_every_job(spark, ranch: Ranch, lake: Lake):
    ranch.add(30)
    ranch.work(outcome=lambda claim: Dead("boom"), most=5)
    ranch.work()
    ran = brought_up(spark, lake, ranch)
    assert plain_ids(spark, lake) == told_ids(ranch)
    assert (ran.events, ran.missing, ran.unknown_gaps) == (len(told_ids(ranch)), 0, 0)
    outcomes = {row["outcome"]: row["count"] for row in lake.jobs(spark).groupBy("outcome").count().collect()}
    assert outcomes == {"completed": 25, "dead": 5}
    expect_as_from_scratch(spark, lake)
    assert leftovers(lake) == []


def test_a_second_run_adds_what_is_new_and_tells_jobs_anew(spark, bull: Ranch, lake: Lake):
    bull.add(10)
    bull.work(most=4)
    brought_up(spark, lake, bull)
    assert lake.jobs(spark).where("outcome = 'alive'").count() == 6
    bull.add(3)
    bull.work(outcome=lambda claim: Dead("boom"))
    ran = brought_up(spark, lake, bull)
    assert plain_ids(spark, lake) == told_ids(bull)
    assert 0 < ran.events < len(told_ids(bull))
    assert lake.jobs(spark).where("outcome = 'alive'").count() == 0
    expect_as_from_scratch(spark, lake)
    assert brought_up(spark, lake, bull).events == 0
