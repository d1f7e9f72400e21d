"""The figures of a comparison, and the differences between jobs; pure functions of DataFrames."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from corral.spark.lake import silver
from corral.spark.lake.gold import QUANTILES, count_outcome
from corral.spark.schema import GAP, JOBS

ALL_JOBS = "all jobs"
UNNAMED = "jobs without a name"
SIDES = ("a", "b")
FIGURE = ("order", "number", "subject", "measure", "a", "b", "is_time")
OUTCOMES = ("completed", "dead", "cancelled", "removed", "expired", "alive")
RECORD_FIELDS = ("state", "priority", "delay", "data", "result", "reason", "options")
EVENT_FIELDS = ("outcome", "attempts", "stalls", "reason")


def last_generations(events: DataFrame) -> DataFrame:
    """Return the last generation of each job: what it is compared by."""
    last = sf.max("generation").over(Window.partitionBy(*silver.JOB))
    jobs = silver.jobs(events).withColumn("_last", last)
    return jobs.where("generation = _last").drop("_last")


def figures(a: DataFrame, b: DataFrame) -> DataFrame:
    """Return counts, rates, attempts and times, of all jobs and by name: one row per figure."""
    subjects = sf.array(sf.lit(ALL_JOBS), sf.coalesce("name", sf.lit(UNNAMED)))
    measured = (
        _sided(a, b).withColumn("subject", sf.explode(subjects)).groupBy("subject", "side").agg(*_measures())
    )
    return _side_by_side(measured, sf.when(sf.col("subject") == ALL_JOBS, 0).otherwise(1))


def kinds(a: DataFrame, b: DataFrame) -> DataFrame:
    """Return how many events of each kind there are, and their fields."""
    events = _sided(a, b).where(sf.col("event") != GAP)
    fields = sf.concat_ws(
        " ",
        sf.when(sf.col("previous").isNotNull(), sf.concat(sf.lit("previous="), sf.col("previous"))),
        sf.when(sf.col("attempt").isNotNull(), sf.lit("attempt")),
        sf.when(sf.col("name").isNotNull(), sf.lit("name")),
        sf.when(sf.col("data").isNotNull(), shape(sf.col("data"))),
    )
    subject = sf.concat(sf.lit("event "), sf.col("event")).alias("subject")
    measured = events.groupBy(subject, "side").agg(
        sf.count("*").cast("string").alias("count"), _set(fields).alias("fields")
    )
    return _side_by_side(measured, sf.lit(2))


def formats(a: DataFrame, b: DataFrame) -> DataFrame:
    """Return how many records of each name there are, in which states, and the shape of data and results."""
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
    return _side_by_side(measured, sf.lit(3))


def shape(json: Column) -> Column:
    """Return the shape of a JSON text: an object's field names, or the type of anything else."""
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
    a: DataFrame, b: DataFrame, records_a: DataFrame | None, records_b: DataFrame | None, by_queue: bool
) -> DataFrame:
    """Return one row per id (of a queue, where `by_queue`): the fields of the job on either side."""
    key = sf.concat_ws("/", *(["queue", "job_id"] if by_queue else ["job_id"])).alias("key")
    first, second = _fields(a, records_a, key, "a"), _fields(b, records_b, key, "b")
    return first.join(second, "key", "full_outer").select(
        sf.col("key").alias("job_id"),
        "fields_a",
        "fields_b",
        sf.col("fields_a").isNotNull().alias("in_a"),
        sf.col("fields_b").isNotNull().alias("in_b"),
    )


def differences(pairs: DataFrame) -> DataFrame:
    """Return one row per difference between the two jobs of an id: job_id, subject, measure, a, b."""
    names = sf.array_union(*[sf.coalesce(sf.map_keys(f"fields_{side}"), sf.array()) for side in SIDES])
    shared = pairs.where("in_a AND in_b").withColumn("measure", sf.explode(names))
    values = [sf.try_element_at(f"fields_{side}", sf.col("measure")).alias(side) for side in SIDES]
    unlike = shared.select("job_id", "measure", *values).where(~sf.col("a").eqNullSafe(sf.col("b")))
    presence = [sf.when(sf.col(f"in_{side}"), "there").alias(side) for side in SIDES]
    single = pairs.where("NOT (in_a AND in_b)").select(
        "job_id", sf.lit("presence").alias("measure"), *presence
    )
    return unlike.unionByName(single).withColumn("subject", sf.concat(sf.lit("job "), sf.col("job_id")))


def _sided(a: DataFrame, b: DataFrame) -> DataFrame:
    return a.withColumn("side", sf.lit("a")).unionByName(b.withColumn("side", sf.lit("b")))


def _measures() -> list[Column]:
    over = count_outcome("completed") + count_outcome("dead")
    rate = sf.when(over > 0, count_outcome("dead") / over)
    times = [
        sf.round(sf.percentile(f"{what}_ms", share)).cast("long").cast("string").alias(f"{what} {name} ms")
        for what in ("waited", "ran")
        for name, share in QUANTILES.items()
    ]
    return [
        sf.count("*").cast("string").alias("jobs"),
        *[count_outcome(outcome).cast("string").alias(outcome) for outcome in OUTCOMES],
        sf.format_number(rate * 100, 2).alias("error rate %"),
        sf.format_number(sf.avg("attempts"), 2).alias("attempts per job"),
        sf.sum("stalls").cast("string").alias("stalls"),
        *times,
    ]


def _set(column: Column) -> Column:
    return sf.array_join(sf.sort_array(sf.collect_set(column)), " | ")


def _side_by_side(measured: DataFrame, order: Column) -> DataFrame:
    """Return one row per figure; `measured` has a subject, a side and a column for each figure."""
    names = [name for name in measured.columns if name not in ("subject", "side")]
    rows = sf.array(
        *[
            sf.struct(
                sf.lit(number).alias("number"),
                sf.lit(name).alias("measure"),
                sf.col(f"`{name}`").alias("value"),
                sf.lit(name.endswith(" ms")).alias("is_time"),
            )
            for number, name in enumerate(names)
        ]
    )
    flat = measured.select(order.alias("order"), "subject", "side", sf.inline(rows))
    keys = [name for name in FIGURE if name not in SIDES]
    sides = [sf.max(sf.when(sf.col("side") == side, sf.col("value"))).alias(side) for side in SIDES]
    return flat.groupBy(*keys).agg(*sides).select(*FIGURE)


def _fields(jobs: DataFrame, records: DataFrame | None, key: Column, side: str) -> DataFrame:
    """Return one row per id: a map of the fields from its events and from its record."""
    empty = sf.create_map().cast("map<string,string>")
    fields = jobs.select(key, _map(EVENT_FIELDS, "").alias("_events"))
    if records is None:
        return fields.select("key", sf.col("_events").alias(f"fields_{side}"))
    both = fields.join(
        records.select(key, _map(RECORD_FIELDS, "record's ").alias("_record")), "key", "full_outer"
    )
    whole = sf.map_concat(sf.coalesce("_events", empty), sf.coalesce("_record", empty))
    return both.select("key", whole.alias(f"fields_{side}"))


def _map(names: tuple[str, ...], prefix: str) -> Column:
    entries = [part for name in names for part in (sf.lit(f"{prefix}{name}"), sf.col(name).cast("string"))]
    return sf.create_map(*entries)
