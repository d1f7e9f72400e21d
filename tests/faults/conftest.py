"""Each protocol on an empty server, with the means to do it harm."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from corral.spark.lake.tables import Lake
from tests.spark.object_storage import object_storage
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


@pytest.fixture(params=["folder", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A lake that is not there yet, in a folder and in a bucket."""
    if request.param == "folder":
        yield Lake(str(tmp_path / "lake"))
        return
    with object_storage(tmp_path) as address:
        yield Lake(f"{address}/lake")
