"""Dump: what the server has in the end, read from the keys as each protocol's contract names them."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson
import redis

from tests.faults.checker.records import Dump, Event, Key, Record, State, Tick
from tests.faults.prove.queues import SCHEDULE
from tests.faults.prove.worker_main import tick_of, value_text

UNTRIMMED = 1_000_000_000
Client = redis.Redis


def keep_every_event(client: Client, protocol: str, queue: str) -> None:
    """Let nothing be trimmed: the events are evidence."""
    if protocol == "bullmq":
        client.hset(f"bull:{queue}:meta", "opts.maxLenEvents", UNTRIMMED)
    elif protocol == "bridgemq":
        client.set(f"{queue}:events:kept", UNTRIMMED)


def left(client: Client, protocol: str, queue: str) -> int:
    """Return how many jobs have not ended."""
    match protocol:
        case "bullmq":
            prefix = f"bull:{queue}:"
            lists = sum(client.llen(prefix + name) for name in ("wait", "paused", "active"))
            return lists + sum(client.zcard(prefix + name) for name in BULLMQ_SETS)
        case "bridgemq":
            jobs = f"{queue}:jobs:"
            return (
                client.llen(jobs + "waiting") + client.scard(jobs + "active") + client.zcard(jobs + "delayed")
            )
    return client.xlen(f"{queue}:jobs:stream")


BULLMQ_SETS = ("prioritized", "delayed", "waiting-children")


def dump(client: Client, protocol: str, queue: str) -> Iterator[Record]:
    """Yield the queue's state: every job with its places, every key, and every event."""
    yield Dump(queue=queue, keeps_ended=True)
    yield from DUMPS[protocol](client, queue)


def tagged(raw: bytes | None) -> str | None:
    """Return the tag in a job's data."""
    data = orjson.loads(raw) if raw else None
    return data.get("tag") if isinstance(data, dict) else None


def result_text(raw: bytes | None) -> str | None:
    return None if raw is None else value_text(orjson.loads(raw))


def _scan(client: Client, prefix: str) -> Iterator[str]:
    for name in client.scan_iter(f"{prefix}*", count=1000):
        yield name.decode()[len(prefix) :]


def _places(listed: Iterable[tuple[str, Iterable[bytes]]]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for place, ids in listed:
        for job_id in ids:
            places.setdefault(job_id.decode(), []).append(place)
    return places


def _ticks(queue: str, ids: Iterable[str]) -> Iterator[Tick]:
    for job_id in ids:
        tick = tick_of(job_id)
        if tick is not None:
            yield Tick(queue=queue, job=job_id, schedule=SCHEDULE, tick=tick)


# -- bullmq -------------------------------------------------------------------------------------------------

BULLMQ_PLACES = {
    "wait": "waiting", "paused": "waiting", "active": "active", "prioritized": "waiting",
    "delayed": "delayed", "waiting-children": "waiting_children", "completed": "completed", "failed": "dead",
}  # fmt: skip
BULLMQ_QUEUE = re.compile(
    r"wait|paused|active|prioritized|delayed|waiting-children|completed|failed|stalled|stalled-check|limiter"
    r"|meta|id|marker|events|pc|cancelling|repeat|repeat:[^:]+|given-up:.*"
)
BULLMQ_JOB = re.compile(
    r"(?P<id>(?:repeat:[^:]+:\d+)|[^:]+)(?P<part>:lock|:logs|:dependencies|:processed|:failed|:unsuccessful)?"
)


def _bullmq(client: Client, queue: str) -> Iterator[Record]:
    prefix = f"bull:{queue}:"
    places = _places((place, _members(client, prefix + name)) for name, place in BULLMQ_PLACES.items())
    for job_id, where in places.items():
        data, result, attempts = client.hmget(prefix + job_id, "data", "returnvalue", "atm")
        yield State(
            queue=queue, job=job_id, places=tuple(where), tag=tagged(data),
            result=result_text(result), attempts_made=int(attempts or 0),
        )  # fmt: skip
    yield from _ticks(queue, places)
    for name in _scan(client, prefix):
        match = BULLMQ_JOB.fullmatch(name)
        if BULLMQ_QUEUE.fullmatch(name):
            yield Key(queue=queue, name=prefix + name, role="queue")
        elif match is None:
            yield Key(queue=queue, name=prefix + name, role="stray")
        else:
            role = "lock" if match["part"] == ":lock" else "job"
            yield Key(queue=queue, name=prefix + name, role=role, job=match["id"])
    for entry, fields in client.xrange(f"{prefix}events"):
        name = {b"completed": "completed", b"failed": "dead", b"stalled": "stalled"}.get(fields[b"event"])
        if name is not None:
            value = result_text(fields.get(b"returnvalue"))
            yield _event(queue, fields[b"jobId"], name, entry, value)


def _members(client: Client, key: str) -> list[bytes]:
    kind = client.type(key)
    if kind == b"list":
        return client.lrange(key, 0, -1)
    return client.zrange(key, 0, -1) if kind == b"zset" else []


def _event(queue: str, job: bytes, name: str, entry: bytes, value: str | None = None) -> Event:
    at = float(entry.partition(b"-")[0])
    return Event(queue=queue, job=job.decode(), name=name, event=entry.decode(), server_at=at, value=value)


# -- bridgemq -----------------------------------------------------------------------------------------------

BRIDGEMQ_QUEUE = re.compile(
    r"jobs:(waiting|active|delayed|cron|deadletter|holders|cancelling|completed:.*|fence:.*)|queues:.*|events"
    r"|events:kept|workers:.*|ratelimit:minute:.*|scheduler:.*|trips:.*"
)
"""A fence stays for a day after its job was removed, so that old receipts are not valid for a new one."""
BRIDGEMQ_JOB = re.compile(
    r"jobs:(?P<part>data|status|result|progress|attempts|failure|summary|log|lock):(?P<id>.+)"
)


def _bridgemq(client: Client, queue: str) -> Iterator[Record]:
    jobs = f"{queue}:jobs:"
    places = _places(
        (
            ("waiting", client.lrange(f"{jobs}waiting", 0, -1)),
            ("active", client.smembers(f"{jobs}active")),
            ("delayed", client.zrange(f"{jobs}delayed", 0, -1)),
            ("dead", client.lrange(f"{jobs}deadletter", 0, -1)),
            ("completed", client.zrange(f"{jobs}completed:default", 0, -1)),
        )
    )
    schedules = {job_id.decode() for job_id in client.zrange(f"{jobs}cron", 0, -1)}
    for job_id, where in places.items():
        data, result, summary = client.mget(
            *(f"{jobs}{part}:{job_id}" for part in ("data", "result", "summary"))
        )
        wire = orjson.loads(data) if data else {}
        ended = orjson.loads(result) if result and "completed" in where else None
        yield State(
            queue=queue, job=job_id, places=tuple(where), tag=tagged(orjson.dumps(wire.get("data"))),
            result=None if ended is None else value_text(ended["data"]),
            attempts_made=orjson.loads(summary)["attempt"] if summary else None,
        )  # fmt: skip
    yield from _ticks(queue, places)
    for name in _scan(client, f"{queue}:"):
        match = BRIDGEMQ_JOB.fullmatch(name)
        if BRIDGEMQ_QUEUE.fullmatch(name) or (match is not None and match["id"] in schedules):
            yield Key(queue=queue, name=f"{queue}:{name}", role="queue")
        elif match is None:
            # a counter of running jobs is one of them: nothing runs any more
            yield Key(queue=queue, name=f"{queue}:{name}", role="stray")
        else:
            role = "lock" if match["part"] == "lock" else "job"
            yield Key(queue=queue, name=f"{queue}:{name}", role=role, job=match["id"])
    for entry, fields in client.xrange(f"{queue}:events"):
        name = fields[b"event"].decode()
        if name in ("completed", "dead", "stalled"):
            yield _event(queue, fields[b"jobId"], name, entry)


# -- streams ------------------------------------------------------------------------------------------------

STREAMS_ENDS = {b"done": "completed", b"error": "dead", b"canceled": "cancelled"}
STREAMS_QUEUE = re.compile(r"jobs:(stream|events|workers|trip:.*)")
STREAMS_JOB = re.compile(r"job:(?P<id>[^:]+)(:events|:deliveries)?")


def _streams(client: Client, queue: str) -> Iterator[Record]:
    stream = f"{queue}:jobs:stream"
    pending = {row["message_id"] for row in client.xpending_range(stream, "workers", "-", "+", 100_000)}
    places: dict[str, list[str]] = {}
    for entry, fields in client.xrange(stream):
        places.setdefault(fields[b"job_id"].decode(), []).append("active" if entry in pending else "waiting")
    names = list(_scan(client, f"{queue}:"))
    hashes = [name.removeprefix("job:") for name in names if re.fullmatch(r"job:[^:]+", name)]
    for job_id in hashes:
        status, payload, result = client.hmget(f"{queue}:job:{job_id}", "status", "payload", "result")
        where = places.get(job_id, [])
        if status in STREAMS_ENDS:
            where = [*where, STREAMS_ENDS[status]]
        yield State(
            queue=queue, job=job_id, places=tuple(where), tag=tagged(payload),
            result=result_text(result) if status == b"done" else None,
        )  # fmt: skip
    for name in names:
        match = STREAMS_JOB.fullmatch(name)
        if STREAMS_QUEUE.fullmatch(name):
            yield Key(queue=queue, name=f"{queue}:{name}", role="queue")
        elif match is None:
            yield Key(queue=queue, name=f"{queue}:{name}", role="stray")
        else:
            yield Key(queue=queue, name=f"{queue}:{name}", role="job", job=match["id"])
    for job_id in hashes:
        yield from _streams_events(client, queue, job_id)


def _streams_events(client: Client, queue: str, job_id: str) -> Iterator[Record]:
    for entry, fields in client.xrange(f"{queue}:job:{job_id}:events"):
        name = STREAMS_ENDS.get(fields[b"type"])
        if name is not None:
            value = orjson.loads(fields[b"data"]).get("result") if name == "completed" else None
            text = value_text(value) if name == "completed" else None
            yield _event(queue, job_id.encode(), name, entry, text)
        elif fields[b"step"] == b"worker.recover":
            yield _event(queue, job_id.encode(), "recovered", entry)


DUMPS: dict[str, Callable[[Any, str], Iterator[Record]]] = {
    "bullmq": _bullmq,
    "bridgemq": _bridgemq,
    "streams": _streams,
}
