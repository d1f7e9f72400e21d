"""Visit: one caller's stay at a server, from code that has no event loop (Spark's workers have none)."""

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Self, TypeVar

from corral.core.bulk import Census, Intake
from corral.core.ports import EventLog, Inspector
from corral.errors import RedisError, RedisResponseError
from corral.protocols import in_one_slot
from corral.protocols.binding import Binding
from corral.spark.options import Where, is_pattern
from corral.store.address import is_cluster
from corral.store.client import Reconnect, Store
from corral.worker.worker import wall_clock

T = TypeVar("T")


class Visit:
    """The ports of a protocol's queues, and a way to wait for what they answer.

    >>> with Visit(where, retry_s=60) as visit:                                   # doctest: +SKIP
    ...     visit.ask(lambda: visit.events("mail").extent())
    """

    def __init__(self, where: Where, retry_s: float) -> None:
        self._where = where
        self._retry_s = retry_s
        self._runner = asyncio.Runner()
        self._store = Store(where.url)

    def ask(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the call returns; where no server answers it is made again, for as long as was asked.

        So it must be a read, or a write that can be repeated.
        """
        reconnect, tries, deadline = Reconnect(most_ms=2000), 0, time.monotonic() + self._retry_s
        while True:
            try:
                # not `Runner.run`: it sets a signal handler, and for that Python spells out the whole answer
                return self._runner.get_loop().run_until_complete(call())
            except RedisResponseError:
                raise
            except RedisError:
                delay = reconnect.delay(tries)
                if time.monotonic() + delay > deadline:
                    raise
                time.sleep(delay)
                tries += 1

    def queues(self) -> list[str]:
        """The queues that are meant, those that a pattern finds now among them."""
        names = [part for part in self._where.queues if not is_pattern(part)]
        if self._where.has_pattern:
            patterns = [part for part in self._where.queues if is_pattern(part)]

            async def find() -> list[str]:
                return await self._where.protocol.queues(self._store, self._where.namespace)

            names += [name for name in self.ask(find) if any(fnmatchcase(name, p) for p in patterns)]
        return sorted(set(names))

    def binding(self, queue: str) -> Binding:
        """Where the ports of a queue are."""
        protocol, namespace = self._where.protocol, self._where.namespace
        if is_cluster(self._where.url):
            queue = in_one_slot(protocol, namespace, queue)
        return Binding(self._store, queue, namespace, wall_clock)

    def events(self, queue: str) -> EventLog:
        return self._where.protocol.events(self.binding(queue))

    def inspector(self, queue: str) -> Inspector:
        return self._where.protocol.inspector(self.binding(queue))

    def census(self, queue: str) -> Census:
        return self._where.protocol.census(self.binding(queue))

    def intake(self, queue: str) -> Intake:
        return self._where.protocol.intake(self.binding(queue))

    def close(self) -> None:
        """Hang up."""
        self._runner.run(self._store.close())
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def without_collector() -> Iterator[None]:
    """No garbage collection meanwhile: a page is half a million small objects and no cycle among them.

    With it, reading is half as fast.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
