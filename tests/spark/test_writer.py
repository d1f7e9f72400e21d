"""DataFrames as jobs: each row once, whatever is repeated."""

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import corral.worker.config
from corral.core.job import JobState
from corral.core.ports import Ledger
from corral.spark.options import QueueAddress, WriteOptions
from corral.spark.rows import derived_id
from corral.spark.writer import submit_rows
from tests.spark.harness import SparkHarness, drain


def jobs(harness: SparkHarness) -> list[Any]:
    """What waits now, in order."""

    async def go() -> list[Any]:
        return await harness.inspector.jobs(JobState.WAITING, 10_000)

    return harness.run(go)


def write(harness: SparkHarness, table: Any, **options: Any) -> None:
    writer = table.write.format("corral").mode("append")
    writer = (
        writer.option("url", harness.url)
        .option("protocol", harness.protocol.spec.name)
        .option("queue", harness.queue)
    )
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def test_rows_become_jobs_with_their_columns_as_data(spark, harness: SparkHarness):
    table = spark.range(25).selectExpr("id as number", "concat('reader-', id) as to", "id / 2 as half")
    write(harness, table, name=harness.job_name)
    found = sorted(jobs(harness), key=lambda job: job.data["number"])
    assert [job.data for job in found] == [
        {"number": n, "to": f"reader-{n}", "half": n / 2} for n in range(25)
    ]
    assert {job.name for job in found} == {harness.job_name}
    assert [job.id for job in found] == [derived_id(job.data) for job in found]


def test_names_ids_priorities_delays_and_data_come_from_columns(spark, bullmq: SparkHarness):
    rows = [
        ("order-1", "send", 5, 0, '{"to":"a@b.c","big":130775545883395173}'),
        ("order-2", "print", 0, 60_000, '{"pages":[]}'),
    ]
    table = spark.createDataFrame(rows, "key string, kind string, rank int, later int, body string")
    write(
        bullmq, table, idColumn="key", nameColumn="kind", priorityColumn="rank", delayColumn="later",
        dataColumn="body", jobOptions='{"attempts": 7}',
    )  # fmt: skip

    async def read(job_id: str) -> Any:
        return await bullmq.inspector.job(job_id)

    first, second = bullmq.run(lambda: read("order-1")), bullmq.run(lambda: read("order-2"))
    assert (first.name, first.options.priority, first.options.attempts) == ("send", 5, 7)
    assert first.data == {"to": "a@b.c", "big": 130775545883395173}
    assert (second.name, second.state, second.data) == ("print", JobState.DELAYED, {"pages": []})


def test_a_write_that_is_repeated_under_its_name_adds_nothing(spark, bullmq: SparkHarness):
    table = spark.range(12)
    write(bullmq, table, name="work", writeId="import-2025-01-31")
    assert bullmq.work() == 12

    async def remove_all() -> None:
        done = await bullmq.inspector.jobs(JobState.COMPLETED, 100)
        await bullmq.operator.remove([job.id for job in done])

    bullmq.run(remove_all)
    write(bullmq, table, name="work", writeId="import-2025-01-31")
    assert jobs(bullmq) == []
    write(bullmq, table, name="work", writeId="import-2025-02-01")
    assert len(jobs(bullmq)) == 12


def test_a_task_that_is_tried_again_adds_nothing_twice(spark, bullmq: SparkHarness, tmp_path: Path):
    """The first try of each task fails after it has sent all its rows."""
    marks = str(tmp_path)

    def fail_once_at_the_end(batches: Any) -> Any:
        from pathlib import Path

        from pyspark import TaskContext

        yield from batches
        mark = Path(marks) / str(TaskContext.get().partitionId())
        if not mark.exists():
            mark.touch()
            raise RuntimeError("the first try fails")

    table = spark.range(0, 40, 1, 2).mapInPandas(fail_once_at_the_end, "id long")
    failed = worked = 0
    is_written = False
    while not is_written:
        try:
            write(bullmq, table, name="work", writeId="again", batchRows=3)
            is_written = True
        except PySparkException as error:
            # a task that fails ends the other, which may not have come as far, or fails a little later
            if "the first try fails" not in str(error):
                raise
            failed, worked = failed + 1, worked + bullmq.work()
    assert failed in (1, 2)
    assert len(list(tmp_path.iterdir())) == 2
    assert worked + bullmq.work() == 40


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "jobs need a name"),
        ({"name": "x", "nameColumn": "id"}, "and not both"),
        ({"name": "x", "idColumn": "key"}, "idColumn is 'key', which is no column; there are id"),
        ({"name": "x", "queue": "a,b"}, "jobs go to one queue"),
        ({"name": "x", "queue": "mail-*"}, "jobs go to one queue"),
        ({"name": "x", "jobOptions": '{"priority": -1}'}, "priority is -1"),
        ({"name": "x", "maxPendings": "3"}, "did you mean 'maxPending'"),
        ({"name": "x", "writeId": "a/b"}, "writeId is 'a/b'"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(
    spark, bullmq: SparkHarness, options: dict[str, str], says: str
):
    with pytest.raises(PySparkException) as refusal:
        write(bullmq, spark.range(3), **options)
    assert says in str(refusal.value)
    with bullmq.server.connect() as client:
        assert client.dbsize() == 0


def test_jobs_are_never_replaced(spark, bullmq: SparkHarness):
    with pytest.raises(PySparkException, match="never replaced"):
        spark.range(3).write.format("corral").mode("overwrite").option("url", bullmq.url).option(
            "name", "work"
        ).save()


ROWS = [("good-1", "send", "{}"), ("bad:id", "send", "{}"), ("good-2", " ", "{}"), ("good-3", "send", "{no")]
SCHEMA = "key string, kind string, body string"


def test_rejected_rows_go_to_a_file_with_their_reason(spark, bullmq: SparkHarness, tmp_path: Path):
    table = spark.createDataFrame([*ROWS, ("good-4", "send", '{"a":1}')], SCHEMA).coalesce(1)
    columns = {"idColumn": "key", "nameColumn": "kind", "dataColumn": "body"}
    write(bullmq, table, deadRows=tmp_path / "dead", writeId="w", **columns)
    assert sorted(job.id for job in jobs(bullmq)) == ["good-1", "good-4"]
    dead = spark.read.json(str(tmp_path / "dead" / "w" / "0")).collect()
    reasons = {row["row"]["key"]: (row["error"], row["reason"]) for row in dead}
    assert set(reasons) == {"bad:id", "good-2", "good-3"}
    assert reasons["bad:id"][0] == "InvalidName"
    assert "contains ':'" in reasons["bad:id"][1]
    assert "is no JSON" in reasons["good-3"][1]


def test_what_only_the_protocol_refuses_is_rejected_row_by_row(spark, server, tmp_path: Path):
    with SparkHarness(server, "streams") as streams:
        rows = [("embed", 1), ("juggle", 2), ("chat", 3), ("dance", 4)]
        table = spark.createDataFrame(rows, "kind string, n int").coalesce(1)
        write(streams, table, nameColumn="kind", deadRows=f"file://{tmp_path}/dead", writeId="w")
        assert sorted(job.data["n"] for job in jobs(streams)) == [1, 3]
        lines = [line for path in tmp_path.rglob("*.json") for line in path.read_text().splitlines()]
        dead = [json.loads(line) for line in lines]
        assert sorted(row["row"]["n"] for row in dead) == [2, 4]
        assert all("has no task" in row["reason"] for row in dead)


def test_without_a_place_for_them_a_rejected_row_stops_the_write(spark, bullmq: SparkHarness):
    table = spark.createDataFrame(ROWS[:2], SCHEMA).coalesce(1)
    with pytest.raises(PySparkException) as refusal:
        write(bullmq, table, idColumn="key", nameColumn="kind", dataColumn="body")
    assert "job id 'bad:id' contains ':'" in str(refusal.value)
    assert "give option 'deadRows' a folder" in str(refusal.value)
    assert jobs(bullmq) == []


def test_a_full_queue_makes_the_writer_wait(spark, bullmq: SparkHarness):
    done = threading.Event()
    depths: list[int] = []

    def work_slowly() -> None:
        with SparkHarness(bullmq.server, "bullmq") as hand, bullmq.server.connect() as client:
            while not done.is_set():
                depths.append(client.llen("bull:default:wait"))
                if depths[-1] >= 20:
                    hand.work(most=5)

    thread = threading.Thread(target=work_slowly)
    thread.start()
    try:
        write(bullmq, spark.range(0, 60, 1, 1), name="work", maxPending=20, batchRows=10)
    finally:
        done.set()
        thread.join()
    assert 20 <= max(depths) < 30, "as deep as allowed, and one chunk more at most"
    with bullmq.server.connect() as client:
        assert client.llen("bull:default:wait") + client.zcard("bull:default:completed") == 60


# -- streams ------------------------------------------------------------------------------------------------


def feed(folder: Path, name: str, numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f'{{"n": {n}}}\n' for n in numbers))


def stream_jobs(spark: Any, harness: SparkHarness, tmp_path: Path, **options: Any) -> Any:
    source = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    return drain(
        source, tmp_path, format="corral", url=harness.url, protocol=harness.protocol.spec.name,
        queue=harness.queue, name=harness.job_name, **options,
    )  # fmt: skip


def test_a_stream_of_rows_is_a_stream_of_jobs(spark, harness: SparkHarness, tmp_path: Path):
    feed(tmp_path / "in", "a.json", range(10))
    feed(tmp_path / "in", "b.json", range(10, 15))
    stream_jobs(spark, harness, tmp_path)
    feed(tmp_path / "in", "c.json", range(15, 30))
    stream_jobs(spark, harness, tmp_path)
    assert sorted(job.data["n"] for job in jobs(harness)) == list(range(30))
    with harness.server.connect() as client:
        ledgers = list(client.scan_iter("*ledger:*"))
        assert len(ledgers) == 1, "only the last batch may still be repeated"


def test_a_batch_that_is_repeated_after_its_jobs_have_ended_adds_nothing(
    spark, bullmq: SparkHarness, tmp_path: Path
):
    feed(tmp_path / "in", "a.json", range(10))
    feed(tmp_path / "in", "b.json", range(10, 15))
    stream_jobs(spark, bullmq, tmp_path, jobOptions='{"remove_on_complete": true}')
    assert bullmq.work() == 15
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    commits[-1].unlink()
    for checksum in (tmp_path / "checkpoint" / "commits").glob(".*.crc"):
        checksum.unlink()
    stream_jobs(spark, bullmq, tmp_path, jobOptions='{"remove_on_complete": true}')
    assert bullmq.work() == 0


def test_a_stream_stops_at_a_rejected_row_it_has_no_place_for(spark, bullmq: SparkHarness, tmp_path: Path):
    feed(tmp_path / "in", "a.json", range(3))
    with pytest.raises(StreamingQueryException, match="is of type int; use text"):
        stream_jobs(spark, bullmq, tmp_path, idColumn="n")
    assert jobs(bullmq) == []


def test_a_delay_is_right_on_an_executor_whose_clock_is_wrong(bullmq: SparkHarness, monkeypatch):
    clock = SimpleNamespace(time_ns=lambda: time.time_ns() + 600 * 10**9)
    monkeypatch.setattr(corral.worker.config, "time", clock)
    address = QueueAddress(bullmq.url, "bullmq", bullmq.namespace, bullmq.queue)
    rows = pa.RecordBatch.from_pylist([{"later": 700}])
    before = time.time() * 1000
    submit_rows(
        address, WriteOptions(name="work", delay_column="later"), ["later"], Ledger("w/0", 60), iter([rows])
    )

    async def delayed() -> list[Any]:
        return await bullmq.inspector.jobs(JobState.DELAYED, 10)

    [job] = bullmq.run(delayed)
    assert before - 300 <= job.created_at <= time.time() * 1000 + 300
