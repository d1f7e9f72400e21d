"""The rules of the audit, each seen on a small frame; and what becomes of their verdicts."""

import json
from datetime import timedelta
from typing import Any

import pytest

from corral.spark.lake.audit import rules as audit_rules
from corral.spark.lake.audit.audit import summarize
from corral.spark.lake.audit.findings import AuditFinding, AuditVerdict
from corral.spark.schema import EVENTS, JOBS
from tests.spark.test_silver import START, history

MAIL = ("bullmq", "mail")
LAST = f"{int(START.timestamp() * 1000) + 100_000}-0"
"""The snapshot begins a hundred seconds after the first event."""


def record(state: str | None, *, job: str = "1", seconds: float = 0) -> dict[str, Any]:
    created = START + timedelta(seconds=seconds)
    return dict.fromkeys(JOBS.fieldNames()) | {
        "protocol": "bullmq", "queue": "mail", "job_id": job, "name": "send", "state": state,
        "created_at": created,
    }  # fmt: skip


def gap(after_s: float, before_s: float, missing: int | None = 7) -> list[tuple[Any, ...]]:
    after, before = (f"{int((START.timestamp() + s) * 1000)}-0" for s in (after_s, before_s))
    data = json.dumps({"why": "trimmed", "missing": missing, "after": after, "before": before})
    at = START + timedelta(seconds=before_s)
    return [("bullmq", "mail", f"{after}..{before}", at, "gap", None, None, None, None, None, data)]


def cleaned(at_s: float, count: int) -> list[tuple[Any, ...]]:
    [row] = history((at_s, "cleaned"))
    return [(*row[:5], None, *row[6:-1], json.dumps({"count": count}))]


ADDED = history((0, "added"), (0, "waiting"))
DONE = history((0, "added"), (0, "waiting"), (1, "active"), (2, "completed"))

RULES = {
    "an end, and the record is gone": (DONE, [], AuditVerdict.ENDED),
    "an end, and the record says the same": (DONE, [record("completed")], AuditVerdict.ENDED),
    "removed while it waited": (history((0, "added"), (9, "removed")), [], AuditVerdict.ENDED),
    "its record alone tells the end": (ADDED, [record("completed")], AuditVerdict.ENDED),
    "alive in a state": (ADDED, [record("waiting")], AuditVerdict.ALIVE),
    "put back by an operator, and alive": (
        history((0, "added"), (1, "active"), (2, "dead"), (9, "waiting"), (10, "active"), (11, "progress")),
        [record("active")], AuditVerdict.ALIVE,
    ),
    "put back by an operator, and ended again": (
        history((0, "added"), (1, "active"), (2, "dead"), (9, "waiting"), (10, "active"), (11, "completed")),
        [record("completed")], AuditVerdict.ENDED,
    ),
    "ended while the snapshot was taken": (
        history((0, "added"), (1, "active"), (101, "completed")), [record("active")], AuditVerdict.ENDED,
    ),
    "added while the snapshot was taken": (history((101, "added")), [], AuditVerdict.MOVING),
    "claimed while the snapshot was taken, and not met": (
        history((0, "added"), (101, "active")), [], AuditVerdict.MOVING,
    ),
    "neither ended nor there": (ADDED, [], AuditVerdict.LOST),
    "put back, and then gone": (
        history((0, "added"), (1, "active"), (2, "dead"), (9, "waiting")), [], AuditVerdict.LOST,
    ),
    "two ends": (
        history((0, "added"), (1, "active"), (2, "completed"), (3, "completed")), [], AuditVerdict.DOUBLED,
    ),
    "run again after its end": (
        history((0, "added"), (1, "active"), (2, "completed"), (3, "waiting"), (3, "stalled"), (4, "active"),
              (5, "completed")), [], AuditVerdict.DOUBLED,
    ),
    "ended, and still to be run": (DONE, [record("active")], AuditVerdict.CONTRADICTED),
    "ended well, and stands as dead": (DONE, [record("dead")], AuditVerdict.CONTRADICTED),
    "a record in no state": (ADDED, [record(None)], AuditVerdict.ORPHANED),
    "a record in no state, without events": (
        history((0, "added"), job="2"), [record(None, seconds=5)], AuditVerdict.ORPHANED,
    ),
    "a record without events": (
        history((0, "added"), job="2"), [record("waiting", seconds=5)], AuditVerdict.ORPHANED,
    ),
    "a record from before the history": (
        history((0, "added"), job="2"), [record("waiting", seconds=-5)], AuditVerdict.UNPROVABLE,
    ),
}  # fmt: skip


HOLE = gap(10, 20)
OTHERS = history((0, "added"), job="2")
TWICE = history((0, "added"), (1, "completed"), (2, "completed"))
GAPS = {
    "it may have ended in the gap": (ADDED + HOLE, [], AuditVerdict.UNPROVABLE),
    "it was added after the gap": (history((30, "added")) + HOLE, [], AuditVerdict.LOST),
    "it may have been put back in the gap": (DONE + HOLE, [record("active")], AuditVerdict.UNPROVABLE),
    "it may have been added in the gap": (
        OTHERS + HOLE, [record("waiting", seconds=15)], AuditVerdict.UNPROVABLE,
    ),
    "it was made after the gap, without events": (
        OTHERS + HOLE, [record("waiting", seconds=25)], AuditVerdict.ORPHANED,
    ),
    "what was seen was seen": (TWICE + HOLE, [], AuditVerdict.DOUBLED),
}  # fmt: skip
SWEPT = {
    "a clean may have deleted it": (ADDED + cleaned(9, 3), [], AuditVerdict.UNPROVABLE),
    "a clean that found nothing deleted nothing": (ADDED + cleaned(9, 0), [], AuditVerdict.LOST),
    "it was added after the clean": (history((30, "added")) + cleaned(9, 3), [], AuditVerdict.LOST),
    "it ended before the clean": (DONE + cleaned(9, 3), [], AuditVerdict.ENDED),
}
EVERY_RULE = RULES | GAPS | SWEPT

AGAIN = history((0, "added"), (1, "completed"), (60, "added"), (61, "active"))
GONE_AND_AGAIN = history((0, "added"), (60, "added"))


def verdicts(spark, cases, **more):
    """Queue -> (verdict, detail) of each life of its job; each case has a queue of its own."""
    rows_of_all, records = [], []
    for queue, (rows, known) in cases.items():
        rows_of_all += [(row[0], queue, *row[2:]) for row in rows]
        records += [tuple((one | {"queue": queue}).values()) for one in known]
    events, snapshot = spark.createDataFrame(rows_of_all, EVENTS), spark.createDataFrame(records, JOBS)
    cut = {("bullmq", queue): LAST for queue in cases}
    judged = audit_rules.judge(events, snapshot, cut, **more).where("job_id != '2'")
    found: dict[str, list[Any]] = {queue: [] for queue in cases}
    for row in sorted(judged.collect(), key=lambda row: row["generation"]):
        found[row["queue"]].append((AuditVerdict(row["verdict"]), row["detail"]))
    return found


@pytest.fixture(scope="module")
def found(spark):
    """All cases at once: one look of Spark's at many small queues."""
    cases = {title: case[:2] for title, case in EVERY_RULE.items()}
    cases["again"] = (AGAIN, [record("active", seconds=60)])
    cases["gone and again"] = (GONE_AND_AGAIN, [record("waiting", seconds=60)])
    scheduled = [(*row[:5], "repeat:daily:1", *row[6:]) for row in GONE_AND_AGAIN]
    cases["made anew"] = (scheduled, [record("waiting", job="repeat:daily:1", seconds=60)])
    return verdicts(spark, cases)


@pytest.mark.parametrize("title", EVERY_RULE)
def test_each_rule(found, title):
    assert [verdict for verdict, _ in found[title]] == [EVERY_RULE[title][2]]


def test_an_id_has_as_many_lives_as_it_was_added(found):
    assert [verdict for verdict, _ in found["again"]] == [AuditVerdict.ENDED, AuditVerdict.ALIVE]
    assert found["gone and again"] == [
        (
            AuditVerdict.LOST,
            "its last event is added at 2025-01-31 12:00:00.000Z; its id was added again since",
        ),
        (AuditVerdict.ALIVE, None),
    ]


def test_a_scheduler_may_make_its_next_job_anew(found):
    assert [verdict for verdict, _ in found["made anew"]] == [AuditVerdict.ENDED, AuditVerdict.ALIVE]


def test_strangers_and_what_is_older_are_left_alone_where_that_was_asked(spark):
    since = START + timedelta(seconds=30)
    cases = {
        "with events before": (ADDED, []),
        "made before": (ADDED, [record("waiting")]),
        "a gap before": (history((40, "added")) + HOLE, []),
        "without events": (OTHERS, [record("waiting", seconds=45)]),
        "without events, in no state": (OTHERS, [record(None, seconds=45)]),
    }
    found = verdicts(spark, cases, since=since, has_foreign_clients=True)
    assert {queue: [verdict for verdict, _ in lives] for queue, lives in found.items()} == {
        "with events before": [],
        "made before": [],
        "a gap before": [AuditVerdict.LOST],
        "without events": [AuditVerdict.EVENTLESS],
        "without events, in no state": [AuditVerdict.ORPHANED],
    }


JUDGED = "protocol string, queue string, job_id string, name string, verdict string, detail string"


@pytest.mark.parametrize(
    ("verdicts", "seen", "code", "words"),
    [
        (["ended", "ended", "alive"], [], 0, "nothing lost: 3 jobs are right (2 ended, 1 alive)"),
        (["ended", "lost"], [], 1, "something is wrong: 1 lost; 1 job is right (1 ended)"),
        (["ended"], ["leaked"], 1, "something is wrong: 1 leaked"),
        (["ended"], ["unprovable"], 4, "not all can be proved: 1 unprovable"),
        (["ended", "lost", "unprovable"], [], 1, "something is wrong: 1 lost"),
    ],
)
def test_the_exit_code_says_the_worst(spark, verdicts, seen, code, words):
    rows = [(*MAIL, str(number), "send", word, None) for number, word in enumerate(verdicts)]
    more = [AuditFinding(AuditVerdict(word), *MAIL, None, None, "of some kind") for word in seen]
    found = summarize("bullmq", ["mail"], spark.createDataFrame(rows, JUDGED), more)
    assert found.exit_code == code
    assert found.sentence().startswith(words)


def test_no_more_is_listed_than_was_asked_for_and_all_is_counted(spark):
    rows = [(*MAIL, str(number), "send", "lost", "last heard of as added") for number in range(30)]
    found = summarize("bullmq", ["mail"], spark.createDataFrame(rows, JUDGED), [], limit=10)
    assert (found.counts, len(found.findings), found.omitted) == ({"lost": 30}, 10, 20)
    assert found.findings[0].sentence() == "lost: mail/0 last heard of as added"
