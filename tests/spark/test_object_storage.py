"""A lake on object storage: the same tables by the same code, without a jar."""

import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import polars
import pytest

from corral.cli.demo.week import Attempt, write_week
from corral.core.outcome import Dead
from corral.spark.lake.audit.audit import audit_lake
from corral.spark.lake.delta import LakeBusy, LakeUnavailable
from corral.spark.lake.report.report import report_lake
from corral.spark.lake.tables import Lake
from tests.spark.harness import SparkHarness
from tests.spark.lakes import batch, event_ids, filed, plain_ids, run_to_present
from tests.spark.object_storage import object_storage
from tests.spark.test_bronze import sink
from tests.support.gateway import Gateway
from tests.support.servers import Server
from tests.support.shell import corral


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with object_storage(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.mark.faults  # the next test is its short form
def test_a_lake_in_a_bucket_is_kept_reported_audited_and_queried(spark, bullmq: SparkHarness, bucket: str):
    lake = Lake(f"{bucket}/kept/")
    bullmq.add(6)
    bullmq.work(most=4)
    run_to_present(spark, lake, bullmq)
    assert plain_ids(lake) == event_ids(bullmq)
    bullmq.work(outcome=lambda claim: Dead("boom"))
    run_to_present(spark, lake, bullmq)
    assert plain_ids(lake) == event_ids(bullmq)
    audit = audit_lake(spark, lake, bullmq.address(), lambda: filed(spark, lake, bullmq))
    assert audit.sentence() == "nothing lost: 6 jobs are right (6 ended)"
    [row] = report_lake(spark, lake).queues.rows
    assert row[:5] == ("bullmq", bullmq.queue, "6", "4", "2")
    query = "SELECT outcome, count(*) AS jobs FROM jobs GROUP BY 1 ORDER BY 1"
    assert corral("lake", "sql", lake.path, query, "--csv").out == "outcome,jobs\ncompleted,4\ndead,2\n"
    frame = polars.scan_delta(f"{lake.path}/minutes", storage_options={"AWS_ALLOW_HTTP": "true"}).collect()
    assert frame["completed"].sum() == 4


def test_of_two_processes_in_one_bucket_the_second_is_refused(spark, bullmq: SparkHarness, bucket: str):
    lake = Lake(f"{bucket}/shared")
    bullmq.add(2)
    rows = batch(spark, bullmq)
    one, two = sink(lake, bullmq, "one"), sink(lake, bullmq, "two")
    assert one.table.version() == two.table.version() == 0
    one(rows, 0)
    with pytest.raises(LakeBusy):
        two(rows, 0)
    assert plain_ids(lake) == event_ids(bullmq)


def test_the_gateway_reads_its_history_from_a_bucket(valkey: Server, bucket: str):
    now = int(time.time() * 1000)
    times = {"queued_at": now - 3000, "started_at": now - 2000, "ended_at": now - 1000}
    dead = Attempt(
        "bullmq", "mail", "7", "send", 1, "mailer-1", **times, outcome="dead", reason="550 no mailbox"
    )
    write_week(f"{bucket}/week", now, [dead])
    gateway = Gateway(valkey.url, lake=f"{bucket}/week", redis_timeout_s=10)
    try:
        overview = gateway.client.get("/v1/history").json()
        [job] = gateway.client.get("/v1/history/jobs").json()["jobs"]
    finally:
        gateway.stop()
    assert [(row["queue"], row["dead"]) for row in overview["queues"]] == [("mail", 1)]
    assert (job["id"], job["outcome"], job["reason"]) == ("7", "dead", "550 no mailbox")


def test_a_bucket_that_is_not_there_or_without_rights_is_one_sentence(
    bucket: str,
):
    with pytest.raises(LakeUnavailable, match=r"s3://nowhere/lake/bronze cannot be used: .*NoSuchBucket"):
        Lake("s3://nowhere/lake").exists  # noqa: B018
    said = corral("lake", "report", "s3://nowhere/lake")
    assert (said.code, said.out) == (1, "")
    assert said.err.count("\n") == 1
    assert "404 Not Found, NoSuchBucket" in said.err
    with requests_need_rights(), pytest.raises(LakeUnavailable, match=r"cannot be used: .*(403|Forbidden)"):
        Lake(f"{bucket}/locked").exists  # noqa: B018


@contextmanager
def requests_need_rights() -> Iterator[None]:
    """The server checks keys, and knows nobody's."""

    def check_after(requests: int) -> None:
        url = f"{os.environ['AWS_ENDPOINT_URL']}/moto-api/reset-auth"
        headers = {"Content-Type": "text/plain"}
        request = urllib.request.Request(url, str(requests).encode(), headers, method="POST")
        urllib.request.urlopen(request).close()

    check_after(0)
    try:
        yield
    finally:
        check_after(1_000_000_000)
