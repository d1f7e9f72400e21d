"""Drivers killed with SIGKILL at any moment: bronze has each event once, or says how many were trimmed."""

import json
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from corral.core.job import Claim
from corral.core.outcome import Completed
from corral.spark.lake.tables import Lake
from tests.faults.spark_drivers import (
    KEY,
    LIFE,
    Bronze,
    batches_done,
    driver,
    kill_soon_after,
    write_events,
)
from tests.spark.harness import SparkHarness
from tests.support.polling import eventually
from tests.support.servers import Server
from tests.support.worker_processes import scaled, seeded

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600), pytest.mark.xdist_group("spark")]

MASTER = "local[2]"
READING = "reading events"


def test_a_driver_killed_at_twenty_points_files_each_event_once(server: Server, tmp_path: Path, lake: Lake):
    random, kills = seeded(), scaled(20, least=2)
    jobs = scaled(50_000, least=2000)
    ids = write_events(server, jobs)
    batches = 5 * kills
    batch = -(-len(ids) // batches)
    reached, hits = [], 0
    for kill in range(kills):
        with driver(tmp_path, "fill_lake", MASTER, server.url, lake.path, "on", str(batch)) as running:
            running.wait_for(READING)
            # the first dies before its first batch, the others all along the log
            point = batches * kill // kills
            hits += kill_soon_after(running, lambda: batches_done(lake) >= point, random)  # noqa: B023
        bronze = Bronze(lake)
        bronze.assert_each_once(set(ids))
        reached.append(len(bronze.ids))
    with driver(tmp_path, "fill_lake", MASTER, server.url, lake.path, "once", str(batch)) as running:
        ran = running.finish()
    expect_whole(lake, ids, jobs)
    assert ran["missing"] == 0
    print(f"{len(ids)} events, {hits} kills at {reached} events: each once")
    assert hits >= kills * 3 // 4
    assert len(set(reached)) >= kills // 2, "the kills came at too few places: this run proves nothing"


def test_a_driver_killed_around_every_commit_files_each_event_once(
    server: Server, tmp_path: Path, lake: Lake
):
    """Two batches, then attempts, jobs and minutes: each is killed just before and just after it is there."""
    kills = 0
    ids: list[str] = []
    for number in range(1, 6):
        for when in ("before", "after"):
            ids += write_events(server, 60, first=len(ids) // len(LIFE))
            words = ("fill_lake", MASTER, server.url, lake.path, "once", "200", when, str(number))
            with driver(tmp_path, *words) as running:
                assert running.process.wait(300) in (0, -signal.SIGKILL), running.output()[-3000:]
                kills += running.process.returncode == -signal.SIGKILL
            Bronze(lake).assert_each_once(set(ids))
    with driver(tmp_path, "fill_lake", MASTER, server.url, lake.path, "once", "200") as running:
        running.finish()
    expect_whole(lake, ids, len(ids) // len(LIFE))
    print(f"{len(ids)} events, {kills} kills around commits: each once")
    assert kills >= 8


def expect_whole(lake: Lake, ids: list[str], jobs: int) -> None:
    """Bronze has each event once; silver and gold have each job, whatever was broken off."""
    bronze = Bronze(lake)
    bronze.assert_each_once(set(ids))
    assert sorted(bronze.ids) == sorted(ids)
    assert bronze.missing == []
    assert Counter(row["outcome"] for row in _rows(lake, "jobs", "outcome")) == {"completed": jobs}
    assert sum(row["completed"] for row in _rows(lake, "minutes", "completed")) == jobs
    assert len(_rows(lake, "attempts", "outcome")) == jobs


def _rows(lake: Lake, table: str, *columns: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.table(table).dataset().to_table(list(columns)).to_pylist()
    return found


def test_a_log_that_is_trimmed_in_the_middle_is_counted_exactly(server: Server, tmp_path: Path):
    random, rounds = seeded(), scaled(5, least=2)
    ids = write_events(server, scaled(15_000, least=2000))
    lake, batch = Lake(str(tmp_path / "lake")), max(len(ids) // 60, 1)
    done = 0
    for round_ in range(rounds):
        with driver(tmp_path, "fill_lake", MASTER, server.url, lake.path, "on", str(batch)) as running:
            running.wait_for(READING)
            kill_soon_after(running, lambda: batches_done(lake) > done + 1, random)  # noqa: B023
            done = batches_done(lake)
            # while nobody reads, a part of what was not read yet goes, maybe of the batch that was broken off
            with server.connect() as client:
                left = client.xlen(KEY)
                client.xtrim(KEY, maxlen=left - left // (2 * (rounds - round_)), approximate=False)
        ids += write_events(server, len(ids) // len(LIFE) // 10)
    with driver(tmp_path, "fill_lake", MASTER, server.url, lake.path, "once", str(batch)) as running:
        ran = running.finish()
    bronze = Bronze(lake)
    bronze.assert_each_once(set(ids))
    print(f"{len(ids)} events: {len(bronze.ids)} read, {bronze.missing} trimmed before they were read")
    assert None not in bronze.missing
    assert len(bronze.ids) + sum(bronze.missing) == len(ids)
    assert ran["missing"] == sum(bronze.missing) > 0


def test_a_driver_killed_while_it_submits_doubles_no_job(server: Server, tmp_path: Path):
    """Jobs are worked and removed meanwhile, so nothing but the ledger remembers them."""
    random, kills, files, rows = seeded(), scaled(8, least=2), 120, 80
    source = tmp_path / "rows"
    source.mkdir()
    for number in range(files):
        lines = "".join(json.dumps({"n": number * rows + n}) + "\n" for n in range(rows))
        (source / f"{number:03d}.json").write_text(lines)
    words = (MASTER, server.url, str(source), str(tmp_path / "checkpoint"))
    worked: Counter[int] = Counter()
    over = threading.Event()

    def work() -> None:
        with SparkHarness(server, "bullmq") as harness:

            def settle(claim: Claim) -> Completed:
                worked[claim.job.data["n"]] += 1
                return Completed(b"null")

            while not over.wait(0.01):
                harness.work("letters", settle)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(kills):
            with driver(tmp_path, "submit_rows", *words) as running:
                before = len(worked)
                running.wait_for("started")
                # each kill comes when something was submitted, and before all was
                kill_soon_after(running, lambda: len(worked) > before, random)  # noqa: B023
        with driver(tmp_path, "submit_rows", *words) as running:
            running.finish()
        assert eventually(lambda: len(worked) == files * rows, 60), len(worked)
    finally:
        over.set()
        worker.join()
    assert set(worked.values()) == {1}, "0 doubled submissions"
    print(f"{len(worked)} rows, {kills} kills: each row became one job")
