"""BridgemqPorts: the ports of a queue."""

from corral.protocols.base import BoundPorts, port
from corral.protocols.bridgemq.broker import BridgemqBroker
from corral.protocols.bridgemq.events import BridgemqEventLog
from corral.protocols.bridgemq.inspector import BridgemqInspector
from corral.protocols.bridgemq.operator import BridgemqOperator
from corral.protocols.bridgemq.reporter import BridgemqReporter
from corral.protocols.bridgemq.schedules.schedules import BridgemqSchedules
from corral.protocols.bridgemq.snapshot import BridgemqSnapshot
from corral.protocols.bridgemq.transfer import BridgemqTransfer


class BridgemqPorts(BoundPorts):
    """The ports of one queue."""

    broker = port(BridgemqBroker)
    reporter = port(BridgemqReporter)
    events = port(BridgemqEventLog)
    inspector = port(BridgemqInspector)
    operator = port(BridgemqOperator)
    snapshot = port(BridgemqSnapshot)
    transfer = port(BridgemqTransfer)
    schedules = port(BridgemqSchedules)
    flows = None
    http = None
