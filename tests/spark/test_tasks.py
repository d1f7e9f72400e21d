"""What runs in a task of Spark, here without Spark: a worker, and rows that become jobs and results."""

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from corral import Corral
from corral.core.job import JobState
from corral.core.outcome import Completed, Settlement
from corral.core.ports import Profile
from corral.errors import SettleError
from corral.spark.mapping import MapTask
from corral.spark.tasks import PADDING, QueueTask, TaskError, WorkerOrder, task_error
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


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A task configures the logs of its process, which is that of the tests here."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def order(app: Corral, queue: str, protocol: str = "bullmq", **options: Any) -> WorkerOrder:
    return WorkerOrder(APP, app.url, "test", {queue: 10}, protocol, 10, 30.0, "critical", options)


def settled(batches: Iterator[pa.RecordBatch]) -> list[str]:
    """The outcomes that a task has told Spark of, until it ends."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [row["outcome"] for row in rows if row["outcome"] is not None]


def test_a_task_works_until_its_queue_is_idle_and_says_what_it_settled(app: Corral):
    app.sync(executor_app.embed.add_many([f"text {n}" for n in range(50)]))
    assert settled(QueueTask(order(app, "embed"), until_idle=True).run(iter(()))) == ["completed"] * 50
    assert app.sync(app.queue("embed").counts())[JobState.COMPLETED] == 50


def test_every_record_batch_is_larger_than_the_buffer_so_that_spark_has_it_at_once(app: Corral):
    app.sync(executor_app.embed.add("text"))
    for batch in QueueTask(order(app, "embed"), until_idle=True).run(iter(())):
        assert batch.nbytes >= 65536


def test_a_task_recovers_what_a_lost_one_held_and_the_lost_one_cannot_settle_it(app: Corral):
    """An idle task waits for jobs that another holds; of two attempts at one, the last that began counts."""
    app.sync(executor_app.slow.add(0.0))
    queue = app.queue("slow")
    lost = replace(app.binding(queue), profile=Profile(name="lost", lock_ms=300))
    broker = queue.protocol.bind(lost).broker
    [claim] = app.sync(broker.turn([], 1)).claims
    task = QueueTask(order(app, "slow", lock_ms=500, recover_ms=500), until_idle=True)
    # nobody renews the lock of the first claim
    assert settled(task.run(iter(()))) == ["completed"]
    late = Settlement(claim, Completed(b'"late"'), app.clock())
    [verdict] = app.sync(broker.turn([late], 0)).verdicts
    assert isinstance(verdict, SettleError)
    job = app.sync(queue.job(claim.job.id))
    assert (job.result, job.stalls, job.state) == (os.getpid(), 1, JobState.COMPLETED)


@pytest.mark.parametrize("how", ["closed", "signalled"])
def test_a_task_that_is_stopped_lets_its_jobs_end_and_claims_no_more(app: Corral, how: str):
    app.sync(executor_app.slow.add_many([0.7] * 9))
    app.sync(executor_app.hang_up.add() if how == "signalled" else executor_app.slow.add(0.7))
    app.sync(executor_app.slow.add_many([0.0] * 5))
    running = QueueTask(order(app, "slow"), until_idle=False).run(iter(()))
    next(running)
    if how == "closed":
        running.close()  # what a cancelled Spark job does to it
    else:
        settled(running)  # it ends by itself
    counts = app.sync(app.queue("slow").counts())
    assert (counts[JobState.COMPLETED], counts[JobState.WAITING], counts[JobState.ACTIVE]) == (10, 5, 0)
    assert not any(worker.name.startswith("test-") for worker in app.sync(app.queue("slow").workers()))


def test_an_app_that_an_executor_cannot_import_is_named_with_the_way_out(app: Corral):
    wrong = WorkerOrder("no_such_shop:app", app.url, "test", {}, None, 1, 1.0, "critical")
    with pytest.raises(TaskError) as raised:
        list(QueueTask(wrong, until_idle=True).run(iter(())))
    kind, text = task_error(f"PythonException: Traceback … {raised.value} at java.lang.Thread")
    assert kind == "AppNotFound"
    assert "an executor cannot load no_such_shop:app" in text
    assert "spark.submit.pyFiles" in text


# -- rows ---------------------------------------------------------------------------------------------------


def map_task(
    app: Corral, queue: str, job: str, run_id: str, protocol: str = "bullmq", **options: Any
) -> MapTask:
    return MapTask(
        order(app, queue, protocol), job, run_id, options.pop("id_column", None),
        options.pop("value_column", None), 3600,
    )  # fmt: skip


def results(task: MapTask, values: list[Any], column: str = "n") -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict({column: values})
    rows = [row for output in task.run(iter([batch])) for row in output.to_pylist()]
    return [row for row in rows if row.pop(PADDING) is None]


@pytest.mark.parametrize("protocol", ["bullmq", "bridgemq", "streams"])
def test_rows_become_jobs_and_come_back_with_their_results_in_order(app: Corral, protocol: str):
    queue = app.queue(None if protocol == "streams" else "rows", protocol).name
    rows = results(map_task(app, queue, JOB, "run-1", protocol), [3, -1, 5, None, 3])
    assert [row["n"] for row in rows] == [3, -1, 5, None, 3]
    assert [row["state"] for row in rows] == ["completed", "dead", "completed", "refused", "completed"]
    assert [row["result"] for row in rows] == ["9", None, "25", None, "9"]
    assert "-1 is below 0" in rows[1]["reason"]
    assert "n" in rows[3]["reason"]
    assert rows[0]["job_id"] == rows[4]["job_id"], "equal rows are one job"
    # again, as after the death of a driver: nothing runs twice, and the results are the same
    before = app.sync(app.queue(queue, protocol).events.position())
    assert results(map_task(app, queue, JOB, "run-1", protocol), [3, -1, 5, None, 3]) == rows
    assert app.sync(app.queue(queue, protocol).events.position()) == before


def test_a_run_that_was_interrupted_goes_on_with_the_rows_that_have_not_ended(app: Corral):
    task = map_task(app, "slow", "slow", "run-2")
    batch = pa.RecordBatch.from_pydict({"seconds": [0.0, 1.0, 0.01]})
    running = task.run(iter([batch]))
    next(running)
    running.close()
    first = app.sync(app.queue("slow").counts())
    rows = results(task, [0.0, 1.0, 0.01], "seconds")
    assert [row["state"] for row in rows] == ["completed"] * 3
    assert [row["attempts"] for row in rows] == [1, 1, 1]
    assert first[JobState.COMPLETED] + first[JobState.WAITING] == 3


def test_rows_are_retried_and_end_dead_after_their_attempts(app: Corral):
    rows = results(map_task(app, "unsteady", "unsteady", "run-3"), [1, 7])
    assert [(row["state"], row["attempts"], row["result"]) for row in rows] == [
        ("completed", 2, "2"),
        ("dead", 3, None),
    ]
    dead = app.sync(app.queue("unsteady").jobs(JobState.DEAD))
    assert [job.id for job in dead] == [rows[1]["job_id"]]


def test_a_column_can_be_the_whole_data_of_a_job_in_a_batch(app: Corral):
    task = map_task(app, "vectors", "vectors", "run-4", value_column="text", id_column="text")
    rows = results(task, ["a", "bb"], "text")
    assert len({row["job_id"] for row in rows}) == 2
    assert [row["result"] for row in rows] == ['{"length":1,"together":2}', '{"length":2,"together":2}']


def test_rows_of_tasks_that_wait_for_the_same_queue_are_worked_off_by_both(app: Corral):
    outputs: dict[int, list[Any]] = {}

    def run(number: int) -> None:
        task = map_task(app, "rows", JOB, "run-5")
        outputs[number] = results(task, list(range(number, 3000, 2)))

    threads = [Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(outputs) == 2, 60)
    assert [row["result"] for row in outputs[1]] == [str(n * n) for n in range(1, 3000, 2)]
    assert app.sync(app.queue("rows").counts())[JobState.COMPLETED] == 3000
