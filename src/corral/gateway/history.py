"""History: what the lake knows of jobs, read from its Delta tables by DuckDB, one query at a time."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from corral.core.query import Condition
from corral.errors import InvalidOptions
from corral.gateway.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

T = TypeVar("T")
Row = tuple[Any, ...]
JobKey = tuple[str, str, str]
"""Protocol, queue and id."""

PACKAGES = ("duckdb", "deltalake", "pyarrow")
STORAGE_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")
"""Of variables of the environment that are options of object storage."""
QUERY_S = 20.0
"""After so long a query is given up."""
MEMORY = "512MB"
FRESH_S = 10.0
"""For so long the answer to the same question is kept."""
KEPT_ANSWERS = 64
MAX_POINTS = 120
MINUTE_MS = 60_000
DAY_MS = 86_400_000
STEPS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
MAX_ROWS = 100
"""Names and workers that are listed, those with the most jobs."""
TOP = 10
"""Of the slowest names, and of those that fail most."""
MAX_ATTEMPTS = 200
MAX_EVENTS = 500

_FAILED = "outcome IN ('dead', 'retry', 'stalled')"
_MEASURES = f"""
count(*) FILTER (outcome = 'completed'), count(*) FILTER (outcome = 'dead'),
count(*) FILTER (outcome IN ('retry', 'stalled')),
approx_quantile(waited_ms, [0.5, 0.95]), approx_quantile(ran_ms, [0.5, 0.95]),
arg_max(reason, ended_at) FILTER ({_FAILED})"""
_COLUMNS = {
    "id": "job_id",
    "name": "name",
    "state": "outcome",
    "reason": "reason",
    "worker": "worker",
    "attempts": "attempts",
    "created": "coalesce(added_at, first_at)",
    "started": "started_at",
    "finished": "ended_at",
}
"""The column of the table `jobs` for each field of a query."""
_TIMES = frozenset({"created", "started", "finished"})


class HistoryScope(Struct, frozen=True, kw_only=True):
    """Which attempts a question is about: those that ended in a time, of a queue, a name, a worker."""

    since: int
    until: int
    protocol: str = ""
    queue: str = ""
    name: str = ""
    worker: str = ""

    @property
    def step_ms(self) -> int:
        """How long a point of a series is."""
        least = (self.until - self.since) / MINUTE_MS / MAX_POINTS
        minutes = next((step for step in STEPS_MIN if step >= least), 0)
        return (minutes or -(-int(least) // 1440) * 1440 + 1440) * MINUTE_MS


class History:
    """The lake of a gateway; without one every question is the problem `no-lake`."""

    def __init__(self, lake: str | None) -> None:
        self._turn = asyncio.Lock()
        self._answers: dict[Any, tuple[float, Any]] = {}
        self._path = None if lake is None else _location(lake)
        if lake is not None:
            check_packages()

    @property
    def has_lake(self) -> bool:
        """Whether the gateway was given a lake."""
        return self._path is not None

    async def overview(self, scope: HistoryScope) -> dict[str, Any]:
        """Return series, and sums by queue, name and worker."""
        return await self._ask(("overview", scope), lambda lake: _overview(lake, scope))

    async def rates(self, since: int, until: int) -> dict[str, Any]:
        """Return a series of each queue, from the table `minutes`."""
        scope = HistoryScope(since=since, until=until)
        return await self._ask(("rates", scope), lambda lake: _rates(lake, scope))

    async def jobs(
        self, where: Sequence[Condition], protocol: str, queue: str, cursor: str, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return jobs that match, the last added first, and the cursor for more."""
        sql, values = _conditions(where)
        if queue:
            sql, values = [*sql, "protocol = ?", "queue = ?"], [*values, protocol, queue]
        question = ("jobs", tuple(sql), tuple(values), cursor, limit)
        return await self._ask(question, lambda lake: _jobs(lake, sql, values, cursor, limit))

    async def job(self, protocol: str, queue: str, job_id: str) -> dict[str, Any] | None:
        """Return a job with its attempts and its events; None where the lake does not know it."""
        question = ("job", protocol, queue, job_id)
        return await self._ask(question, lambda lake: _job(lake, protocol, queue, job_id))

    async def outcomes(self, ids: Sequence[JobKey], since: int) -> dict[JobKey, str]:
        """Return the outcomes of those jobs (protocol, queue, id) that the lake knows."""
        question = ("outcomes", tuple(ids))
        return await self._ask(question, lambda lake: _outcomes(lake, ids, since))

    async def _ask(self, question: Any, answer: Callable[["LakeReader"], T]) -> T:
        """Return the answer, from a thread; the same query is not run twice within seconds."""
        path = self._path
        if path is None:
            raise Problem(
                "no-lake",
                "this gateway has no lake; start it with `corral gateway --lake PATH`, "
                "and fill the lake with `corral lake run PATH`",
            )
        async with self._turn:
            known = self._answers.get(question)
            if known is not None and monotonic() - known[0] < FRESH_S:
                result: T = known[1]
                return result
            result = await asyncio.to_thread(_read, path, answer)
            self._answers.pop(question, None)
            if len(self._answers) >= KEPT_ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[question] = (monotonic(), result)
            return result


def check_packages() -> None:
    """Refuse a lake where the packages that read it are not installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise InvalidOptions(
            f"reading a lake needs packages that are not installed ({', '.join(missing)}); "
            f"pip install 'corral[lake]'"
        )


def _location(lake: str) -> str:
    if "://" in lake and not lake.startswith("file://"):
        return lake.rstrip("/")
    return str(Path(lake.removeprefix("file://")).expanduser().absolute())


# -- in a thread --------------------------------------------------------------------------------------------


class LakeReader:
    """One connection of DuckDB, with those tables of the lake that a query needs."""

    def __init__(self, connection: "DuckDBPyConnection", path: str) -> None:
        self._connection = connection
        self._path = path
        self._known: set[str] = set()
        self._ends_at = monotonic() + QUERY_S

    def rows(self, table: str, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a query over one table; a problem where the lake does not have it yet."""
        self._register(table)
        if monotonic() >= self._ends_at:
            raise _too_long()  # the interruption came between two queries
        return self._connection.execute(sql, list(values)).fetchall()

    def _register(self, table: str) -> None:
        if table in self._known:
            return
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            opened = DeltaTable(f"{self._path}/{table}", storage_options=_storage(self._path))
        except TableNotFoundError:
            raise Problem(
                "no-lake",
                f"there is no table {table} in the lake {self._path} yet; "
                f"`corral lake run {self._path}` makes it",
            ) from None
        self._connection.register(f"{table}_files", opened.to_pyarrow_dataset())
        # rows without a day are the positions of sources
        self._connection.execute(f"CREATE VIEW {table} AS FROM {table}_files WHERE date IS NOT NULL")
        self._known.add(table)


def _read(path: str, answer: Callable[[LakeReader], T]) -> T:
    with _connection(path) as connection:
        return answer(LakeReader(connection, path))


@contextmanager
def _connection(path: str) -> "Iterator[DuckDBPyConnection]":
    import duckdb
    from deltalake.exceptions import DeltaError

    with duckdb.connect(config={"memory_limit": MEMORY, "threads": 2}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        timer = Timer(QUERY_S, connection.interrupt)
        timer.start()
        try:
            yield connection
        except duckdb.InterruptException:
            raise _too_long() from None
        except (duckdb.Error, DeltaError, OSError) as error:
            first = str(error).strip().splitlines() or [type(error).__name__]
            raise Problem("lake-unreadable", f"the lake {path} cannot be read: {first[0][:300]}") from error
        finally:
            timer.cancel()


def _too_long() -> Problem:
    return Problem(
        "lake-unreadable",
        f"the lake has not answered within {QUERY_S:g} s; ask for fewer days, or for one queue",
    )


def _storage(path: str) -> dict[str, str]:
    if "://" not in path:
        return {}
    return {key: value for key, value in os.environ.items() if key.startswith(STORAGE_PREFIXES)}


def _day(at: int) -> str:
    return f"DATE '{datetime.fromtimestamp(at / 1000, UTC).date().isoformat()}'"


def _between(scope: HistoryScope, column: str) -> str:
    """Return the condition on a time, with the days for those who skip files."""
    days = f"date BETWEEN {_day(scope.since)} AND {_day(scope.until)}"
    return f"{days} AND epoch_ms({column}) >= {scope.since} AND epoch_ms({column}) < {scope.until}"


def _selected(scope: HistoryScope) -> tuple[str, list[str]]:
    fields = {"protocol": scope.protocol, "queue": scope.queue, "name": scope.name, "worker": scope.worker}
    chosen = {column: value for column, value in fields.items() if value}
    return "".join(f" AND {column} = ?" for column in chosen), list(chosen.values())


def _overview(lake: LakeReader, scope: HistoryScope) -> dict[str, Any]:
    more, values = _selected(scope)
    step = scope.step_ms
    start = scope.since // step * step
    points = -(-(scope.until - start) // step)
    point = f"(epoch_ms(ended_at) - {start}) // {step}"
    rows = lake.rows(
        "attempts",
        f"SELECT point, protocol, queue, name, worker, grouping(point, protocol, name, worker), {_MEASURES},"
        f" epoch_ms(max(ended_at)) FROM (SELECT *, {point} AS point FROM attempts"
        f" WHERE {_between(scope, 'ended_at')}{more})"
        " GROUP BY GROUPING SETS ((point), (protocol, queue), (protocol, queue, name), (protocol, worker))",
        values,
    )
    # a bit is set for what a row is not grouped by: point, protocol, name, worker
    series, queues, names, workers = ([row for row in rows if row[5] == kind] for kind in (7, 11, 9, 10))
    by_count = sorted(map(_measured, names), key=_count)
    failing = sorted(by_count, key=lambda row: row["dead"] + row["retry"], reverse=True)
    slowest = sorted(by_count, key=lambda row: (row["run_ms"] or {"p95": 0})["p95"], reverse=True)
    return {
        "from": start,
        "until": scope.until,
        "step_ms": step,
        "reaches_to": max((row[12] for row in series), default=None),
        "series": {**_series(series, points), "added": _added(lake, scope, start, points)},
        "queues": sorted(map(_measured, queues), key=_count)[:MAX_ROWS],
        "names": by_count[:MAX_ROWS],
        "workers": sorted((_measured(row) for row in workers if row[4] is not None), key=_count)[:MAX_ROWS],
        "slowest": [row for row in slowest if row["run_ms"]][:TOP],
        "failing": [row for row in failing if row["dead"] + row["retry"]][:TOP],
    }


def _measured(row: Row) -> dict[str, Any]:
    return {
        "protocol": row[1],
        "queue": row[2],
        "name": row[3],
        "worker": row[4],
        "completed": row[6],
        "dead": row[7],
        "retry": row[8],
        "wait_ms": _pair(row[9]),
        "run_ms": _pair(row[10]),
        "reason": row[11],
    }


def _count(row: Mapping[str, Any]) -> tuple[int, str, str, str]:
    """The order of sums: the most attempts first."""
    total = row["completed"] + row["dead"] + row["retry"]
    return -total, str(row["queue"]), str(row["name"]), str(row["worker"])


def _pair(quantiles: Sequence[float | None] | None) -> dict[str, int] | None:
    if not quantiles or quantiles[0] is None or quantiles[1] is None:
        return None
    return {"p50": round(quantiles[0]), "p95": round(quantiles[1])}


def _series(rows: Sequence[Row], points: int) -> dict[str, list[int | None]]:
    at = {int(row[0]): _measured(row) for row in rows}
    counts = {
        kind: [at[n][kind] if n in at else 0 for n in range(points)]
        for kind in ("completed", "dead", "retry")
    }
    times = {
        f"{what}_{name}": [at[n][f"{what}_ms"][name] if n in at and at[n][f"{what}_ms"] else None
                           for n in range(points)]
        for what in ("wait", "run") for name in ("p50", "p95")
    }  # fmt: skip
    return {**counts, **times}


def _added(lake: LakeReader, scope: HistoryScope, start: int, points: int) -> list[int] | None:
    """Return how many jobs were added; None of one worker, to which no added job belongs."""
    if scope.worker:
        return None
    more, values = _selected(scope)
    rows = lake.rows(
        "jobs",
        f"SELECT (epoch_ms(added_at) - {start}) // {scope.step_ms}, count(*) FROM jobs"
        f" WHERE {_between(scope, 'added_at')}{more} GROUP BY 1",
        values,
    )
    counts = {int(point): count for point, count in rows}
    return [counts.get(n, 0) for n in range(points)]


def _rates(lake: LakeReader, scope: HistoryScope) -> dict[str, Any]:
    step = scope.step_ms
    start = scope.since // step * step
    points = -(-(scope.until - start) // step)
    rows = lake.rows(
        "minutes",
        f"SELECT protocol, queue, (epoch_ms(minute) - {start}) // {step}, sum(added), sum(completed),"
        f" sum(dead), sum(retries) FROM minutes WHERE {_between(scope, 'minute')} GROUP BY ALL",
    )
    queues: dict[str, dict[str, list[int]]] = {}
    for protocol, queue, point, *counts in rows:
        empty = {kind: [0] * points for kind in ("added", "completed", "dead", "retry")}
        series = queues.setdefault(f"{protocol}/{queue}", empty)
        for kind, count in zip(series, counts, strict=True):
            series[kind][int(point)] = int(count or 0)
    return {"from": start, "until": scope.until, "step_ms": step, "queues": queues}


# -- jobs ---------------------------------------------------------------------------------------------------

_JOB = (
    "protocol, queue, job_id, generation, name, outcome, reason, worker, attempts, retries, stalls,"
    " epoch_ms(coalesce(added_at, first_at)), epoch_ms(started_at), epoch_ms(ended_at), epoch_us(first_at)"
)
_STATES = frozenset({"completed", "dead", "cancelled"})


def _conditions(where: Sequence[Condition]) -> tuple[list[str], list[Any]]:
    """Return the conditions of a query as SQL with its values; refuse those on what the lake lacks."""
    sql: list[str] = []
    values: list[Any] = []
    for one in where:
        column = _COLUMNS.get(one.field)
        if column is None:
            raise InvalidOptions(
                f"the lake keeps no {one.field} of jobs; leave the condition on {one.field} out, "
                f"or search the queue itself"
            )
        if one.field in _TIMES:
            column = f"epoch_ms({column})"
        if one.operator == "~":
            sql.append(f"contains(lower(CAST({column} AS VARCHAR)), lower(?))")
            values.append(str(one.value))
        elif one.operator == "!=":
            sql.append(f"CAST({column} AS VARCHAR) IS DISTINCT FROM ?")
            values.append(str(one.value))
        elif one.operator == "=":
            sql.append(f"CAST({column} AS VARCHAR) = ?")
            values.append(str(one.value))
        elif isinstance(one.value, int | float) == (one.field in _TIMES or one.field == "attempts"):
            sql.append(f"{column} {one.operator} ?")
            values.append(one.value)
        else:
            sql.append("false")  # words and numbers have no order
    return sql, values


def _jobs(
    lake: LakeReader, where: Sequence[str], values: Sequence[Any], cursor: str, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    before, _, read = cursor.partition("-")
    conditions = [*where]
    if cursor:
        day = _day(int(before) // 1000)
        conditions += [f"date <= {day}", f"epoch_us(first_at) <= {int(before)}"]
    sql = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = "ORDER BY first_at DESC, protocol, queue, job_id, generation"
    rows = lake.rows(
        "jobs", f"SELECT {_JOB} FROM jobs {sql} {order} LIMIT {limit + 1} OFFSET {int(read or 0)}", values
    )
    page, following = rows[:limit], None
    if len(rows) > limit:
        last = page[-1][-1]
        # among jobs of one instant, those that were shown are skipped
        skipped = sum(row[-1] == last for row in page) + (int(read or 0) if str(last) == before else 0)
        following = f"{last}-{skipped}"
    return [_job_document(row) for row in page], following


def _job_document(row: Row) -> dict[str, Any]:
    names = (
        *("protocol", "queue", "id", "generation", "name", "outcome", "reason", "worker", "attempts_made"),
        *("retries", "stalls", "created_at", "started_at", "finished_at"),
    )
    document = dict(zip(names, row, strict=False))
    state = document["outcome"] if document["outcome"] in _STATES else None
    return {**document, "name": document["name"] or "", "state": state, "data": None}


def _job(lake: LakeReader, protocol: str, queue: str, job_id: str) -> dict[str, Any] | None:
    values = (protocol, queue, job_id)
    this = "protocol = ? AND queue = ? AND job_id = ?"
    rows = lake.rows(
        "jobs",
        f"SELECT {_JOB}, epoch_ms(first_at), epoch_ms(last_at) FROM jobs WHERE {this}"
        f" ORDER BY generation DESC LIMIT 1",
        values,
    )
    if not rows:
        return None
    document, (first, last) = _job_document(rows[0]), rows[0][-2:]
    days = f"date BETWEEN {_day(first)} AND {_day(last)}"
    attempts = lake.rows(
        "attempts",
        f"SELECT attempt, worker, epoch_ms(queued_at), epoch_ms(started_at), epoch_ms(ended_at), waited_ms,"
        f" ran_ms, outcome, reason FROM attempts WHERE {this} AND generation = ? AND {days}"
        f" ORDER BY attempt DESC LIMIT {MAX_ATTEMPTS}",
        (*values, document["generation"]),
    )
    names = ("attempt", "worker", "queued_at", "started_at", "ended_at", "waited_ms", "ran_ms", "outcome")
    events = lake.rows(
        "bronze",
        f"SELECT event_id, epoch_ms(ts), event, attempt, worker, data FROM bronze WHERE {this}"
        f" AND {days} AND ts >= to_timestamp({first / 1000}) ORDER BY ts DESC LIMIT {MAX_EVENTS}",
        values,
    )
    return {
        **document,
        "attempts": [dict(zip((*names, "reason"), row, strict=True)) for row in reversed(attempts)],
        "events": [
            dict(zip(("id", "at", "kind", "attempt", "worker", "data"), row, strict=True))
            for row in reversed(events)
        ],
    }


def _outcomes(lake: LakeReader, ids: Sequence[JobKey], since: int) -> dict[JobKey, str]:
    if not ids:
        return {}
    marks = ", ".join("?" * len(ids))
    rows = lake.rows(
        "jobs",
        f"SELECT protocol, queue, job_id, arg_max(outcome, generation) FROM jobs"
        f" WHERE date >= {_day(since)} AND job_id IN ({marks}) GROUP BY ALL",
        [job_id for _, _, job_id in ids],
    )
    wanted = set(ids)
    return {row[:3]: row[3] for row in rows if row[:3] in wanted}
