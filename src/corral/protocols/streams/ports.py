"""StreamsPorts: the ports of a queue."""

from corral.protocols.base import BoundPorts, port
from corral.protocols.streams.broker import StreamsBroker
from corral.protocols.streams.events import StreamsEventLog
from corral.protocols.streams.http import StreamsHttpApi
from corral.protocols.streams.inspector import StreamsInspector
from corral.protocols.streams.operator import StreamsOperator
from corral.protocols.streams.reporter import StreamsReporter
from corral.protocols.streams.snapshot import StreamsSnapshot
from corral.protocols.streams.transfer import StreamsTransfer


class StreamsPorts(BoundPorts):
    """The ports of one queue."""

    broker = port(StreamsBroker)
    reporter = port(StreamsReporter)
    events = port(StreamsEventLog)
    inspector = port(StreamsInspector)
    operator = port(StreamsOperator)
    snapshot = port(StreamsSnapshot)
    transfer = port(StreamsTransfer)
    schedules = None
    flows = None
    http = port(StreamsHttpApi)
