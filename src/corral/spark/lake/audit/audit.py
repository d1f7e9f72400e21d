"""The audit: whether every job that was added has one end, or is in exactly one state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from corral.spark.client import QueueClient
from corral.spark.events import gap_batch
from corral.spark.lake.audit import locations, rules
from corral.spark.lake.audit.findings import RIGHT, WRONG, AuditExit, AuditFinding, AuditVerdict
from corral.spark.lake.ingest import read_jobs
from corral.spark.lake.tables import Lake
from corral.spark.offsets import BEGINNING, Gap, GapCause, trimmed
from corral.spark.options import EventReadOptions, QueueAddress
from corral.spark.schema import EVENTS

MAX_FINDINGS = 1000


@dataclass(frozen=True)
class Audit:
    """The result of an audit."""

    protocol: str
    queues: tuple[str, ...]
    counts: dict[str, int]
    """Verdict -> how many generations of jobs, records, lists or marks."""
    findings: tuple[AuditFinding, ...]
    """What is wrong, then what is unprovable; at most the limit."""

    @property
    def jobs(self) -> int:
        """How many generations of jobs are right."""
        return sum(self.counts.get(verdict, 0) for verdict in RIGHT)

    @property
    def wrong(self) -> int:
        return sum(self.counts.get(verdict, 0) for verdict in WRONG)

    @property
    def unprovable(self) -> int:
        return self.counts.get(AuditVerdict.UNPROVABLE, 0)

    @property
    def omitted(self) -> int:
        """How many more findings there are."""
        return self.wrong + self.unprovable - len(self.findings)

    @property
    def exit_code(self) -> int:
        if self.wrong:
            return AuditExit.WRONG
        return AuditExit.UNPROVABLE if self.unprovable else AuditExit.NOTHING_LOST

    def sentence(self) -> str:
        """Return the result in words."""
        noun, right = "job is" if self.jobs == 1 else "jobs are", self._counted(RIGHT)
        summary = f"{self.jobs:,} {noun} right" + (f" ({right})" if right else "")
        if self.wrong:
            return f"something is wrong: {self._counted(WRONG)}; {summary}"
        if self.unprovable:
            return f"not all can be proved: {self.unprovable:,} unprovable; {summary}"
        return f"nothing lost: {summary}" if self.jobs else "nothing lost, for there is no job at all"

    def _counted(self, verdicts: Sequence[AuditVerdict]) -> str:
        counts = ((self.counts.get(verdict), verdict) for verdict in verdicts)
        return ", ".join(f"{count:,} {verdict}" for count, verdict in counts if count)


def audit(
    spark: SparkSession,
    address: QueueAddress,
    events: Callable[[], DataFrame],
    *,
    since: datetime | None = None,
    has_foreign_clients: bool = False,
    limit: int = MAX_FINDINGS,
    retry_s: float = EventReadOptions.retry_s,
) -> Audit:
    """Compare a protocol's records with the events that `events` returns.

    `events` is called after the snapshot of the records was taken, and must then reach to the present.

    >>> audit(spark, address, lambda: live_events(spark, address)).sentence()          # doctest: +SKIP
    'nothing lost: 120 jobs are right (100 ended, 20 alive)'
    """
    with QueueClient(address, retry_s) as client:
        queues = client.queues()
        ends = {queue: client.call(client.ports(queue).events.extent).last for queue in queues}
    cut = {(address.protocol_name, queue): last for queue, last in ends.items() if last is not None}
    # a checkpoint each, because a second read would be of another moment
    records = (
        read_jobs(spark, address)
        .select("protocol", "queue", "job_id", "name", "state", "created_at")
        .localCheckpoint()
    )
    listed = locations.listed_jobs(spark, address, queues, retry_s).localCheckpoint()
    history = events().where((sf.col("protocol") == address.protocol_name) & sf.col("queue").isin(queues))
    judged = rules.judge(
        history, records, cut, since=since, has_foreign_clients=has_foreign_clients
    ).localCheckpoint()
    suspects = locations.suspects(listed, records, judged, queues).limit(locations.MAX_SUSPECTS)
    ids = [(row["queue"], row["job_id"]) for row in suspects.collect()]
    findings = [
        *_gaps(history, since),
        *locations.without_shared(locations.misplaced(address, ids, retry_s), queues),
        *locations.without_shared(locations.leaks(address, queues, retry_s), queues),
    ]
    return summarize(address.protocol_name, queues, judged, findings, limit)


def audit_lake(
    spark: SparkSession,
    lake: Lake,
    address: QueueAddress,
    catch_up: Callable[[], object],
    **options: Any,
) -> Audit:
    """Compare a protocol's records with a lake; `catch_up` reads what the lake has not read yet."""

    def events() -> DataFrame:
        catch_up()
        return lake.bronze(spark)

    return audit(spark, address, events, **options)


def audit_server(spark: SparkSession, address: QueueAddress, **options: Any) -> Audit:
    """Compare a protocol's records with the events its server still has."""
    return audit(spark, address, lambda: live_events(spark, address), **options)


def summarize(
    protocol: str,
    queues: Sequence[str],
    judged: DataFrame,
    findings: Sequence[AuditFinding],
    limit: int = MAX_FINDINGS,
) -> Audit:
    """Return the audit made of the verdicts on jobs (`rules.judge`) and of other findings."""
    counts = {row["verdict"]: row["count"] for row in judged.groupBy("verdict").count().collect()}
    is_unprovable = sf.col("verdict") == str(AuditVerdict.UNPROVABLE)
    bad = judged.where(sf.col("verdict").isin(*map(str, WRONG)) | is_unprovable)
    columns = ("protocol", "queue", "job_id", "name", "detail")
    on_jobs = [
        AuditFinding(AuditVerdict(row["verdict"]), *[row[column] for column in columns])
        for row in bad.orderBy(is_unprovable, "verdict", "queue", "job_id").limit(limit).collect()
    ]
    # a record without a state is found among the records and among the lists
    reported = {(one.verdict, one.queue, one.job_id) for one in on_jobs}
    others = [
        one for one in findings if one.job_id is None or (one.verdict, one.queue, one.job_id) not in reported
    ]
    for one in others:
        counts[one.verdict] = counts.get(one.verdict, 0) + 1
    ordered = sorted([*others, *on_jobs], key=lambda one: one.verdict is AuditVerdict.UNPROVABLE)
    return Audit(protocol, tuple(queues), counts, tuple(ordered[:limit]))


def live_events(spark: SparkSession, address: QueueAddress) -> DataFrame:
    """Return the events a server still has; those it has trimmed are a row, like a reader's gap."""
    events = spark.read.format("corral").options(**address.as_options(), failOnDataLoss="false").load()
    rows = []
    with QueueClient(address, EventReadOptions.retry_s) as client:
        for queue in client.queues():
            extent = client.call(client.ports(queue).events.extent)
            gone, before = trimmed(extent), extent.first or extent.last or BEGINNING
            if gone:
                gap = Gap(queue, GapCause.TRIMMED, gone, BEGINNING, before)
                rows += [tuple(row.values()) for row in gap_batch(gap, address.protocol_name).to_pylist()]
    # a checkpoint, because a server may have trimmed more before a second read
    return (events.unionByName(spark.createDataFrame(rows, EVENTS)) if rows else events).localCheckpoint()


def _gaps(history: DataFrame, since: datetime | None) -> list[AuditFinding]:
    findings = []
    for row in rules.gaps(history, since).collect():
        gap = msgspec.json.decode(row["data"], type=dict[str, Any])
        sentence = Gap(row["queue"], GapCause(gap.pop("why")), **gap).sentence()
        findings.append(
            AuditFinding(AuditVerdict.UNPROVABLE, row["protocol"], row["queue"], None, None, sentence)
        )
    return findings
