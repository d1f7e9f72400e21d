"""The real Node peer for the tests of this folder."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.node import Node, why_no_node
from tests.support.servers import Server

if TYPE_CHECKING:
    from corral.store.client import Store
    from tests.protocols.meeting import Meeting
    from tests.protocols.neighbours import Neighbours
    from tests.protocols.twins import Twins


@pytest.fixture(scope="session")
def node_process() -> Iterator[Node]:
    """One Node for this pytest process."""
    missing = why_no_node()
    if missing:
        # the proof against the real peer is not left out in silence
        pytest.fail(missing, pytrace=False)
    node = Node()
    yield node
    node.kill()


@pytest.fixture
async def node(node_process: Node) -> AsyncIterator[Node]:
    """That Node, holding nothing before and after."""
    await node_process("closeAll")
    yield node_process
    await node_process("closeAll")


@pytest.fixture
async def twins(
    node: Node, server: Server, store: "Store"
) -> AsyncIterator[Callable[..., Awaitable["Twins"]]]:
    """Make the two sides of one queue; the given habits are those of a Node Worker."""
    from tests.protocols.twins import Twins

    made: list[Twins] = []

    async def make(**habits: Any) -> Twins:
        made.append(await Twins(node, server, store, **habits).open())
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture
async def street(
    node: Node, server: Server, store: "Store"
) -> AsyncIterator[Callable[..., Awaitable["Neighbours"]]]:
    """Make the two sides of several queues; the given habits are those of all their Node Workers."""
    from tests.protocols.neighbours import Neighbours

    made: list[Neighbours] = []

    async def make(*queues: str, **habits: Any) -> Neighbours:
        made.append(await Neighbours(node, server, store, *queues, **habits).open())
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture
async def meeting(node: Node, server: Server) -> AsyncIterator["Meeting"]:
    """One queue with a Corral app and a Node Queue on it."""
    from tests.protocols.meeting import Meeting

    place = await Meeting(node, server).open()
    yield place
    await place.close()
