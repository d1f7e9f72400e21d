"""What a protocol is to the rest of Corral."""

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from corral.core.http_api import HttpApi
from corral.core.job import Job, JobOptions, JobState
from corral.core.options import Capability, Lack
from corral.core.ports import (
    Broker,
    EventLog,
    Flows,
    Inspector,
    Operator,
    Profile,
    Reporter,
    Schedules,
    Snapshot,
)
from corral.core.transfer import Transfer
from corral.errors import Unsupported
from corral.protocols.wire import BROKEN

if TYPE_CHECKING:
    from corral.store.client import Store
    from corral.store.scripts import Script

P = TypeVar("P")


@dataclass(frozen=True, kw_only=True)
class ProtocolSpec:
    """What the rest of Corral knows of a protocol without calling it."""

    name: str
    summary: str
    """One line for help texts."""
    capabilities: frozenset[Capability]
    options: Mapping[str, str]
    """Job options only this protocol knows, each with its help text."""
    default_queue: str
    default_namespace: str
    tags_queues: bool = False
    """Whether a hash tag around a queue's name puts all of its keys into one slot of a cluster."""
    promote_ms: int | None = None
    """How often workers search for due jobs, where the contract defines it."""
    priority: str = ""
    """Which priorities run first."""
    metric_states: Mapping[JobState, str] | None = None
    """The states as the contract's own metric names them, where it has one."""
    metric_names: Mapping[str, str] = field(default_factory=dict)
    """Names in the contract of worker metrics, by Corral's names of them (both without `_total`)."""
    has_http: bool = False
    """Whether the contract has an HTTP interface of its own."""
    has_job_events: bool = False
    """Whether each job has an event log of its own."""
    lacks: Mapping[str, Lack] = field(default_factory=dict)
    """The verbs of the ports that it has no word for: pages leave them out, calls raise `Unsupported`."""
    generations: tuple[int, ...] = ()
    """The generations of the contract that it serves, where there are several."""
    client_scripts: "Callable[[], Sequence[Script]]" = tuple
    """Returns the contract's own scripts, for clients in other languages."""


@dataclass(frozen=True)
class Binding:
    """One queue of one protocol on one server, the clock, and (for workers) the profile."""

    store: "Store"
    queue: str
    namespace: str
    """What the protocol's keys begin with: `bull`, `bridge`, or nothing."""
    clock: Callable[[], int]
    """Milliseconds since the epoch."""
    profile: Profile = field(default_factory=lambda: Profile(name="producer"))
    generation: int | None = None
    """The generation of the protocol that the queue must be of; None: the one that it is of."""


def broken_job(job_id: str, queue: str, state: JobState | None, reason: object) -> Job:
    """Return what a reader shows of a job that is listed, but whose record is of another kind."""
    return Job(id=job_id, name="", data=None, queue=queue, state=state, extra={BROKEN: {"job": str(reason)}})


class BoundPort:
    """A port of one queue."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store


class BoundPorts:
    """The ports of one queue; a protocol lists its classes by `port`."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding


def port(make: Callable[[Binding], P]) -> "cached_property[P]":
    """Return a port that is made when first used."""

    def bound(ports: BoundPorts) -> P:
        return make(ports.binding)

    return cached_property(bound)


class Ports(typing.Protocol):
    """The ports of one queue, each made when first used; None where the protocol has no such port."""

    @property
    def broker(self) -> Broker: ...
    @property
    def reporter(self) -> Reporter: ...
    @property
    def events(self) -> EventLog: ...
    @property
    def inspector(self) -> Inspector: ...
    @property
    def operator(self) -> Operator: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def transfer(self) -> Transfer | None: ...
    @property
    def schedules(self) -> Schedules | None: ...
    @property
    def flows(self) -> Flows | None: ...
    @property
    def http(self) -> HttpApi | None: ...


class Protocol(typing.Protocol):
    """A wire protocol; each package below exports one as `PROTOCOL`."""

    @property
    def spec(self) -> ProtocolSpec: ...

    def check(self, options: JobOptions, now: int) -> None:
        """Refuse options that only this protocol can tell to be wrong."""

    def check_name(self, name: str) -> str:
        """Return the name of a kind of jobs, if the protocol allows it."""

    async def queues(self, store: "Store", namespace: str) -> list[str]:
        """Return the names of the queues in a namespace."""

    def bind(self, binding: Binding) -> Ports:
        """Return the ports of one queue."""


def unsupported(protocol: str, feature: str, way_out: str) -> Unsupported:
    """Return the error for a feature that a protocol lacks.

    >>> unsupported("streams", "pause", "stop its workers instead")
    Unsupported("protocol 'streams' has no pause; stop its workers instead")
    """
    return Unsupported(f"protocol {protocol!r} has no {feature}; {way_out}")
