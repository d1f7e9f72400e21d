"""What every object bound to one queue has in common: its name, its keys, and the protocol's ports."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import redis.asyncio as redis

from corral.bullmq.connection import Connection
from corral.bullmq.event_emitter import EventEmitter
from corral.core.job import Claim
from corral.core.ports import Profile, Rest, Why
from corral.protocols.binding import Binding
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.keys import Keys
from corral.protocols.bullmq.operator import BullmqOperator
from corral.store.client import Store
from corral.store.scripts import Scripts
from corral.sync import PerLoopStore
from corral.worker.worker import wall_clock

SCRIPTS = Scripts("corral.bullmq")
DEFAULT_PREFIX = "bull"
_KEY_NAMES = (
    "", "active", "wait", "waiting-children", "paused", "completed", "failed", "delayed", "repeat", "stalled",
    "limiter", "prioritized", "id", "stalled-check", "meta", "pc", "events", "marker", "de",
)  # fmt: skip


class QueueBase(EventEmitter):
    """One queue, seen by whoever adds to it, works on it or listens to it."""

    def __init__(
        self, name: str, opts: Mapping[str, Any] | None = None, connection: Connection | None = None
    ) -> None:
        super().__init__()
        if not name:
            raise ValueError("Queue name must be provided")
        if ":" in name:
            raise ValueError("Queue name cannot contain :")
        self.name = name
        self.opts: dict[str, Any] = dict(opts or {})
        self.prefix: str = self.opts.get("prefix") or DEFAULT_PREFIX
        self.connection = connection or Connection(self.opts.get("connection"))
        self.queueKeys = Keys(self.prefix, name)
        self.closing = False

    @property
    def client(self) -> redis.Redis:
        """A redis-py client of the same server, for commands of one's own."""
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
        """The name of one of the queue's keys, or of a job's."""
        return self.queueKeys.part(type)

    def clientName(self, suffix: str = "") -> str:
        """What a connection for this queue is called, so that tools can list it."""
        return self.queueKeys.connection_name() + suffix

    async def waitUntilReady(self) -> redis.Redis:
        """Return when the server answers."""
        await self.store.call("PING")
        return self.client

    async def close(self) -> None:
        """Let go of the connections."""
        self.closing = True
        await self.connection.close()

    async def disconnect(self) -> None:
        """The same: nothing is kept open here that could be cut off more harshly."""
        await self.close()

    # -- the protocol's ports -------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The connections of the running event loop."""
        return self.connection.store()

    def binding(self, profile: Profile | None = None) -> Binding:
        """Where the protocol's ports for this queue are, whichever event loop uses them."""
        store = PerLoopStore(self.connection.store)
        return Binding(store, self.name, self.prefix, wall_clock, profile or self.profile())

    @cached_property
    def inspector(self) -> BullmqInspector:
        return BullmqInspector(self.binding())

    @cached_property
    def operator(self) -> BullmqOperator:
        return BullmqOperator(self.binding())

    def profile(self) -> Profile:
        """How this object claims and settles."""
        return Profile(name="")

    def broker(self) -> BullmqBroker:
        """A broker of the running event loop; it opens no connection unless it waits."""
        return BullmqBroker(self.binding())

    async def read(self, job_id: str) -> dict[str, str] | None:
        """The fields of a job's hash, as text; None where there is no such job."""
        flat = await self.store.call("HGETALL", self.toKey(job_id))
        return as_text(flat) if flat else None

    async def claim(self, broker: BullmqBroker, token: str) -> tuple[Claim | None, Rest]:
        """The next job, held under `token`, if there is one; and why there is no other."""
        turn = await broker.turn([], 1)
        if not turn.claims:
            return None, turn.rest
        job, receipt = turn.claims[0].job, turn.claims[0].receipt
        held = await self.store.run(SCRIPTS["relock"], (self.queueKeys.lock(job.id),), (receipt, token))
        return (Claim(job, token) if held else None), turn.rest

    async def next_job_data(self, token: str) -> list[Any]:
        """[fields of the next job or None, its id, ms the queue is limited for, when a delayed job is due]"""
        claim, rest = await self.claim(self.broker(), token)
        fields = None if claim is None else await self.read(claim.job.id)
        until = rest.until or 0
        limited = max(until - wall_clock(), 0) if rest.why is Why.LIMITED else 0
        job_id = None if claim is None else claim.job.id
        return [fields, job_id, limited, until if rest.why is Why.DRAINED else 0]


def as_text(flat: Sequence[bytes]) -> dict[str, str]:
    """The fields of a hash, from the server's flat list of them."""
    words = [word.decode("utf-8", "replace") for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))
