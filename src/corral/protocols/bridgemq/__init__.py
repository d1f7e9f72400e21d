"""The bridgemq protocol: routing, cron, dead letters and rate limits on BridgeMQ v1's data model."""

from corral.core.job import JobOptions
from corral.core.naming import check_job_name
from corral.protocols.base import Binding, BoundPorts, ProtocolSpec, port
from corral.protocols.bridgemq.broker import BridgemqBroker
from corral.protocols.bridgemq.events import BridgemqEventLog
from corral.protocols.bridgemq.inspector import BridgemqInspector, bridgemq_queues
from corral.protocols.bridgemq.keys import DEFAULT_QUEUE, NAME
from corral.protocols.bridgemq.operator import BridgemqOperator
from corral.protocols.bridgemq.options import CAPABILITIES, LACKS, OPTIONS, check_options
from corral.protocols.bridgemq.reporter import BridgemqReporter
from corral.protocols.bridgemq.schedules.schedules import BridgemqSchedules
from corral.protocols.bridgemq.scripts import DOCUMENT_SCRIPTS, SCRIPTS
from corral.protocols.bridgemq.snapshot import BridgemqSnapshot
from corral.store.client import Store


class BridgemqPorts(BoundPorts):
    """The ports of one queue."""

    broker = port(BridgemqBroker)
    reporter = port(BridgemqReporter)
    events = port(BridgemqEventLog)
    inspector = port(BridgemqInspector)
    operator = port(BridgemqOperator)
    snapshot = port(BridgemqSnapshot)
    schedules = port(BridgemqSchedules)
    flows = None
    http = None


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
        lacks=LACKS,
        client_scripts=tuple(SCRIPTS[name] for name in DOCUMENT_SCRIPTS),
    )

    def check(self, options: JobOptions, now: int) -> None:
        check_options(options, now)

    def check_name(self, name: str) -> str:
        return check_job_name(name)

    async def queues(self, store: Store, namespace: str) -> list[str]:
        return await bridgemq_queues(store, namespace)

    def bind(self, binding: Binding) -> BridgemqPorts:
        return BridgemqPorts(binding)


PROTOCOL = BridgemqProtocol()
