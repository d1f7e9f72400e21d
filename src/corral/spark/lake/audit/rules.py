"""The rules of an audit: what the events tell of each job, held against its record; pure functions.

The snapshot is taken after the cut (the last event of each log just before it) and before the events are
read. So whatever happened up to the cut must show in the snapshot, and whatever a job went through while the
snapshot was taken is among the events.
"""

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from corral.core.event import EventKind
from corral.core.job import JobState
from corral.spark.lake import silver
from corral.spark.lake.audit.findings import Verdict
from corral.spark.schema import GAP

QUEUE = ("protocol", "queue")
LIVING = (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE)
SCHEDULED = "repeat:"
"""What the ids of scheduled jobs begin with, where a protocol has such."""
CLEANED = "cleaned"
"""A protocol's word for a sweep that deleted jobs by their age; it says how many, and not which."""

Cut = Mapping[tuple[str, str], str]
"""(protocol, queue) -> the id of the last event before the snapshot; no entry: no events yet."""


def judge(
    events: DataFrame,
    snapshot: DataFrame,
    cut: Cut,
    *,
    since: datetime | None = None,
    has_strangers: bool = False,
) -> DataFrame:
    """One row a life: protocol, queue, job_id, life, name, verdict, detail.

    `since` leaves out jobs that were added before; with `has_strangers` a record without events is right,
    because some clients of the protocol write none.

    >>> judge(events, snapshot, {("bullmq", "mail"): "1700000000000-0"}).show()         # doctest: +SKIP
    """
    told = _folded(events)
    records = snapshot.select(*silver.JOB, sf.col("name").alias("record_name"), "state", "created_at")
    if since is not None:
        told = told.where(sf.col("born_at") >= sf.lit(since))
        records = records.where(sf.col("created_at") >= sf.lit(since))
    # a record belongs to the last life of its id
    told = told.withColumn("_is_last", sf.col("life") == sf.max("life").over(Window.partitionBy(*silver.JOB)))
    records = records.withColumn("_is_last", sf.lit(True)).withColumn("has_record", sf.lit(True))
    both = told.join(records, [*silver.JOB, "_is_last"], "full_outer")
    both = both.join(_histories(events, since), list(QUEUE), "left").join(
        _cuts(events, cut), list(QUEUE), "left"
    )
    verdict = _verdict(has_strangers)
    return both.select(
        *silver.JOB,
        sf.coalesce("life", sf.lit(1)).alias("life"),
        sf.coalesce("name", "record_name").alias("name"),
        verdict["verdict"].alias("verdict"),
        verdict["detail"].alias("detail"),
    )


def gaps(events: DataFrame, since: datetime | None = None) -> DataFrame:
    """The rows that stand for events which were gone before they were read, those that matter since then."""
    found = events.where(sf.col("event") == GAP)
    return found if since is None else found.where(_gap_until() >= sf.lit(since))


# -- what the events tell -----------------------------------------------------------------------------------


def _folded(events: DataFrame) -> DataFrame:
    """One row a life: when it was born and last heard of, how it ended, and how often it did so wrongly."""
    told = silver.lives(events)
    in_life = Window.partitionBy(*silver.LIFE).orderBy("place")
    # an operator who puts an ended job back lets it end again; nothing else may
    landmark = sf.when(_is(*silver.ENDS, EventKind.WAITING), sf.col("event"))
    before = in_life.rowsBetween(Window.unboundedPreceding, -1)
    is_second_end = _is(*silver.ENDS) & sf.last(landmark, True).over(before).isin(*map(str, silver.ENDS))
    told = told.withColumn("_again", sf.coalesce(is_second_end, sf.lit(False)))
    is_end = _is(*silver.ENDS, *silver.REMOVED)
    made = told.groupBy(*silver.LIFE).agg(
        sf.first("name", True).alias("name"),
        sf.min("ts").alias("born_at"),
        sf.max_by("ts", "place").alias("last_at"),
        sf.max_by("event_id", "place").alias("_last_id"),
        sf.max_by("event", "place").alias("last_event"),
        sf.max(sf.when(is_end, sf.struct("place", "event", "ts", "event_id"))).alias("_end"),
        sf.max(sf.when(_is(*silver.OPENING), sf.col("place"))).alias("_opened"),
        sf.sum(sf.col("_again").cast("int")).alias("again"),
        sf.sum(_is(*silver.ENDS).cast("int")).alias("ends"),
        sf.sum(_is(EventKind.ACTIVE).cast("int")).alias("starts"),
    )
    is_over = sf.col("_end").isNotNull() & (
        sf.col("_opened").isNull() | (sf.col("_opened") < sf.col("_end.place"))
    )
    return made.select(
        *silver.LIFE,
        "name",
        "born_at",
        "last_at",
        "last_event",
        _key(sf.col("_last_id")).alias("last_key"),
        sf.when(is_over, sf.col("_end.event")).alias("outcome"),
        sf.when(is_over, sf.col("_end.ts")).alias("ended_at"),
        sf.when(is_over, _key(sf.col("_end.event_id"))).alias("end_key"),
        "again",
        "ends",
        "starts",
    )


def _histories(events: DataFrame, since: datetime | None) -> DataFrame:
    """One row a queue: since when events are known, until when some are missing, the last clean."""
    is_gap = sf.col("event") == GAP
    has_cleaned = _is(CLEANED) & (sf.get_json_object("data", "$.count").cast("long") > 0)
    known = events.groupBy(*QUEUE).agg(
        sf.min(sf.when(~is_gap, sf.col("ts"))).alias("history_from"),
        sf.max(sf.when(is_gap, _gap_until())).alias("gap_until"),
        sf.max(sf.when(has_cleaned, sf.col("ts"))).alias("cleaned_at"),
    )
    if since is None:
        return known
    matters = sf.when(sf.col("gap_until") >= sf.lit(since), sf.col("gap_until"))
    return known.withColumn("gap_until", matters)


def _gap_until() -> Column:
    """The time of the first event after a gap; to the next millisecond, for it may be one of many there."""
    before = sf.get_json_object("data", "$.before")
    return sf.timestamp_millis(sf.split(before, "-")[0].cast("long") + 1)


def _cuts(events: DataFrame, cut: Cut) -> DataFrame:
    rows = []
    for (protocol, queue), event_id in sorted(cut.items()):
        milliseconds, _, sequence = event_id.partition("-")
        rows.append((protocol, queue, milliseconds, sequence or "0"))
    texts = events.sparkSession.createDataFrame(rows, "protocol string, queue string, ms string, seq string")
    key = sf.struct(sf.col("ms").cast("long"), sf.col("seq").cast("decimal(20,0)"))
    return sf.broadcast(texts.select(*QUEUE, key.alias("cut")))


def _key(event_id: Column) -> Column:
    parts = sf.split(event_id, "-")
    return sf.struct(parts[0].cast("long"), parts[1].cast("decimal(20,0)"))


def _is(*kinds: str) -> Column:
    return sf.col("event").isin(*map(str, kinds))


# -- what follows -------------------------------------------------------------------------------------------


def _verdict(has_strangers: bool) -> Column:
    """The first rule that fits."""
    has_record, has_story = sf.coalesce("has_record", sf.lit(False)), sf.col("life").isNotNull()
    is_over = sf.col("outcome").isNotNull()
    is_living = sf.col("state").isin(*map(str, LIVING))
    is_settled = _until_cut("last_key")
    disagrees = has_record & is_over & (sf.col("outcome") != sf.col("state")) & _until_cut("end_key")
    return (
        sf.when(
            sf.col("again") > 0,
            _say(Verdict.DOUBLED, sf.format_string("ended %d times in one life", "ends")),
        )
        .when(has_record & ~has_story, _untold(has_strangers))
        .when(
            has_record & sf.col("state").isNull() & is_settled,
            _say(Verdict.ORPHANED, sf.lit("has a record, and is in no state")),
        )
        .when(
            disagrees,
            _unless_missing(
                "ended_at",
                Verdict.CONTRADICTED,
                sf.format_string("ended as %s, and stands as %s", "outcome", "state"),
            ),
        )
        .when(is_over | (has_record & ~is_living & sf.col("state").isNotNull()), _say(Verdict.ENDED))
        .when(has_record & is_living, _say(Verdict.ALIVE))
        .when(~is_settled & sf.col("_is_last"), _say(Verdict.MOVING))
        .when(_is_made_anew(), _say(Verdict.ENDED))
        .otherwise(_gone())
    )


def _is_made_anew() -> Column:
    """A scheduler that is given other ways takes its next job back and adds it again, without a word."""
    return ~sf.col("_is_last") & (sf.col("starts") == 0) & sf.col("job_id").startswith(SCHEDULED)


def _untold(has_strangers: bool) -> Column:
    """Of a record that no event tells of."""
    early = sf.col("history_from").isNull() | (sf.col("created_at") < sf.col("history_from"))
    told = sf.lit("is there, and no event tells of it")
    fine = _say(Verdict.UNTOLD) if has_strangers else _unless_missing("created_at", Verdict.ORPHANED, told)
    return (
        sf.when(sf.col("state").isNull(), _say(Verdict.ORPHANED, sf.lit("has a record, and is in no state")))
        .when(early, _say(Verdict.UNPROVABLE, sf.lit("was there before the history begins")))
        .otherwise(fine)
    )


def _gone() -> Column:
    """Of a job that has not ended, and has no record."""
    at = sf.date_format("last_at", "yyyy-MM-dd HH:mm:ss.SSS'Z'")
    told = sf.concat(sf.lit("last heard of as "), sf.col("last_event"), sf.lit(" at "), at)
    again = sf.concat(told, sf.lit("; its id was added again since"))
    swept = sf.concat(told, sf.lit("; its queue was cleaned since then, which may have deleted it"))
    lost = _unless_missing("last_at", Verdict.LOST, sf.when(sf.col("_is_last"), told).otherwise(again))
    return sf.when(sf.col("cleaned_at") >= sf.col("last_at"), _say(Verdict.UNPROVABLE, swept)).otherwise(lost)


def _unless_missing(since: str, verdict: Verdict, detail: Column) -> Column:
    """The verdict, where no event after that time is missing; else it cannot be proved."""
    told = sf.concat(detail, sf.lit("; events since then are missing"))
    return sf.when(sf.col("gap_until") >= sf.col(since), _say(Verdict.UNPROVABLE, told)).otherwise(
        _say(verdict, detail)
    )


def _until_cut(key: str) -> Column:
    return sf.coalesce(sf.col(key) <= sf.col("cut"), sf.lit(False))


def _say(verdict: Verdict, detail: Column | None = None) -> Column:
    told = sf.lit(None).cast("string") if detail is None else detail
    return sf.struct(sf.lit(str(verdict)).alias("verdict"), told.alias("detail"))
