"""Each kind of server in turn, and on it every protocol as the contract suite sees it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from corral.protocols import protocol_names
from corral.store.client import Store
from tests.contract.conftest import ContractHarness
from tests.servers.matrix.kinds import HERE, Kind, Served
from tests.support.harness import QueueHarness


def _named(kind: Kind) -> object:
    # one process of pytest starts each kind, not every one
    return pytest.param(kind, id=kind.name, marks=pytest.mark.xdist_group(kind.name))


@pytest.fixture(scope="session", params=map(_named, HERE))
def running(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A server of one kind."""
    with request.param.start() as served:
        yield served


@pytest.fixture
def served(running: Served) -> Served:
    """That server, emptied."""
    running.flush()
    return running


@pytest.fixture
def server(served: Served) -> Served:
    """In place of the usual Valkey."""
    return served


@pytest.fixture(params=protocol_names())
async def harness(request: pytest.FixtureRequest, served: Served) -> AsyncIterator[QueueHarness]:
    """In place of the contract suite's own."""
    store = Store(served.url)
    queue = served.queue if request.param == "bullmq" else None
    namespace = served.namespaces.get(request.param)
    harness = ContractHarness(request.param, store, queue=queue, namespace=namespace)
    yield harness
    await harness.close()
    await store.close()
