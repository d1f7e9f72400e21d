"""Every room, as the contract suite sees it."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from corral.core.capability import Capability
from corral.core.job import Claim, Job, JobOptions
from corral.core.outcome import Completed, Outcome, Settlement
from corral.core.ports import Broker, EventLog, Inspector, Operator, Profile, Reporter
from corral.store.connect import Store
from corral.wire.place import Place
from corral.wiring import ROOMS, Room

JOB_NAMES = {"bullmq": "work", "streams": "embed", "bridgemq": "work"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class House:
    """One room on one empty server, with as many workers as a test wants."""

    def __init__(self, room: Room, store: Store, namespace: str | None = None) -> None:
        self.room = room
        self.namespace = room.default_namespace if namespace is None else namespace
        self.store = store
        self.queue = room.default_queue
        self.job_name = JOB_NAMES[room.name]
        self._brokers: list[Broker] = []
        self.clock = now_ms

    def can(self, capability: Capability) -> bool:
        return capability in self.room.capabilities

    def place(self, worker: str = "worker-a", **profile: Any) -> Place:
        return Place(
            self.store,
            self.queue,
            self.namespace,
            self.clock,
            Profile(name=worker, **{"lock_ms": 30_000, "recover_ms": 20, **profile}),
        )

    def broker(self, worker: str = "worker-a", **profile: Any) -> Broker:
        broker = self.room.broker(self.place(worker, **profile))
        self._brokers.append(broker)
        return broker

    def reporter(self, worker: str = "worker-a") -> Reporter:
        return self.room.reporter(self.place(worker))

    @property
    def inspector(self) -> Inspector:
        return self.room.inspector(self.place())

    @property
    def operator(self) -> Operator:
        return self.room.operator(self.place())

    @property
    def events(self) -> EventLog:
        return self.room.events(self.place())

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


@pytest.fixture(params=list(ROOMS))
async def house(request: pytest.FixtureRequest, store: Store) -> AsyncIterator[House]:
    house = House(ROOMS[request.param], store)
    yield house
    await house.close()


@contextmanager
def within(seconds: float) -> Iterator[Any]:
    """Measure a block; fail where it took longer."""
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < seconds, f"took {took:.2f} s, wanted < {seconds} s"
