"""The same code on a standalone master with two workers, through Spark Connect, and both."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corral.core.job import JobState
from tests.spark.clusters import connect_server, connect_to_standalone, output_of, standalone
from tests.spark.harness import SparkHarness


@pytest.mark.parametrize(
    ("start", "how"),
    [
        pytest.param(connect_to_standalone, "smoke", marks=pytest.mark.faults),
        pytest.param(standalone, "smoke", marks=pytest.mark.faults),
        pytest.param(connect_server, "bronze", marks=pytest.mark.faults),
        pytest.param(connect_server, "whole", marks=pytest.mark.faults),
        pytest.param(standalone, "whole", marks=pytest.mark.faults),
    ],
)
def test_events_become_a_lake_and_rows_become_jobs(
    bullmq: SparkHarness, tmp_path: Path, start: Callable[[Path], AbstractContextManager[str]], how: str
):
    bullmq.add(40, "mail")
    bullmq.work("mail", most=25)
    with start(tmp_path) as master:
        counts = output_of("whole_way", tmp_path, master, bullmq.url, str(tmp_path / "lake"), how)
    events = len(bullmq.read_events("mail"))
    outcomes = {"completed": 25, "alive": 15} if how == "whole" else {}
    filled = {} if how == "smoke" else {"bronze": events, "distinct": events, "outcomes": outcomes}
    assert counts == {"read": events, **filled}

    async def waiting() -> int:
        return (await bullmq.on("letters").inspector.counts())[JobState.WAITING]

    assert bullmq.run(waiting) == 30
    if start is not connect_server:
        used = [list((tmp_path / f"work-{number}").rglob("stderr")) for number in range(2)]
        assert all(used), "both workers ran an executor"
