"""The streams protocol: the Redis Streams job contract with its HTTP gateway."""

from corral.core.job import JobOptions
from corral.protocols.base import Binding, BoundPorts, ProtocolSpec, port
from corral.protocols.streams.broker import StreamsBroker
from corral.protocols.streams.codec import check_task
from corral.protocols.streams.events import StreamsEventLog
from corral.protocols.streams.http import StreamsHttpApi
from corral.protocols.streams.inspector import StreamsInspector
from corral.protocols.streams.keys import NAME, QUEUE
from corral.protocols.streams.operator import StreamsOperator
from corral.protocols.streams.options import CAPABILITIES, LACKS, OPTIONS
from corral.protocols.streams.reporter import StreamsReporter
from corral.protocols.streams.snapshot import StreamsSnapshot
from corral.store.client import Store


class StreamsPorts(BoundPorts):
    """The ports of one queue."""

    broker = port(StreamsBroker)
    reporter = port(StreamsReporter)
    events = port(StreamsEventLog)
    inspector = port(StreamsInspector)
    operator = port(StreamsOperator)
    snapshot = port(StreamsSnapshot)
    schedules = None
    flows = None
    http = port(StreamsHttpApi)


class StreamsProtocol:
    """The streams protocol."""

    spec = ProtocolSpec(
        name=NAME,
        summary="the Redis Streams job contract with its HTTP gateway and SSE clients",
        capabilities=CAPABILITIES,
        options=OPTIONS,
        default_queue=QUEUE,
        default_namespace="",
        lacks=LACKS,
        has_http=True,
        has_job_events=True,
    )

    def check(self, options: JobOptions, now: int) -> None:
        """Accept all options: the codec refuses what cannot be encoded."""

    def check_name(self, name: str) -> str:
        return check_task(name)

    async def queues(self, store: Store, namespace: str) -> list[str]:
        """Return the one queue this contract has."""
        return [QUEUE]

    def bind(self, binding: Binding) -> StreamsPorts:
        return StreamsPorts(binding)


PROTOCOL = StreamsProtocol()
