"""Each protocol on an empty server, with the means to do it harm."""

from collections.abc import AsyncIterator

import pytest

from tests.support.fault_harness import FaultHarness
from tests.support.job_records import PROTOCOLS
from tests.support.servers import Server


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def harness(server: Server, protocol: str) -> AsyncIterator[FaultHarness]:
    harness = FaultHarness(server, protocol)
    yield harness
    await harness.close()
