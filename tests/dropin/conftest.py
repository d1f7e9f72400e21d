"""Objects of the drop-in on a server of their own, and the real Node peer beside them."""

from collections.abc import AsyncIterator

import pytest

from tests.dropin.desk import Desk
from tests.dropin.peer import Peer
from tests.protocols.conftest import node as node
from tests.protocols.conftest import node_process as node_process
from tests.support.node import Node


@pytest.fixture
async def desk(url: str) -> AsyncIterator[Desk]:
    """Makes queues, workers, listeners and flow producers; closes them in the end."""
    made = Desk(url)
    yield made
    await made.close()


@pytest.fixture
async def peer(node: Node, url: str) -> Peer:
    """Node's own Queue of the same name."""
    return await Peer(node, url).open()
