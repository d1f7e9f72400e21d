"""Handlers on the executors of a real Spark, and rows through a queue."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from corral import Corral, InvalidOptions, RedisError
from corral.core.job import JobState
from corral.spark import WorkProgress, map_in_corral, work
from tests.spark.programs import executor_app
from tests.support.polling import eventually
from tests.support.servers import Server
from tests.support.worker_process_main import JOB

APP = "tests.spark.programs.executor_app:app"


@pytest.fixture
def app(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Corral]:
    monkeypatch.setenv("REDIS_URL", server.url)
    with executor_app.app.replaced(url=server.url):
        yield executor_app.app
        executor_app.app.sync(executor_app.app.close())
    executor_app.app.sync.close()


def results(app: Corral, queue: str) -> list[Any]:
    return [job.result for job in app.sync(app.queue(queue).jobs(JobState.COMPLETED, count=1000))]


def keys(server: Server) -> list[bytes]:
    with server.connect() as client:
        return list(client.scan_iter())


def settled_in_the_ui(spark: Any) -> int:
    """The accumulator that Spark's page of the last query shows beside its filter."""
    store = spark._jsparkSession.sharedState().statusStore()
    execution = store.executionsList().last().executionId()
    nodes = store.planGraph(execution).allNodes()
    [node] = [nodes.apply(n) for n in range(nodes.size()) if nodes.apply(n).name() == "Filter"]
    metrics = [node.metrics().apply(n) for n in range(node.metrics().size())]
    [rows] = [metric for metric in metrics if metric.name() == "number of output rows"]
    values = store.executionMetrics(execution)
    return int(values.apply(rows.accumulatorId()).replace(",", ""))


def test_typed_handlers_and_batches_run_on_executors_with_one_lifespan_in_each_process(
    app: Corral, spark: Any
):
    app.sync(executor_app.embed.add_many([f"text {n}" for n in range(60)]))
    app.sync(executor_app.vectors.add_many(["x" * n for n in range(300)]))
    seen: list[WorkProgress] = []
    summary = work(
        spark, APP, queue={"embed": 5, "vectors": 256}, partitions=2, until="idle", progress=seen.append
    )
    assert (summary.outcomes, summary.is_stopped, summary.submissions) == ({"completed": 360}, False, 1)
    embedded, batches = results(app, "embed"), results(app, "vectors")
    assert sorted(one["length"] for one in embedded) == sorted(len(f"text {n}") for n in range(60))
    processes = {one["process"] for one in embedded}
    assert os.getpid() not in processes
    assert len({one["lifespan"] for one in embedded}) == len(processes)
    assert sorted(one["length"] for one in batches) == list(range(300))
    assert max(one["together"] for one in batches) > 20
    assert all(progress.tasks <= 2 for progress in seen)
    assert settled_in_the_ui(spark) == 360


def test_a_signal_to_the_driver_drains_the_tasks(app: Corral, spark: Any, capsys: pytest.CaptureFixture[str]):
    app.sync(executor_app.slow.add_many([1.0] * 6 + [0.0] * 30))

    def when_they_run() -> None:
        eventually(lambda: app.sync(app.queue("slow").counts())[JobState.ACTIVE] == 6, 60)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    Thread(target=when_they_run, daemon=True).start()
    summary = work(spark, APP, queue={"slow": 3}, partitions=2, grace=20, progress=True)
    assert "jobs left" in capsys.readouterr().err
    counts = app.sync(app.queue("slow").counts())
    assert summary.is_stopped
    assert counts[JobState.ACTIVE] == 0
    assert counts[JobState.COMPLETED] >= 6
    assert counts[JobState.COMPLETED] + counts[JobState.WAITING] == 36
    assert signal.getsignal(signal.SIGTERM) is before


def test_rows_of_a_dataframe_come_back_once_each_with_their_results(app: Corral, spark: Any):
    rows = spark.range(0, 40, 1, 2).selectExpr(
        "id - 2 AS n", "struct(id AS `a b`) AS more", "timestamp'2025-01-31 12:00' AS at"
    )
    where = {"queue": "rows", "protocol": "bullmq"}
    run = rows.transform(map_in_corral, APP, JOB, run_id="squares", **where)
    assert run.columns == ["n", "more", "at", "job_id", "state", "attempts", "result", "reason"]
    first = {row["n"]: (row["state"], row["result"]) for row in run.collect()}
    assert first == {n: ("completed", str(n * n)) if n >= 0 else ("dead", None) for n in range(-2, 38)}
    position = app.sync(app.queue("rows").events.position())
    # as after the death of a driver: another DataFrame, the same run
    again = map_in_corral(rows, APP, JOB, run_id="squares", **where).collect()
    assert {row["n"]: (row["state"], row["result"]) for row in again} == first
    assert app.sync(app.queue("rows").events.position()) == position, "nothing ran again"


def test_a_python_process_that_dies_is_replaced_and_its_jobs_end_once(app: Corral, spark: Any):
    app.sync(executor_app.deadly.add_many(list(range(20))))
    times = {"lock_ms": 500, "recover_ms": 500}
    summary = work(spark, APP, queue="deadly", partitions=1, until="idle", **times)
    # one failure ends a job of local[2]; on a cluster Spark repeats the task first
    assert summary.submissions == 2
    assert sorted(results(app, "deadly")) == list(range(20))
    ends = [
        event.job_id for event in app.sync(app.queue("deadly").events.range()) if event.kind == "completed"
    ]
    assert sorted(ends) == sorted(set(ends))


def test_an_app_that_executors_cannot_import_is_one_sentence(
    app: Corral, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "only_here.py").write_text("from tests.spark.programs.executor_app import app")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(InvalidOptions, match="an executor cannot load only_here:app: there is no module"):
        work(spark, "only_here:app", queue="embed", partitions=1, until="idle")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"until": "later"}, "until='later': use 'idle' or 'forever'"),
        ({"partitions": 0}, "partitions=0 is not a whole number from 1"),
        ({"queue": "nothing"}, "no handler for queue 'nothing'; there are some for: deadly"),
        ({"protocol": "kafka"}, "'kafka'"),
        ({"queue": "embed", "protocol": "streams"}, "no handler for queue 'embed' of protocol 'streams'"),
        ({"lock_mss": 5}, "lock_mss"),
    ],
)
def test_what_work_cannot_do_is_refused_before_anything_is_written(
    app: Corral, spark: Any, server: Server, options: dict[str, Any], text: str
):
    with pytest.raises(ValueError, match=text.replace("(", "\\(")):
        work(spark, APP, **options)
    assert keys(server) == []


@pytest.mark.parametrize(
    ("job", "options", "text"),
    [
        ("cube", {}, "has no handler 'cube'; it has deadly, embed"),
        (JOB, {}, "say which: queue=…, protocol=…"),
        ("embed", {"run_id": "a b"}, "run_id='a b': use up to 200 letters"),
        ("embed", {"id_column": "key"}, "id_column is 'key', which is no column; there are id"),
        ("embed", {"value_column": "state"}, "value_column is 'state', which is no column"),
    ],
)
def test_what_rows_cannot_become_is_refused_before_anything_is_written(
    app: Corral, spark: Any, server: Server, job: str, options: dict[str, Any], text: str
):
    with pytest.raises(InvalidOptions, match=text):
        map_in_corral(spark.range(3), APP, job, **options)
    with pytest.raises(InvalidOptions, match="have a column 'state', as the results do; rename it"):
        map_in_corral(spark.sql("SELECT 1 AS state"), APP, "embed")
    assert keys(server) == []


def test_a_server_that_does_not_answer_is_named(spark: Any, app: Corral):
    with app.replaced(url="redis://127.0.0.1:1"), pytest.raises(RedisError, match=r"127\.0\.0\.1:1"):
        work(spark, APP, queue="embed", until="idle")
