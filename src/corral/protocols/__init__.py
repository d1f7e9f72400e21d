"""A protocol's name and a place become its ports; the only module that knows all protocols."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from corral.core.bulk import Census, Intake
from corral.core.desk import Desk, Stories
from corral.core.event import JobEvent
from corral.core.gauge import Gauge
from corral.core.job import JobOptions, JobState
from corral.core.keeper import Keeper, Timekeeper
from corral.core.options import Capability
from corral.core.ports import Broker, EventLog, Inspector, Operator, Reporter
from corral.errors import InvalidName, UnknownProtocol
from corral.protocols import bridgemq, bullmq, streams
from corral.protocols.binding import Binding
from corral.protocols.bridgemq.broker import BridgemqBroker
from corral.protocols.bridgemq.census import BridgemqCensus
from corral.protocols.bridgemq.events import BridgemqEventLog
from corral.protocols.bridgemq.inspector import BridgemqInspector, bridgemq_queues
from corral.protocols.bridgemq.intake import bridgemq_intake
from corral.protocols.bridgemq.keeper import BridgemqKeeper
from corral.protocols.bridgemq.operator import BridgemqOperator
from corral.protocols.bridgemq.options import check_options as check_bridgemq_options
from corral.protocols.bridgemq.reporter import BridgemqReporter
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.census import BullmqCensus
from corral.protocols.bullmq.events import BullmqEventLog
from corral.protocols.bullmq.inspector import BullmqInspector, bullmq_queues
from corral.protocols.bullmq.intake import bullmq_intake
from corral.protocols.bullmq.keeper import BullmqKeeper
from corral.protocols.bullmq.operator import BullmqOperator
from corral.protocols.bullmq.reporter import BullmqReporter
from corral.protocols.streams.broker import StreamsBroker
from corral.protocols.streams.census import StreamsCensus
from corral.protocols.streams.desk import StreamsDesk
from corral.protocols.streams.events import StreamsEventLog
from corral.protocols.streams.inspector import StreamsInspector, streams_queues
from corral.protocols.streams.intake import streams_intake
from corral.protocols.streams.keeper import StreamsKeeper
from corral.protocols.streams.operator import StreamsOperator
from corral.protocols.streams.reporter import StreamsReporter
from corral.protocols.streams.stories import StreamsStories
from corral.store.client import Store
from corral.store.cluster import has_tag


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A wire contract as the rest of the house sees it; the types prove that each protocol conforms."""

    name: str
    capabilities: frozenset[Capability]
    extras: frozenset[str]
    """Options only this protocol knows."""
    default_queue: str
    default_namespace: str
    broker: Callable[[Binding], Broker]
    reporter: Callable[[Binding], Reporter]
    events: Callable[[Binding], EventLog]
    inspector: Callable[[Binding], Inspector]
    operator: Callable[[Binding], Operator]
    queues: Callable[[Store, str], Awaitable[list[str]]]
    """(store, namespace) -> names of the queues there."""
    census: Callable[[Binding], Census]
    intake: Callable[[Binding], Intake]
    keeper: Callable[[Binding], Keeper]
    timekeeper: Callable[[Binding], Timekeeper] | None = None
    """Where the protocol fires schedules itself."""
    tags_queues: bool = False
    """Does a hash tag around a queue's name put all of its keys into one slot of a cluster?"""
    promote_ms: int | None = None
    """How often this protocol's workers look for what has become due, where the contract says so."""
    check: Callable[[JobOptions, int], None] = lambda options, now: None
    """(options, ms now): refuses what only this protocol can tell to be wrong."""
    desk: Callable[[Binding], Desk] | None = None
    """Where the contract has an HTTP interface of its own."""
    stories: Callable[[Binding], Stories] | None = None
    story: Callable[[Binding, str], Awaitable[list[JobEvent]]] | None = None
    """Where each job has an event log of its own: (place, job id) -> what it says."""
    gauges: Callable[[Binding], Awaitable[list[Gauge]]] | None = None
    """Where the contract names numbers to watch: all of them, now."""
    metric_words: Mapping[JobState, str] | None = None
    """What the contract's own metric calls the states, where it has one."""


PROTOCOLS: dict[str, Protocol] = {
    bullmq.NAME: Protocol(
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
    streams.NAME: Protocol(
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
        story=lambda binding, job_id: StreamsEventLog(binding).job_events(job_id),
    ),
    bridgemq.NAME: Protocol(
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
        gauges=lambda binding: BridgemqInspector(binding).gauges(),
        queues=bridgemq_queues,
        census=BridgemqCensus,
        intake=bridgemq_intake,
    ),
}


def in_one_slot(protocol: Protocol, namespace: str, queue: str) -> str:
    """What a queue is called in a cluster, where all of its keys must share a slot.

    >>> bullmq = protocol_named("bullmq")
    >>> in_one_slot(bullmq, "bull", "mail"), in_one_slot(bullmq, "{shop}", "mail")
    ('{mail}', 'mail')
    """
    if has_tag(namespace) or (protocol.tags_queues and has_tag(queue)):
        return queue
    if protocol.tags_queues:
        return f"{{{queue}}}"
    raise InvalidName(
        f"protocol {protocol.name!r} keeps all its keys in one slot of a cluster; namespace {namespace!r} "
        f"has no hash tag to choose it; give one that has, as in namespaces={{{protocol.name!r}: '{{shop}}'}}"
    )


def protocol_named(name: str) -> Protocol:
    """The protocol of that name.

    >>> protocol_named("bullmq").default_namespace
    'bull'
    """
    try:
        return PROTOCOLS[name]
    except KeyError:
        raise UnknownProtocol(f"there is no protocol {name!r}; use one of {', '.join(PROTOCOLS)}") from None
