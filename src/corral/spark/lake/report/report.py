"""The report of a lake: tables, series and alerts from its attempts, jobs and minutes."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from corral.errors import InvalidOptions
from corral.spark.lake.gold import COUNTS, QUANTILES
from corral.spark.lake.report import queries
from corral.spark.lake.tables import Lake

STALLED_ALERT = 0.10
"""The share of stalled attempts above which there is an alert."""
ALERT_ATTEMPTS = 10
"""Attempts that an interval must have for an alert of its own."""
MAX_ROWS = 20

QueueKey = tuple[str, str]
"""(protocol, queue)"""


@dataclass(frozen=True)
class ReportTable:
    """Rows of text under their column titles."""

    title: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SeriesPoint:
    """What happened in one queue in one interval; times in milliseconds."""

    at: datetime
    added: int
    completed: int
    dead: int
    retries: int
    stalled: int
    behind: int
    """Jobs added since the beginning of the series that have not ended, at the end of the interval."""
    waited: tuple[float | None, ...]
    """p50, p95, p99; also of `ran`."""
    ran: tuple[float | None, ...]

    @property
    def is_stalling(self) -> bool:
        ended = self.completed + self.dead + self.retries + self.stalled
        return ended >= ALERT_ATTEMPTS and self.stalled / ended > STALLED_ALERT


@dataclass(frozen=True)
class QueueSeries:
    """One queue over time."""

    protocol: str
    queue: str
    step_minutes: int
    points: tuple[SeriesPoint, ...]


@dataclass(frozen=True)
class LakeReport:
    """A report; `page.page` renders it as one HTML page."""

    since: datetime | None
    until: datetime | None
    queues: ReportTable
    names: ReportTable
    slower: ReportTable
    failing: ReportTable
    behind: ReportTable
    failures: ReportTable
    slowest: ReportTable
    alerts: tuple[str, ...]
    series: tuple[QueueSeries, ...]
    bars: Mapping[str, Sequence[tuple[str, int]]]
    """Title of a chart -> counts by label."""

    @property
    def tables(self) -> tuple[ReportTable, ...]:
        return (
            self.queues,
            self.slower,
            self.failing,
            self.behind,
            self.names,
            self.failures,
            self.slowest,
        )

    @property
    def is_empty(self) -> bool:
        return not self.queues.rows


def report(
    attempts: DataFrame,
    jobs: DataFrame,
    minutes: DataFrame,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = MAX_ROWS,
) -> LakeReport:
    """Report what happened from `since` until before `until`, with at most `limit` rows in a table."""
    if since is not None and until is not None and since >= until:
        raise InvalidOptions(f"since ({since}) is not before until ({until}); give an earlier since")
    history = attempts
    attempts = _between(attempts, sf.coalesce("ended_at", "started_at"), since, until)
    minutes = _between(minutes, sf.col("minute"), since, until)
    jobs = _between(jobs, sf.coalesce("added_at", "first_at"), since, until)
    sums = _by_queue(queries.queues(minutes))
    times = _by_queue(queries.times(attempts, []))
    alive = {key: row["alive"] for key, row in _by_queue(queries.alive(jobs)).items()}
    named = queries.times(attempts, ["name"]).orderBy("protocol", "queue", sf.desc("ended")).collect()
    span = queries.span(minutes).collect()
    series = _series(attempts, minutes, span)
    failures = queries.reasons(attempts).limit(limit).collect()
    reasons: Counter[str] = Counter()
    for row in failures:
        reasons[row["reason"]] += row["count"]
    last = until or (utc(span[0]["last"]) + timedelta(minutes=1) if span else None)
    slower = [] if last is None else queries.slower(history, last).limit(limit).collect()
    failing = queries.failing(attempts).limit(limit).collect()
    keys = sorted(sums.keys() | times.keys() | alive.keys())
    return LakeReport(
        since=since or (utc(span[0]["first"]) if span else None),
        until=until or (utc(span[0]["last"]) if span else None),
        queues=_queue_table((key, sums.get(key), times.get(key), alive.get(key, 0)) for key in keys),
        names=_table("Jobs by name", _NAME_COLUMNS, named[: limit * 5]),
        slower=_table("Slower than the week before", _SLOWER_COLUMNS, slower),
        failing=_table("Failing most", _FAILING_COLUMNS, failing),
        behind=_behind_table(series),
        failures=_table("Failures by reason", _FAILURE_COLUMNS, failures),
        slowest=_table("Slowest jobs", _SLOWEST_COLUMNS, queries.slowest(attempts).limit(limit).collect()),
        alerts=_alerts(times, {(one.protocol, one.queue): one for one in series}),
        series=tuple(series),
        bars={
            "Slower than the week before, % of p95": [
                (_label(row), round(row["growth"] * 100)) for row in slower
            ],
            "Failing most, attempts": [(_label(row), row["failed"]) for row in failing],
            "Failures by reason": reasons.most_common(),
        },
    )


def report_lake(spark: SparkSession, lake: Lake, **options: Any) -> LakeReport:
    """Report on a lake; the options are those of `report`."""
    return report(lake.attempts(spark), lake.jobs(spark), lake.minutes(spark), **options)


def duration(milliseconds: float | None) -> str:
    """Return a duration in words.

    >>> [duration(value) for value in (None, 0.4, 12, 1234, 75_000, 7_500_000)]
    ['', '0.4 ms', '12 ms', '1.23 s', '1 min 15 s', '2 h 5 min']
    """
    if milliseconds is None:
        return ""
    if milliseconds < 1000:
        return f"{milliseconds:.3g} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def utc(at: datetime) -> datetime:
    """Return a time that Spark returned; without a zone it is in that of this machine."""
    return at.astimezone(UTC)


def _between(frame: DataFrame, at: Any, since: datetime | None, until: datetime | None) -> DataFrame:
    if since is not None:
        frame = frame.where(at >= sf.lit(since))
    return frame if until is None else frame.where(at < sf.lit(until))


def _by_queue(frame: DataFrame) -> dict[QueueKey, Any]:
    return {(row["protocol"], row["queue"]): row for row in frame.collect()}


_TIMES = {f"{what} {name}": f"{what}_{name}" for what in ("waited", "ran") for name in QUANTILES}
"""Title -> column."""


def _text(column: str) -> Callable[[Any], str]:
    return lambda row: "" if row[column] is None else str(row[column])


def _percent(column: str) -> Callable[[Any], str]:
    return lambda row: "" if row[column] is None else f"{row[column] * 100:.1f} %"


def _duration(column: str) -> Callable[[Any], str]:
    return lambda row: duration(row[column])


def _at(column: str) -> Callable[[Any], str]:
    return lambda row: "" if row[column] is None else _moment(row[column])


def _moment(at: datetime) -> str:
    return f"{utc(at):%Y-%m-%d %H:%M:%S}"


Columns = Mapping[str, Callable[[Any], str]]
"""Title -> the text of a row."""

_NAME_COLUMNS: Columns = {
    "protocol": _text("protocol"),
    "queue": _text("queue"),
    "name": _text("name"),
    "attempts": _text("ended"),
    "failed": _percent("failure_rate"),
    "retried": _percent("retry_rate"),
    **{title: _duration(column) for title, column in _TIMES.items()},
}
_FAILURE_COLUMNS: Columns = {
    **{name: _text(name) for name in ("count", "queue", "name", "outcome", "reason")},
    "last": _at("last"),
}
_SLOWER_COLUMNS: Columns = {
    **{name: _text(name) for name in ("protocol", "queue", "name")},
    "p95 the week before": _duration("before"),
    "p95 now": _duration("now"),
    "more": _percent("growth"),
}
_FAILING_COLUMNS: Columns = {name: _text(name) for name in ("queue", "name", "failed", "reason")}
_SLOWEST_COLUMNS: Columns = {
    "ran": _duration("ran_ms"),
    "waited": _duration("waited_ms"),
    "queue": _text("queue"),
    "name": _text("name"),
    "job": _text("job_id"),
    "attempt": _text("attempt"),
    "outcome": _text("outcome"),
    "ended": _at("ended_at"),
}


def _table(title: str, columns: Columns, rows: Sequence[Any]) -> ReportTable:
    cells = (tuple(cell(row) for cell in columns.values()) for row in rows)
    return ReportTable(title, tuple(columns), tuple(cells))


def _queue_table(queues: Iterable[tuple[QueueKey, Any, Any, int]]) -> ReportTable:
    """Return a row per queue of (its sums, its times, jobs alive); sums or times may be missing."""
    rates = {"failed": "failure_rate", "stalling": "stalled_share"}
    rows = []
    for key, sums, times, alive in queues:
        counts = [str(sums[name]) if sums else "0" for name in COUNTS]
        shares = [_percent(column)(times) if times else "" for column in rates.values()]
        peak = f"{sums['peak']}/min" if sums else ""
        durations = [duration(times[column]) if times else "" for column in _TIMES.values()]
        rows.append((*key, *counts, str(alive), *shares, peak, *durations))
    return ReportTable(
        "Queues", ("protocol", "queue", *COUNTS, "alive", *rates, "peak", *_TIMES), tuple(rows)
    )


def _label(row: Any) -> str:
    return f"{row['name'] or 'jobs without a name'} ({row['queue']})"


def _behind_table(series: Sequence[QueueSeries]) -> ReportTable:
    """Return a row per queue that was behind: when it was most, and when it had caught up by nine tenths."""
    rows = []
    for one in series:
        worst = max(one.points, key=lambda point: point.behind)
        later = (point for point in one.points if point.at > worst.at and point.behind <= worst.behind / 10)
        caught_up = next(later, None)
        if worst.behind:
            waited = duration(worst.waited[1])
            rows.append(
                (one.protocol, one.queue, str(worst.behind), _moment(worst.at), waited,
                 "" if caught_up is None else _moment(caught_up.at))
            )  # fmt: skip
    titles = ("protocol", "queue", "jobs", "at", "waited p95 then", "caught up")
    return ReportTable("When queues were behind", titles, tuple(rows))


def _series(attempts: DataFrame, minutes: DataFrame, span: Sequence[Any]) -> list[QueueSeries]:
    if not span:
        return []
    step = queries.step_minutes(span[0]["first"], span[0]["last"])
    points: dict[QueueKey, list[SeriesPoint]] = {}
    behind: Counter[QueueKey] = Counter()
    for row in queries.series(attempts, minutes, step).orderBy("protocol", "queue", "at").collect():
        waited, ran = (tuple(row[f"{what}_{name}"] for name in QUANTILES) for what in ("waited", "ran"))
        counts = {name: row[name] or 0 for name in ("added", "completed", "dead", "retries", "stalled")}
        key = (row["protocol"], row["queue"])
        ended = counts["completed"] + counts["dead"] + (row["cancelled"] or 0)
        # jobs that were added before the series began may end in it
        behind[key] = max(behind[key] + counts["added"] - ended, 0)
        point = SeriesPoint(utc(row["at"]), **counts, behind=behind[key], waited=waited, ran=ran)
        points.setdefault(key, []).append(point)
    return [QueueSeries(protocol, queue, step, tuple(found)) for (protocol, queue), found in points.items()]


def _alerts(times: Mapping[QueueKey, Any], series: Mapping[QueueKey, QueueSeries]) -> tuple[str, ...]:
    alerts = []
    for (protocol, queue), row in sorted(times.items()):
        share = row["stalled_share"] or 0.0
        points = series[protocol, queue].points if (protocol, queue) in series else ()
        stalling = [point for point in points if point.is_stalling]
        if share > STALLED_ALERT:
            alerts.append(
                f"queue {queue!r} of {protocol}: {share * 100:.1f} % of its attempts stalled (workers died "
                f"or lost their locks; more than {STALLED_ALERT * 100:.0f} % is an alert)"
            )
        elif stalling:
            alerts.append(
                f"queue {queue!r} of {protocol}: more than {STALLED_ALERT * 100:.0f} % of attempts stalled "
                f"around {_moment(stalling[0].at)}"
                + (f" and at {len(stalling) - 1} other times" if len(stalling) > 1 else "")
            )
    return tuple(alerts)
