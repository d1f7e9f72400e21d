"""One BridgeMQ namespace on an empty server."""

from collections.abc import AsyncIterator

import pytest
import redis

from corral.store.client import Store
from tests.support.bridgemq_harness import BridgemqHarness


@pytest.fixture
async def harness(store: Store, client: redis.Redis) -> AsyncIterator[BridgemqHarness]:
    async with BridgemqHarness(store, client) as harness:
        yield harness
