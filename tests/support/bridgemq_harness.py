"""One BridgeMQ namespace on a real server, and the server's own view of it."""

import json
from typing import Any

import redis
from msgspec.structs import replace

from corral.core.job import Job
from corral.core.ports import Schedules
from corral.core.schedule import ScheduleRule
from corral.store.client import Store
from tests.support.harness import QueueHarness


class BridgemqHarness(QueueHarness):
    """The ports of one queue, and plain reads of the namespace's keys."""

    worker_name = "w1"

    def __init__(self, store: Store, client: redis.Redis, namespace: str = "bridge") -> None:
        super().__init__("bridgemq", store, namespace=namespace)
        self.client = client

    @property
    def schedules(self) -> Schedules:
        schedules = self.protocol.bind(self.binding()).schedules
        assert schedules is not None
        return schedules

    async def upsert(self, job: Job) -> str:
        """Write the schedule that a job's own options describe."""
        extra = dict(job.options.extra)
        rule = ScheduleRule(
            cron=extra.pop("cron", None),
            timezone=extra.pop("timezone", None),
            catch_up=extra.pop("catch_up", "once"),
        )
        return await self.schedules.upsert(replace(job, options=replace(job.options, extra=extra)), rule)

    # -- the server's own view ---------------------------------------------------------------------------

    def key(self, *parts: str) -> str:
        return ":".join((self.namespace, *parts))

    def text(self, *parts: str) -> str | None:
        raw = self.client.get(self.key(*parts))
        return None if raw is None else raw.decode()

    def json(self, *parts: str) -> Any:
        raw = self.client.get(self.key(*parts))
        return None if raw is None else json.loads(raw)

    def ids(self, name: str) -> list[str]:
        """The ids in waiting, deadletter, active, delayed or cron."""
        key = self.key("jobs", name)
        kind = self.client.type(key)
        if kind == b"list":
            members = self.client.lrange(key, 0, -1)
        elif kind == b"zset":
            members = self.client.zrange(key, 0, -1)
        else:
            members = sorted(self.client.smembers(key))
        return [job_id.decode() for job_id in members]

    def keyspace(self) -> dict[bytes, bytes | None]:
        """Every key and its value, byte for byte."""
        return {key: self.client.dump(key) for key in sorted(self.client.keys())}
