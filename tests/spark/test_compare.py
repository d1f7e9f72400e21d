"""Two sides beside each other: on small frames, and on two prefixes of a real server."""

import asyncio
from typing import Any

import pytest

from corral.core.job import Claim, Job, JobOptions
from corral.core.outcome import Completed, Dead, Outcome, Settlement
from corral.errors import InvalidOptions
from corral.protocols import protocol_named
from corral.protocols.base import Binding
from corral.spark.lake.audit.comparison import Comparison, Figure, Side, compare, compare_servers, differs
from corral.spark.options import QueueAddress
from corral.spark.schema import EVENTS, JOBS
from corral.store.client import Store
from corral.worker import wall_clock
from tests.spark.test_audit import record
from tests.spark.test_silver import history

FINE = history((0, "added"), (0, "waiting"), (1, "active"), (2, "completed"))
BROKEN = history((0, "added"), (0, "waiting"), (1, "active"), (2, "dead"))
RETRIED = history((0, "added"), (1, "active"), (2, "retry"), (3, "active"), (4, "completed"), job="2")


@pytest.fixture
def side(spark):
    def make(label: str, events: list[Any], records: list[dict[str, Any]]) -> Side:
        events = spark.createDataFrame([row for rows in events for row in rows], EVENTS)
        rows = [tuple(one.values()) for one in records]
        return Side(label, events, spark.createDataFrame(rows, JOBS))

    return make


def values(figures: Any) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    return {(figure.subject, figure.measure): (figure.a, figure.b) for figure in figures}


def test_two_alike_have_no_differences(side):
    records = [record("completed") | {"data": '{"to":"a"}', "result": '{"ok":true}'}]
    found = compare(side("one", [FINE, RETRIED], records), side("two", [FINE, RETRIED], records))
    assert found.differences == ()
    assert (found.exit_code, found.shared) == (0, 2)
    assert found.sentence() == "no differences between one and two (compared: 2 jobs by id)"
    figures = values(found.figures)
    assert figures["all jobs", "jobs"] == ("2", "2")
    assert figures["all jobs", "error rate %"] == ("0.00", "0.00")
    assert figures["all jobs", "attempts per job"] == ("1.50", "1.50")
    assert figures["all jobs", "ran p50 ms"] == ("2000", "2000")
    assert figures["records of send", "format of results"] == ("{ok}", "{ok}")
    assert figures["event retry", "count"] == ("1", "1")


def test_every_difference_is_listed(side):
    good = [record("completed") | {"data": '{"to":"a"}', "result": '{"ok":true}', "priority": 1}]
    bad = [record("dead") | {"data": '{"to":"a"}', "result": "17", "priority": 1}]
    found = compare(side("one", [FINE, RETRIED], good), side("two", [BROKEN], bad))
    figures = values(found.differences)
    assert figures["all jobs", "jobs"] == ("2", "1")
    assert figures["all jobs", "error rate %"] == ("0.00", "100.00")
    assert figures["send", "completed"] == ("2", "0")
    assert figures["records of send", "states"] == ("completed 1", "dead 1")
    assert figures["records of send", "format of results"] == ("{ok}", "number")
    assert figures["event completed", "count"] == ("2", None)
    assert figures["event dead", "fields"] == (None, "{failedReason}")
    assert figures["job 1", "outcome"] == ("completed", "dead")
    assert figures["job 1", "reason"] == (None, "boom")
    assert figures["job 1", "record's result"] == ('{"ok":true}', "17")
    assert figures["job 2", "presence"] == ("there", None)
    assert ("job 1", "record's priority") not in figures
    assert (found.exit_code, found.shared, found.omitted) == (1, 1, 0)
    few = compare(side("one", [FINE, RETRIED], good), side("two", [BROKEN], bad), limit=3)
    assert (len(few.differences), few.total, few.omitted) == (3, found.total, found.total - 3)


def test_a_side_without_jobs_is_refused(side):
    with pytest.raises(InvalidOptions, match="there is no job in 'mial' to compare"):
        compare(side("mail", [FINE], []), side("mial", [], []))


@pytest.mark.parametrize(
    ("a", "b", "is_time", "expected"),
    [("100", "120", True, False), ("100", "200", True, True), ("1", "9", True, False),
     ("100", "101", False, True), (None, "5", True, True), (None, None, True, False)],
)  # fmt: skip
def test_times_differ_when_the_difference_is_more_than_noise(a, b, is_time, expected):
    assert differs(Figure("all jobs", "ran p50 ms", a, b), is_time, 0.25) is expected


ONCE = JobOptions(attempts=1)


def end(claim: Claim, is_broken: bool) -> Outcome:
    return Dead("boom") if is_broken and claim.job.id == "3" else Completed(b"1")


def test_a_shadow_under_another_prefix_is_held_against_its_original(spark, server):
    async def live(prefix: str, is_broken: bool) -> None:
        store = Store(server.url)
        broker = protocol_named("bullmq").bind(Binding(store, "mail", prefix, wall_clock)).broker
        jobs = [
            Job(name="send", data={"n": n}, queue="mail", options=ONCE, created_at=wall_clock())
            for n in range(6)
        ]
        await broker.submit(jobs)
        claims = (await broker.turn([], 6)).claims
        await broker.turn([Settlement(claim, end(claim, is_broken), wall_clock()) for claim in claims], 0)
        await broker.close()
        await store.close()

    asyncio.run(live("bull", False))
    asyncio.run(live("shadow", True))
    found: Comparison = compare_servers(
        spark,
        QueueAddress(server.url, "bullmq", "bull", "mail"),
        QueueAddress(server.url, "bullmq", "shadow", "mail"),
        tolerance=10.0,
    )
    assert (found.a, found.b, found.shared) == ("bull:mail", "shadow:mail", 6)
    figures = values(found.differences)
    assert figures["job 3", "outcome"] == ("completed", "dead")
    assert figures["send", "error rate %"] == ("0.00", "16.67")
    assert {subject for subject, _ in figures if subject.startswith("job ")} == {"job 3"}
