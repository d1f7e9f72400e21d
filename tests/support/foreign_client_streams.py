"""A producer and a worker that know the streams contract's document and nothing of Corral."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import redis

TERMINAL = ("done", "error", "canceled")


def now_ms() -> int:
    return int(time.time() * 1000)


class ForeignGateway:
    """Creates jobs, reads them, tails their events."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    def create(self, task: str, payload: Any, ttl_s: int = 600, job_id: str = "") -> str:
        job_id = job_id or str(uuid.uuid4())
        text = payload if isinstance(payload, str) else json.dumps(payload)
        now = str(now_ms())
        key, events = f"job:{job_id}", f"job:{job_id}:events"
        self.client.hset(
            key,
            mapping={
                "job_id": job_id, "task": task, "payload": text, "status": "queued", "created_ts": now,
                "updated_ts": now, "ttl_s": str(ttl_s), "result": "", "error": "",
            },
        )  # fmt: skip
        self.client.expire(key, ttl_s)
        self.client.xadd(events, {"type": "queued", "ts": now, "step": "gateway.enqueue", "data": "{}"})
        self.client.expire(events, ttl_s)
        self.client.xadd("jobs:stream", {"job_id": job_id, "task": task, "payload": text})
        return job_id

    def read(self, job_id: str) -> dict[str, Any]:
        """The job as `GET /v1/jobs/{id}` answers it."""
        job: dict[str, Any] = {
            name.decode(): value.decode() for name, value in self.client.hgetall(f"job:{job_id}").items()
        }
        for name in ("payload", "result", "error"):
            job[name] = json.loads(job[name]) if job[name] else None
        for name in ("created_ts", "updated_ts", "ttl_s"):
            job[name] = int(job[name])
        return job

    def tail(self, job_id: str, seconds: float = 5) -> Iterator[dict[str, str]]:
        """Events from the beginning until a terminal one, as the SSE endpoint yields them."""
        last, deadline = b"0-0", time.monotonic() + seconds
        while time.monotonic() < deadline:
            answer = self.client.xread({f"job:{job_id}:events": last}, block=200)
            for entry, fields in answer[0][1] if answer else []:
                last = entry
                event = {name.decode(): value.decode() for name, value in fields.items()}
                yield event
                if event["type"] in TERMINAL:
                    return
        raise AssertionError(f"no terminal event of job {job_id} within {seconds} s")


class ForeignWorker:
    """Reads with `>`, keeps the required transitions, acknowledges last, deletes nothing."""

    def __init__(self, client: redis.Redis, name: str = "stranger") -> None:
        self.client = client
        self.name = name
        try:
            client.xgroup_create("jobs:stream", "workers", id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def take(self, count: int = 1) -> list[tuple[bytes, dict[bytes, bytes]]]:
        answer = self.client.xreadgroup("workers", self.name, {"jobs:stream": ">"}, count=count)
        return list(answer[0][1]) if answer else []

    def start(self, job_id: str) -> None:
        self._update(job_id, status="running")
        self._tell(job_id, "running")

    def finish(self, entry: bytes, job_id: str, result: Any) -> int:
        """How many entries the acknowledgement took off the list."""
        self._update(job_id, status="done", result=json.dumps(result))
        self._tell(job_id, "done")
        return int(self.client.xack("jobs:stream", "workers", entry))

    def work(self, handler: Callable[[str, Any], Any], count: int = 1) -> list[str]:
        """Ids of the jobs it ran."""
        done = []
        for entry, fields in self.take(count):
            job_id = fields[b"job_id"].decode()
            self.start(job_id)
            result = handler(fields[b"task"].decode(), json.loads(fields[b"payload"]))
            self.finish(entry, job_id, result)
            done.append(job_id)
        return done

    def _update(self, job_id: str, **fields: str) -> None:
        self.client.hset(f"job:{job_id}", mapping={**fields, "updated_ts": str(now_ms())})
        self.client.expire(f"job:{job_id}", int(self.client.hget(f"job:{job_id}", "ttl_s") or 0))

    def _tell(self, job_id: str, kind: str) -> None:
        events = f"job:{job_id}:events"
        self.client.xadd(events, {"type": kind, "ts": str(now_ms()), "step": "stranger", "data": "{}"})
        self.client.expire(events, int(self.client.hget(f"job:{job_id}", "ttl_s") or 0))


def make_old(client: redis.Redis, entry: bytes | str, silent_ms: int = 3_600_000) -> None:
    """Let a pending entry look as if its worker had been silent for so long; nothing else changes."""
    (row,) = client.xpending_range("jobs:stream", "workers", entry, entry, 1)
    client.xclaim("jobs:stream", "workers", row["consumer"], 0, [entry], idle=silent_ms, justid=True)


def pending(client: redis.Redis) -> list[tuple[str, str, int]]:
    """(entry, consumer, deliveries) of everything in hand."""
    rows = client.xpending_range("jobs:stream", "workers", "-", "+", 10_000)
    return [(row["message_id"].decode(), row["consumer"].decode(), row["times_delivered"]) for row in rows]


def story(client: redis.Redis, job_id: str) -> list[str]:
    """The types of a job's events, in order."""
    return [fields[b"type"].decode() for _, fields in client.xrange(f"job:{job_id}:events")]
