"""The audit: has every job that was added one end, or does it live in exactly one state?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as sf

from corral.spark.client import Visit
from corral.spark.events import gap_batch
from corral.spark.gaps import Gap, WhyGone
from corral.spark.lake.audit import locations, rules
from corral.spark.lake.audit.findings import RIGHT, WRONG, Finding, Verdict
from corral.spark.lake.audit.rules import Cut
from corral.spark.lake.ingest import snapshot_of
from corral.spark.offsets import BEGINNING, trimmed
from corral.spark.options import Reading, Where
from corral.spark.schema import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from corral.spark.lake.tables import Lake

MOST_FINDINGS = 1000


class Exit:
    """What a program that audits exits with."""

    NOTHING_LOST = 0
    WRONG = 1
    UNPROVABLE = 4
    """3 is what the command line exits with where there is no server."""


@dataclass(frozen=True)
class Audit:
    """What an audit found."""

    protocol: str
    queues: tuple[str, ...]
    counts: dict[str, int]
    """Verdict -> how many lives, records, places or marks."""
    findings: tuple[Finding, ...]
    """What is wrong, then what is unprovable; no more than were asked for."""

    @property
    def jobs(self) -> int:
        """How many lives of jobs were looked at and are right."""
        return sum(self.counts.get(verdict, 0) for verdict in RIGHT)

    @property
    def wrong(self) -> int:
        return sum(self.counts.get(verdict, 0) for verdict in WRONG)

    @property
    def unprovable(self) -> int:
        return self.counts.get(Verdict.UNPROVABLE, 0)

    @property
    def omitted(self) -> int:
        """How many of what was found are not among the findings."""
        return self.wrong + self.unprovable - len(self.findings)

    @property
    def exit_code(self) -> int:
        if self.wrong:
            return Exit.WRONG
        return Exit.UNPROVABLE if self.unprovable else Exit.NOTHING_LOST

    def sentence(self) -> str:
        """The verdict, for people."""
        right = self._counted(RIGHT)
        noun = "job is" if self.jobs == 1 else "jobs are"
        told = f"{self.jobs:,} {noun} right" + (f" ({right})" if right else "")
        if self.wrong:
            return f"something is wrong: {self._counted(WRONG)}; {told}"
        if self.unprovable:
            return f"not all can be proved: {self.unprovable:,} unprovable; {told}"
        return f"nothing lost: {told}" if self.jobs else "nothing lost, for there is no job at all"

    def _counted(self, verdicts: Sequence[Verdict]) -> str:
        return ", ".join(
            f"{self.counts[verdict]:,} {verdict}" for verdict in verdicts if self.counts.get(verdict)
        )


def audit(
    spark: "SparkSession",
    where: Where,
    events: "Callable[[], DataFrame]",
    *,
    since: datetime | None = None,
    has_strangers: bool = False,
    most: int = MOST_FINDINGS,
    retry_s: float = Reading.retry_s,
) -> Audit:
    """Hold a protocol's records against the events that `events` returns when it is called.

    It is called after the snapshot of the records was taken, and must then reach to the present.

    >>> audit(spark, where, lambda: live_events(spark, where)).sentence()              # doctest: +SKIP
    'nothing lost: 120 jobs are right (100 ended, 20 alive)'
    """
    with Visit(where, retry_s) as visit:
        queues = visit.queues()
        cut = _ends(visit, where, queues)
    snapshot = _snapshot(spark, where)
    listed = locations.places(spark, where, queues, retry_s).localCheckpoint()
    history = events().where((sf.col("protocol") == where.protocol_name) & sf.col("queue").isin(queues))
    judged = rules.judge(history, snapshot, cut, since=since, has_strangers=has_strangers)
    judged = judged.localCheckpoint()
    suspects = locations.odd(listed, snapshot, judged, queues).limit(locations.MOST_ODD)
    asked = [(row["queue"], row["job_id"]) for row in suspects.collect()]
    seen = [
        *_gaps(history, since),
        *locations.once(locations.look_closer(where, asked, retry_s), queues),
        *locations.once(locations.leaks(where, queues, retry_s), queues),
    ]
    return summed(where.protocol_name, queues, judged, seen, most)


def audit_lake(
    spark: "SparkSession", lake: "Lake", where: Where, catch_up: Callable[[], object], **more: Any
) -> Audit:
    """Hold a protocol's records against a lake; `catch_up` reads what the lake has not read yet."""

    def events() -> "DataFrame":
        catch_up()
        return lake.bronze(spark)

    return audit(spark, where, events, **more)


def audit_server(spark: "SparkSession", where: Where, **more: Any) -> Audit:
    """Hold a protocol's records against the events its server still has."""
    return audit(spark, where, partial(live_events, spark, where), **more)


def summed(
    protocol: str,
    queues: Sequence[str],
    judged: "DataFrame",
    seen: Sequence[Finding],
    most: int = MOST_FINDINGS,
) -> Audit:
    """The audit that verdicts on jobs (`rules.judge`) and findings besides them make."""
    counts = {row["verdict"]: row["count"] for row in judged.groupBy("verdict").count().collect()}
    bad = judged.where(sf.col("verdict").isin(*map(str, WRONG), str(Verdict.UNPROVABLE)))
    rows = bad.orderBy(sf.col("verdict") == str(Verdict.UNPROVABLE), "verdict", "queue", "job_id").limit(most)
    found = [
        Finding(
            Verdict(row["verdict"]), row["protocol"], row["queue"], row["job_id"], row["name"], row["detail"]
        )
        for row in rows.collect()
    ]
    # a record without a state shows among the records and among the places
    known = {(one.verdict, one.queue, one.job_id) for one in found}
    extra = [one for one in seen if one.job_id is None or (one.verdict, one.queue, one.job_id) not in known]
    for one in extra:
        counts[one.verdict] = counts.get(one.verdict, 0) + 1
    ordered = sorted([*extra, *found], key=lambda one: one.verdict is Verdict.UNPROVABLE)
    return Audit(protocol, tuple(queues), counts, tuple(ordered[:most]))


def live_events(spark: "SparkSession", where: Where) -> "DataFrame":
    """The events a server still has; what it has trimmed is a row of its own, as a reader's gap is."""
    reader = spark.read.format("corral").option("url", where.url).option("protocol", where.protocol_name)
    reader = reader.option("namespace", where.namespace).option("queue", where.queue)
    events = reader.option("failOnDataLoss", "false").load()
    rows = []
    with Visit(where, Reading.retry_s) as visit:
        for queue in visit.queues():
            extent = visit.ask(visit.events(queue).extent)
            gone, before = trimmed(extent), extent.first or extent.last or BEGINNING
            if gone:
                gap = Gap(queue, WhyGone.TRIMMED, gone, BEGINNING, before)
                rows += [tuple(row.values()) for row in gap_batch(gap, where.protocol_name).to_pylist()]
    # kept, because a server may have trimmed more before the second look
    return (events.unionByName(spark.createDataFrame(rows, EVENTS)) if rows else events).localCheckpoint()


def _snapshot(spark: "SparkSession", where: Where) -> "DataFrame":
    """The records as they are now; kept, because a second look would be at another moment."""
    return (
        snapshot_of(spark, where)
        .select("protocol", "queue", "job_id", "name", "state", "created_at")
        .localCheckpoint()
    )


def _ends(visit: Visit, where: Where, queues: Sequence[str]) -> Cut:
    ends = {queue: visit.ask(visit.events(queue).extent).last for queue in queues}
    return {(where.protocol_name, queue): last for queue, last in ends.items() if last is not None}


def _gaps(history: "DataFrame", since: datetime | None) -> list[Finding]:
    found = []
    for row in rules.gaps(history, since).collect():
        told = msgspec.json.decode(row["data"], type=dict[str, Any])
        gap = Gap(row["queue"], WhyGone(told["why"]), told["missing"], told["after"], told["before"])
        found.append(Finding(Verdict.UNPROVABLE, row["protocol"], row["queue"], None, None, gap.sentence()))
    return found
