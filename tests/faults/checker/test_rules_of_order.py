"""The rules about order and limits: fifo, priority, pause, rate_limit and concurrency."""

from typing import Any

import pytest

from tests.faults.checker.records import NewJob
from tests.faults.checker.written import Written


def two_jobs(**promises: Any) -> Written:
    """`a` was added before `b`."""
    history = Written(**promises)
    history.add(10, "a")
    history.add(20, "b")
    return history


def test_jobs_that_start_in_the_order_of_their_adds_break_no_rule() -> None:
    history = two_jobs(fifo="start")
    history.run(30, 40, "a")
    history.run(50, 60, "b")
    assert history.broken == set()
    assert history.judged("fifo") == 1


def test_jobs_that_start_against_the_order_of_their_adds_are_reported() -> None:
    history = two_jobs(fifo="start")
    history.run(30, 40, "b")
    history.run(50, 60, "a")
    assert history.broken == {"fifo/out_of_order"}
    assert history.check().violations[0].jobs == ("b", "a")


def test_a_job_that_still_waits_is_behind_those_that_started() -> None:
    history = two_jobs(fifo="start")
    history.run(30, 40, "b")
    history.dump(100, {"a": "waiting"})
    assert history.broken == {"fifo/out_of_order"}


def test_order_is_judged_only_where_it_is_promised() -> None:
    history = two_jobs()
    history.run(30, 40, "b")
    history.run(50, 60, "a")
    assert history.broken == set()
    assert "fifo" in history.check().not_judged


def test_adds_that_overlap_in_time_have_no_order() -> None:
    history = Written(fifo="start")
    history.add(10, "a", answered_at=25, process="client-1")
    history.add(20, "b", answered_at=22, process="client-2")
    history.run(30, 40, "b")
    history.run(50, 60, "a")
    assert history.broken == set()


def test_adds_of_two_clients_have_an_order_beyond_the_skew_of_clocks() -> None:
    for skew, broken in ((5, {"fifo/out_of_order"}), (15, set())):
        history = Written(fifo="start", skew_ms=skew)
        history.add(10, "a", process="client-1")
        history.add(20, "b", process="client-2")
        history.run(30, 40, "b")
        history.run(50, 60, "a")
        assert history.broken == broken


def test_claim_numbers_decide_where_several_workers_run() -> None:
    for first, second, broken in ((1, 2, set()), (2, 1, {"fifo/out_of_order"})):
        history = two_jobs(fifo="claim")
        history.run(50, 60, "a", worker="w1", claim=first)
        history.run(30, 40, "b", "r2", "w2", claim=second)
        assert history.broken == broken


def test_a_retry_does_not_break_the_order() -> None:
    history = two_jobs(fifo="start")
    history.run(30, 40, "a", outcome="retry")
    history.run(50, 60, "b")
    history.run(70, 80, "a", "r2")
    assert history.broken == set()


def test_a_delayed_job_does_not_break_the_order() -> None:
    history = Written(fifo="start")
    history.add(10, job=NewJob(id="a", delay=30))
    history.add(20, "b")
    history.run(30, 40, "b")
    history.run(50, 60, "a")
    assert history.broken == set()


def test_jobs_of_two_priorities_have_no_order() -> None:
    history = Written(fifo="start")
    history.add(10, job=NewJob(id="a", priority=2))
    history.add(20, job=NewJob(id="b", priority=1))
    history.run(30, 40, "b")
    history.run(50, 60, "a")
    assert history.broken == set()


@pytest.mark.parametrize("excuse", ["fault", "stall"])
def test_a_job_that_may_have_been_held_up_is_not_judged(excuse: str) -> None:
    history = two_jobs(fifo="start")
    history.run(37, 40, "b")
    if excuse == "fault":
        history.fault(35, "cut")
    else:
        history.event(45, "a", "stalled", "e1")
    history.run(50, 60, "a")
    assert history.broken == set()


def urgent_waits(priority: str, late: int, urgent: int) -> Written:
    """`urgent` was added before `late` was claimed, and claimed after it."""
    history = Written(priority=priority)
    history.add(10, job=NewJob(id="late", priority=late))
    history.add(20, job=NewJob(id="urgent", priority=urgent))
    history.run(40, 50, "late", requested_at=38.0)
    history.run(60, 70, "urgent", "r2", requested_at=58.0)
    return history


@pytest.mark.parametrize(("priority", "late", "urgent"), [("lower_first", 5, 1), ("higher_first", 1, 5)])
def test_a_better_job_that_waits_is_claimed_first(priority: str, late: int, urgent: int) -> None:
    assert urgent_waits(priority, late, urgent).broken == {"priority/passed_over"}
    right = urgent_waits(priority, urgent, late)
    assert right.broken == set()
    assert right.judged("priority") == 1


def test_a_better_job_that_comes_after_the_claim_waits() -> None:
    history = Written(priority="lower_first")
    history.add(10, job=NewJob(id="late", priority=5))
    history.add(37, job=NewJob(id="urgent", priority=1))
    history.run(60, 70, "late", requested_at=38.0)
    history.run(80, 90, "urgent", "r2", requested_at=78.0)
    assert history.broken == set()


def test_two_jobs_of_one_claim_may_start_in_any_order() -> None:
    history = Written(priority="lower_first")
    history.add(10, job=NewJob(id="late", priority=5))
    history.add(20, job=NewJob(id="urgent", priority=1))
    history.run(40, 50, "late", requested_at=38.0)
    history.run(41, 51, "urgent", "r2", requested_at=38.0)
    assert history.broken == set()


def test_a_better_job_that_is_never_claimed_is_passed_over() -> None:
    history = Written(priority="lower_first")
    history.add(10, job=NewJob(id="late", priority=5))
    history.add(20, job=NewJob(id="urgent", priority=1))
    history.run(40, 50, "late", requested_at=38.0)
    history.dump(100, {"urgent": "waiting"})
    assert history.broken == {"priority/passed_over"}


def test_a_job_that_was_cancelled_while_it_waited_is_not_passed_over() -> None:
    history = Written(priority="lower_first")
    history.add(10, job=NewJob(id="late", priority=5))
    history.add(20, job=NewJob(id="urgent", priority=1))
    history.call(30, "cancel", "urgent")
    history.run(40, 50, "late", requested_at=38.0)
    assert history.broken == set()


def test_no_job_is_claimed_while_the_queue_is_paused() -> None:
    for requested_at, broken in ((15.0, set()), (40.0, {"pause/claimed"}), (80.0, set())):
        history = Written()
        history.add(10, "7")
        history.call(20, "pause")
        history.call(70, "resume")
        start = requested_at + 2
        history.run(start, start + 5, "7", requested_at=requested_at)
        assert history.broken == broken
        assert history.judged("pause") == 1


def test_a_pause_without_an_answer_may_not_have_happened() -> None:
    history = Written()
    history.add(10, "7")
    history.call(20, "pause", answer="unknown")
    history.run(42, 50, "7", requested_at=40.0)
    assert history.broken == set()


def starts(history: Written, times: list[float], ms: float = 1, **fields: Any) -> Written:
    """A job for each start time."""
    for number, at in enumerate(times):
        history.add(0, f"{number}")
        history.run(at, at + ms, f"{number}", f"r{number}", **fields)
    return history


def test_starts_within_the_rate_limit_break_no_rule() -> None:
    history = Written()
    history.limit(2, 100)
    starts(history, [10, 20, 111, 121, 212])
    assert history.broken == set()
    assert history.judged("rate_limit") == 3


def test_one_start_too_many_is_reported() -> None:
    history = Written()
    history.limit(2, 100)
    starts(history, [10, 20, 80, 130, 300])
    (violation,) = history.check().violations
    assert (violation.rule, violation.jobs) == ("rate_limit", ("0", "1", "2"))


def test_a_claim_that_was_requested_earlier_is_within_the_limit() -> None:
    history = Written()
    history.limit(1, 100)
    history.add(0, "a")
    history.add(1, "b")
    history.run(90, 95, "a", requested_at=10.0)
    history.run(112, 120, "b", "r2", requested_at=111.0)
    assert history.broken == set()


def test_starts_close_to_the_limit_are_within_the_tolerance() -> None:
    for tolerance, broken in ((20, set()), (0, {"rate_limit/too_many"})):
        history = Written(skew_ms=0)
        history.limit(1, 100, tolerance_ms=tolerance)
        starts(history, [10, 95])
        assert history.broken == broken


def test_the_starts_of_two_fixed_windows_may_come_close_together() -> None:
    history = Written()
    history.limit(2, 100, window="fixed")
    starts(history, [90, 95, 100, 105])
    assert history.broken == set()


def test_fixed_windows_have_a_limit_in_the_long_run() -> None:
    history = Written()
    history.limit(2, 100, window="fixed")
    starts(history, [100.0 + 30 * number for number in range(20)])
    assert history.broken == {"rate_limit/too_many"}


def test_each_group_has_the_limit() -> None:
    history = Written()
    history.limit(1, 100, by="group")
    for number, (at, group) in enumerate([(10, "x"), (20, "y"), (30, "x")]):
        history.add(0, f"{number}")
        history.run(at, at + 1, f"{number}", f"r{number}", group=group)
    (violation,) = history.check().violations
    assert violation.jobs == ("0", "2")


def test_handlers_at_the_same_time_are_limited() -> None:
    for most, broken in ((2, set()), (1, {"concurrency/too_many"})):
        history = Written()
        history.limit(most)
        starts(history, [10, 40], ms=50, worker="w1")
        assert history.broken == broken
        assert history.judged("concurrency") == 2


def test_a_handler_that_starts_as_another_ends_is_within_the_limit() -> None:
    history = Written(skew_ms=0)
    history.limit(1)
    starts(history, [10, 60], ms=50)
    assert history.broken == set()


def test_each_worker_has_the_limit() -> None:
    for worker, broken in (("w2", set()), ("w1", {"concurrency/too_many"})):
        history = Written()
        history.limit(1, by="worker")
        history.add(0, "a")
        history.add(1, "b")
        history.run(10, 60, "a", worker="w1")
        history.run(30, 80, "b", "r2", worker)
        assert history.broken == broken


@pytest.mark.parametrize("end", ["kill", "lock"])
def test_a_handler_that_was_killed_or_lost_its_lock_takes_no_place(end: str) -> None:
    history = Written()
    history.limit(1)
    history.add(0, "a")
    history.add(1, "b")
    history.start(10, "a", lock_ms=20 if end == "lock" else 1000)
    if end == "kill":
        history.fault(25)
    history.run(50, 80, "b", "r2", "w2")
    assert history.broken == set()
