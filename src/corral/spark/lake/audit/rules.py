"""The rules of an audit: the events of each job compared with its record; pure functions of DataFrames.

The snapshot is taken after the cut (the last event of each log just before it) and before the events are
read. So everything that happened up to the cut must show in the snapshot, and everything that a job went
through while the snapshot was taken is among the events.
"""

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from corral.core.event import EventKind
from corral.core.job import JobState
from corral.spark.lake import silver
from corral.spark.lake.audit.findings import AuditVerdict
from corral.spark.lake.silver import ENDS, GENERATION, JOB, REMOVED, is_kind
from corral.spark.schema import GAP

QUEUE = ("protocol", "queue")
LIVING = (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE)
SCHEDULED = "repeat:"
"""The beginning of the ids of scheduled jobs, in a protocol that has such ids."""
CLEANED = "cleaned"
"""A protocol's event for jobs that were deleted by their age; it has how many, and not which."""

Cut = Mapping[tuple[str, str], str]
"""(protocol, queue) -> the id of the last event before the snapshot; no entry: no events yet."""


def judge(
    events: DataFrame,
    records: DataFrame,
    cut: Cut,
    *,
    since: datetime | None = None,
    has_foreign_clients: bool = False,
) -> DataFrame:
    """Return one row per generation of a job: protocol, queue, job_id, generation, name, verdict, detail.

    `since` leaves out jobs that were added before; with `has_foreign_clients` a record without events is
    right, because some clients of the protocol write none.
    """
    jobs = _folded(events)
    records = records.select(*JOB, sf.col("name").alias("record_name"), "state", "created_at")
    if since is not None:
        jobs = jobs.where(sf.col("first_at") >= sf.lit(since))
        records = records.where(sf.col("created_at") >= sf.lit(since))
    # a record belongs to the last generation of its id
    last = sf.max("generation").over(Window.partitionBy(*JOB))
    jobs = jobs.withColumn("_is_last", sf.col("generation") == last)
    records = records.withColumn("_is_last", sf.lit(True)).withColumn("has_record", sf.lit(True))
    both = (
        jobs.join(records, [*JOB, "_is_last"], "full_outer")
        .join(_queue_histories(events, since), list(QUEUE), "left")
        .join(_cuts(events, cut), list(QUEUE), "left")
    )
    verdict = _verdict(has_foreign_clients)
    return both.select(
        *JOB,
        sf.coalesce("generation", sf.lit(1)).alias("generation"),
        sf.coalesce("name", "record_name").alias("name"),
        verdict["verdict"].alias("verdict"),
        verdict["detail"].alias("detail"),
    )


def gaps(events: DataFrame, since: datetime | None = None) -> DataFrame:
    """Return the rows of gaps; with `since`, those that hide events after that time."""
    rows = events.where(sf.col("event") == GAP)
    return rows if since is None else rows.where(_gap_until() >= sf.lit(since))


def _folded(events: DataFrame) -> DataFrame:
    """Return one row per generation: its first and last event, its end, and how often it ended again."""
    # an operator who puts an ended job back lets it end again; nothing else may
    in_order = Window.partitionBy(*GENERATION).orderBy("number")
    went_on = (sf.col("previous") == "active") | (sf.lead("event").over(in_order) == EventKind.STALLED)
    was_put_back = is_kind(EventKind.WAITING) & ~sf.coalesce(went_on, sf.lit(False))
    landmark = sf.when(is_kind(*ENDS) | was_put_back, sf.col("event"))
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    is_second_end = is_kind(*ENDS) & sf.last("_landmark", True).over(before).isin(*map(str, ENDS))
    end = sf.when(is_kind(*ENDS, *REMOVED), sf.struct("number", "event", "ts", "event_id"))
    folded = (
        silver.job_events(events)
        .withColumn("_landmark", landmark)
        .withColumn("_again", sf.coalesce(is_second_end, sf.lit(False)))
        .groupBy(*GENERATION)
        .agg(
            sf.first("name", True).alias("name"),
            sf.min("ts").alias("first_at"),
            sf.max_by("ts", "number").alias("last_at"),
            sf.max_by("event_id", "number").alias("_last_id"),
            sf.max_by("event", "number").alias("last_event"),
            sf.max(end).alias("_end"),
            silver.last_opening().alias("_opened"),
            sf.count_if("_again").alias("again"),
            sf.count_if(is_kind(*ENDS)).alias("ends"),
            sf.count_if(is_kind(EventKind.ACTIVE)).alias("starts"),
        )
    )
    is_over = silver.has_ended()
    return folded.select(
        *(*GENERATION, "name", "first_at", "last_at", "last_event", "again", "ends", "starts"),
        _key(sf.col("_last_id")).alias("last_key"),
        sf.when(is_over, sf.col("_end.event")).alias("outcome"),
        sf.when(is_over, sf.col("_end.ts")).alias("ended_at"),
        sf.when(is_over, _key(sf.col("_end.event_id"))).alias("end_key"),
    )


def _queue_histories(events: DataFrame, since: datetime | None) -> DataFrame:
    """Return one row per queue: since when events are known, until when some are missing, the last clean."""
    is_gap = sf.col("event") == GAP
    has_cleaned = is_kind(CLEANED) & (sf.get_json_object("data", "$.count").cast("long") > 0)
    histories = events.groupBy(*QUEUE).agg(
        sf.min(sf.when(~is_gap, sf.col("ts"))).alias("history_from"),
        sf.max(sf.when(is_gap, _gap_until())).alias("gap_until"),
        sf.max(sf.when(has_cleaned, sf.col("ts"))).alias("cleaned_at"),
    )
    if since is None:
        return histories
    relevant = sf.when(sf.col("gap_until") >= sf.lit(since), sf.col("gap_until"))
    return histories.withColumn("gap_until", relevant)


def _gap_until() -> Column:
    """The time of the first event after a gap, plus a millisecond: it may be one of many of that time."""
    before = sf.get_json_object("data", "$.before")
    return sf.timestamp_millis(sf.split(before, "-")[0].cast("long") + 1)


def _cuts(events: DataFrame, cut: Cut) -> DataFrame:
    rows = [(protocol, queue, event_id) for (protocol, queue), event_id in sorted(cut.items())]
    ids = events.sparkSession.createDataFrame(rows, "protocol string, queue string, event_id string")
    return sf.broadcast(ids.select(*QUEUE, _key(sf.col("event_id")).alias("cut")))


def _key(event_id: Column) -> Column:
    parts = sf.split(event_id, "-")
    return sf.struct(parts[0].cast("long"), parts[1].cast("decimal(20,0)"))


def _verdict(has_foreign_clients: bool) -> Column:
    """The first rule that applies."""
    has_record, has_events = sf.coalesce("has_record", sf.lit(False)), sf.col("generation").isNotNull()
    is_over = sf.col("outcome").isNotNull()
    is_living = sf.col("state").isin(*map(str, LIVING))
    is_settled = _until_cut("last_key")
    disagrees = has_record & is_over & (sf.col("outcome") != sf.col("state")) & _until_cut("end_key")
    stateless = _say(AuditVerdict.ORPHANED, sf.lit("has a record, and is in no state"))
    doubled = _say(AuditVerdict.DOUBLED, sf.format_string("ended %d times in one generation", "ends"))
    contradiction = sf.format_string("ended as %s, and stands as %s", "outcome", "state")
    return (
        sf.when(sf.col("again") > 0, doubled)
        .when(has_record & ~has_events & sf.col("state").isNull(), stateless)
        .when(has_record & ~has_events, _eventless(has_foreign_clients))
        .when(has_record & sf.col("state").isNull() & is_settled, stateless)
        .when(disagrees, _unless_missing("ended_at", AuditVerdict.CONTRADICTED, contradiction))
        .when(is_over | (has_record & ~is_living & sf.col("state").isNotNull()), _say(AuditVerdict.ENDED))
        .when(has_record & is_living, _say(AuditVerdict.ALIVE))
        .when(~is_settled & sf.col("_is_last"), _say(AuditVerdict.MOVING))
        .when(_is_replaced(), _say(AuditVerdict.ENDED))
        .otherwise(_gone())
    )


def _is_replaced() -> Column:
    """A scheduler that is changed deletes its next job and adds it again, without an event."""
    return ~sf.col("_is_last") & (sf.col("starts") == 0) & sf.col("job_id").startswith(SCHEDULED)


def _eventless(has_foreign_clients: bool) -> Column:
    """The verdict on a record without events."""
    early = sf.col("history_from").isNull() | (sf.col("created_at") < sf.col("history_from"))
    orphaned = _unless_missing("created_at", AuditVerdict.ORPHANED, sf.lit("exists, and has no events"))
    return sf.when(early, _say(AuditVerdict.UNPROVABLE, sf.lit("is older than the history"))).otherwise(
        _say(AuditVerdict.EVENTLESS) if has_foreign_clients else orphaned
    )


def _gone() -> Column:
    """The verdict on a job that has not ended and has no record."""
    at = sf.date_format("last_at", "yyyy-MM-dd HH:mm:ss.SSS'Z'")
    last = sf.concat(sf.lit("its last event is "), sf.col("last_event"), sf.lit(" at "), at)
    again = sf.concat(last, sf.lit("; its id was added again since"))
    cleaned = sf.concat(last, sf.lit("; its queue was cleaned since then, which may have deleted it"))
    lost = _unless_missing("last_at", AuditVerdict.LOST, sf.when(sf.col("_is_last"), last).otherwise(again))
    return sf.when(
        sf.col("cleaned_at") >= sf.col("last_at"), _say(AuditVerdict.UNPROVABLE, cleaned)
    ).otherwise(lost)


def _unless_missing(since: str, verdict: AuditVerdict, detail: Column) -> Column:
    """The verdict, where no event after that time is missing; else `unprovable`."""
    missing = sf.concat(detail, sf.lit("; events since then are missing"))
    return sf.when(sf.col("gap_until") >= sf.col(since), _say(AuditVerdict.UNPROVABLE, missing)).otherwise(
        _say(verdict, detail)
    )


def _until_cut(key: str) -> Column:
    return sf.coalesce(sf.col(key) <= sf.col("cut"), sf.lit(False))


def _say(verdict: AuditVerdict, detail: Column | None = None) -> Column:
    detail = sf.lit(None).cast("string") if detail is None else detail
    return sf.struct(sf.lit(str(verdict)).alias("verdict"), detail.alias("detail"))
