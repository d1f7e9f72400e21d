"""The history of a queue in a lake: arrivals by hour of the week, and the jobs of its busiest hours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from corral.errors import InvalidOptions, short_repr
from corral.spark.lake.capacity.simulation import SimulatedJob, SimulatedRun
from corral.spark.lake.delta import files_of
from corral.spark.lake.sql import run_query
from corral.spark.lake.tables import ATTEMPTS, BRONZE, Lake

HOUR_MS = 3_600_000
WEEK_HOURS = 168
EPOCH_HOUR = 72
"""The hour of the week in which the epoch began, a Thursday; 0 is Monday's first."""
MIN_ATTEMPTS = 100
"""Attempts with an end that a prediction needs."""
PEAK_HOURS = 5
"""Hours of the week of which more jobs are simulated."""
PEAK_JOBS, OTHER_JOBS = 20_000, 2_000
"""Jobs of an hour that are simulated at most, from the minute before its busiest one on."""

_JOBS = """
WITH seen AS (
  SELECT protocol, job_id, generation, any_value(name) AS name,
         min(epoch_ms(coalesce(queued_at, started_at))) AS arrived, sum(ran_ms) AS work,
         list(epoch_ms(coalesce(queued_at, started_at)) ORDER BY attempt) AS queued,
         list(epoch_ms(ended_at) ORDER BY attempt) AS ended,
         list(ran_ms ORDER BY attempt) AS ran
  FROM attempts
  WHERE queue = $queue AND protocol = $protocol AND ran_ms IS NOT NULL AND ended_at IS NOT NULL
        AND NOT coalesce(backfilled, false)
  GROUP BY protocol, job_id, generation
)
"""
_HOURS = (
    _JOBS
    + """
, hours AS (
  SELECT arrived // 3600000 AS hour, count(*) AS jobs, sum(len(ran)) AS attempts, sum(work) AS work
  FROM seen GROUP BY hour
)
SELECT (hour + 72) % 168 AS hour_of_week, sum(jobs), sum(attempts), sum(work), arg_max(hour, work),
       arg_max(jobs, work), max(work), min(hour), max(hour)
FROM hours GROUP BY hour_of_week ORDER BY hour_of_week
"""
)
_ARRIVALS = (
    _JOBS
    + """
, minutes AS (
  SELECT arrived // 60000 AS minute, sum(work) AS work FROM seen
  WHERE list_contains($hours, arrived // 3600000) GROUP BY minute
), starts AS (
  SELECT minute // 60 AS hour, arg_max(minute, work) - 1 AS first_minute FROM minutes GROUP BY hour
), counted AS (
  SELECT seen.arrived // 3600000 AS hour, arrived, name, queued, ended, ran, first_minute,
         count(*) OVER (PARTITION BY seen.arrived // 3600000) AS jobs
  FROM seen JOIN starts ON starts.hour = seen.arrived // 3600000
), numbered AS (
  SELECT *, row_number() OVER (PARTITION BY hour ORDER BY arrived) AS number
  FROM counted WHERE jobs <= $most OR arrived >= first_minute * 60000
)
SELECT hour, arrived, name, queued, ended, ran FROM numbered WHERE number <= $most ORDER BY hour, arrived
"""
)


@dataclass(frozen=True)
class HourOfWeek:
    """One hour of the week, as it was seen; the times are UTC."""

    number: int
    """0 is Monday's first."""
    jobs: float
    """That arrived, on average over the weeks."""
    busy_slots: float
    """Slots that ran jobs at once, on average over the weeks."""
    busiest_hour: int
    """The one with the most work, in hours since the epoch."""
    busiest_jobs: int
    busiest_slots: float
    """`busy_slots` of that hour."""

    @property
    def name(self) -> str:
        """The day and the time.

        >>> HourOfWeek(33, 0, 0, 0, 0, 0).name
        'Tue 09:00'
        """
        day, hour = divmod(self.number, 24)
        return f"{('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[day]} {hour:02d}:00"


@dataclass(frozen=True)
class QueueHistory:
    """What a lake knows of the load of a queue."""

    queue: str
    protocol: str
    since: datetime
    until: datetime
    jobs: int
    attempts: int
    mean_ms: float
    """Of an attempt, from claimed to its end."""
    hours: tuple[HourOfWeek, ...]
    """Those with jobs, the one with the most work first."""
    arrivals: Mapping[int, Sequence[SimulatedJob]]
    """Number of an hour of the week -> jobs of its busiest hour, from 0 on; handlers' times as seen."""
    events_per_job: float
    bytes_per_event: float
    """Of bronze's files."""

    @property
    def attempts_per_job(self) -> float:
        return self.attempts / self.jobs


def queue_history(
    lake: Lake, queue: str, protocol: str | None = None, priorities: Mapping[str, int] | None = None
) -> QueueHistory:
    """Return the load of a queue; refused where the lake has too little of it."""
    protocol = _protocol_of(lake, queue, protocol)
    parameters = {"queue": queue, "protocol": protocol}
    rows = run_query(lake, _HOURS, parameters)[1]
    attempts = sum(row[2] for row in rows)
    if attempts < MIN_ATTEMPTS:
        raise InvalidOptions(
            f"the lake has {attempts:,} ended attempts of queue {short_repr(queue)}, and a prediction needs "
            f"{MIN_ATTEMPTS}; run corral lake run {lake.path} when there are more"
        )
    first, last = min(row[7] for row in rows), max(row[8] for row in rows)
    hours = [
        HourOfWeek(
            number=row[0],
            jobs=row[1] / _occurrences(row[0], first, last),
            busy_slots=row[3] / HOUR_MS / _occurrences(row[0], first, last),
            busiest_hour=row[4],
            busiest_jobs=row[5],
            busiest_slots=row[6] / HOUR_MS,
        )
        for row in rows
    ]
    hours.sort(key=lambda hour: (-hour.busiest_slots, hour.number))
    known = priorities or {}
    arrivals = {
        **_arrivals(lake, parameters, hours[:PEAK_HOURS], PEAK_JOBS, known),
        **_arrivals(lake, parameters, hours[PEAK_HOURS:], OTHER_JOBS, known),
    }
    events, bytes_per_event = _events(lake, queue, protocol)
    jobs = sum(row[1] for row in rows)
    return QueueHistory(
        queue=queue,
        protocol=protocol,
        since=datetime.fromtimestamp(first * 3600, UTC),
        until=datetime.fromtimestamp((last + 1) * 3600, UTC),
        jobs=jobs,
        attempts=attempts,
        mean_ms=sum(row[3] for row in rows) / attempts,
        hours=tuple(hours),
        arrivals=arrivals,
        events_per_job=events / jobs,
        bytes_per_event=bytes_per_event,
    )


def _protocol_of(lake: Lake, queue: str, protocol: str | None) -> str:
    """Return the protocol of a queue; refused where the lake has no such queue, or several."""
    if lake.table(ATTEMPTS).open() is None:
        raise InvalidOptions(f"the lake {lake.path} has no attempts yet; run corral lake run {lake.path}")
    rows = run_query(lake, "SELECT DISTINCT queue, protocol FROM attempts ORDER BY ALL")[1]
    protocols = [other for name, other in rows if name == queue and protocol in (None, other)]
    if not protocols:
        names = ", ".join(sorted({name for name, _ in rows})[:20]) or "none"
        wanted = short_repr(queue) + ("" if protocol is None else f" of protocol {protocol}")
        raise InvalidOptions(f"the lake has no attempts of queue {wanted}; it has those of: {names}")
    if len(protocols) > 1:
        raise InvalidOptions(
            f"the lake has queue {short_repr(queue)} in several protocols ({', '.join(protocols)}); "
            f"name one by --protocol"
        )
    return str(protocols[0])


def _occurrences(hour: int, first: int, last: int) -> int:
    """Return how often an hour of the week is between two hours since the epoch, both included.

    >>> _occurrences(72, 0, 167), _occurrences(72, 0, 168)
    (1, 2)
    """
    next_one = first + (hour - first - EPOCH_HOUR) % WEEK_HOURS
    return max((last - next_one) // WEEK_HOURS + 1, 1)


def _arrivals(
    lake: Lake,
    parameters: Mapping[str, str],
    hours: Sequence[HourOfWeek],
    most: int,
    priorities: Mapping[str, int],
) -> dict[int, list[SimulatedJob]]:
    if not hours:
        return {}
    numbers = {hour.busiest_hour: hour.number for hour in hours}
    values = {**parameters, "hours": list(numbers), "most": most}
    found: dict[int, list[SimulatedJob]] = {number: [] for number in numbers.values()}
    starts: dict[int, int] = {}
    for hour, at, name, queued, ended, ran in run_query(lake, _ARRIVALS, values)[1]:
        begin = starts.setdefault(hour, at)
        # the next attempt could be claimed so long after the end of the one before
        delays = [max(later - earlier, 0) for later, earlier in zip(queued[1:], ended, strict=False)]
        runs = [SimulatedRun(float(ms), delay) for ms, delay in zip(ran, [*delays, None], strict=True)]
        found[numbers[hour]].append(SimulatedJob(float(at - begin), tuple(runs), priorities.get(name, 0)))
    return found


def _events(lake: Lake, queue: str, protocol: str) -> tuple[int, float]:
    """Return how many events a queue has in bronze, and the bytes of an event there."""
    statement = "SELECT count(*) FROM bronze WHERE queue = $queue AND protocol = $protocol"
    [[count]] = run_query(lake, statement, {"queue": queue, "protocol": protocol})[1]
    table = lake.table(BRONZE).open()
    files = [] if table is None else [file for file in files_of(table) if file.day is not None]
    rows = sum(file.rows for file in files)
    return count, sum(file.size for file in files) / rows if rows else 0.0
