"""A room's name and a place become its ports; the only module that knows all rooms."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from corral.core.bulk import Census, Intake
from corral.core.capability import Capability
from corral.core.desk import Desk, Stories
from corral.core.event import JobEvent
from corral.core.gauge import Gauge
from corral.core.job import JobOptions, JobState
from corral.core.keeper import Keeper, Timekeeper
from corral.core.ports import Broker, EventLog, Inspector, Operator, Reporter
from corral.errors import InvalidName, UnknownRoom
from corral.store.connect import Store
from corral.store.slots import has_tag
from corral.wire import bridgemq, bullmq, streams
from corral.wire.bridgemq.broker import BridgemqBroker
from corral.wire.bridgemq.census import BridgemqCensus
from corral.wire.bridgemq.events import BridgemqEventLog
from corral.wire.bridgemq.inspector import BridgemqInspector, bridgemq_queues
from corral.wire.bridgemq.intake import bridgemq_intake
from corral.wire.bridgemq.keeper import BridgemqKeeper
from corral.wire.bridgemq.operator import BridgemqOperator
from corral.wire.bridgemq.options import check_options as check_bridgemq_options
from corral.wire.bridgemq.reporter import BridgemqReporter
from corral.wire.bullmq.broker import BullmqBroker
from corral.wire.bullmq.census import BullmqCensus
from corral.wire.bullmq.events import BullmqEventLog
from corral.wire.bullmq.inspector import BullmqInspector, bullmq_queues
from corral.wire.bullmq.intake import bullmq_intake
from corral.wire.bullmq.keeper import BullmqKeeper
from corral.wire.bullmq.operator import BullmqOperator
from corral.wire.bullmq.reporter import BullmqReporter
from corral.wire.place import Place
from corral.wire.streams.broker import StreamsBroker
from corral.wire.streams.census import StreamsCensus
from corral.wire.streams.desk import StreamsDesk
from corral.wire.streams.events import StreamsEventLog
from corral.wire.streams.inspector import StreamsInspector, streams_queues
from corral.wire.streams.intake import streams_intake
from corral.wire.streams.keeper import StreamsKeeper
from corral.wire.streams.operator import StreamsOperator
from corral.wire.streams.reporter import StreamsReporter
from corral.wire.streams.stories import StreamsStories


@dataclass(frozen=True, kw_only=True)
class Room:
    """A wire contract as the rest of the house sees it; the types prove that each room conforms."""

    name: str
    capabilities: frozenset[Capability]
    extras: frozenset[str]
    """Options only this room knows."""
    default_queue: str
    default_namespace: str
    broker: Callable[[Place], Broker]
    reporter: Callable[[Place], Reporter]
    events: Callable[[Place], EventLog]
    inspector: Callable[[Place], Inspector]
    operator: Callable[[Place], Operator]
    queues: Callable[[Store, str], Awaitable[list[str]]]
    """(store, namespace) -> names of the queues there."""
    census: Callable[[Place], Census]
    intake: Callable[[Place], Intake]
    keeper: Callable[[Place], Keeper]
    timekeeper: Callable[[Place], Timekeeper] | None = None
    """Where the room fires schedules itself."""
    tags_queues: bool = False
    """Does a hash tag around a queue's name put all of its keys into one slot of a cluster?"""
    promote_ms: int | None = None
    """How often this room's workers look for what has become due, where the contract says so."""
    check: Callable[[JobOptions, int], None] = lambda options, now: None
    """(options, ms now): refuses what only this room can tell to be wrong."""
    desk: Callable[[Place], Desk] | None = None
    """Where the contract has an HTTP interface of its own."""
    stories: Callable[[Place], Stories] | None = None
    story: Callable[[Place, str], Awaitable[list[JobEvent]]] | None = None
    """Where each job has an event log of its own: (place, job id) -> what it says."""
    gauges: Callable[[Place], Awaitable[list[Gauge]]] | None = None
    """Where the contract names numbers to watch: all of them, now."""
    metric_words: Mapping[JobState, str] | None = None
    """What the contract's own metric calls the states, where it has one."""


ROOMS: dict[str, Room] = {
    bullmq.NAME: Room(
        name=bullmq.NAME,
        capabilities=bullmq.CAPABILITIES,
        extras=bullmq.EXTRAS,
        default_queue=bullmq.DEFAULT_QUEUE,
        tags_queues=True,
        default_namespace=bullmq.DEFAULT_NAMESPACE,
        broker=BullmqBroker,
        reporter=BullmqReporter,
        events=BullmqEventLog,
        inspector=BullmqInspector,
        operator=BullmqOperator,
        keeper=BullmqKeeper,
        queues=bullmq_queues,
        metric_words=bullmq.METRIC_WORDS,
        census=BullmqCensus,
        intake=bullmq_intake,
    ),
    streams.NAME: Room(
        name=streams.NAME,
        capabilities=streams.CAPABILITIES,
        extras=streams.EXTRAS,
        default_queue=streams.DEFAULT_QUEUE,
        default_namespace=streams.DEFAULT_NAMESPACE,
        broker=StreamsBroker,
        reporter=StreamsReporter,
        events=StreamsEventLog,
        inspector=StreamsInspector,
        operator=StreamsOperator,
        keeper=StreamsKeeper,
        queues=streams_queues,
        census=StreamsCensus,
        intake=streams_intake,
        desk=StreamsDesk,
        stories=StreamsStories,
        story=lambda place, job_id: StreamsEventLog(place).job_events(job_id),
    ),
    bridgemq.NAME: Room(
        name=bridgemq.NAME,
        capabilities=bridgemq.CAPABILITIES,
        extras=bridgemq.EXTRAS,
        default_queue=bridgemq.DEFAULT_QUEUE,
        default_namespace=bridgemq.DEFAULT_NAMESPACE,
        broker=BridgemqBroker,
        reporter=BridgemqReporter,
        events=BridgemqEventLog,
        inspector=BridgemqInspector,
        operator=BridgemqOperator,
        keeper=BridgemqKeeper,
        timekeeper=BridgemqOperator,
        promote_ms=bridgemq.PROMOTE_MS,
        check=check_bridgemq_options,
        gauges=lambda place: BridgemqInspector(place).gauges(),
        queues=bridgemq_queues,
        census=BridgemqCensus,
        intake=bridgemq_intake,
    ),
}


def in_one_slot(room: Room, namespace: str, queue: str) -> str:
    """What a queue is called in a cluster, where all of its keys must share a slot.

    >>> in_one_slot(room_named("bullmq"), "bull", "mail"), in_one_slot(room_named("bullmq"), "{shop}", "mail")
    ('{mail}', 'mail')
    """
    if has_tag(namespace) or (room.tags_queues and has_tag(queue)):
        return queue
    if room.tags_queues:
        return f"{{{queue}}}"
    raise InvalidName(
        f"room {room.name!r} keeps all its keys in one slot of a cluster, and namespace {namespace!r} has no "
        f"hash tag to choose it; give one that has, as in namespaces={{{room.name!r}: '{{shop}}'}}"
    )


def room_named(name: str) -> Room:
    """The room of that name.

    >>> room_named("bullmq").default_namespace
    'bull'
    """
    try:
        return ROOMS[name]
    except KeyError:
        raise UnknownRoom(f"there is no room {name!r}; use one of {', '.join(ROOMS)}") from None
