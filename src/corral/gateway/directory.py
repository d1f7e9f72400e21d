"""Which queues there are, in every protocol; looked up when they are listed, and when one is not known."""

import asyncio

from corral.app import Corral
from corral.gateway.problems import Problem
from corral.protocols import protocol_names
from corral.queue import Queue


class Directory:
    """The queues of one server."""

    def __init__(self, corral: Corral) -> None:
        self._corral = corral
        self._known: dict[tuple[str, str], Queue] = {}
        self._looking: asyncio.Future[None] | None = None

    async def queues(self, protocol: str | None = None) -> list[Queue]:
        """All queues, or those of one protocol, by name."""
        if protocol is not None and protocol not in protocol_names():
            raise no_protocol(protocol)
        await self._look()
        return [self._known[key] for key in sorted(self._known) if protocol in (None, key[0])]

    async def queue(self, protocol: str, name: str) -> Queue:
        """One queue, if it is there."""
        if protocol not in protocol_names():
            raise no_protocol(protocol)
        if (protocol, name) not in self._known:
            await self._look()
        found = self._known.get((protocol, name))
        if found is None:
            raise Problem(
                "queue-not-found", f"protocol {protocol!r} has no queue {name[:80]!a}; see /v1/queues"
            )
        return found

    async def _look(self) -> None:
        """Walk through the server's names, once for all who ask meanwhile."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._walk())
            self._looking.add_done_callback(self._has_looked)
        await asyncio.shield(self._looking)

    def _has_looked(self, looking: "asyncio.Future[None]") -> None:
        self._looking = None
        if not looking.cancelled():
            looking.exception()  # whoever asked has it

    async def _walk(self) -> None:
        found = await asyncio.gather(*(self._corral.queues(protocol) for protocol in protocol_names()))
        self._known = {(queue.protocol.spec.name, queue.name): queue for queues in found for queue in queues}


def no_protocol(name: str) -> Problem:
    """The problem that there is no such protocol."""
    return Problem(
        "protocol-not-found", f"no protocol {name[:80]!a}; there are {', '.join(protocol_names())}"
    )
