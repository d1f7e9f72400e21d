"""A worker in this process on an empty server."""

from collections.abc import AsyncIterator

import pytest

from corral.protocols import protocol_names
from tests.support.worker_harness import WorkerHarness


@pytest.fixture
async def harness(url: str) -> AsyncIterator[WorkerHarness]:
    async with WorkerHarness(url) as harness:
        yield harness


@pytest.fixture(params=protocol_names())
async def each_harness(request: pytest.FixtureRequest, url: str) -> AsyncIterator[WorkerHarness]:
    """The same for each protocol."""
    async with WorkerHarness(url, protocol=request.param) as harness:
        yield harness
