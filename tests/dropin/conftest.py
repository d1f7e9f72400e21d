"""Fixtures: objects of the drop-in, and Node's Queue on the same server."""

from collections.abc import AsyncIterator

import pytest

from tests.dropin.factory import Factory
from tests.dropin.node_queue import NodeQueue
from tests.support.node import Node


@pytest.fixture
async def factory(url: str) -> AsyncIterator[Factory]:
    """Creates queues, workers, listeners and flow producers, and closes them at the end."""
    factory = Factory(url)
    yield factory
    await factory.close()


@pytest.fixture
async def node_queue(node: Node, url: str) -> NodeQueue:
    """Node's own Queue of the same name."""
    return await NodeQueue(node, url).open()
