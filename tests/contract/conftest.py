"""Every protocol, as the contract suite sees it."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from corral.core.job import Claim, Job, JobOptions
from corral.core.options import Capability
from corral.core.outcome import Completed, Outcome, Settlement
from corral.core.ports import Broker, EventLog, Inspector, Operator, Profile, Reporter
from corral.protocols import PROTOCOLS, Protocol
from corral.protocols.binding import Binding
from corral.store.client import Store

JOB_NAMES = {"bullmq": "work", "streams": "embed", "bridgemq": "work"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class QueueHarness:
    """One protocol on one empty server, with as many workers as a test wants."""

    def __init__(self, protocol: Protocol, store: Store, namespace: str | None = None) -> None:
        self.protocol = protocol
        self.namespace = protocol.default_namespace if namespace is None else namespace
        self.store = store
        self.queue = protocol.default_queue
        self.job_name = JOB_NAMES[protocol.name]
        self._brokers: list[Broker] = []
        self.clock = now_ms

    def can(self, capability: Capability) -> bool:
        return capability in self.protocol.capabilities

    def binding(self, worker: str = "worker-a", **profile: Any) -> Binding:
        return Binding(
            self.store,
            self.queue,
            self.namespace,
            self.clock,
            Profile(name=worker, **{"lock_ms": 30_000, "recover_ms": 20, **profile}),
        )

    def broker(self, worker: str = "worker-a", **profile: Any) -> Broker:
        broker = self.protocol.broker(self.binding(worker, **profile))
        self._brokers.append(broker)
        return broker

    def reporter(self, worker: str = "worker-a") -> Reporter:
        return self.protocol.reporter(self.binding(worker))

    @property
    def inspector(self) -> Inspector:
        return self.protocol.inspector(self.binding())

    @property
    def operator(self) -> Operator:
        return self.protocol.operator(self.binding())

    @property
    def events(self) -> EventLog:
        return self.protocol.events(self.binding())

    def job(self, data: Any = None, *, id: str = "", **options: Any) -> Job:
        if not self.can(Capability.RETRY):
            options = {"attempts": 1, "backoff": None, **options}
        return Job(
            name=self.job_name,
            data={} if data is None else data,
            queue=self.queue,
            id=id,
            options=JobOptions(**options),
            created_at=self.clock(),
        )

    async def close(self) -> None:
        for broker in self._brokers:
            await broker.close()


def settle(claim: Claim, outcome: Outcome | None = None) -> Settlement:
    return Settlement(claim, outcome or Completed(b"null"), now_ms())


@pytest.fixture(params=list(PROTOCOLS))
async def harness(request: pytest.FixtureRequest, store: Store) -> AsyncIterator[QueueHarness]:
    harness = QueueHarness(PROTOCOLS[request.param], store)
    yield harness
    await harness.close()


@contextmanager
def within(seconds: float) -> Iterator[Any]:
    """Measure a block; fail where it took longer."""
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < seconds, f"took {took:.2f} s, wanted < {seconds} s"
