"""Two Sparks for these tests, one for the lake and one for the rest, whatever the number of workers is."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.cli.demo.lake import QUICK
from corral.protocols import protocol_names
from corral.spark import session
from tests.spark.clusters import SMALL
from tests.spark.harness import SparkHarness
from tests.support.servers import Server

HERE = Path(__file__).parent
LAKE = ("audit", "backfill", "bronze", "compare", "lake", "report", "run", "silver")
"""What the names of the lake's tests begin with."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            is_lake = item.path.name.removeprefix("test_").startswith(LAKE)
            item.add_marker(pytest.mark.xdist_group("lake" if is_lake else "spark"))
            item.add_marker(pytest.mark.timeout(300))


ONE_PROTOCOL_QUICKLY = pytest.mark.parametrize(
    "harness",
    [
        protocol if protocol == "bullmq" else pytest.param(protocol, marks=pytest.mark.faults)
        for protocol in protocol_names()
    ],
    indirect=True,
)
"""For what all protocols share: bullmq in `make test`, the others in `make faults`."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A real Spark on two cores."""
    with pytest.MonkeyPatch.context() as patched:
        # its Python processes start quickly; those of the clusters start as everywhere else
        paths = [str(HERE / "preload"), os.environ.get("PYTHONPATH", "")]
        patched.setenv("PYTHONPATH", ":".join(filter(None, paths)))
        made = session(
            "local[2]",
            name="corral-tests",
            conf={
                **QUICK,
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": SMALL,
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": "/nonexistent",
                "spark.log.level": "OFF",
            },
        )
    yield made
    made.stop()


@pytest.fixture(params=protocol_names())
def harness(request: pytest.FixtureRequest, server: Server) -> Iterator[SparkHarness]:
    """Each protocol on an empty server."""
    with SparkHarness(server, request.param) as harness:
        yield harness


@pytest.fixture
def bullmq(server: Server) -> Iterator[SparkHarness]:
    """The bullmq protocol on an empty server, for tests of what all protocols share."""
    with SparkHarness(server, "bullmq") as harness:
        yield harness
