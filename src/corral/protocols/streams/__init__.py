"""The streams protocol: the Redis Streams job contract with its HTTP gateway."""

from functools import cached_property

from corral.core.job import JobOptions
from corral.protocols.base import Binding, ProtocolSpec
from corral.protocols.streams.broker import StreamsBroker
from corral.protocols.streams.codec import CAPABILITIES, OPTIONS
from corral.protocols.streams.events import StreamsEventLog
from corral.protocols.streams.http import StreamsHttpApi
from corral.protocols.streams.inspector import StreamsInspector
from corral.protocols.streams.keys import NAME, QUEUE
from corral.protocols.streams.operator import StreamsOperator
from corral.protocols.streams.reporter import StreamsReporter
from corral.protocols.streams.snapshot import StreamsSnapshot
from corral.store.client import Store


class StreamsPorts:
    """The ports of the one queue."""

    schedules = None
    flows = None

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    @cached_property
    def broker(self) -> StreamsBroker:
        return StreamsBroker(self._binding)

    @cached_property
    def reporter(self) -> StreamsReporter:
        return StreamsReporter(self._binding)

    @cached_property
    def events(self) -> StreamsEventLog:
        return StreamsEventLog(self._binding)

    @cached_property
    def inspector(self) -> StreamsInspector:
        return StreamsInspector(self._binding)

    @cached_property
    def operator(self) -> StreamsOperator:
        return StreamsOperator(self._binding)

    @cached_property
    def snapshot(self) -> StreamsSnapshot:
        return StreamsSnapshot(self._binding)

    @cached_property
    def http(self) -> StreamsHttpApi:
        return StreamsHttpApi(self._binding)


class StreamsProtocol:
    """The streams protocol."""

    spec = ProtocolSpec(
        name=NAME,
        summary="the Redis Streams job contract with its HTTP gateway and SSE clients",
        capabilities=CAPABILITIES,
        options=OPTIONS,
        default_queue=QUEUE,
        default_namespace="",
        has_http=True,
        has_job_events=True,
    )

    def check(self, options: JobOptions, now: int) -> None:
        """Accept all options: the codec refuses what cannot be encoded."""

    async def queues(self, store: Store, namespace: str) -> list[str]:
        """Return the one queue this contract has."""
        return [QUEUE]

    def bind(self, binding: Binding) -> StreamsPorts:
        return StreamsPorts(binding)


PROTOCOL = StreamsProtocol()
