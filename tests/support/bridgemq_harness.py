"""One BridgeMQ namespace on a real server: as many workers as a test wants, and a clock it may set."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis

from corral.core.job import Claim, Job, JobOptions
from corral.core.outcome import Completed, Outcome, Settlement
from corral.core.ports import Profile
from corral.protocols.binding import Binding
from corral.protocols.bridgemq.broker import BridgemqBroker
from corral.protocols.bridgemq.events import BridgemqEventLog
from corral.protocols.bridgemq.inspector import BridgemqInspector
from corral.protocols.bridgemq.operator import BridgemqOperator
from corral.protocols.bridgemq.reporter import BridgemqReporter
from corral.store.client import Store


class BridgemqHarness:
    """Brokers, readers and writers of one namespace, and the server's own view of it."""

    def __init__(self, store: Store, client: redis.Redis, namespace: str = "bridge") -> None:
        self.store = store
        self.client = client
        self.namespace = namespace
        self.now: int | None = None
        """The clock's time where a test has set it; else the real one."""
        self._brokers: list[BridgemqBroker] = []

    def clock(self) -> int:
        return time.time_ns() // 1_000_000 if self.now is None else self.now

    def binding(self, worker: str = "w1", queue: str = "default", **profile: Any) -> Binding:
        extra = {
            name: profile.pop(name)
            for name in (
                "server_id",
                "stack",
                "region",
                "capabilities",
                "heartbeat_ms",
                "result_s",
                "max_events",
                "scan",
            )
            if name in profile
        }
        return Binding(
            self.store, queue, self.namespace, self.clock, Profile(name=worker, extra=extra, **profile)
        )

    def broker(self, worker: str = "w1", queue: str = "default", **profile: Any) -> BridgemqBroker:
        broker = BridgemqBroker(self.binding(worker, queue, **profile))
        self._brokers.append(broker)
        return broker

    def reporter(self, worker: str = "w1", **profile: Any) -> BridgemqReporter:
        return BridgemqReporter(self.binding(worker, **profile))

    def inspector(self, queue: str = "default") -> BridgemqInspector:
        return BridgemqInspector(self.binding("inspector", queue))

    def operator(self, queue: str = "default") -> BridgemqOperator:
        return BridgemqOperator(self.binding("operator", queue))

    def events(self, queue: str = "default") -> BridgemqEventLog:
        return BridgemqEventLog(self.binding("reader", queue))

    def job(
        self, name: str = "work", data: Any = None, *, id: str = "", queue: str = "default", **options: Any
    ) -> Job:
        extra = {
            word: options.pop(word)
            for word in ("target", "rate", "keep_data", "cron", "timezone", "catch_up")
            if word in options
        }
        return Job(
            name=name, data={} if data is None else data, queue=queue, id=id,
            options=JobOptions(extra=extra, **options), created_at=self.clock(),
        )  # fmt: skip

    def settle(self, claim: Claim, outcome: Outcome | None = None) -> Settlement:
        return Settlement(claim, outcome or Completed(b"null"), self.clock())

    async def claim(self, broker: BridgemqBroker) -> Claim:
        """The one job that is there to be had."""
        turn = await broker.turn([], 1)
        assert len(turn.claims) == 1
        return turn.claims[0]

    # -- what the server has ----------------------------------------------------------------------------

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
            found = self.client.lrange(key, 0, -1)
        elif kind == b"zset":
            found = self.client.zrange(key, 0, -1)
        else:
            found = sorted(self.client.smembers(key))
        return [job_id.decode() for job_id in found]

    def keyspace(self) -> dict[bytes, bytes | None]:
        """Everything there is, byte for byte."""
        return {key: self.client.dump(key) for key in sorted(self.client.keys())}

    async def close(self) -> None:
        for broker in self._brokers:
            await broker.close()


@asynccontextmanager
async def open_harness(
    store: Store, client: redis.Redis, namespace: str = "bridge"
) -> AsyncIterator[BridgemqHarness]:
    harness = BridgemqHarness(store, client, namespace)
    try:
        yield harness
    finally:
        await harness.close()
