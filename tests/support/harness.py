"""One queue of one protocol on a server, used through its ports."""

import copy
import time
from typing import Any, Self

from corral.core.job import Claim, Job, JobOptions
from corral.core.options import Capability
from corral.core.outcome import Completed, Outcome, Settlement
from corral.core.ports import Broker, EventLog, Inspector, Operator, Profile, Reporter
from corral.protocols import protocol_named
from corral.protocols.base import Binding, Protocol
from corral.store.client import Store

JOB_NAMES = {"streams": "embed"}
"""A job name that the protocol accepts, where it does not accept every name."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Clock:
    """The time in ms: the real one, shifted by `offset_ms`, until a test sets `now`."""

    def __init__(self, now: int | None = None) -> None:
        self.now = now
        self.offset_ms = 0

    def __call__(self) -> int:
        return now_ms() + self.offset_ms if self.now is None else self.now


def _with_extra(kind: type[JobOptions] | type[Profile], values: dict[str, Any]) -> dict[str, Any]:
    """Put the values that only one protocol knows into `extra`."""
    known = {name: value for name, value in values.items() if name in kind.__struct_fields__}
    own = {name: value for name, value in values.items() if name not in known}
    return {**known, "extra": {**known.get("extra", {}), **own}}


class QueueHarness:
    """Brokers of as many workers as a test needs, the other ports, and a clock that a test may set."""

    worker_name = "worker-a"
    """The name of the worker where a test gives none."""
    profile: dict[str, Any] = {}  # noqa: RUF012
    """What every worker's profile says unless a test says otherwise."""

    def __init__(
        self,
        protocol: Protocol | str,
        store: Store,
        *,
        queue: str | None = None,
        namespace: str | None = None,
    ) -> None:
        self.protocol = protocol_named(protocol) if isinstance(protocol, str) else protocol
        self.store = store
        self.queue = queue or self.protocol.spec.default_queue
        self.namespace = self.protocol.spec.default_namespace if namespace is None else namespace
        self.job_name = JOB_NAMES.get(self.protocol.spec.name, "work")
        self.clock = Clock()
        self._brokers: list[Broker] = []

    def on(self, queue: str) -> Self:
        """Return the same harness on another queue."""
        other = copy.copy(self)
        other.queue = queue
        return other

    def can(self, capability: Capability) -> bool:
        return capability in self.protocol.spec.capabilities

    @property
    def now(self) -> int:
        return self.clock()

    @now.setter
    def now(self, now: int) -> None:
        self.clock.now = now

    def binding(self, worker: str | None = None, **profile: Any) -> Binding:
        options = _with_extra(
            Profile, {"name": self.worker_name if worker is None else worker, **self.profile, **profile}
        )
        return Binding(self.store, self.queue, self.namespace, self.clock, Profile(**options))

    def broker(self, worker: str | None = None, **profile: Any) -> Broker:
        broker = self.protocol.bind(self.binding(worker, **profile)).broker
        self._brokers.append(broker)
        return broker

    def reporter(self, worker: str | None = None, **profile: Any) -> Reporter:
        return self.protocol.bind(self.binding(worker, **profile)).reporter

    @property
    def inspector(self) -> Inspector:
        return self.protocol.bind(self.binding()).inspector

    @property
    def operator(self) -> Operator:
        return self.protocol.bind(self.binding()).operator

    @property
    def events(self) -> EventLog:
        return self.protocol.bind(self.binding()).events

    def job(self, data: Any = None, *, name: str = "", id: str = "", queue: str = "", **options: Any) -> Job:
        if not self.can(Capability.RETRY):
            options = {"attempts": 1, "backoff": None, **options}
        return Job(
            name=name or self.job_name,
            data={} if data is None else data,
            queue=queue or self.queue,
            id=id,
            options=JobOptions(**_with_extra(JobOptions, options)),
            created_at=self.now,
        )

    def settle(self, claim: Claim, outcome: Outcome | None = None) -> Settlement:
        """Return a settlement of the claim; completed with null where no outcome is given."""
        return Settlement(claim, outcome or Completed(b"null"), self.now)

    async def claim(self, broker: Broker) -> Claim:
        """Claim the only job that can be claimed."""
        [claim] = (await broker.turn([], 1)).claims
        return claim

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for broker in self._brokers:
            await broker.close()
