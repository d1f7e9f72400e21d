"""A made-up week of jobs as a lake, so that the demo's history has something to show."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from random import Random
from typing import Any, NamedTuple

MINUTE_MS = 60_000
DAY_MS = 86_400_000
SLOT_MS = 15 * MINUTE_MS
JOB = ("protocol", "queue", "job_id", "generation")
COUNTS = ("added", "completed", "dead", "cancelled", "retries", "stalled")
QUANTILES = ("waited_p50", "waited_p95", "waited_p99", "ran_p50", "ran_p95", "ran_p99")
COLUMNS: dict[str, tuple[str, ...]] = {
    "attempts": (
        *JOB, "name", "attempt", "worker", "queued_at", "started_at", "ended_at", "waited_ms", "ran_ms",
        "outcome", "reason", "date", "backfilled",
    ),
    "jobs": (
        *JOB, "name", "added_at", "first_at", "last_at", "started_at", "ended_at", "waited_ms", "ran_ms",
        "outcome", "reason", "ends", "attempts", "retries", "stalls", "worker", "events", "date",
        "backfilled",
    ),
    "minutes": (
        "protocol", "queue", "minute", *COUNTS, "throughput", "failure_rate", "retry_rate", "stalled_share",
        *QUANTILES, "date",
    ),
    "bronze": (
        "protocol", "queue", "event_id", "ts", "event", "job_id", "name", "attempt", "previous", "worker",
        "data", "date",
    ),
}  # fmt: skip
"""The columns of the lake's tables."""
_INTS = frozenset({"generation", "attempt", "ends", "attempts", "retries", "stalls", "events"})
_LONGS = frozenset({"waited_ms", "ran_ms", "throughput", *COUNTS})
_TIMES = frozenset({"queued_at", "started_at", "ended_at", "added_at", "first_at", "last_at", "minute", "ts"})
_DOUBLES = frozenset({"failure_rate", "retry_rate", "stalled_share", *QUANTILES})


Moment = tuple[int, str, int | None, str | None, str | None]
"""When, what happened, the attempt, its worker, the reason."""


class Attempt(NamedTuple):
    """One attempt of a job; times are ms since the epoch."""

    protocol: str
    queue: str
    job_id: str
    name: str
    attempt: int
    worker: str
    queued_at: int
    started_at: int
    ended_at: int
    outcome: str
    reason: str | None


class JobKind(NamedTuple):
    """How the jobs of one name behave."""

    protocol: str
    queue: str
    name: str
    per_slot: int
    wait_ms: float
    run_ms: float
    failing: float
    reason: str


KINDS = (
    JobKind("bullmq", "mail", "send-email", 12, 20, 60, 0.04, "451 greylisted, try again later"),
    JobKind("bullmq", "mail", "send-newsletter", 2, 900, 400, 0.02, "421 too many connections"),
    JobKind("bullmq", "imports", "import-file", 2, 80, 5000, 0.03, "line 17 has 5 fields of 6"),
    JobKind("streams", "jobs", "embed", 8, 15, 55, 0.01, "the model did not answer within 30 s"),
    JobKind("bridgemq", "films", "transcode", 4, 400, 9000, 0.05, "codec av1 is not known"),
)
WORKERS = ("demo-1", "demo-2", "demo-3")


def made_up_attempts(now: int, days: int = 7, seed: int = 3) -> Iterator[Attempt]:
    """Yield the attempts of the days before `now`; in one of them mail failed, in another films were slow."""
    random = Random(seed)
    number = 0
    for slot in range(now - days * DAY_MS, now - SLOT_MS, SLOT_MS):
        hour = slot // 3_600_000 % 24
        load = 0.25 if hour < 6 else 1.0 if hour < 20 else 0.5
        age_h = (now - slot) / 3_600_000
        for kind in KINDS:
            is_outage = kind.queue == "mail" and 50 < age_h < 52
            slow = 3.0 if kind.queue == "films" and 90 < age_h < 102 else 1.0
            for _ in range(round(kind.per_slot * load * random.uniform(0.7, 1.3))):
                number += 1
                at = slot + random.randrange(SLOT_MS - 60_000)
                failing = 0.6 if is_outage else kind.failing
                yield from _attempts_of(random, kind, f"week-{number}", at, failing, slow)


def _attempts_of(
    random: Random, kind: JobKind, job_id: str, at: int, failing: float, slow: float
) -> Iterator[Attempt]:
    for attempt in (1, 2, 3):
        started = at + int(random.expovariate(1 / (kind.wait_ms * slow)))
        ended = started + int(kind.run_ms * slow * random.lognormvariate(0, 0.5))
        is_failed = random.random() < failing
        outcome = "completed" if not is_failed else "dead" if attempt == 3 else "retry"
        reason = kind.reason if is_failed else None
        yield Attempt(
            kind.protocol, kind.queue, job_id, kind.name, attempt, random.choice(WORKERS), at, started, ended,
            outcome, reason,
        )  # fmt: skip
        if not is_failed:
            return
        at = ended + 1000 * attempt


def write_week(path: str, now: int, attempts: Sequence[Attempt] | None = None) -> None:
    """Write a lake with the tables bronze, attempts, jobs and minutes, without Spark."""
    from deltalake import write_deltalake

    made = list(made_up_attempts(now)) if attempts is None else attempts
    tables = {"attempts": map(_attempt, made), "jobs": _jobs(made), "minutes": _minutes(made)}
    for name, rows in {**tables, "bronze": _events(made)}.items():
        write_deltalake(f"{path}/{name}", _table(COLUMNS[name], rows), partition_by=["date"])


def _table(columns: Sequence[str], rows: Iterator[dict[str, Any]]) -> Any:
    import pyarrow as pa

    kinds = {
        **dict.fromkeys(_LONGS, pa.int64()),
        **dict.fromkeys(_INTS, pa.int32()),
        **dict.fromkeys(_TIMES, pa.timestamp("us", "UTC")),
        **dict.fromkeys(_DOUBLES, pa.float64()),
        "date": pa.date32(),
        "backfilled": pa.bool_(),
    }
    # of minutes, retries are a sum
    if "throughput" in columns:
        kinds["retries"] = pa.int64()
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
    return pa.Table.from_pylist(list(rows), schema=schema)


def _time(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)


def _day(at: int) -> date:
    return _time(at).date()


def _attempt(one: Attempt) -> dict[str, Any]:
    return {
        **one._asdict(), "queued_at": _time(one.queued_at), "started_at": _time(one.started_at),
        "ended_at": _time(one.ended_at), "generation": 1, "waited_ms": one.started_at - one.queued_at,
        "ran_ms": one.ended_at - one.started_at, "date": _day(one.ended_at), "backfilled": False,
    }  # fmt: skip


def _by_job(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    jobs: dict[tuple[str, str, str], list[Attempt]] = defaultdict(list)
    for one in attempts:
        jobs[one.protocol, one.queue, one.job_id].append(one)
    return list(jobs.values())


def _jobs(attempts: Sequence[Attempt]) -> Iterator[dict[str, Any]]:
    for made in _by_job(attempts):
        first, last = made[0], made[-1]
        yield {
            "protocol": first.protocol, "queue": first.queue, "job_id": first.job_id, "generation": 1,
            "name": first.name, "added_at": _time(first.queued_at), "first_at": _time(first.queued_at),
            "last_at": _time(last.ended_at), "started_at": _time(first.started_at),
            "ended_at": _time(last.ended_at), "waited_ms": first.started_at - first.queued_at,
            "ran_ms": last.ended_at - first.started_at, "outcome": last.outcome, "reason": last.reason,
            "ends": 1, "attempts": len(made), "retries": len(made) - 1, "stalls": 0, "worker": last.worker,
            "events": 1 + 2 * len(made), "date": _day(first.queued_at), "backfilled": False,
        }  # fmt: skip


def _minutes(attempts: Sequence[Attempt]) -> Iterator[dict[str, Any]]:
    minutes: dict[tuple[str, str, int], dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    names = {"completed": "completed", "dead": "dead", "retry": "retries"}
    for one in attempts:
        minutes[one.protocol, one.queue, one.ended_at // MINUTE_MS][names[one.outcome]] += 1
        if one.attempt == 1:
            minutes[one.protocol, one.queue, one.queued_at // MINUTE_MS]["added"] += 1
    for (protocol, queue, minute), counts in minutes.items():
        at = minute * MINUTE_MS
        over = counts["completed"] + counts["dead"]
        ended = over + counts["retries"]
        yield {
            "protocol": protocol, "queue": queue, "minute": _time(at), **counts, "throughput": over,
            "failure_rate": counts["dead"] / over if over else None,
            "retry_rate": counts["retries"] / ended if ended else None,
            "stalled_share": 0.0 if ended else None, "date": _day(at),
        }  # fmt: skip


def _events(attempts: Sequence[Attempt]) -> Iterator[dict[str, Any]]:
    number = 0
    for made in _by_job(attempts):
        first = made[0]
        moments: list[tuple[int, str, int | None, str | None, str | None]] = [
            (first.queued_at, "added", None, None, None)
        ]
        for one in made:
            moments.append((one.started_at, "active", one.attempt, one.worker, None))
            moments.append((one.ended_at, one.outcome, one.attempt, one.worker, one.reason))
        for at, event, attempt, worker, reason in moments:
            number += 1
            data = "{}" if reason is None else f'{{"failedReason":"{reason}"}}'
            yield {
                "protocol": first.protocol, "queue": first.queue, "event_id": f"{at}-{number}",
                "ts": _time(at), "event": event, "job_id": first.job_id, "name": first.name,
                "attempt": attempt, "previous": None, "worker": worker, "data": data, "date": _day(at),
            }  # fmt: skip
