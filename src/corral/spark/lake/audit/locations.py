"""Where jobs are listed, and what belongs to no job: the part of an audit that reads the server itself."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from corral.core.filter import JobFilter
from corral.core.job import Job
from corral.core.ports import Location
from corral.spark.client import QueueClient
from corral.spark.lake.audit.findings import AuditFinding, AuditVerdict
from corral.spark.lake.audit.rules import LIVING, QUEUE
from corral.spark.options import QueueAddress
from corral.spark.schema import valid_text

LISTED = ("protocol", "queue", "list", "job_id")
ENDED_LIST = "completed"
"""A protocol may keep an id here for a while after its record has expired."""
LOCATE_JOBS = 500
"""Ids located in one call."""
MAX_SUSPECTS = 2000
"""Ids that are located at most; each costs the server a walk along its lists."""


def listed_jobs(
    spark: SparkSession, address: QueueAddress, queues: Sequence[str], retry_s: float
) -> DataFrame:
    """Return each list with each job in it: protocol, queue, list, job_id. Read on executors."""
    names = spark.createDataFrame([(queue,) for queue in queues], "queue string")
    schema = ", ".join(f"{column} string" for column in LISTED)
    return names.repartition(max(len(queues), 1), "queue").mapInArrow(
        partial(_read_lists, address, retry_s), schema
    )


def suspects(listed: DataFrame, records: DataFrame, judged: DataFrame, queues: Sequence[str]) -> DataFrame:
    """Return (queue, job_id) of jobs listed twice, listed without a record, or alive and listed nowhere.

    All were read while jobs moved on, so these only are to be located. An id that is still listed after its
    job has ended and is gone does no harm: workers skip it.
    """
    states = records.select("queue", "job_id", "state")
    by_job = listed.groupBy(*QUEUE, "job_id").agg(sf.sort_array(sf.collect_list("list")).alias("lists"))
    # where all queues share their lists, another queue's job is in them too
    is_everywhere = sf.count("*").over(Window.partitionBy("job_id")) == max(len(queues), 2)
    anywhere = states.select("job_id", sf.lit(True).alias("_anywhere")).distinct()
    over = judged.where(sf.col("verdict") == str(AuditVerdict.ENDED)).select(
        "queue", "job_id", sf.lit(True).alias("_over")
    )
    both = (
        by_job.withColumn("_shared", is_everywhere)
        .join(states, ["queue", "job_id"], "full_outer")
        .join(anywhere, "job_id", "left")
        .join(over.distinct(), ["queue", "job_id"], "left")
    )
    has_record = sf.col("state").isNotNull() | (sf.col("_shared") & sf.col("_anywhere"))
    is_listed = sf.col("lists").isNotNull()
    is_late = sf.coalesce("_over", sf.col("lists") == sf.array(sf.lit(ENDED_LIST)))
    is_suspect = (
        (sf.size("lists") > 1)
        | (is_listed & ~sf.coalesce(has_record, sf.lit(False)) & ~is_late)
        | (~is_listed & sf.col("state").isin(*map(str, LIVING)))
    )
    return both.where(is_suspect).select("queue", "job_id")


def misplaced(address: QueueAddress, ids: Sequence[tuple[str, str]], retry_s: float) -> list[AuditFinding]:
    """Return what is wrong with where these (queue, job id) are, if it is so at two moments."""
    findings: list[AuditFinding] = []
    with QueueClient(address, retry_s) as client:
        for queue in sorted({queue for queue, _ in ids}):
            of_queue = [job_id for name, job_id in ids if name == queue]
            for start in range(0, len(of_queue), LOCATE_JOBS):
                first = _misplaced(client, queue, of_queue[start : start + LOCATE_JOBS])
                again = _misplaced(client, queue, list(first)) if first else {}
                findings += [
                    AuditFinding(verdict, address.protocol_name, queue, job_id, None, detail)
                    for job_id, (verdict, detail) in again.items()
                    if first[job_id] == (verdict, detail)
                ]
    return findings


def leaks(address: QueueAddress, queues: Sequence[str], retry_s: float) -> list[AuditFinding]:
    """Return locks, counters and marks that belong to no job at two moments."""
    findings: list[AuditFinding] = []
    with QueueClient(address, retry_s) as client:
        for queue in queues:
            read = client.ports(queue).snapshot.leaks
            first = client.call(read)
            stayed = [leak for leak in client.call(read) if leak in first] if first else []
            findings += [
                AuditFinding(
                    AuditVerdict.LEAKED, address.protocol_name, queue, leak.subject, None,
                    f"{leak.kind}: {leak.detail}",
                )
                for leak in stayed
            ]  # fmt: skip
    return findings


def without_shared(findings: Sequence[AuditFinding], queues: Sequence[str]) -> list[AuditFinding]:
    """Return the findings; one that every queue has belongs to what they share, and counts once."""
    counts = Counter((one.verdict, one.job_id, one.detail) for one in findings)
    kept: dict[tuple[Any, ...], AuditFinding] = {}
    for one in findings:
        key = (one.verdict, one.job_id, one.detail)
        is_shared = len(queues) > 1 and counts[key] == len(queues)
        kept.setdefault(key if is_shared else (*key, one.queue), one)
    return list(kept.values())


def _misplaced(client: QueueClient, queue: str, ids: Sequence[str]) -> dict[str, tuple[AuditVerdict, str]]:
    """Return job id -> what is wrong with where it is at this moment."""
    snapshot = client.ports(queue).snapshot
    located = client.call(partial(snapshot.locate, ids))
    records = {job.id: job for job in client.call(partial(snapshot.read, ids, JobFilter()))}
    verdicts = {location.id: _verdict(location, records.get(location.id)) for location in located}
    return {job_id: verdict for job_id, verdict in verdicts.items() if verdict is not None}


def _verdict(location: Location, record: Job | None) -> tuple[AuditVerdict, str] | None:
    lists = " and ".join(repr(name) for name in location.places)
    if len(location.places) > 1:
        return AuditVerdict.DOUBLED, f"is listed in {lists} at once"
    if location.places and not location.has_record and location.places != (ENDED_LIST,):
        return AuditVerdict.ORPHANED, f"is listed in {lists}, and has no record"
    if not location.places and record is not None and record.state in LIVING:
        return AuditVerdict.ORPHANED, f"has a record that says {record.state}, and is listed nowhere"
    return None


# -- on executors -------------------------------------------------------------------------------------------


def _read_lists(
    address: QueueAddress, retry_s: float, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for queue in batch.column(0).to_pylist():
            with QueueClient(address, retry_s) as client:
                snapshot, cursor = client.ports(queue).snapshot, None
                while cursor != "0":
                    page, cursor = client.call(partial(snapshot.listed, cursor or "0"))
                    columns = [
                        [address.protocol_name] * len(page),
                        [queue] * len(page),
                        [name for name, _ in page],
                        [valid_text(job_id) for _, job_id in page],
                    ]
                    arrays = [pa.array(column, pa.string()) for column in columns]
                    yield pa.RecordBatch.from_arrays(arrays, names=list(LISTED))
