"""What a protocol wrote down about its jobs, read from the wire as its contract spells it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import redis

PAGE = 5000
UNTRIMMED = 1_000_000_000
BULLMQ = "bull:default:"
BRIDGEMQ = "bridge:"


@dataclass
class JobRecord:
    """One job's life. Each start must have one ending: completed, dead, or put back to run again."""

    starts: int = 0
    completions: int = 0
    deaths: int = 0
    put_backs: int = 0
    """Retried, released, or found abandoned."""
    recoveries: int = 0
    """Those of them that were found abandoned."""
    attempts: int = 0
    """Ended attempts as the protocol counts them itself."""
    state: str = ""
    result: Any = None

    @property
    def endings(self) -> int:
        return self.completions + self.deaths + self.put_backs


JobRecords = dict[str, JobRecord]


def keep_every_event(client: redis.Redis, protocol: str) -> None:
    """Let the protocol trim nothing: its events are the evidence."""
    if protocol == "bullmq":
        client.hset(f"{BULLMQ}meta", "opts.maxLenEvents", UNTRIMMED)
    elif protocol == "bridgemq":
        client.set(f"{BRIDGEMQ}events:kept", UNTRIMMED)


def read(client: redis.Redis, protocol: str, ids: Iterable[str]) -> JobRecords:
    """The record of each of these jobs, and of any other the events speak of."""
    records: JobRecords = {job_id: JobRecord() for job_id in ids}
    _READERS[protocol](client, records)
    return records


def leftovers(client: redis.Redis, protocol: str) -> dict[str, int]:
    """What is still queued, held or locked; empty where everything has ended."""
    if protocol == "bullmq":
        counts = {name: client.llen(BULLMQ + name) for name in ("wait", "paused", "active")}
        counts |= {name: client.zcard(BULLMQ + name) for name in ("prioritized", "delayed")}
        counts["locks"] = sum(1 for _ in client.scan_iter(f"{BULLMQ}*:lock", count=PAGE))
    elif protocol == "bridgemq":
        counts = {name: client.llen(f"{BRIDGEMQ}jobs:{name}") for name in ("waiting", "deadletter")}
        counts["active"] = client.scard(f"{BRIDGEMQ}jobs:active")
        counts["delayed"] = client.zcard(f"{BRIDGEMQ}jobs:delayed")
        counts["holders"] = client.hlen(f"{BRIDGEMQ}jobs:holders")
        for name in ("jobs:lock", "jobs:data", "jobs:attempts", "jobs:failure", "ratelimit:concurrent"):
            counts[name] = sum(1 for _ in client.scan_iter(f"{BRIDGEMQ}{name}:*", count=PAGE))
    else:
        counts = {"queue entries": client.xlen("jobs:stream")}
        counts["pending"] = client.xpending("jobs:stream", "workers")["pending"]
    return {name: count for name, count in counts.items() if count}


def _pages(ids: Iterable[str]) -> Iterator[list[str]]:
    listed = list(ids)
    for start in range(0, len(listed), PAGE):
        yield listed[start : start + PAGE]


# -- bullmq -------------------------------------------------------------------------------------------------


def _read_bullmq(client: redis.Redis, records: JobRecords) -> None:
    after = "-"
    while entries := client.xrange(f"{BULLMQ}events", after, "+", PAGE):
        after = f"({entries[-1][0].decode()}"
        for _, fields in entries:
            if job_id := fields.get(b"jobId", b"").decode():
                _hear_bullmq(records.setdefault(job_id, JobRecord()), fields)
    ended = {
        member.decode(): state
        for state in ("completed", "failed")
        for member in client.zrange(BULLMQ + state, 0, -1)
    }
    for page in _pages(records):
        pipeline = client.pipeline(transaction=False)
        for job_id in page:
            pipeline.hmget(BULLMQ + job_id, "atm", "stc", "ats", "returnvalue")
        for job_id, (attempts, stalls, starts, result) in zip(page, pipeline.execute(), strict=True):
            record = records[job_id]
            record.state = ended.get(job_id, "not ended")
            record.attempts = int(attempts or 0)
            record.result = None if result is None else json.loads(result)
            # the hash and the events must tell the same
            assert (int(starts or 0), int(stalls or 0)) == (record.starts, record.recoveries), (
                job_id,
                record,
            )


def _hear_bullmq(record: JobRecord, fields: dict[bytes, bytes]) -> None:
    match fields[b"event"]:
        case b"active":
            record.starts += 1
        case b"completed":
            record.completions += 1
        case b"failed":
            record.deaths += 1
        case b"waiting" if fields.get(b"prev") == b"active":
            record.put_backs += 1
        case b"delayed":
            record.put_backs += 1
        case b"stalled":
            record.recoveries += 1


# -- streams ------------------------------------------------------------------------------------------------

_STREAMS_STATES = {b"done": "completed", b"error": "failed", b"canceled": "cancelled"}


def _read_streams(client: redis.Redis, records: JobRecords) -> None:
    for page in _pages(records):
        pipeline = client.pipeline(transaction=False)
        for job_id in page:
            pipeline.hmget(f"job:{job_id}", "status", "result")
            pipeline.xrange(f"job:{job_id}:events")
        answers = pipeline.execute()
        for job_id, (status, result), events in zip(page, answers[::2], answers[1::2], strict=True):
            record = records[job_id]
            record.state = _STREAMS_STATES.get(status, "not ended")
            record.result = json.loads(result) if result else None
            for _, fields in events:
                _hear_streams(record, fields)
            # the contract counts no attempts: each ending of an attempt that was not put back is one
            record.attempts = record.completions + record.deaths


def _hear_streams(record: JobRecord, fields: dict[bytes, bytes]) -> None:
    match fields[b"type"], fields[b"step"]:
        case b"running", b"worker.start":
            record.starts += 1
        case b"done", _:
            record.completions += 1
        case b"error", _:
            record.deaths += 1
        case b"queued", b"worker.recover":
            record.put_backs += 1
            record.recoveries += 1
        case b"queued", b"worker.release":
            record.put_backs += 1


# -- bridgemq -----------------------------------------------------------------------------------------------


def _read_bridgemq(client: redis.Redis, records: JobRecords) -> None:
    after = "-"
    while entries := client.xrange(f"{BRIDGEMQ}events", after, "+", PAGE):
        after = f"({entries[-1][0].decode()}"
        for _, fields in entries:
            if job_id := fields.get(b"jobId", b"").decode():
                _hear_bridgemq(records.setdefault(job_id, JobRecord()), fields)
    parts = ("status", "result", "summary", "fence")
    for page in _pages(records):
        pipeline = client.pipeline(transaction=False)
        for job_id in page:
            pipeline.mget(*(f"{BRIDGEMQ}jobs:{part}:{job_id}" for part in parts))
        for job_id, (status, result, summary, fence) in zip(page, pipeline.execute(), strict=True):
            record = records[job_id]
            record.state = (status or b"not there").decode()
            record.result = json.loads(result)["data"] if result else None
            # what was found abandoned spent an attempt too; here only those that ended by themselves count
            record.attempts = (json.loads(summary)["attempt"] if summary else 0) - record.recoveries
            # each claim has a number of its own
            assert int(fence or 0) == record.starts, (job_id, record)


def _hear_bridgemq(record: JobRecord, fields: dict[bytes, bytes]) -> None:
    match fields[b"event"]:
        case b"active":
            record.starts += 1
        case b"completed":
            record.completions += 1
        case b"dead":
            record.deaths += 1
        case b"retry":
            record.put_backs += 1
        case b"waiting" | b"delayed" if fields.get(b"prev") == b"active":
            record.put_backs += 1
        case b"stalled":
            record.put_backs += 1
            record.recoveries += 1


_READERS = {"bullmq": _read_bullmq, "streams": _read_streams, "bridgemq": _read_bridgemq}

PROTOCOLS = tuple(_READERS)
"""The protocols whose records can be read here."""
