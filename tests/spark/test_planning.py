"""The planner: a batch is measured and split by one count of its events."""

from corral.spark.options import Reading, Where
from corral.spark.planning import Planner
from tests.spark.support import Ranch


def counts_made(ranch: Ranch) -> int:
    with ranch.server.connect() as client:
        return int(client.info("commandstats").get("cmdstat_xrange", {}).get("calls", 0))


def test_what_was_measured_for_a_batch_is_split_without_counting_it_again(bull: Ranch):
    bull.add(500)
    with Planner(Where(bull.url, "bullmq", "bull", bull.queue), Reading(min_partitions=3)) as planner:
        start = planner.initial()
        end = planner.next(start, 400)
        counted = counts_made(bull)
        pieces = planner.stretches(start, end)
        assert counts_made(bull) == counted
        assert [piece.expected for piece in pieces] == [132, 134, 134]
        assert pieces[-1].until == end[bull.queue].id
        # a query that starts again asks for the same without having measured it
        with Planner(Where(bull.url, "bullmq", "bull", bull.queue), Reading(min_partitions=3)) as other:
            again = other.stretches(start, end)
        assert (again[0].after, again[-1].until) == (pieces[0].after, pieces[-1].until)
        assert sum(piece.expected or 0 for piece in again) == 400


def test_batches_are_no_larger_than_asked_for_over_several_queues(bull: Ranch):
    bull.add(300, "mail")
    bull.add(100, "sms")
    where = Where(bull.url, "bullmq", "bull", "mail,sms")
    with Planner(where, Reading(min_partitions=5)) as planner:
        position, sizes = planner.initial(), []
        for _ in range(10):
            end = planner.next(position, 170)
            pieces = planner.stretches(position, end)
            if not pieces:
                break
            sizes.append(sum(piece.expected or 0 for piece in pieces))
            position = end
    assert all(size <= 170 for size in sizes)
    assert sum(sizes) == len(bull.told("mail")) + len(bull.told("sms"))
