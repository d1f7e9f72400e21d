"""The rules about schedules, flows and recovery."""

from typing import Any

import pytest

from tests.faults.checker.written import Written


def test_each_tick_is_one_job() -> None:
    history = Written()
    history.schedule(100, 200)
    history.tick(101, 100, "every:100")
    history.run(102, 110, "every:100")
    history.tick(201, 200, "every:200")
    history.tick(300, 200, "every:200")
    history.dump(400, {"every:200": "waiting"})
    assert history.broken == set()
    assert history.judged("schedule") == 2


def test_a_tick_without_a_job_is_reported() -> None:
    history = Written()
    history.schedule(100, 200)
    history.tick(101, 100, "every:100")
    assert history.broken == {"schedule/missed"}


def test_a_tick_with_two_jobs_is_reported() -> None:
    history = Written()
    history.schedule(100)
    history.tick(101, 100, "every:100")
    history.tick(102, 100, "every:100:again")
    assert history.broken == {"schedule/doubled"}


def test_a_tick_that_is_not_in_the_schedule_is_reported() -> None:
    history = Written()
    history.schedule(100)
    history.tick(101, 100, "every:100")
    history.tick(151, 150, "every:150")
    assert history.broken == {"schedule/unexpected"}


def test_a_tick_in_an_outage_may_be_left_out_and_may_not_come_twice() -> None:
    history = Written()
    history.schedule(optional=[100])
    assert history.broken == set()
    history.tick(101, 100, "every:100")
    assert history.broken == set()
    history.tick(102, 100, "every:100:again")
    assert history.broken == {"schedule/doubled"}


def test_the_job_of_a_tick_is_lost_like_any_other() -> None:
    history = Written()
    history.schedule(100)
    history.tick(101, 100, "every:100")
    history.dump(400)
    assert history.broken == {"place/lost"}


def family(after: Any = "completed") -> Written:
    history = Written()
    history.flow("parent", "a", "b", after=after)
    history.run(10, 20, "a", "ra", "w1")
    return history


def test_a_parent_starts_after_all_its_children() -> None:
    history = family()
    history.run(15, 30, "b", "rb", "w2")
    history.run(32, 40, "parent", "rp", "w1")
    assert history.broken == set()
    assert history.judged("flow") == 1


def test_a_parent_does_not_start_before_the_end_of_a_child() -> None:
    history = family()
    history.run(15, 60, "b", "rb", "w2")
    history.run(32, 40, "parent", "rp", "w1")
    assert history.broken == {"flow/early"}
    assert history.check().violations[0].jobs == ("parent", "b")


def test_a_parent_does_not_start_without_a_child_that_never_ended() -> None:
    history = family()
    history.start(15, "b", "rb", "w2")
    history.run(32, 40, "parent", "rp", "w1")
    assert history.broken == {"flow/early"}


def test_a_child_that_is_tried_again_has_not_ended() -> None:
    history = family()
    history.run(15, 20, "b", "rb", "w2", outcome="retry")
    history.run(32, 40, "parent", "rp", "w1")
    assert history.broken == {"flow/early"}


def test_a_child_whose_settlement_has_no_answer_may_have_ended() -> None:
    history = family()
    history.run(15, 20, "b", "rb", "w2", verdict="unknown")
    history.run(32, 40, "parent", "rp", "w1")
    assert history.broken == set()


def test_a_dead_child_holds_its_parent_back_unless_the_flow_says_otherwise() -> None:
    for after, broken in (("completed", {"flow/early"}), ("ended", set())):
        history = family(after)
        history.run(15, 20, "b", "rb", "w2", outcome="dead")
        history.run(32, 40, "parent", "rp", "w1")
        assert history.broken == broken


def test_a_child_that_the_server_let_die_has_ended_by_its_event() -> None:
    for died_at, broken in ((25.0, set()), (60.0, {"flow/early"})):
        history = family("ended")
        history.start(15, "b", "rb", "w2")
        history.event(died_at, "b", "dead", "e1", server_at=died_at)
        history.run(32, 40, "parent", "rp", "w1")
        assert history.broken == broken


def test_a_parent_that_requested_to_wait_had_started_before() -> None:
    history = family()
    history.run(2, 5, "parent", "rp1", "w1", outcome="waiting_children")
    history.run(15, 20, "b", "rb", "w2")
    history.run(32, 40, "parent", "rp2", "w1")
    assert history.broken == set()


def test_a_parent_does_not_end_twice() -> None:
    history = family()
    history.run(15, 20, "b", "rb", "w2")
    history.run(32, 40, "parent", "rp1", "w1")
    history.run(50, 60, "parent", "rp2", "w1")
    assert history.broken == {"end_once/ended_twice", "end_once/started_after_end"}


def test_a_parent_does_not_wait_for_ever() -> None:
    history = family()
    history.run(15, 20, "b", "rb", "w2")
    history.dump(100, {"parent": "waiting_children", "b": "completed"})
    assert history.broken == {"flow/stuck"}


def test_a_parent_waits_for_a_child_that_is_tried_again() -> None:
    history = family()
    history.run(15, 20, "b", "rb", "w2", outcome="retry")
    history.dump(100, {"parent": "waiting_children", "b": "delayed"})
    assert history.broken == set()


def killed(recovery_ms: float | None, restart: float | None) -> Written:
    """A job whose worker was killed at 100."""
    history = Written(recovery_ms=recovery_ms)
    history.add(10, "7")
    history.start(20, "7", lock_ms=200)
    history.fault(100)
    if restart is not None:
        history.run(restart, restart + 10, "7", "r2", "w2")
    history.dump(5000, {"7": "completed" if restart is not None else "active"})
    return history


def test_a_job_of_a_killed_worker_starts_again_in_the_promised_time() -> None:
    assert killed(500, 400).broken == set()
    assert killed(500, 400).judged("recovery") == 1
    assert killed(500, 700).broken == {"recovery/slow"}
    assert killed(500, None).broken == {"recovery/never"}
    assert killed(None, 700).broken == set()


def test_the_times_of_recovery_are_reported_with_or_without_a_promise() -> None:
    report = killed(None, 400).check()
    assert report.recovery is not None
    assert report.recovery._asdict() == {"jobs": 1, "p50": 300, "p95": 300, "p99": 300, "max": 300}
    assert killed(None, None).check().never_recovered == 1


def test_percentiles_of_recovery_are_by_nearest_rank() -> None:
    history = Written()
    for number in range(1, 101):
        history.add(0, f"{number}")
        history.start(20, f"{number}", lock_ms=50, worker=f"w{number}")
        history.fault(100, target=f"w{number}")
        history.run(100 + number, 300, f"{number}", "r2", "other")
    report = history.check()
    assert report.ok
    assert report.recovery is not None
    assert report.recovery == (100, 50, 95, 99, 100)


@pytest.mark.parametrize("verdict", ["applied", "unknown"])
def test_an_attempt_that_was_settled_before_the_kill_needs_no_recovery(verdict: Any) -> None:
    history = Written(recovery_ms=10)
    history.add(10, "7")
    history.run(20, 30, "7", verdict=verdict)
    history.fault(100)
    history.dump(5000)
    assert history.check().recovery is None
    assert history.broken == set()
