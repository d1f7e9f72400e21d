"""The table `events`, read by a real Spark from a real server."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as sf

from corral.core.event import EventPage
from corral.core.outcome import Dead
from corral.spark.client import QueueClient
from corral.spark.events import FIRST_PAGE, MAX_ENTRIES, PAGE_BYTES, pages, read_range
from corral.spark.offsets import Position, offset_range
from corral.spark.options import EventReadOptions
from corral.spark.planner import Planner
from corral.spark.schema import EVENTS, GAP
from tests.spark.conftest import ONE_PROTOCOL_QUICKLY
from tests.spark.harness import SparkHarness, advance, drain, ids
from tests.support.polling import eventually


def test_every_event_of_a_protocol_is_a_row_of_the_same_words(spark, harness: SparkHarness):
    harness.add(40)
    harness.work(outcome=lambda claim: Dead("boom"), most=3)
    harness.work()
    events = harness.read_events()
    table = harness.reader(spark).load()
    assert table.schema == EVENTS
    rows = {row["event_id"]: row for row in table.collect()}
    assert len(rows) == len(events) == table.count()
    for event in events:
        row = rows[event.id]
        assert (row["protocol"], row["queue"], row["event"]) == (
            harness.protocol.spec.name,
            harness.queue,
            str(event.kind),
        )
        assert (row["job_id"], row["name"], row["previous"]) == (event.job_id, event.name, event.previous)
        assert (row["attempt"], row["worker"]) == (event.attempt, event.worker)
        assert row["ts"].timestamp() * 1000 == pytest.approx(event.at, abs=0.5)
        assert (None if row["data"] is None else orjson.loads(row["data"])) == event.data


def test_the_format_is_found_without_being_registered(spark, bullmq: SparkHarness):
    bullmq.add(2)
    assert bullmq.reader(spark.newSession()).load().count() == len(bullmq.read_events())


def test_an_empty_or_missing_queue_is_an_empty_table(spark, bullmq: SparkHarness):
    assert bullmq.reader(spark, "nobody").load().count() == 0
    assert bullmq.reader(spark, "no-*").load().count() == 0


def test_pieces_have_exactly_their_share(spark, bullmq: SparkHarness):
    bullmq.add(500)
    events = len(bullmq.read_events())
    table = bullmq.reader(spark, minPartitions=4).load()
    sizes = [row["count"] for row in table.groupBy(sf.spark_partition_id()).count().collect()]
    assert sorted(sizes) == [events // 4] * 4
    assert table.select("event_id").distinct().count() == events


def test_reading_starts_at_the_given_offset(spark, bullmq: SparkHarness):
    bullmq.add(5)
    events = bullmq.read_events()
    last_ms = int(events[-1].id.partition("-")[0])
    assert eventually(lambda: time.time() * 1000 >= last_ms + 1)
    later_ms = int(time.time() * 1000)
    bullmq.add(3)
    new = ids_of(bullmq)[len(events) :]

    def read(**options: Any) -> list[str]:
        return sorted(ids(bullmq.reader(spark, **options).load().collect()))

    assert read(startingOffsets="latest") == []
    assert read(startingTimestamp=later_ms) == sorted(new)
    assert read(startingOffsets=json.dumps({bullmq.queue: events[-1].id})) == sorted(new)
    middle = json.dumps({bullmq.queue: {"id": events[3].id, "added": 4}})
    ending = json.dumps({bullmq.queue: events[6].id})
    assert read(startingOffsets=middle, endingOffsets=ending) == sorted(event.id for event in events[4:7])


def ids_of(harness: SparkHarness) -> list[str]:
    return [event.id for event in harness.read_events()]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": "tasks"}, "there is no table 'tasks'; use one of events, jobs"),
        ({"startingOffset": "latest"}, "did you mean 'startingOffsets'"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger is 'many'; use a whole number from 1"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'; use true or false"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'; use a number with ms, s, m, h or d"),
        ({"startingOffsets": "[1]"}, "use earliest, latest, or an event id for each queue"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday'"),
        ({"protocol": "stable"}, "there is no protocol 'stable'"),
        ({"url": "http://nowhere"}, "server address 'http://nowhere' cannot be used"),
    ],
)
def test_a_wrong_option_is_refused_with_the_way_out(
    spark, bullmq: SparkHarness, options: dict[str, str], says: str
):
    with pytest.raises(PySparkException) as refusal:
        bullmq.reader(spark, **options).load().count()
    assert says in str(refusal.value)


# -- streams ------------------------------------------------------------------------------------------------


def test_every_protocol_is_read_in_batches_of_the_size_asked_for(harness: SparkHarness):
    harness.add(150)
    harness.work()
    batches, _ = advance(harness, max_per_trigger=100)
    assert max(map(len, batches)) <= 100
    rows = [row["event_id"] for batch in batches for row in batch]
    assert sorted(rows) == sorted(ids_of(harness))


@ONE_PROTOCOL_QUICKLY
def test_a_stream_brings_every_event_once_in_bounded_batches(spark, harness: SparkHarness, tmp_path: Path):
    harness.add(150)
    harness.work()
    events = [event.id for event in harness.read_events()]
    query = drain(harness.stream(spark, maxOffsetsPerTrigger=100), tmp_path)
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert max(sizes) <= 100
    assert sum(sizes) == len(events)
    assert sorted(ids(spark.read.parquet(f"{tmp_path}/out").collect())) == sorted(events)


def test_a_stream_goes_on_where_it_stopped(spark, bullmq: SparkHarness, tmp_path: Path):
    for count in (7, 5):
        bullmq.add(count)
        drain(bullmq.stream(spark), tmp_path)
    assert sorted(ids(spark.read.parquet(f"{tmp_path}/out").collect())) == sorted(ids_of(bullmq))


def test_progress_tells_how_far_behind_a_stream_is(spark, bullmq: SparkHarness, tmp_path: Path):
    bullmq.add(50)
    query = drain(bullmq.stream(spark, maxOffsetsPerTrigger=60), tmp_path)
    [source] = query.recentProgress[0]["sources"]
    reached, present = json.loads(source["endOffset"]), json.loads(source["latestOffset"])
    assert reached[bullmq.queue]["added"] == 60
    assert present[bullmq.queue]["added"] == 100
    assert present[bullmq.queue]["id"] == bullmq.read_events()[-1].id


def test_new_queues_of_a_pattern_join_from_their_beginning(bullmq: SparkHarness):
    bullmq.add(3, "mail-eu")
    bullmq.add(3, "other")
    [first], offset = advance(bullmq, queue="mail-*, other-?")
    bullmq.add(4, "mail-us")
    bullmq.add(2, "mail-eu")
    [second], _ = advance(bullmq, offset, "mail-*, other-?")
    assert Counter(row["queue"] for row in first + second) == {"mail-eu": 10, "mail-us": 8}


def test_a_new_queue_that_was_trimmed_before_it_was_seen_says_what_is_missing(bullmq: SparkHarness):
    bullmq.add(1, "mail-eu")
    _, offset = advance(bullmq, queue="mail-*", fail_on_data_loss=False)
    bullmq.add(10, "mail-us")
    bullmq.trim(5, "mail-us")
    [rows], _ = advance(bullmq, offset, "mail-*", fail_on_data_loss=False)
    [gap] = [row for row in rows if row["event"] == GAP]
    assert (gap["queue"], json.loads(gap["data"])["missing"]) == ("mail-us", 15)


# -- what is gone before it is read -------------------------------------------------------------------------


def test_trimmed_events_stop_a_query_that_asked_for_it(spark, bullmq: SparkHarness, tmp_path: Path):
    bullmq.add(5)
    drain(bullmq.stream(spark), tmp_path)
    bullmq.add(20)
    bullmq.trim(10)
    with pytest.raises(StreamingQueryException) as loss:
        drain(bullmq.stream(spark), tmp_path)
    assert "30 events were trimmed before they were read" in str(loss.value)
    assert "failOnDataLoss=false" in str(loss.value)


def test_trimmed_events_are_counted_exactly_by_a_query_that_goes_on(harness: SparkHarness):
    harness.add(5)
    [first], offset = advance(harness, fail_on_data_loss=False)
    before = harness.read_events()
    harness.add(20)
    added = len(harness.read_events())
    gone = harness.trim(7)
    [second], _ = advance(harness, offset, fail_on_data_loss=False)
    [gap] = [row for row in second if row["event"] == GAP]
    gap_data = json.loads(gap["data"])
    assert gap_data["missing"] == gone - len(before)
    assert (gap_data["why"], gap_data["after"]) == ("trimmed", before[-1].id)
    assert len(first) + len(second) - 1 + gap_data["missing"] == added


def test_a_gap_between_two_pages_of_one_task_is_seen(bullmq: SparkHarness):
    bullmq.add(2000)
    with Planner(bullmq.address(), EventReadOptions()) as planner:
        [whole] = planner.ranges(planner.initial(), planner.present())
    batches = read_range(bullmq.address(), EventReadOptions(fail_on_data_loss=False), whole)
    first = next(batches)
    assert first.num_rows == FIRST_PAGE
    bullmq.trim(500)
    *rest, gap = list(batches)
    assert sum(batch.num_rows for batch in rest) == 500
    assert json.loads(gap.column("data")[0].as_py())["missing"] == 3500 - FIRST_PAGE


def test_a_gap_is_counted_once_however_a_stretch_is_split(bullmq: SparkHarness):
    bullmq.add(1000)
    reading = EventReadOptions(fail_on_data_loss=False, min_partitions=7)
    with Planner(bullmq.address(), reading) as planner:
        start, end = planner.initial(), planner.present()
        pieces = planner.ranges(start, end)
        bullmq.trim(1001)
        late = planner.ranges(start, end)
    assert len(pieces) == 7
    for planned in (pieces, late):
        rows = [row for piece in planned for batch in read_range(bullmq.address(), reading, piece)
                for row in batch.to_pylist()]  # fmt: skip
        missing = sum(json.loads(row["data"])["missing"] for row in rows if row["event"] == GAP)
        assert missing == 999
        assert len([row for row in rows if row["event"] != GAP]) == 1001


def test_a_log_that_was_begun_anew_is_read_whole_and_named(bullmq: SparkHarness):
    bullmq.add(10)
    with Planner(bullmq.address(), EventReadOptions()) as planner:
        [(queue, old)] = planner.present().items()
    with bullmq.server.connect() as client:
        client.delete(bullmq.events_key())
    bullmq.add(3)
    with Planner(bullmq.address(), EventReadOptions()) as planner:
        [new] = planner.next({queue: old}, None).values()
    assert new.added == 6
    found = offset_range(queue, old, new)
    assert found is not None
    rows = [row for batch in read_range(bullmq.address(), EventReadOptions(fail_on_data_loss=False), found)
            for row in batch.to_pylist()]  # fmt: skip
    assert len(rows) == 7
    assert json.loads(rows[-1]["data"])["why"] == "recreated"


def test_a_stream_that_lost_its_key_stays_where_it_was(bullmq: SparkHarness):
    bullmq.add(3)
    with Planner(bullmq.address(), EventReadOptions()) as planner:
        start = planner.present()
        with bullmq.server.connect() as client:
            client.flushall()
        assert planner.next(start, None) == start


def pages_of(harness: SparkHarness) -> list[EventPage]:
    with Planner(harness.address(), EventReadOptions()) as planner:
        [whole] = planner.ranges(planner.initial(), planner.present())
    with QueueClient(harness.address(), retry_s=1) as client:
        return [page for _, page in pages(client, whole)]


def write_progress(harness: SparkHarness, count: int, size: int) -> None:
    """Events past the length that a queue keeps by itself."""
    with harness.server.connect() as client:
        for start in range(0, count, 500):
            pipeline = client.pipeline(transaction=False)
            for number in range(start, start + 500):
                fields = {"event": "progress", "jobId": str(number), "data": "x" * size}
                pipeline.xadd(f"bull:{harness.queue}:events", fields)
            pipeline.execute()


def test_pages_of_large_events_have_about_eight_megabytes(bullmq: SparkHarness):
    write_progress(bullmq, 1000, 50_000)
    first, *middle, _ = pages_of(bullmq)
    assert first.seen == FIRST_PAGE
    assert len(middle) > 2
    assert all(0.9 * PAGE_BYTES < page.seen * 50_000 < 1.1 * PAGE_BYTES for page in middle)


def test_pages_of_small_events_grow_to_what_the_server_answers_quickly(bullmq: SparkHarness):
    write_progress(bullmq, 14_000, 10)
    left = 14_000 - FIRST_PAGE - MAX_ENTRIES
    assert [page.seen for page in pages_of(bullmq)] == [FIRST_PAGE, MAX_ENTRIES, left]


def test_an_id_between_two_events_has_the_number_of_the_one_before(bullmq: SparkHarness):
    bullmq.add(10)
    events = bullmq.read_events()
    reading = EventReadOptions(starting={bullmq.queue: events[4].id})
    with Planner(bullmq.address(), reading) as planner:
        assert planner.initial() == {bullmq.queue: Position(events[4].id, 5)}


def test_a_server_that_is_away_for_a_moment_is_waited_for(bullmq: SparkHarness):
    bullmq.add(5)
    with Planner(bullmq.address(), EventReadOptions()) as planner:
        [whole] = planner.ranges(planner.initial(), planner.present())
        with bullmq.server.connect() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal")
        assert planner.present() == planner.next({}, None)
    [batch] = read_range(bullmq.address(), EventReadOptions(), whole)
    assert batch.num_rows == 10
