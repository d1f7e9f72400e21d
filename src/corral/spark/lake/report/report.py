"""The report: what a lake's attempts, jobs and minutes say of its queues, in tables, series and alerts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from corral.errors import InvalidOptions
from corral.spark.lake.report import queries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from corral.spark.lake.tables import Lake

STALLED_ALERT = 0.10
"""More attempts than this share given up by dead workers is an alarm."""
MOST_ROWS = 20


@dataclass(frozen=True)
class Table:
    """Rows under their titles, as text."""

    title: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Point:
    """What happened in one queue in one stretch of time; times in milliseconds."""

    at: datetime
    added: int
    completed: int
    dead: int
    retries: int
    stalled: int
    waited: tuple[float | None, float | None, float | None]
    """p50, p95, p99."""
    ran: tuple[float | None, float | None, float | None]


@dataclass(frozen=True)
class Series:
    """One queue along the time."""

    protocol: str
    queue: str
    step_minutes: int
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Report:
    """All that is said; `page.page` makes one HTML page of it."""

    since: datetime | None
    until: datetime | None
    queues: Table
    names: Table
    failures: Table
    slowest: Table
    alerts: tuple[str, ...]
    series: tuple[Series, ...]
    reasons: tuple[tuple[str, int], ...]
    """The commonest reasons of failure, all queues together."""

    @property
    def tables(self) -> tuple[Table, ...]:
        return (self.queues, self.names, self.failures, self.slowest)

    @property
    def is_empty(self) -> bool:
        return not self.queues.rows


def report(
    attempts: "DataFrame",
    jobs: "DataFrame",
    minutes: "DataFrame",
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    most: int = MOST_ROWS,
) -> Report:
    """What happened from `since` to before `until`.

    >>> report(silver.attempts(events), silver.jobs(events), minutes).alerts          # doctest: +SKIP
    ('queue mail: 12.5 % of its attempts stalled …',)
    """
    if since is not None and until is not None and since >= until:
        raise InvalidOptions(f"since ({since}) is not before until ({until}); give an earlier since")
    ended = _between(attempts, sf.coalesce("ended_at", "started_at"), since, until)
    told = _between(minutes, sf.col("minute"), since, until)
    born = _between(jobs, sf.coalesce("added_at", "first_at"), since, until)
    sums = {(row["protocol"], row["queue"]): row for row in queries.queues(told).collect()}
    times = {(row["protocol"], row["queue"]): row for row in queries.times(ended, []).collect()}
    named = queries.times(ended, ["name"]).orderBy("protocol", "queue", sf.desc("ended")).collect()
    alive = {(row["protocol"], row["queue"]): row["alive"] for row in queries.alive(born).collect()}
    spread = queries.span(told).collect()
    series = _series(ended, told, spread)
    failures = queries.reasons(ended).limit(most).collect()
    slowest = queries.slowest(ended).limit(most).collect()
    every = sorted(sums.keys() | times.keys() | alive.keys())
    return Report(
        since=since or (utc(spread[0]["first"]) if spread else None),
        until=until or (utc(spread[0]["last"]) if spread else None),
        queues=_queue_table([(key, sums.get(key), times.get(key), alive.get(key, 0)) for key in every]),
        names=_name_table(named[: most * 5]),
        failures=_failure_table(failures),
        slowest=_slowest_table(slowest),
        alerts=_alerts(times, {(s.protocol, s.queue): s for s in series}),
        series=tuple(series),
        reasons=_reasons_of_all(failures),
    )


def report_lake(
    spark: "SparkSession",
    lake: "Lake",
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    most: int = MOST_ROWS,
) -> Report:
    """What a lake knows of that time."""
    tables = (lake.attempts(spark), lake.jobs(spark), lake.minutes(spark))
    return report(*tables, since=since, until=until, most=most)


def spelled(milliseconds: float | None) -> str:
    """A time as people say it.

    >>> [spelled(value) for value in (None, 0.4, 12, 1234, 75_000, 7_500_000)]
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


# -- tables -------------------------------------------------------------------------------------------------


def _queue_table(rows: Sequence[tuple[tuple[str, str], Any, Any, int]]) -> Table:
    told = []
    for (protocol, queue), sums, times, alive in rows:
        counts = [str(sums[name]) if sums else "0" for name in queries.COUNTS]
        rates = [_percent(times[name]) if times else "" for name in ("failure_rate", "stalled_share")]
        peak = f"{sums['peak']}/min" if sums else ""
        told.append((protocol, queue, *counts, str(alive), *rates, peak, *_times(times)))
    titles = ("protocol", "queue", *queries.COUNTS, "alive", "failed", "stalling", "peak", *_TIMES)
    return Table("Queues", titles, tuple(told))


_TIMES = ("waited p50", "waited p95", "waited p99", "ran p50", "ran p95", "ran p99")


def _name_table(rows: Sequence[Any]) -> Table:
    told = tuple(
        (
            row["protocol"],
            row["queue"],
            row["name"] or "",
            str(row["ended"]),
            _percent(row["failure_rate"]),
            _percent(row["retry_rate"]),
            *_times(row),
        )
        for row in rows
    )
    return Table(
        "Jobs by name", ("protocol", "queue", "name", "attempts", "failed", "retried", *_TIMES), told
    )


def _failure_table(rows: Sequence[Any]) -> Table:
    told = tuple(
        (
            str(row["count"]),
            row["queue"],
            row["name"] or "",
            row["outcome"],
            row["reason"],
            _moment(row["last"]),
        )
        for row in rows
    )
    return Table("Failures by reason", ("count", "queue", "name", "outcome", "reason", "last"), told)


def _slowest_table(rows: Sequence[Any]) -> Table:
    told = tuple(
        (
            spelled(row["ran_ms"]),
            spelled(row["waited_ms"]),
            row["queue"],
            row["name"] or "",
            row["job_id"],
            str(row["attempt"]),
            row["outcome"],
            _moment(row["ended_at"]),
        )
        for row in rows
    )
    titles = ("ran", "waited", "queue", "name", "job", "attempt", "outcome", "ended")
    return Table("Slowest jobs", titles, told)


def _times(row: Any) -> list[str]:
    names = [f"{what}_{quantile}" for what in ("waited", "ran") for quantile in ("p50", "p95", "p99")]
    return [spelled(row[name]) if row else "" for name in names]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share * 100:.1f} %"


def _moment(at: datetime | None) -> str:
    return "" if at is None else f"{utc(at):%Y-%m-%d %H:%M:%S}"


def utc(at: datetime) -> datetime:
    """A time that Spark gave: without a zone it is one of this machine."""
    return at.astimezone(UTC)


# -- along the time -----------------------------------------------------------------------------------------


def _series(ended: "DataFrame", minutes: "DataFrame", spread: Sequence[Any]) -> list[Series]:
    if not spread:
        return []
    step = queries.step_minutes(spread[0]["first"], spread[0]["last"])
    found: dict[tuple[str, str], list[Point]] = {}
    for row in queries.along(ended, minutes, step).orderBy("protocol", "queue", "at").collect():
        waited = (row["waited_p50"], row["waited_p95"], row["waited_p99"])
        ran = (row["ran_p50"], row["ran_p95"], row["ran_p99"])
        counts = {name: row[name] or 0 for name in ("added", "completed", "dead", "retries", "stalled")}
        point = Point(utc(row["at"]), **counts, waited=waited, ran=ran)
        found.setdefault((row["protocol"], row["queue"]), []).append(point)
    return [Series(protocol, queue, step, tuple(points)) for (protocol, queue), points in found.items()]


def _alerts(times: dict[tuple[str, str], Any], series: dict[tuple[str, str], Series]) -> tuple[str, ...]:
    told = []
    for (protocol, queue), row in sorted(times.items()):
        share = row["stalled_share"] or 0.0
        bad = [point for point in _points(series.get((protocol, queue))) if _is_stalling(point)]
        if share > STALLED_ALERT:
            told.append(
                f"queue {queue!r} of {protocol}: {share * 100:.1f} % of its attempts stalled (workers died "
                f"or lost their locks; more than {STALLED_ALERT * 100:.0f} % is an alarm)"
            )
        elif bad:
            told.append(
                f"queue {queue!r} of {protocol}: more than {STALLED_ALERT * 100:.0f} % of attempts stalled "
                f"around {_moment(bad[0].at)}"
                + (f" and at {len(bad) - 1} other times" if len(bad) > 1 else "")
            )
    return tuple(told)


def _points(series: Series | None) -> tuple[Point, ...]:
    return () if series is None else series.points


def _is_stalling(point: Point) -> bool:
    ended = point.completed + point.dead + point.retries + point.stalled
    return ended >= 10 and point.stalled / ended > STALLED_ALERT


def _reasons_of_all(rows: Sequence[Any]) -> tuple[tuple[str, int], ...]:
    summed: Counter[str] = Counter()
    for row in rows:
        summed[row["reason"]] += row["count"]
    return tuple(summed.most_common())


def _between(frame: "DataFrame", at: Any, since: datetime | None, until: datetime | None) -> "DataFrame":
    if since is not None:
        frame = frame.where(at >= sf.lit(since))
    return frame if until is None else frame.where(at < sf.lit(until))
