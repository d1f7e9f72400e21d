"""A producer, a worker and a scheduler written from the BridgeMQ document, without Corral.

They use plain commands and the four scripts, loaded once from the exported files and called by EVALSHA.
"""

import atexit
import json
import time
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import redis

from corral.cli.scripts import write_scripts

LUA = Path(mkdtemp(prefix="corral-lua-"))
atexit.register(rmtree, LUA, ignore_errors=True)
write_scripts(LUA)
DAY_S = 86_400


def now_ms() -> int:
    return int(time.time() * 1000)


class Document:
    """The key names of the document."""

    def __init__(self, namespace: str = "bridge") -> None:
        self.namespace = namespace

    def __call__(self, *parts: str) -> str:
        return ":".join((self.namespace, *parts))


class ForeignClient:
    """What every client of the document has: a connection, the key names, the scripts."""

    def __init__(self, client: redis.Redis, namespace: str = "bridge") -> None:
        self.client = client
        self.key = Document(namespace)
        self._shas: dict[str, str] = {}

    def script(self, name: str, keys: list[str], args: list[Any]) -> Any:
        """SCRIPT LOAD once, then EVALSHA."""
        if name not in self._shas:
            sha = self.client.script_load((LUA / "bridgemq" / f"{name}.lua").read_text())
            self._shas[name] = sha if isinstance(sha, str) else sha.decode()
        return self.client.evalsha(self._shas[name], len(keys), *keys, *args)


class ForeignProducer(ForeignClient):
    """dispatch(job): save the data, then route by schedule."""

    def dispatch(
        self, job_id: str, job_type: str = "work", data: Any = None, *, delay: int = 0, cron: str = "",
        next_run: int = 0, priority: int = 5, says_status: bool = True, **fields: Any,
    ) -> str:  # fmt: skip
        schedule = {"cron": cron, **fields.pop("schedule", {})} if cron else {"delay": delay} if delay else {}
        job = {
            "id": job_id, "type": job_type, "queue": "default", "data": data, "priority": priority,
            "attempt": 0, "maxAttempts": 3, "backoff": {"type": "fixed", "delay": 1000}, "target": {},
            "schedule": schedule,
            "createdAt": now_ms(), **fields,
        }  # fmt: skip
        return self.push(job_id, json.dumps(job), delay, next_run, priority, says_status)

    def push(
        self,
        job_id: str,
        raw: str,
        delay: int = 0,
        next_run: int = 0,
        priority: int = 5,
        says_status: bool = True,
    ) -> str:
        client, key = self.client, self.key
        client.set(key("jobs", "data", job_id), raw)
        if next_run:
            status = "cron"
            client.zadd(key("jobs", "cron"), {job_id: next_run})
        elif delay:
            status = "delayed"
            client.zadd(key("jobs", "delayed"), {job_id: now_ms() + delay})
        else:
            status = "waiting"
            (client.lpush if priority >= 7 else client.rpush)(key("jobs", "waiting"), job_id)
        if says_status:
            client.set(key("jobs", "status", job_id), status)
        return job_id

    def result(self, job_id: str) -> dict[str, Any] | None:
        raw = self.client.get(self.key("jobs", "result", job_id))
        return None if raw is None else json.loads(raw)

    def status(self, job_id: str) -> str | None:
        raw = self.client.get(self.key("jobs", "status", job_id))
        return None if raw is None else raw.decode()


class ForeignWorker(ForeignClient):
    """Registers, beats, claims by claim_job, writes the result, releases by release_lock."""

    def __init__(
        self, client: redis.Redis, server_id: str = "foreign", *, stack: str = "node",
        region: str = "us-east", capabilities: tuple[str, ...] = (), namespace: str = "bridge",
    ) -> None:  # fmt: skip
        super().__init__(client, namespace)
        self.id = server_id
        self.stack, self.region, self.capabilities = stack, region, list(capabilities)

    def register(self) -> None:
        metadata = {
            "serverId": self.id, "stack": self.stack, "region": self.region,
            "capabilities": self.capabilities, "lastSeen": now_ms(), "pid": 1, "hostname": "elsewhere",
        }  # fmt: skip
        self.client.set(self.key("workers", self.id), json.dumps(metadata))
        self.client.sadd(self.key("workers", "active"), self.id)
        self.beat()

    def beat(self) -> None:
        self.client.set(self.key("workers", "heartbeat", self.id), now_ms(), ex=30)

    def claim(self, lock_s: int = 30, *more: int) -> dict[str, Any] | None:
        """Claim a job; None where none matches."""
        raw = self.script(
            "claim_job",
            [self.key("jobs", "waiting"), self.key("jobs", "active"), self.key("queues", "paused")],
            [
                self.id, json.dumps([self.stack]), json.dumps(self.capabilities), json.dumps([self.region]),
                now_ms(), lock_s, self.key("jobs", "data", ""), self.key("jobs", "lock", ""),
                self.key("ratelimit", "concurrent", ""), *more,
            ],
        )  # fmt: skip
        return None if raw is None else json.loads(raw)

    def progress(self, job_id: str, percent: int, message: str) -> None:
        progress = {"percent": percent, "message": message, "updatedAt": now_ms()}
        self.client.set(self.key("jobs", "progress", job_id), json.dumps(progress))

    def complete(self, job: dict[str, Any], data: Any) -> int:
        """Write the result and release the lock; return what release_lock returns."""
        result = {"success": True, "data": data, "completedAt": now_ms(), "processingTime": 1}
        self.client.set(self.key("jobs", "result", job["id"]), json.dumps(result), ex=DAY_S)
        self.client.set(self.key("jobs", "status", job["id"]), "completed")
        self.client.delete(self.key("jobs", "data", job["id"]))
        return self.release(job)

    def retry(self, job: dict[str, Any], delay: int = 0) -> int:
        """The document's retry: the attempt is counted in the job's own JSON."""
        again = {**job, "attempt": job["attempt"] + 1}
        self.client.set(self.key("jobs", "data", job["id"]), json.dumps(again))
        self.client.set(self.key("jobs", "status", job["id"]), "failed")
        self.client.zadd(self.key("jobs", "delayed"), {job["id"]: now_ms() + delay})
        return self.release(job)

    def bury(self, job: dict[str, Any], message: str) -> int:
        result = {
            "success": False, "error": {"message": message, "stack": "at …", "name": "Error"},
            "completedAt": now_ms(), "processingTime": 1,
        }  # fmt: skip
        self.client.set(self.key("jobs", "result", job["id"]), json.dumps(result), ex=DAY_S)
        self.client.lpush(self.key("jobs", "deadletter"), job["id"])
        self.client.set(self.key("jobs", "status", job["id"]), "dead")
        return self.release(job)

    def release(self, job: dict[str, Any]) -> int:
        return int(
            self.script(
                "release_lock",
                [
                    self.key("jobs", "lock", job["id"]), self.key("jobs", "active"),
                    self.key("ratelimit", "concurrent", job["type"]),
                ],
                [self.id, job["id"]],
            )
        )  # fmt: skip

    def work(self, handler: Callable[[dict[str, Any]], Any]) -> list[str]:
        """Ids of the jobs it ran, until nothing fits."""
        done = []
        while (job := self.claim()) is not None:
            self.complete(job, handler(job))
            done.append(job["id"])
        return done


class ForeignScheduler(ForeignClient):
    """Leader election by SET NX EX; process_delayed and process_cron; when next is for the client to find."""

    def __init__(
        self, client: redis.Redis, scheduler_id: str = "foreign-scheduler", namespace: str = "bridge"
    ) -> None:
        super().__init__(client, namespace)
        self.id = scheduler_id

    def lead(self) -> bool:
        return bool(self.client.set(self.key("scheduler", "lock"), self.id, nx=True, ex=30))

    def process_delayed(self, at: int | None = None, most: int = 100) -> int:
        keys = [self.key("jobs", "delayed"), self.key("jobs", "waiting")]
        return int(self.script("process_delayed", keys, [at or now_ms(), most]))

    def process_cron(self, at: int | None = None, most: int = 100) -> list[dict[str, str]]:
        keys = [self.key("jobs", "cron"), self.key("jobs", "waiting"), self.key("jobs", "data", "")]
        jobs: list[dict[str, str]] = json.loads(self.script("process_cron", keys, [at or now_ms(), most]))
        return jobs

    def reschedule(self, job_id: str, at: int) -> None:
        self.client.zadd(self.key("jobs", "cron"), {job_id: at})
