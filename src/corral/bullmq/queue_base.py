"""QueueBase: the name, the keys and the protocol's ports of one queue."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import redis.asyncio as redis

from corral.bullmq.connection import RedisConnection
from corral.bullmq.event_emitter import EventEmitter
from corral.core.job import Claim
from corral.core.ports import Profile, Rest, RestReason
from corral.protocols import given_generation
from corral.protocols.base import Binding
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.flows import BullmqFlows
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.keys import NAME, BullmqKeys
from corral.protocols.bullmq.operator import BullmqOperator
from corral.store.client import Store
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.bullmq")
DEFAULT_PREFIX = "bull"
_KEY_NAMES = (
    "", "active", "wait", "waiting-children", "paused", "completed", "failed", "delayed", "repeat", "stalled",
    "limiter", "prioritized", "id", "stalled-check", "meta", "pc", "events", "marker", "de",
)  # fmt: skip
NextJobData = list[Any]
"""[fields of the next job or None, its id, ms the queue is limited for, when a delayed job is due]"""


class QueueBase(EventEmitter):
    """What Queue, Worker, QueueEvents and QueueEventsProducer have in common."""

    def __init__(
        self, name: str, opts: Mapping[str, Any] | None = None, connection: RedisConnection | None = None
    ) -> None:
        super().__init__()
        if not name:
            raise ValueError("Queue name must be provided")
        if ":" in name:
            raise ValueError("Queue name cannot contain :")
        self.name = name
        self.opts: dict[str, Any] = dict(opts or {})
        self.prefix: str = self.opts.get("prefix") or DEFAULT_PREFIX
        self.connection = connection or RedisConnection(self.opts.get("connection"))
        self.generation = given_generation(NAME, self.opts.get("bullmq"))
        """The generation of BullMQ that the queue must be of; None: the one that it is of."""
        self.queueKeys = BullmqKeys(self.prefix, name)
        self.profile = Profile(name="")
        """The settings under which this object claims and settles."""
        self.closing = False

    @property
    def client(self) -> redis.Redis:
        """A redis-py client of the same server, for the caller's own commands."""
        return self.connection.client

    @property
    def qualifiedName(self) -> str:
        """The queue's name with its prefix: `bull:mail`."""
        return f"{self.prefix}:{self.name}"

    @cached_property
    def keys(self) -> dict[str, str]:
        """The queue's own keys by their short names."""
        return {name: self.toKey(name) for name in _KEY_NAMES}

    def toKey(self, type: str) -> str:
        """Return one of the queue's keys, or a job's."""
        return self.queueKeys.prefix + type

    def clientName(self, suffix: str = "") -> str:
        """Return the name that connections for this queue have in `CLIENT LIST`."""
        return self.queueKeys.connection_name() + suffix

    async def waitUntilReady(self) -> redis.Redis:
        """Wait until the server answers."""
        await self.store.call("PING")
        return self.client

    async def close(self) -> None:
        """Close the connections."""
        self.closing = True
        await self.connection.close()

    async def disconnect(self) -> None:
        """Another name of `close`."""
        await self.close()

    # -- the protocol's ports -------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The Store of the running event loop."""
        return self.connection.store.current()

    def binding(self, profile: Profile | None = None) -> Binding:
        """Return the binding of this queue's ports, for any event loop."""
        connection = self.connection
        return Binding(
            connection.store,
            self.name,
            self.prefix,
            connection.clock,
            profile or self.profile,
            self.generation,
        )

    @cached_property
    def inspector(self) -> BullmqInspector:
        return BullmqInspector(self.binding())

    @cached_property
    def operator(self) -> BullmqOperator:
        return BullmqOperator(self.binding())

    @cached_property
    def flows(self) -> BullmqFlows:
        return BullmqFlows(self.binding())

    def broker(self) -> BullmqBroker:
        """Return a broker of the running event loop; it opens a connection only to wait."""
        return BullmqBroker(self.binding())

    async def read(self, job_id: str) -> dict[str, str] | None:
        """Return the fields of a job's hash, as text; None if there is no such job."""
        flat = await self.store.call("HGETALL", self.toKey(job_id))
        return as_text(flat) if flat else None

    async def claim(self, broker: BullmqBroker, token: str) -> tuple[Claim | None, Rest]:
        """Claim the next job under `token`; return it, if there is one, and why there is no other."""
        turn = await broker.turn([], 1)
        if not turn.claims:
            return None, turn.rest
        job, receipt = turn.claims[0].job, turn.claims[0].receipt
        held = await self.store.run(SCRIPTS["relock"], (self.queueKeys.lock(job.id),), (receipt, token))
        return (Claim(job, token) if held else None), turn.rest

    async def next_job_data(self, token: str) -> NextJobData:
        """Claim the next job under `token`."""
        broker = self.broker()
        try:
            claim, rest = await self.claim(broker, token)
        finally:
            await broker.close()
        until = rest.until or 0
        limited = max(until - self.connection.clock(), 0) if rest.reason is RestReason.LIMITED else 0
        due = until if rest.reason is RestReason.DRAINED else 0
        if claim is None:
            return [None, None, limited, due]
        return [await self.read(claim.job.id), claim.job.id, limited, due]


def as_text(flat: Sequence[bytes]) -> dict[str, str]:
    """Return the fields of a hash as text, from the server's flat list of them."""
    parts = [part.decode("utf-8", "replace") for part in flat]
    return dict(zip(parts[::2], parts[1::2], strict=True))
