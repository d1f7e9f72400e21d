"""The streams protocol: the Redis Streams job contract with its HTTP gateway."""

from typing import TYPE_CHECKING

from corral.core.job import JobOptions
from corral.protocols.base import Binding, ProtocolSpec
from corral.protocols.streams.keys import NAME, QUEUE
from corral.protocols.streams.options import CAPABILITIES, LACKS, OPTIONS

if TYPE_CHECKING:
    from corral.protocols.streams.ports import StreamsPorts
    from corral.store.client import Store


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
        from corral.protocols.streams.codec import check_task

        return check_task(name)

    async def queues(self, store: "Store", namespace: str) -> list[str]:
        """Return the one queue this contract has."""
        return [QUEUE]

    def bind(self, binding: Binding) -> "StreamsPorts":
        from corral.protocols.streams.ports import StreamsPorts

        return StreamsPorts(binding)


PROTOCOL = StreamsProtocol()
