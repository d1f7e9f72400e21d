"""Events become attempts, jobs and minutes; on small frames, so that each rule can be seen."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from corral.cli.demo.week import COLUMNS, made_up_attempts, write_week
from corral.spark.lake import gold, silver
from corral.spark.lake.tables import table_schema
from corral.spark.schema import EVENTS, arrow_schema

START = datetime(2025, 1, 31, 12, 0, 0, tzinfo=UTC)


def history(*events: tuple[float, str], job: str = "1", **more: Any) -> list[tuple[Any, ...]]:
    """Events of one job: (seconds, event); what comes later in one second has a higher id."""
    rows = []
    for place, (seconds, event) in enumerate(events):
        at = START + timedelta(seconds=seconds)
        data = {"failedReason": "boom"} if event in ("dead", "retry") else None
        rows.append((
            "bullmq", "mail", f"{int(at.timestamp() * 1000)}-{place}", at, event, job,
            "send" if event == "added" else None, None, None, more.get("worker"),
            None if data is None else json.dumps(data),
        ))  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def frame(spark):
    return lambda *jobs: spark.createDataFrame([row for rows in jobs for row in rows], EVENTS)


PLAIN = history((0, "added"), (0, "waiting"), (2, "active"), (5, "completed"))
RETRIED = history((0, "added"), (0, "waiting"), (1, "active"), (2, "retry"), (4, "waiting"), (5, "active"),
                (6, "dead"), job="2")  # fmt: skip
STALLED = history((0, "added"), (1, "active"), (31, "waiting"), (31, "stalled"), (32, "active"),
                (33, "completed"), job="3")  # fmt: skip
RUNNING = history((0, "added"), (3, "active"), job="4", worker="anna")
RELEASED = history((0, "added"), (1, "active"), (2, "waiting"), (3, "active"), (4, "completed"), job="5")
TWICE = history((0, "added"), (1, "active"), (2, "completed"), (60, "added"), (61, "active"), (62, "dead"),
              job="6")  # fmt: skip
REVIVED = history((0, "added"), (1, "active"), (2, "dead"), (9, "waiting"), (9, "progress"), job="7")
UNHEARD = history((0, "added"), (1, "active"), (2, "completed"), (70, "removed"), job="8")
ALL = (PLAIN, RETRIED, STALLED, RUNNING, RELEASED, TWICE, REVIVED, UNHEARD)


def test_attempts_say_when_and_how(frame):
    rows = silver.attempts(frame(*ALL)).collect()
    by_key = {
        (row["job_id"], row["generation"], row["attempt"]): (row["outcome"], row["waited_ms"], row["ran_ms"])
        for row in rows
    }
    assert by_key == {
        ("1", 1, 1): ("completed", 2000, 3000),
        ("2", 1, 1): ("retry", 1000, 1000),
        ("2", 1, 2): ("dead", 1000, 1000),
        ("3", 1, 1): ("stalled", 1000, 30000),
        ("3", 1, 2): ("completed", 1000, 1000),
        ("4", 1, 1): ("running", 3000, None),
        ("5", 1, 1): ("released", 1000, 1000),
        ("5", 1, 2): ("completed", 1000, 1000),
        ("6", 1, 1): ("completed", 1000, 1000),
        ("6", 2, 1): ("dead", 1000, 1000),
        ("7", 1, 1): ("dead", 1000, 1000),
        ("8", 1, 1): ("completed", 1000, 1000),
    }
    assert {row["reason"] for row in rows if row["outcome"] == "dead"} == {"boom"}
    assert {row["name"] for row in rows} == {"send"}
    assert [row["worker"] for row in rows if row["job_id"] == "4"] == ["anna"]


def test_jobs_say_how_each_life_went(frame):
    rows = silver.jobs(frame(*ALL)).collect()
    by_key = {
        (row["job_id"], row["generation"]): (row["outcome"], row["retries"], row["stalls"], row["ends"])
        for row in rows
    }
    assert by_key == {
        ("1", 1): ("completed", 0, 0, 1),
        ("2", 1): ("dead", 1, 0, 1),
        ("3", 1): ("completed", 0, 1, 1),
        ("4", 1): ("alive", 0, 0, 0),
        ("5", 1): ("completed", 0, 0, 1),
        ("6", 1): ("completed", 0, 0, 1),
        ("6", 2): ("dead", 0, 0, 1),
        ("7", 1): ("alive", 0, 0, 1),
        ("8", 1): ("removed", 0, 0, 1),
    }


def test_late_and_repeated_events_change_nothing(frame):
    rows = [row for rows in ALL for row in rows]
    shuffled = frame(rows[::-1], rows[3:9], rows)
    for make in (silver.attempts, silver.jobs):
        assert sorted(make(shuffled).collect()) == sorted(make(frame(rows)).collect())


def test_a_gap_and_events_of_no_job_are_no_jobs(frame):
    gap = ("bullmq", "mail", "1-0..2-0", START, "gap", None, None, None, None, None, '{"missing":3}')
    drained = ("bullmq", "mail", "3-0", START, "drained", None, None, None, None, None, None)
    assert silver.jobs(frame(PLAIN, [gap, drained])).count() == 1


def test_minutes_sum_up_a_queue(frame):
    events = frame(*ALL)
    [first, second] = sorted(
        gold.minutes(silver.attempts(events), silver.jobs(events)).collect(), key=lambda row: row["minute"]
    )
    assert (first["added"], first["completed"], first["dead"], first["retries"]) == (8, 5, 2, 1)
    assert (first["throughput"], first["stalled"]) == (7, 1)
    assert first["failure_rate"] == pytest.approx(2 / 7)
    assert first["stalled_share"] == pytest.approx(1 / 10)
    assert (first["waited_p50"], first["ran_p99"]) == (1000, pytest.approx(27570))
    assert (second["added"], second["completed"], second["dead"]) == (1, 0, 1)
    assert second["failure_rate"] == 1.0


def test_a_minute_without_ends_has_no_rates(frame):
    events = frame(history((0, "added")))
    [minute] = gold.minutes(silver.attempts(events), silver.jobs(events)).collect()
    assert (minute["added"], minute["throughput"]) == (1, 0)
    assert (minute["failure_rate"], minute["ran_p50"]) == (None, None)


def test_the_lake_of_the_demo_has_the_columns_of_the_lake(spark, tmp_path):
    write_week(str(tmp_path), 1_767_225_600_000, list(made_up_attempts(1_767_225_600_000, days=1)))
    for name in COLUMNS:
        real = {field.name: field.type for field in arrow_schema(table_schema(spark, name))}
        written = DeltaTable(tmp_path / name).to_pyarrow_dataset().schema
        assert {field.name: field.type for field in written} == real, name
