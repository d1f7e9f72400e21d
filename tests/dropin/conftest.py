"""Objects of the drop-in on a server of their own, and the real Node peer beside them."""

from collections.abc import AsyncIterator

import pytest

from tests.dropin.factory import Factory
from tests.dropin.node_queue import NodeQueue
from tests.support.node import Node


@pytest.fixture
async def factory(url: str) -> AsyncIterator[Factory]:
    """Makes queues, workers, listeners and flow producers; closes them in the end."""
    made = Factory(url)
    yield made
    await made.close()


@pytest.fixture
async def node_queue(node: Node, url: str) -> NodeQueue:
    """Node's own Queue of the same name."""
    return await NodeQueue(node, url).open()
