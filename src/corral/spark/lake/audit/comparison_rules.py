"""What is measured of two sides, and how they are laid side by side: pure functions of DataFrames."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from corral.spark.lake import silver
from corral.spark.schema import GAP, JOBS

ALL_JOBS = "all jobs"
UNNAMED = "jobs without a name"
SIDES = ("a", "b")
FIGURE = ("order", "place", "subject", "measure", "a", "b", "is_time")
OUTCOMES = ("completed", "dead", "cancelled", "removed", "expired", "alive")
RECORD = ("state", "priority", "delay", "data", "result", "reason", "options")
TOLD = ("outcome", "attempts", "stalls", "reason")


def lives(events: DataFrame) -> DataFrame:
    """The last life of each job: what it is compared by."""
    found = silver.jobs(events)
    last = sf.col("life") == sf.max("life").over(Window.partitionBy(*silver.JOB))
    return found.withColumn("_is_last", last).where("_is_last").drop("_is_last")


def figures(a: DataFrame, b: DataFrame) -> DataFrame:
    """Counts, rates, attempts and times, of all jobs and by name: one row a figure."""
    subjects = sf.array(sf.lit(ALL_JOBS), sf.coalesce("name", sf.lit(UNNAMED)))
    spread = _sided(a, b).withColumn("subject", sf.explode(subjects))
    measured = spread.groupBy("subject", "side").agg(*_measures())
    order = sf.when(sf.col("subject") == ALL_JOBS, 0).otherwise(1)
    return _beside(measured, order)


def kinds(a: DataFrame, b: DataFrame) -> DataFrame:
    """How often each kind of event was told, and with which fields."""
    told = _sided(a, b).where(sf.col("event") != GAP)
    fields = sf.concat_ws(
        " ",
        sf.when(sf.col("previous").isNotNull(), sf.concat(sf.lit("previous="), sf.col("previous"))),
        sf.when(sf.col("attempt").isNotNull(), sf.lit("attempt")),
        sf.when(sf.col("name").isNotNull(), sf.lit("name")),
        sf.when(sf.col("data").isNotNull(), shape(sf.col("data"))),
    )
    subject = sf.concat(sf.lit("event "), sf.col("event")).alias("subject")
    measured = told.groupBy(subject, "side").agg(
        sf.count("*").cast("string").alias("count"), _set(fields).alias("fields")
    )
    return _beside(measured, sf.lit(2))


def formats(a: DataFrame, b: DataFrame) -> DataFrame:
    """How many records there are of each name, in which states, and what their data and results look like."""
    records = _sided(a.select(*JOBS.fieldNames()), b.select(*JOBS.fieldNames()))
    states = sf.sort_array(sf.collect_list(sf.coalesce("state", sf.lit("none"))))
    counted = sf.transform(
        sf.array_distinct(states),
        lambda state: sf.concat(
            state, sf.lit(" "), sf.size(sf.filter(states, lambda one: one == state)).cast("string")
        ),
    )
    subject = sf.concat(sf.lit("records of "), sf.coalesce("name", sf.lit(UNNAMED))).alias("subject")
    measured = records.groupBy(subject, "side").agg(
        sf.array_join(counted, ", ").alias("states"),
        _set(shape(sf.col("data"))).alias("format of data"),
        _set(shape(sf.col("result"))).alias("format of results"),
        _set(shape(sf.col("progress"))).alias("format of progress"),
    )
    return _beside(measured, sf.lit(3))


def shape(json: Column) -> Column:
    """What a JSON text looks like: an object's field names, or the type of anything else."""
    first = sf.substring(json, 1, 1)
    keys = sf.array_join(sf.sort_array(sf.json_object_keys(json)), ", ")
    return (
        sf.when(json.isNull(), sf.lit(None).cast("string"))
        .when(first == "{", sf.concat(sf.lit("{"), sf.coalesce(keys, sf.lit("…")), sf.lit("}")))
        .when(first == "[", "array")
        .when(first == '"', "text")
        .when(first.isin("t", "f"), "boolean")
        .when(first == "n", "null")
        .otherwise("number")
    )


def pairs(
    a: DataFrame, b: DataFrame, records_a: DataFrame | None, records_b: DataFrame | None, is_by_queue: bool
) -> DataFrame:
    """One row an id (of a queue, where there are several): what either side tells and records of it."""
    key = sf.concat_ws("/", *(["queue", "job_id"] if is_by_queue else ["job_id"])).alias("key")
    first, second = _known(a, records_a, key, "a"), _known(b, records_b, key, "b")
    return first.join(second, "key", "full_outer").select(
        sf.col("key").alias("job_id"),
        "told_a",
        "told_b",
        sf.coalesce("is_in_a", sf.lit(False)).alias("in_a"),
        sf.coalesce("is_in_b", sf.lit(False)).alias("in_b"),
    )


def apart(pairs: DataFrame) -> DataFrame:
    """One row a difference between the two jobs of an id: job_id, subject, measure, a, b."""
    measures = sf.array_sort(
        sf.array_union(
            sf.coalesce(sf.map_keys("told_a"), sf.array()), sf.coalesce(sf.map_keys("told_b"), sf.array())
        )
    )
    each = pairs.select(
        "job_id", "in_a", "in_b", "told_a", "told_b", sf.explode_outer(measures).alias("measure")
    )
    both = each.where("in_a AND in_b").select(
        "job_id",
        "measure",
        sf.try_element_at("told_a", sf.col("measure")).alias("a"),
        sf.try_element_at("told_b", sf.col("measure")).alias("b"),
    )
    one = pairs.where("NOT (in_a AND in_b)").select(
        "job_id",
        sf.lit("presence").alias("measure"),
        sf.when(sf.col("in_a"), "there").alias("a"),
        sf.when(sf.col("in_b"), "there").alias("b"),
    )
    unlike = both.where(~sf.col("a").eqNullSafe(sf.col("b"))).unionByName(one)
    return unlike.withColumn("subject", sf.concat(sf.lit("job "), sf.col("job_id")))


# -- helpers ------------------------------------------------------------------------------------------------


def _sided(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.withColumn("side", sf.lit("a")).unionByName(b.withColumn("side", sf.lit("b")))


def _measures() -> list[Column]:
    over = _count("completed") + _count("dead")
    rate = sf.when(over > 0, _count("dead") / over)
    counts = [_count(outcome).cast("string").alias(outcome) for outcome in OUTCOMES]
    times = [
        sf.round(sf.percentile(f"{what}_ms", share)).cast("long").cast("string").alias(f"{what} {name} ms")
        for what in ("waited", "ran")
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    ]
    return [
        sf.count("*").cast("string").alias("jobs"),
        *counts,
        sf.format_number(rate * 100, 2).alias("error rate %"),
        sf.format_number(sf.avg("attempts"), 2).alias("attempts per job"),
        sf.sum("stalls").cast("string").alias("stalls"),
        *times,
    ]


def _count(outcome: str) -> Column:
    return sf.sum(sf.when(sf.col("outcome") == outcome, 1).otherwise(0))


def _set(column: Column) -> Column:
    return sf.array_join(sf.sort_array(sf.collect_set(column)), " | ")


def _beside(measured: DataFrame, order: Column) -> DataFrame:
    """One row a figure, both sides in it; `measured` has a subject, a side and a column for each figure."""
    names = [name for name in measured.columns if name not in ("subject", "side")]
    rows = sf.array(
        *[
            sf.struct(
                sf.lit(place).alias("place"),
                sf.lit(name).alias("measure"),
                sf.col(f"`{name}`").alias("value"),
                sf.lit(name.endswith(" ms")).alias("is_time"),
            )
            for place, name in enumerate(names)
        ]
    )
    flat = measured.select(order.alias("order"), "subject", "side", sf.inline(rows))
    keys = [name for name in FIGURE if name not in SIDES]
    sides = [sf.max(sf.when(sf.col("side") == side, sf.col("value"))).alias(side) for side in SIDES]
    return flat.groupBy(*keys).agg(*sides).select(*FIGURE)


def _known(told: DataFrame, records: DataFrame | None, key: Column, side: str) -> DataFrame:
    """One row an id: a map of what is told and recorded of its job."""
    known = told.select(key, _map(TOLD, "").alias("_told"))
    if records is not None:
        kept = records.select(key, _map(RECORD, "record's ").alias("_kept"))
        known = known.join(kept, "key", "full_outer")
    else:
        known = known.withColumn("_kept", sf.lit(None).cast("map<string,string>"))
    empty = sf.create_map().cast("map<string,string>")
    whole = sf.map_concat(sf.coalesce("_told", empty), sf.coalesce("_kept", empty))
    return known.select("key", whole.alias(f"told_{side}"), sf.lit(True).alias(f"is_in_{side}"))


def _map(names: tuple[str, ...], prefix: str) -> Column:
    entries = [part for name in names for part in (sf.lit(f"{prefix}{name}"), sf.col(name).cast("string"))]
    return sf.create_map(*entries)
