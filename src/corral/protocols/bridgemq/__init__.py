"""The bridgemq protocol: routing, cron, dead letters and rate limits on BridgeMQ v1's data model."""

from functools import cached_property

from corral.core.job import JobOptions
from corral.protocols.base import Binding, ProtocolSpec
from corral.protocols.bridgemq.broker import BridgemqBroker
from corral.protocols.bridgemq.events import BridgemqEventLog
from corral.protocols.bridgemq.inspector import BridgemqInspector, bridgemq_queues
from corral.protocols.bridgemq.keys import DEFAULT_QUEUE, NAME
from corral.protocols.bridgemq.operator import BridgemqOperator
from corral.protocols.bridgemq.options import CAPABILITIES, OPTIONS, check_options
from corral.protocols.bridgemq.reporter import BridgemqReporter
from corral.protocols.bridgemq.schedules import BridgemqSchedules
from corral.protocols.bridgemq.snapshot import BridgemqSnapshot
from corral.store.client import Store


class BridgemqPorts:
    """The ports of one queue."""

    flows = None
    http = None

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    @cached_property
    def broker(self) -> BridgemqBroker:
        return BridgemqBroker(self._binding)

    @cached_property
    def reporter(self) -> BridgemqReporter:
        return BridgemqReporter(self._binding)

    @cached_property
    def events(self) -> BridgemqEventLog:
        return BridgemqEventLog(self._binding)

    @cached_property
    def inspector(self) -> BridgemqInspector:
        return BridgemqInspector(self._binding)

    @cached_property
    def operator(self) -> BridgemqOperator:
        return BridgemqOperator(self._binding)

    @cached_property
    def snapshot(self) -> BridgemqSnapshot:
        return BridgemqSnapshot(self._binding)

    @cached_property
    def schedules(self) -> BridgemqSchedules:
        return BridgemqSchedules(self._binding)


class BridgemqProtocol:
    """The bridgemq protocol."""

    spec = ProtocolSpec(
        name=NAME,
        summary="BridgeMQ v1's data model: routing, cron, dead letters, rate limits",
        capabilities=CAPABILITIES,
        options=OPTIONS,
        default_queue=DEFAULT_QUEUE,
        default_namespace="bridge",
        promote_ms=1000,  # the document's scheduler looks every second
        priority="7 and above runs first",
    )

    def check(self, options: JobOptions, now: int) -> None:
        check_options(options, now)

    async def queues(self, store: Store, namespace: str) -> list[str]:
        return await bridgemq_queues(store, namespace)

    def bind(self, binding: Binding) -> BridgemqPorts:
        return BridgemqPorts(binding)


PROTOCOL = BridgemqProtocol()
