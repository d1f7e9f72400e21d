"""Executors of a standalone cluster killed while they read and write."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from corral.core.job import Claim, JobState
from corral.core.outcome import Completed
from corral.spark.lake.tables import Lake
from tests.faults.spark_drivers import STARTS_S, Bronze, Driver, batches_done, driver, write_events
from tests.spark.clusters import standalone
from tests.spark.harness import SparkHarness
from tests.support.polling import eventually
from tests.support.servers import Server
from tests.support.worker_processes import scaled, seeded

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800), pytest.mark.xdist_group("spark")]


def executors(folder: Path) -> list[int]:
    """The processes that run tasks for the workers in this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_executor = b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes()
            if is_executor and (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
    return found


def kill_executors(running: Driver, folder: Path, times: int, progress: Callable[[], int]) -> int:
    """Kill one executor after the other, each when there are two and work goes on; how many were killed."""
    random, killed, seen = seeded(), 0, 0
    running.wait_for("started")
    while killed < times:
        eventually(
            lambda: (progress() > seen and len(executors(folder)) >= 2) or running.process.poll() is not None,  # noqa: B023
            STARTS_S,
        )
        seen = progress()
        if running.process.poll() is not None:
            break
        with suppress(ProcessLookupError, IndexError):
            os.kill(random.choice(executors(folder)), signal.SIGKILL)
            killed += 1
    return killed


def test_killed_executors_cost_no_event_and_double_none(server: Server, tmp_path: Path, lake: Lake):
    ids = write_events(server, scaled(50_000, least=5000))
    with standalone(tmp_path) as master:
        words = (master, server.url, lake.path, "once", str(len(ids) // 20))
        with driver(tmp_path, "fill_lake", *words) as running:
            killed = kill_executors(running, tmp_path, 3, lambda: batches_done(lake))
            running.finish()
    bronze = Bronze(lake)
    bronze.assert_each_once(set(ids))
    assert sorted(bronze.ids) == sorted(ids)
    assert killed >= 1, "nothing was killed: this run proves nothing"
    print(f"{len(ids)} events, {killed} executors killed: each once")


def test_killed_executors_double_no_submission(server: Server, tmp_path: Path):
    rows = tmp_path / "rows"
    rows.mkdir()
    count = scaled(40_000, least=4000)
    for number in range(8):
        lines = (json.dumps({"n": n}) for n in range(number, count, 8))
        (rows / f"{number}.json").write_text("\n".join(lines))
    with standalone(tmp_path) as master, server.connect() as client:
        words = (master, server.url, str(rows), str(tmp_path / "checkpoint"))
        with driver(tmp_path, "submit_rows", *words) as running:
            killed = kill_executors(running, tmp_path, 3, lambda: client.llen("bull:letters:wait"))
            running.finish()
    with SparkHarness(server, "bullmq") as harness:

        async def waiting() -> int:
            return (await harness.on("letters").inspector.counts())[JobState.WAITING]

        numbers: list[int] = []

        def settle(claim: Claim) -> Completed:
            numbers.append(claim.job.data["n"])
            return Completed(b"null")

        assert harness.run(waiting) == count
        harness.work("letters", settle)
    assert sorted(numbers) == list(range(count))
    assert killed >= 1, "nothing was killed: this run proves nothing"
    print(f"{count} rows, {killed} executors killed: each row became one job")
