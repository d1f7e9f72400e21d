"""A run of the lake: bronze, silver and gold from a protocol's events."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from threading import Event

import pytest

from corral.core.outcome import Dead
from corral.protocols import protocol_names
from corral.spark.lake import gold, refresh, silver
from corral.spark.lake.maintenance import vacuum
from corral.spark.lake.run import RunOptions, run_lake
from corral.spark.lake.tables import JOBS, Lake
from tests.spark.harness import SparkHarness
from tests.spark.lakes import event_ids, plain_ids, run_to_present
from tests.support.polling import eventually
from tests.support.servers import Server
from tests.support.shell import corral


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


def test_a_run_files_every_event_of_every_protocol_once_and_tells_of_every_job(
    spark, server: Server, lake: Lake
):
    with ExitStack() as stack:
        harnesses = [stack.enter_context(SparkHarness(server, protocol)) for protocol in protocol_names()]
        for harness in harnesses:
            harness.add(30)
            harness.work(outcome=lambda claim: Dead("boom"), most=5)
            harness.work()
        expected = sorted(event_id for harness in harnesses for event_id in event_ids(harness))
        ran = run_lake(spark, lake, [harness.address() for harness in harnesses])
    assert plain_ids(lake) == expected
    assert (ran.events, ran.missing, ran.unknown_gaps) == (len(expected), 0, 0)
    counted = lake.jobs(spark).groupBy("protocol", "outcome").count().collect()
    assert {(row["protocol"], row["outcome"]): row["count"] for row in counted} == {
        (protocol, outcome): count
        for protocol in protocol_names()
        for outcome, count in (("completed", 25), ("dead", 5))
    }
    expect_as_from_scratch(spark, lake)


def test_a_second_run_adds_what_is_new_and_tells_jobs_anew(spark, bullmq: SparkHarness, lake: Lake):
    bullmq.add(10)
    bullmq.work(most=4)
    run_to_present(spark, lake, bullmq)
    assert lake.jobs(spark).where("outcome = 'alive'").count() == 6
    before = datetime.now(UTC)
    bullmq.add(3)
    bullmq.work(outcome=lambda claim: Dead("boom"))
    ran = run_to_present(spark, lake, bullmq)
    assert plain_ids(lake) == event_ids(bullmq)
    assert 0 < ran.events < len(event_ids(bullmq))
    assert lake.jobs(spark).where("outcome = 'alive'").count() == 0
    expect_queries_and_versions(lake, before)
    dead = [one.attempts(spark).where("outcome = 'dead'").count() for one in (lake.at(before), lake)]
    assert dead == [0, 9], "report and audit read the versions of that time"
    assert vacuum(lake, 0) > 0, "the files that were replaced"
    expect_as_from_scratch(spark, lake)
    ran = run_to_present(spark, lake, bullmq)
    assert (ran.events, ran.batches, ran.days) == (0, 0, 0), "nothing new, nothing written"


def expect_queries_and_versions(lake: Lake, before: datetime):
    """`corral lake sql` and `history` tell the same as Spark, also of the time before the second run."""
    query = "SELECT outcome, count(*) AS jobs FROM jobs GROUP BY 1 ORDER BY 1"
    assert corral("lake", "sql", lake.path, query, "--csv").out == "outcome,jobs\ncompleted,4\ndead,9\n"
    assert corral("--json", "lake", "sql", lake.path, query, "--as-of", before.isoformat()).documents == [
        {"outcome": "alive", "jobs": 6},
        {"outcome": "completed", "jobs": 4},
    ]
    assert "completed  4" in corral("lake", "sql", lake.path, query).out
    said = corral("lake", "sql", lake.path, "SELECT nothing FROM jobs")
    assert (said.code, "the query failed: Binder Error" in said.err) == (2, True)
    said = corral("lake", "sql", lake.path, "COPY jobs TO '/tmp/jobs.csv'")
    assert (said.code, "the query failed: Permission Error" in said.err) == (2, True)
    said = corral("lake", "sql", lake.path, query, "--as-of", "2000-01-01")
    assert (said.code, "has no version of 2000-01-01" in said.err) == (2, True)
    versions = corral("--json", "lake", "history", lake.path).documents
    of_jobs = [(one["version"], one["operation"], one["added"]) for one in versions if one["table"] == "jobs"]
    assert of_jobs == [(2, "write", 13), (1, "write", 10), (0, "create table", None)]
    assert "create table" in corral("lake", "history", lake.path).out


def test_a_continuous_run_goes_on_until_it_is_told_to_stop(spark, bullmq: SparkHarness, lake: Lake):
    bullmq.add(4)
    stop = Event()
    options = RunOptions(is_continuous=True, every_s=0.2, refresh_s=0.5, compact_after=2)

    def jobs_told() -> int:
        return 0 if lake.table(JOBS).open() is None else lake.table(JOBS).dataset().count_rows()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_lake, spark, lake, [bullmq.address()], options, should_stop=stop.is_set)
        try:
            for jobs in (7, 10):
                bullmq.add(3)
                assert eventually(lambda: jobs_told() == jobs or running.done(), 120)  # noqa: B023
        finally:
            stop.set()
        ran = running.result()
    assert plain_ids(lake) == event_ids(bullmq)
    assert ran.compacted >= 2
    assert ran.events == 20
    assert jobs_told() == 10


@pytest.mark.faults
def test_a_refresh_that_was_broken_off_is_finished_by_the_next(
    spark, bullmq: SparkHarness, lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    bullmq.add(3)
    run_to_present(spark, lake, bullmq)
    bullmq.work(most=2)
    with monkeypatch.context() as patched:
        patched.setattr(refresh, "_refresh_minutes", lambda *rest: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_to_present(spark, lake, bullmq)
    assert lake.minutes(spark).agg({"completed": "sum"}).collect()[0][0] == 0
    run_to_present(spark, lake, bullmq)
    expect_as_from_scratch(spark, lake)
