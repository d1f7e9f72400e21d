"""The report on small frames: its tables, its alarms, and a page that needs nothing and obeys no data."""

import json
import re
from datetime import timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from corral.errors import InvalidOptions
from corral.spark.lake import gold, silver
from corral.spark.lake.report.page import page, write_page
from corral.spark.lake.report.report import LakeReport, report
from corral.spark.schema import EVENTS
from tests.spark.test_silver import ALL, START, history

NASTY = '<script>alert("x")</script> & \x1b[31m\u202ered'


def spoilt():
    """A job whose reason, name and queue are someone's attack."""
    rows = history((0, "added"), (1, "active"), (121, "dead"), job="<img src=x onerror=alert(1)>")
    reason = json.dumps({"failedReason": NASTY})
    return [
        (*row[:6], "<b>name" if row[6] else None, *row[7:10], reason if row[4] == "dead" else row[10])
        for row in rows
    ]


STALLING = [
    row
    for number in range(8)
    for row in history(
        (300, "added"), (301, "active"), (302, "waiting"), (302, "stalled"), (303, "active"),
        (304, "completed"), job=f"s{number}",
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def tables(spark):
    rows = [row for rows in (*ALL, spoilt()) for row in rows]
    rows += [(row[0], "sms", *row[2:]) for row in STALLING]
    events = spark.createDataFrame(rows, EVENTS)
    attempts, jobs = silver.attempts(events).localCheckpoint(), silver.jobs(events).localCheckpoint()
    return attempts, jobs, gold.minutes(attempts, jobs).localCheckpoint()


@pytest.fixture(scope="module")
def whole(tables) -> LakeReport:
    return report(*tables)


def row_of(table, **wanted: str) -> dict[str, str]:
    rows = [dict(zip(table.titles, row, strict=True)) for row in table.rows]
    [found] = [row for row in rows if wanted.items() <= row.items()]
    return found


def test_queues_are_summed_up(whole):
    mail = row_of(whole.queues, queue="mail")
    figures = {name: mail[name] for name in ("added", "completed", "dead", "retries", "stalled", "alive")}
    assert figures == {
        "added": "10",
        "completed": "5",
        "dead": "4",
        "retries": "1",
        "stalled": "1",
        "alive": "2",
    }
    assert (mail["failed"], mail["stalling"]) == ("44.4 %", "8.3 %")
    assert row_of(whole.queues, queue="sms")["peak"] == "8/min"
    assert row_of(whole.names, queue="sms", name="send")["retried"] == "0.0 %"


def test_failures_and_slow_jobs_come_worst_first(whole):
    assert whole.failures.rows[0][:3] == ("8", "sms", "send")
    assert row_of(whole.failures, reason="boom", outcome="dead", queue="mail")["count"] == "3"
    assert dict(whole.bars["Failures by reason"])[NASTY] == 1
    assert whole.failing.rows[0] == ("sms", "send", "8", "(no reason given)")
    assert row_of(whole.failing, queue="mail", name="send")["reason"] == "boom"
    assert whole.slowest.rows[0][0] == "2 min 0 s"
    assert [row[0] for row in whole.slowest.rows[1:3]] == ["30 s", "3 s"]


def test_stalling_is_an_alarm_above_a_tenth(whole):
    [alarm] = whole.alerts
    assert alarm.startswith("queue 'sms' of bullmq: 50.0 % of its attempts stalled")


def test_series_run_along_the_minutes(whole):
    [mail, _] = whole.series
    assert [point.completed for point in mail.points] == [5, 0, 0]
    assert mail.points[0].at == START
    assert mail.points[0].waited[0] == 1000
    assert mail.points[-1].ran == (120_000, 120_000, 120_000)


def test_a_queue_that_was_behind_says_when_and_until_when(whole):
    mail = row_of(whole.behind, queue="mail")
    assert (mail["jobs"], mail["at"], mail["caught up"]) == ("2", "2025-01-31 12:00:00", "")
    assert [point.behind for point in whole.series[0].points] == [2, 2, 1]


def test_names_that_got_slower_since_the_week_before_are_listed(spark):
    day = 86_400
    rows = [
        row
        for week, seconds in ((0, 2), (8, 6))
        for number in range(5)
        for row in history(
            (week * day, "added"), (week * day + 1, "active"), (week * day + 1 + seconds, "completed"),
            job=f"{week}-{number}",
        )
    ]  # fmt: skip
    events = spark.createDataFrame(rows, EVENTS)
    attempts, jobs = silver.attempts(events), silver.jobs(events)
    made = report(attempts, jobs, gold.minutes(attempts, jobs), since=START + timedelta(days=7))
    assert made.slower.rows == (("bullmq", "mail", "send", "2 s", "6 s", "200.0 %"),)
    assert "Slower than the week before" in page(made)


def test_a_report_can_be_of_a_part_of_the_time(tables):
    part = report(*tables, since=START + timedelta(minutes=4), until=START + timedelta(minutes=9))
    assert [row[1] for row in part.queues.rows] == ["sms"]
    assert part.slowest.rows[0][0] == "1 s"
    with pytest.raises(InvalidOptions, match="is not before until"):
        report(*tables, since=START, until=START)


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs


def test_the_page_needs_nothing_and_obeys_no_data(whole, tmp_path):
    written = write_page(whole, tmp_path / "new" / "report.html", "History of <mail>").read_text()
    seen = Seen()
    seen.feed(written)
    assert {"script", "img", "link", "iframe", "object", "b"}.isdisjoint(seen.tags)
    assert {"src", "href", "onerror", "xlink:href"}.isdisjoint(name for name, _ in seen.attributes)
    assert "url(" not in written
    assert "@import" not in written
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; \\x1b[31m\\u202ered" in written
    assert "<title>History of &lt;mail&gt;</title>" in written
    assert "prefers-color-scheme: dark" in written
    assert 'role="alert"' in written


def test_its_charts_are_sound(whole):
    drawn = re.findall(r"<svg.*?</svg>", page(whole), re.DOTALL)
    assert len(drawn) == 10, "four for each queue, the names that fail, and the reasons"
    for chart in drawn:
        root = ElementTree.fromstring(chart)
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        for dot in root.iter("circle"):
            assert 0 <= float(dot.attrib["cx"]) <= width
            assert 0 <= float(dot.attrib["cy"]) <= height


def test_nothing_to_report_is_said_too(spark, tables):
    nothing = report(*tables, since=START + timedelta(days=400))
    assert nothing.is_empty
    assert "No jobs in this time." in page(nothing)
