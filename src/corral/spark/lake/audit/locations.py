"""Where jobs are listed, and what no job accounts for: the part of an audit that asks the server itself."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as sf

from corral.core.bulk import Leak, Location, Wanted
from corral.core.job import Job
from corral.spark.client import Visit
from corral.spark.lake.audit.findings import Finding, Verdict
from corral.spark.lake.audit.rules import LIVING, QUEUE
from corral.spark.options import Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACES = "protocol string, queue string, place string, job_id string"
ENDED_PLACE = "completed"
"""A protocol may keep an id here for a while after its record has expired."""
LOOKED_AT_TOGETHER = 500
MOST_ODD = 2000
"""So many ids that look odd are looked at closely; each costs the server a walk along its lists."""


def places(spark: "SparkSession", where: Where, queues: Sequence[str], retry_s: float) -> "DataFrame":
    """Every place that lists a job: protocol, queue, place, job_id. Read on executors, a task a queue."""
    asked = spark.createDataFrame([(queue,) for queue in queues], "queue string")
    return asked.repartition(max(len(queues), 1), "queue").mapInArrow(
        partial(_listed, where, retry_s), PLACES
    )


def odd(
    listed: "DataFrame", snapshot: "DataFrame", judged: "DataFrame", queues: Sequence[str]
) -> "DataFrame":
    """(queue, job_id) of jobs that are listed twice, listed without a record, or alive and listed nowhere.

    All were gathered while jobs moved on, so this only says where to look closer. An id that is still listed
    after its job has ended and gone does no harm: workers pass it.
    """
    known = snapshot.select("queue", "job_id", "state")
    by_job = listed.groupBy(*QUEUE, "job_id").agg(sf.sort_array(sf.collect_list("place")).alias("places"))
    # where all queues share their places, another queue's job is no stranger
    is_everywhere = sf.count("*").over(Window.partitionBy("job_id")) == max(len(queues), 2)
    anywhere = known.select("job_id", sf.lit(True).alias("_anywhere")).distinct()
    over = judged.where(sf.col("verdict") == str(Verdict.ENDED)).select(
        "queue", "job_id", sf.lit(True).alias("_over")
    )
    both = (
        by_job.withColumn("_shared", is_everywhere)
        .join(known, ["queue", "job_id"], "full_outer")
        .join(anywhere, "job_id", "left")
        .join(over.distinct(), ["queue", "job_id"], "left")
    )
    has_record = sf.col("state").isNotNull() | (sf.col("_shared") & sf.col("_anywhere"))
    is_listed = sf.col("places").isNotNull()
    is_late = sf.coalesce("_over", sf.col("places") == sf.array(sf.lit(ENDED_PLACE)))
    is_odd = (
        (sf.size("places") > 1)
        | (is_listed & ~sf.coalesce(has_record, sf.lit(False)) & ~is_late)
        | (~is_listed & sf.col("state").isin(*map(str, LIVING)))
    )
    return both.where(is_odd).select("queue", "job_id")


def look_closer(where: Where, suspects: Sequence[tuple[str, str]], retry_s: float) -> list[Finding]:
    """What is wrong with these (queue, job id), if it is so at two moments."""
    found: list[Finding] = []
    with Visit(where, retry_s) as visit:
        for queue in sorted({queue for queue, _ in suspects}):
            ids = [job_id for of, job_id in suspects if of == queue]
            for start in range(0, len(ids), LOOKED_AT_TOGETHER):
                first = _oddities(visit, queue, ids[start : start + LOOKED_AT_TOGETHER])
                again = _oddities(visit, queue, list(first)) if first else {}
                found += [
                    Finding(verdict, where.protocol_name, queue, job_id, None, detail)
                    for job_id, (verdict, detail) in again.items()
                    if first[job_id] == (verdict, detail)
                ]
    return found


def leaks(where: Where, queues: Sequence[str], retry_s: float) -> list[Finding]:
    """Locks, counters and marks that no job accounts for at two moments."""
    found: list[Finding] = []
    with Visit(where, retry_s) as visit:
        for queue in queues:
            first = _leaks(visit, queue)
            stayed = [leak for leak in _leaks(visit, queue) if leak in first] if first else []
            found += [
                Finding(Verdict.LEAKED, where.protocol_name, queue, leak.subject, None, _told(leak))
                for leak in stayed
            ]
    return found


def once(findings: Sequence[Finding], queues: Sequence[str]) -> list[Finding]:
    """The findings; one that every queue tells alike belongs to what they share, and counts once."""
    told = Counter((found.verdict, found.job_id, found.detail) for found in findings)
    kept: dict[tuple[Any, ...], Finding] = {}
    for found in findings:
        what = (found.verdict, found.job_id, found.detail)
        is_shared = len(queues) > 1 and told[what] == len(queues)
        kept.setdefault(what if is_shared else (*what, found.queue), found)
    return list(kept.values())


def _leaks(visit: Visit, queue: str) -> list[Leak]:
    return visit.ask(visit.census(queue).leaks)


def _told(leak: Leak) -> str:
    return f"{leak.kind}: {leak.detail}"


def _oddities(visit: Visit, queue: str, ids: Sequence[str]) -> dict[str, tuple[Verdict, str]]:
    """Job id -> what is wrong with where it is at this moment."""
    census = visit.census(queue)
    found = visit.ask(partial(census.locate, ids))
    records = {job.id: job for job in visit.ask(partial(census.read, ids, Wanted()))}
    looks = {about.id: _oddity(about, records.get(about.id)) for about in found}
    return {job_id: look for job_id, look in looks.items() if look is not None}


def _oddity(about: Location, record: Job | None) -> tuple[Verdict, str] | None:
    spots = " and ".join(repr(place) for place in about.places)
    if len(about.places) > 1:
        return Verdict.DOUBLED, f"is listed in {spots} at once"
    if about.places and not about.has_record and about.places != (ENDED_PLACE,):
        return Verdict.ORPHANED, f"is listed in {spots}, and has no record"
    if not about.places and record is not None and record.state in LIVING:
        return Verdict.ORPHANED, f"has a record that says {record.state}, and is listed nowhere"
    return None


# -- on executors -------------------------------------------------------------------------------------------


def _listed(where: Where, retry_s: float, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for queue in batch.column(0).to_pylist():
            with Visit(where, retry_s) as visit:
                census, cursor = visit.census(queue), "0"
                while True:
                    found, cursor = visit.ask(partial(census.listed, cursor))
                    yield _batch(where.protocol_name, queue, found)
                    if cursor == "0":
                        break


def _batch(protocol: str, queue: str, found: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    texts = [
        [protocol] * len(found),
        [queue] * len(found),
        [place for place, _ in found],
        # a stranger's bytes that are no UTF-8
        [job_id.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for _, job_id in found],
    ]
    names = ["protocol", "queue", "place", "job_id"]
    return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in texts], names=names)
