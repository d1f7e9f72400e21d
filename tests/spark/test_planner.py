"""The planner: a batch is measured and split by one count of its events, and the next one meanwhile."""

from dataclasses import replace

from corral.spark.events import EventReader
from corral.spark.options import EventReadOptions
from corral.spark.planner import PlanAhead, Planner
from tests.spark.harness import SparkHarness


def counts_made(harness: SparkHarness) -> int:
    with harness.server.connect() as client:
        return int(client.info("commandstats").get("cmdstat_xrange", {}).get("calls", 0))


def test_what_was_measured_for_a_batch_is_split_without_counting_it_again(bullmq: SparkHarness):
    bullmq.add(300)
    with Planner(bullmq.address(), EventReadOptions(min_partitions=3)) as planner:
        start = planner.initial()
        end = planner.next(start, 400)
        counted = counts_made(bullmq)
        pieces = planner.ranges(start, end)
        assert counts_made(bullmq) == counted
        assert [piece.expected for piece in pieces] == [132, 134, 134]
        assert pieces[-1].until == end[bullmq.queue].id
        # a query that starts again asks for the same without having measured it
        with Planner(bullmq.address(), EventReadOptions(min_partitions=3)) as other:
            again = other.ranges(start, end)
        assert (again[0].after, again[-1].until) == (pieces[0].after, pieces[-1].until)
        assert sum(piece.expected or 0 for piece in again) == 400


def test_batches_are_no_larger_than_asked_for_over_several_queues(bullmq: SparkHarness):
    bullmq.add(300, "mail")
    bullmq.add(100, "sms")
    where = bullmq.address("mail,sms")
    with Planner(where, EventReadOptions(min_partitions=5)) as planner:
        position, sizes = planner.initial(), []
        for _ in range(10):
            end = planner.next(position, 170)
            pieces = planner.ranges(position, end)
            if not pieces:
                break
            sizes.append(sum(piece.expected or 0 for piece in pieces))
            position = end
    assert all(size <= 170 for size in sizes)
    assert sum(sizes) == len(bullmq.read_events("mail")) + len(bullmq.read_events("sms"))


def test_batches_counted_ahead_are_those_that_a_new_count_finds(bullmq: SparkHarness):
    bullmq.add(300, "mail")
    bullmq.add(100, "sms")
    where, reading = bullmq.address("mail,sms"), EventReadOptions(min_partitions=5)
    with Planner(where, reading) as planner:
        planner.stop_at_present()
        position, batches = planner.initial(), 0
        while (end := planner.next(position, 70)) != position:
            with Planner(where, reading) as other:
                assert end == other.next(position, 70)
                assert planner.ranges(position, end) == other.ranges(position, end)
            position, batches = end, batches + 1
        assert batches >= 800 // 70
        assert position == planner.present()


def test_fewer_events_than_asked_for_wait_until_the_delay_is_over(bullmq: SparkHarness):
    bullmq.add(5)
    waiting = EventReadOptions(min_per_trigger=100)
    with Planner(bullmq.address(), waiting) as planner:
        start = planner.initial()
        assert planner.next(start, None) == start, "ten events are too few"
        bullmq.add(45)
        reached = planner.next(start, None)
        assert reached == planner.present()
        bullmq.add(1)
        assert planner.next(reached, 1) == reached
        planner.stop_at_present()
        assert planner.next(reached, None) == planner.present(), "availableNow leaves nothing behind"
    with Planner(bullmq.address(), replace(waiting, max_delay_s=0)) as planner:
        assert planner.next(reached, None) == planner.present()


def test_reading_writes_nothing_to_the_server(bullmq: SparkHarness):
    bullmq.add(20)
    with bullmq.server.connect() as client:
        before = {key: client.dump(key) for key in client.scan_iter()}
        reader = EventReader(bullmq.address("*"), EventReadOptions(min_partitions=2))
        assert sum(len(rows) for one in reader.partitions() for rows in reader.read(one)) == 40
        assert {key: client.dump(key) for key in client.scan_iter()} == before


def test_a_plan_made_ahead_serves_the_batch_it_was_made_for_and_once(bullmq: SparkHarness):
    bullmq.add(100)
    where = bullmq.address()
    with Planner(where, EventReadOptions()) as planner:
        start, ends = planner.initial(), planner.present()
        reached = planner.next(start, 50)
    ahead = PlanAhead(where, EventReadOptions())
    ahead.begin(start, ends, 50)
    plan = ahead.take(start, 50)
    assert plan is not None
    assert plan.end == reached
    assert ahead.take(start, 50) is None
    ahead.begin(start, ends, 50)
    assert ahead.take(reached, 50) is None
    ahead.close()


def test_a_log_that_was_begun_anew_is_not_read_by_a_plan_made_before(bullmq: SparkHarness):
    bullmq.add(100)
    with Planner(bullmq.address(), EventReadOptions()) as planner:
        position = planner.next(planner.initial(), 50)
        with bullmq.server.connect() as client:
            client.delete(bullmq.events_key())
        bullmq.add(10)
        end = planner.next(position, 50)
        assert [piece.is_recreated for piece in planner.ranges(position, end)] == [True]
        assert end == planner.present()


def test_where_no_server_answers_ahead_the_count_is_left_to_who_needs_it(bullmq: SparkHarness):
    bullmq.add(100)
    with Planner(bullmq.address(), EventReadOptions()) as planner:
        ends = planner.present()
        nowhere = replace(bullmq.address(), url="redis://127.0.0.1:1")
        ahead = PlanAhead(nowhere, EventReadOptions())
        ahead.begin(planner.initial(), ends, 50)
        assert ahead.take(planner.initial(), 50) is None
        ahead.close()
