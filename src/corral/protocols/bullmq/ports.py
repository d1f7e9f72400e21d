"""BullmqPorts: the ports of a queue."""

from corral.protocols.base import BoundPorts, port
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.events import BullmqEventLog
from corral.protocols.bullmq.flows import BullmqFlows
from corral.protocols.bullmq.inspector import BullmqInspector
from corral.protocols.bullmq.operator import BullmqOperator
from corral.protocols.bullmq.reporter import BullmqReporter
from corral.protocols.bullmq.schedulers.schedules import BullmqSchedules
from corral.protocols.bullmq.snapshot import BullmqSnapshot
from corral.protocols.bullmq.transfer import BullmqTransfer


class BullmqPorts(BoundPorts):
    """The ports of one queue."""

    broker = port(BullmqBroker)
    reporter = port(BullmqReporter)
    events = port(BullmqEventLog)
    inspector = port(BullmqInspector)
    operator = port(BullmqOperator)
    snapshot = port(BullmqSnapshot)
    transfer = port(BullmqTransfer)
    schedules = port(BullmqSchedules)
    flows = port(BullmqFlows)
    http = None
