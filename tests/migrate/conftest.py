"""Two queues on one server, in any two protocols, and what is in them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.migrate import MoveOptions, MoveReport, migrate
from corral.protocols.base import Ports
from corral.store.client import Store
from tests.support.harness import JOB_NAMES, QueueHarness


class Side(QueueHarness):
    """One side of a move."""

    def __init__(self, protocol: str, store: Store, url: str, namespace: str) -> None:
        super().__init__(protocol, store, namespace=namespace)
        self._url = url

    @property
    def url(self) -> str:
        name = self.protocol.spec.name
        return f"{self._url}?protocol={name}&queue={self.queue}&namespace={self.namespace}"

    @property
    def ports(self) -> Ports:
        return self.protocol.bind(self.binding())

    async def add(self, *jobs: Job) -> list[str]:
        """Submit jobs; return their ids."""
        return [added.id for added in await self.broker().submit(jobs)]  # type: ignore[union-attr]

    async def jobs(self) -> dict[str, Job]:
        """Return every job that has a record, by its id."""
        snapshot, cursor, jobs = self.ports.snapshot, "0", {}
        while True:
            ids, cursor = await snapshot.ids(cursor)
            jobs |= {job.id: job for job in await snapshot.read(ids, JobFilter())}
            if cursor == "0":
                return jobs

    async def listed(self, state: JobState = JobState.WAITING) -> list[Job]:
        """Return the jobs of a state, the next to run first."""
        return await self.inspector.jobs(state, 1000)

    async def keys(self) -> list[str]:
        """Return the keys that moves leave at the source."""
        names = await self.store.call("KEYS", "*move*")
        return sorted(name.decode() for name in names if b"move-" not in name)


MakeSide = Callable[[str, str], Side]


@pytest.fixture
async def side(store: Store, url: str) -> AsyncIterator[MakeSide]:
    """Return a queue of a protocol in a namespace of its own."""
    async with AsyncExitStack() as stack:

        def make(protocol: str, namespace: str) -> Side:
            made = Side(protocol, store, url, namespace)
            stack.push_async_callback(made.close)
            return made

        yield make


async def move(source: Side | str, target: Side, **options: Any) -> MoveReport:
    """Move everything from one side to the other."""
    address = source if isinstance(source, str) else source.url
    chosen = {name: options.pop(name) for name in ("paused", "dry_run") if name in options}
    return await migrate(MoveOptions(source=address, target=target.url, **options), **chosen)


def name_in(protocol: str) -> str:
    """Return a job name that the protocol accepts."""
    return JOB_NAMES.get(protocol, "send")


Move = Callable[..., Awaitable[MoveReport]]
