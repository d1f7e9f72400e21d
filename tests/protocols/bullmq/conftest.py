"""Queues that Node BullMQ and Corral share, or have one each of, for comparison."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from corral.store.client import Store
from tests.protocols.bullmq.paired_flows import PairedQueues
from tests.protocols.bullmq.paired_queue import PairedQueue
from tests.protocols.bullmq.shared_queue import SharedQueue
from tests.support.node import Node
from tests.support.servers import Server

BOTH = [5, pytest.param(6, marks=pytest.mark.faults)]
"""The generations of BullMQ: 5.62.0 in `make test`, in `make faults` 6.7.0 too."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what needs Node with both generations, unless the test says with which."""
    named = "".join(str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize"))
    if "node" in metafunc.fixturenames and "node" not in named:
        metafunc.parametrize("node", BOTH, indirect=True, ids="bullmq{}".format)


@pytest.fixture
async def paired_queue(
    node: Node, server: Server, store: Store
) -> AsyncIterator[Callable[..., Awaitable[PairedQueue]]]:
    """Make the two sides of one queue; `options` are those of a Node Worker."""
    opened: list[PairedQueue] = []

    async def make(**options: Any) -> PairedQueue:
        opened.append(await PairedQueue(node, server, store, **options).open())
        return opened[-1]

    yield make
    for each in opened:
        await each.close()


@pytest.fixture
async def paired_queues(
    node: Node, server: Server, store: Store
) -> AsyncIterator[Callable[..., Awaitable[PairedQueues]]]:
    """Make the two sides of several queues; `options` are those of all their Node Workers."""
    opened: list[PairedQueues] = []

    async def make(*queues: str, **options: Any) -> PairedQueues:
        opened.append(await PairedQueues(node, server, store, *queues, **options).open())
        return opened[-1]

    yield make
    for each in opened:
        await each.close()


@pytest.fixture
async def shared(node: Node, server: Server) -> AsyncIterator[SharedQueue]:
    """One queue with a Corral app and a Node Queue on it."""
    queue = await SharedQueue(node, server).open()
    yield queue
    await queue.close()
