"""A worker in this process on an empty server."""

from collections.abc import AsyncIterator

import pytest

from tests.support.worker_harness import WorkerHarness


@pytest.fixture
async def harness(url: str) -> AsyncIterator[WorkerHarness]:
    async with WorkerHarness(url) as harness:
        yield harness
