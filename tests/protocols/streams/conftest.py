"""The ports of the streams protocol on an empty server."""

from collections.abc import AsyncIterator, Callable

import pytest

from corral.core.ports import Broker, EventLog, Inspector, Operator, Reporter
from corral.protocols.base import Binding
from corral.store.client import Store
from tests.support.harness import Clock, QueueHarness


class StreamsHarness(QueueHarness):
    worker_name = "w1"


@pytest.fixture
async def harness(store: Store) -> AsyncIterator[QueueHarness]:
    async with StreamsHarness("streams", store) as harness:
        yield harness


@pytest.fixture
def clock(harness: QueueHarness) -> Clock:
    """The clock of every port."""
    return harness.clock


@pytest.fixture
def make(harness: QueueHarness) -> Callable[..., Broker]:
    """Make the broker of a worker: its name, and what its profile says."""
    return harness.broker


@pytest.fixture
def binding(harness: QueueHarness) -> Binding:
    return harness.binding()


@pytest.fixture
def broker(harness: QueueHarness, binding: Binding) -> Broker:
    return harness.protocol.bind(binding).broker


@pytest.fixture
def reporter(harness: QueueHarness, binding: Binding) -> Reporter:
    return harness.protocol.bind(binding).reporter


@pytest.fixture
def operator(harness: QueueHarness) -> Operator:
    return harness.operator


@pytest.fixture
def inspector(harness: QueueHarness) -> Inspector:
    return harness.inspector


@pytest.fixture
def events(harness: QueueHarness) -> EventLog:
    return harness.events
