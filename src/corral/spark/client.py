"""QueueClient: the ports of a protocol's queues for code without an event loop, as Spark's processes are."""

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from corral.errors import RedisError, RedisResponseError
from corral.protocols import in_one_slot
from corral.protocols.base import Binding, Ports
from corral.spark.options import QueueAddress, is_pattern
from corral.store.address import is_cluster
from corral.store.client import Reconnect, Store
from corral.store.clock import ServerClock
from corral.telemetry.logs import warn_of_clock
from corral.worker import wall_clock

T = TypeVar("T")


class QueueClient(AbstractContextManager["QueueClient"]):
    """A connection to a server and the ports of its queues. Made and closed where it is used.

    >>> with QueueClient(address, retry_s=60) as client:                          # doctest: +SKIP
    ...     client.call(client.ports("mail").events.extent)
    """

    def __init__(self, address: QueueAddress, retry_s: float) -> None:
        self._address = address
        self._retry_s = retry_s
        self._runner = asyncio.Runner()
        self._store = Store(address.url)
        self._clock = ServerClock(wall_clock, warn_of_clock)

    def call(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a read, or a write that may be repeated; while no server answers, retry for `retry_s`."""
        reconnect, tries, deadline = Reconnect(most_ms=2000), 0, time.monotonic() + self._retry_s
        while True:
            try:
                # not `Runner.run`: it sets a signal handler, and for that Python formats the whole result
                return self._runner.get_loop().run_until_complete(operation())
            except RedisResponseError:
                raise
            except RedisError:
                delay = reconnect.delay(tries)
                if time.monotonic() + delay > deadline:
                    raise
                time.sleep(delay)
                tries += 1

    def now(self) -> int:
        """Return the milliseconds since the epoch, by the server where this machine's clock is off."""
        if self._clock.is_outdated:
            self.call(lambda: self._store.compare_clocks(self._clock))
        return self._clock()

    def queues(self) -> list[str]:
        """Return the names of the queues, those that match a pattern now among them."""
        address = self._address
        patterns = [part for part in address.queues if is_pattern(part)]
        names = {part for part in address.queues if part not in patterns}
        if patterns:

            async def existing() -> list[str]:
                return await address.protocol.queues(self._store, address.namespace)

            names |= {name for name in self.call(existing) if any(fnmatchcase(name, p) for p in patterns)}
        return sorted(names)

    def ports(self, queue: str) -> Ports:
        """Return the ports of a queue."""
        protocol, namespace = self._address.protocol, self._address.namespace
        if is_cluster(self._address.url):
            queue = in_one_slot(protocol, namespace, queue)
        return protocol.bind(Binding(self._store, queue, namespace, self._clock))

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Suspend garbage collection: pages are small objects without cycles, and reading is twice as fast."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
