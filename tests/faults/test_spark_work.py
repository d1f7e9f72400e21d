"""Workers on the executors of a standalone cluster, which are killed."""

import os
import signal
from collections import Counter, defaultdict
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
import redis

from tests.faults.spark_drivers import STARTS_S, Driver, driver
from tests.faults.test_spark_executors import executors
from tests.spark.clusters import standalone
from tests.spark.programs import executor_app
from tests.support.polling import eventually
from tests.support.servers import Server
from tests.support.worker_processes import scaled, seeded

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800), pytest.mark.xdist_group("spark")]

APP = "tests.spark.programs.executor_app:app"
SECONDS = 0.2
"""Of each job."""


def kill(executor: int, *, with_python: bool) -> None:
    """Kill an executor; with its Python processes, as the loss of a machine would."""
    daemons = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == executor:
                daemons.append(int(entry.name))
    os.kill(executor, signal.SIGSTOP)  # it must not see its Python processes die first
    for daemon in daemons if with_python else ():
        with suppress(ProcessLookupError):
            os.killpg(daemon, signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)


def kill_some(running: Driver, folder: Path, client: redis.Redis, jobs: int, times: int) -> int:
    """Kill executors all the way through the jobs, each while another one works too; how many were killed."""
    random, killed = seeded(), 0

    def done() -> int:
        assert running.process.poll() in (None, 0), running.output()[-3000:]
        return int(client.zcard("bull:slow:completed"))

    for number in range(times):
        point = jobs * (number + 1) // (times + 2)
        is_reached = lambda: done() >= point and (len(executors(folder)) >= 2 or done() >= jobs)  # noqa: B023, E731
        assert eventually(is_reached, STARTS_S, pause=0.2), "the cluster came to a halt"
        with suppress(ProcessLookupError, IndexError):
            kill(random.choice(executors(folder)), with_python=random.random() < 0.8)
            killed += 1
    return killed


def test_executors_killed_while_they_work_lose_no_job_and_complete_none_twice(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    jobs, times = scaled(100_000, least=2000), scaled(50, least=2)
    monkeypatch.setenv("REDIS_URL", server.url)
    app = executor_app.app
    # a package that is only where the driver runs: executors get it from there
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "work.py").write_text("from tests.spark.programs.executor_app import app")
    with app.replaced(url=server.url), server.connect() as client:
        client.hset("bull:slow:meta", "opts.maxLenEvents", 100_000_000)
        app.sync(executor_app.slow.add_many([SECONDS] * jobs))
        with (
            standalone(tmp_path, workers=2, cores=4) as master,
            driver(tmp_path, "work_off", master, "shop.work:app", "slow", "8", "120") as running,
        ):
            running.wait_for("started")
            killed = kill_some(running, tmp_path, client, jobs, times)
            summary = running.finish(1000)
        stories = defaultdict(list)
        for _, fields in client.xrange("bull:slow:events"):
            stories[fields.get(b"jobId")].append(fields[b"event"].decode())
        left = {state: client.llen(f"bull:slow:{state}") for state in ("wait", "active")}
    stories.pop(None, None)
    ends = Counter(story.count("completed") for story in stories.values())
    again = sum(story.count("active") > 1 for story in stories.values())
    print(f"{jobs} jobs, {killed} executors killed, {again} jobs begun again, {summary}")
    assert ends == {1: jobs}
    assert left == {"wait": 0, "active": 0}
    assert killed >= times * 3 // 4, "too few were killed: this run proves nothing"
    for job_id, story in stories.items():
        # a second attempt begins only after the first was found abandoned, or gave the job back
        begun = [event for event in story if event in ("active", "stalled", "waiting")]
        assert ("active", "active") not in pairwise(begun), (job_id, story)


def test_a_cluster_without_executors_is_one_sentence(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("REDIS_URL", server.url)
    with (
        standalone(tmp_path, workers=0) as master,
        driver(tmp_path, "work_off", master, APP, "slow", "2", "3") as running,
    ):
        assert running.process.wait(STARTS_S) != 0
        assert f"the cluster {master} gave no executor within 3 s" in running.output()
    with server.connect() as client:
        assert client.dbsize() == 0
