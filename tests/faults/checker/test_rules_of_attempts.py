"""The rules about attempts: lock, fence, attempts and delay."""

from typing import Any

import pytest

from tests.faults.checker.records import NewJob
from tests.faults.checker.written import Written


def added(**promises: Any) -> Written:
    history = Written(**promises)
    history.add(10, "7")
    return history


def test_attempts_one_after_the_other_break_no_rule() -> None:
    history = added(max_attempts=3)
    history.run(20, 30, "7", "r1", outcome="retry", attempt=1)
    history.run(40, 50, "7", "r2", "w2", outcome="retry", attempt=2)
    history.run(60, 70, "7", "r3", attempt=3)
    history.dump(100, {"7": "completed"}, attempts_made=3)
    assert history.broken == set()
    assert history.judged("lock") == 2


def test_an_attempt_does_not_start_while_another_holds_the_lock() -> None:
    history = added()
    history.run(20, 100, "7", "r1", verdict="refused")
    history.run(50, 150, "7", "r2", "w2")
    assert history.broken == {"lock/overlap"}


def test_the_violation_names_the_attempts_and_the_time() -> None:
    history = added()
    history.run(20, 100, "7", "r1", verdict="refused")
    history.run(50, 150, "7", "r2", "w2")
    (violation,) = history.check().violations
    assert violation.message == (
        "attempt 'r2' of worker 'w2' started 50.0 ms before attempt 'r1' of worker 'w1' lost the lock "
        "(its handler ended)"
    )


def test_handlers_may_overlap_after_the_lock_ran_out() -> None:
    history = added()
    history.run(20, 5000, "7", "r1", verdict="refused")
    history.run(1100, 1200, "7", "r2", "w2")
    assert history.broken == set()


def test_a_start_shortly_before_the_lock_ran_out_is_within_the_skew_of_clocks() -> None:
    for start, broken in ((1017, set()), (1013, {"lock/overlap"})):
        history = added(skew_ms=5)
        history.run(20, 5000, "7", "r1", verdict="refused")
        history.run(start, 1200, "7", "r2", "w2")
        assert history.broken == broken


def test_there_is_no_skew_within_a_process() -> None:
    history = added(skew_ms=5)
    history.run(20, 100, "7", "r1", verdict="refused")
    history.run(98, 150, "7", "r2")
    assert history.broken == {"lock/overlap"}


def test_an_extended_lock_is_held_for_longer() -> None:
    for start, broken in ((1500, {"lock/overlap"}), (2100, set())):
        history = added()
        history.start(20, "7")
        history.extended(500, "7", until=2000.0)
        history.start(start, "7", "r2", "w2")
        assert history.broken == broken


def test_a_lock_is_not_extended_while_another_attempt_holds_it() -> None:
    history = added()
    history.start(20, "7", "r1")
    history.start(1100, "7", "r2", "w2")
    history.extended(1300, "7", until=2300.0)
    assert history.broken == {"lock/overlap"}


def test_a_lock_that_was_lost_early_is_still_a_lock() -> None:
    history = added()
    history.start(20, "7")
    history.lost(300, "7")
    history.start(400, "7", "r2", "w2")
    assert history.broken == {"lock/overlap"}


@pytest.mark.parametrize("verb", ["cancel", "remove", "retry"])
def test_an_operation_may_take_a_job_away(verb: Any) -> None:
    history = added()
    history.start(20, "7")
    history.call(250, verb, "7", answer="unknown")
    history.start(400, "7", "r2", "w2")
    assert history.broken == set()


def test_without_a_known_lock_an_overlap_is_not_judged() -> None:
    history = added()
    history.start(20, "7", lock_ms=None)
    history.start(50, "7", "r2", "w2", lock_ms=None)
    assert history.broken == set()
    assert history.judged("lock") == 0


def test_the_promised_life_of_a_lock_is_used_where_a_start_has_none() -> None:
    for start, broken in ((300, {"lock/overlap"}), (500, set())):
        history = added(lock_ms=400)
        history.start(20, "7", lock_ms=None)
        history.start(start, "7", "r2", "w2", lock_ms=None)
        assert history.broken == broken


def test_a_job_of_a_killed_worker_starts_again_after_its_lock_ran_out() -> None:
    for start, broken in ((1100, set()), (500, {"lock/early_restart"})):
        history = added(max_attempts=1)
        history.start(20, "7", attempt=1)
        history.fault(100)
        history.run(start, start + 10, "7", "r2", "w2", attempt=1)
        assert history.broken == broken


def test_a_job_of_a_killed_worker_starts_again_when_it_was_recovered() -> None:
    for recovered_at, broken in ((400, set()), (600, {"lock/early_restart"})):
        history = added()
        history.start(20, "7")
        history.fault(100)
        history.event(recovered_at, "7", "stalled", "e1", server_at=float(recovered_at))
        history.run(500, 510, "7", "r2", "w2")
        assert history.broken == broken


def test_a_recovery_takes_no_lock_from_a_worker_that_lives() -> None:
    history = added()
    history.start(20, "7")
    history.event(400, "7", "stalled", "e1", server_at=400.0)
    history.start(500, "7", "r2", "w2")
    assert history.broken == {"lock/overlap"}


def test_a_job_of_a_killed_worker_starts_at_once_where_that_is_promised() -> None:
    history = added(early_recovery=True)
    history.start(20, "7")
    history.fault(100)
    history.run(110, 120, "7", "r2", "w2")
    assert history.broken == set()


def test_a_claim_that_a_failover_may_have_undone_is_no_lock() -> None:
    history = added()
    history.start(20, "7")
    history.fault(50, "failover", "server", may_lose_ms=45)
    history.run(60, 70, "7", "r2", "w2")
    assert history.broken == set()


@pytest.mark.parametrize(
    ("verdict", "broken"), [("refused", set()), ("applied", {"fence/applied_without_lock"})]
)
def test_a_settlement_after_the_lock_went_to_another_attempt_is_refused(
    verdict: Any, broken: set[str]
) -> None:
    history = added()
    history.run(20, 5000, "7", "r1", outcome="retry", verdict=verdict)
    history.start(1100, "7", "r2", "w2")
    assert history.broken == broken
    assert history.judged("fence") == 1


@pytest.mark.parametrize(("end", "broken"), [(900, {"fence/refused_with_lock"}), (1100, set())])
def test_a_settlement_is_not_refused_while_its_attempt_holds_the_lock(end: float, broken: set[str]) -> None:
    history = added()
    history.run(20, end, "7", verdict="refused")
    assert history.broken == broken
    assert history.judged("fence") == 1


def test_a_settlement_is_not_refused_while_its_lock_is_extended() -> None:
    history = added()
    history.start(20, "7")
    history.extended(500, "7", until=2000.0)
    history.end(1500, "7")
    history.settled(1501, "7", verdict="refused")
    assert history.broken == {"fence/refused_with_lock"}


def test_a_settlement_is_refused_after_an_operation_took_the_job_away() -> None:
    history = added()
    history.start(20, "7")
    history.call(25, "remove", "7")
    history.end(30, "7")
    history.settled(31, "7", verdict="refused")
    assert history.broken == set()


def test_a_settlement_with_a_lost_answer_may_be_refused_when_it_is_sent_again() -> None:
    history = added()
    history.start(20, "7")
    history.end(30, "7")
    history.settled(31, "7", verdict="unknown")
    history.settled(40, "7", verdict="refused")
    assert history.broken == set()


@pytest.mark.parametrize(("events", "broken"), [(1, set()), (0, {"attempts/wrong_number"})])
def test_a_claim_that_no_handler_saw_counts_where_stalls_are_attempts(events: int, broken: set[str]) -> None:
    history = added(stalls_are_attempts=True)
    for number in range(events):
        history.event(15, "7", "stalled", f"e{number}")
    history.start(20, "7", attempt=2)
    assert history.broken == broken


def test_a_settlement_after_the_lock_ran_out_may_be_applied_if_nobody_took_it() -> None:
    history = added()
    history.run(20, 5000, "7")
    assert history.broken == set()


def test_a_settlement_after_the_lock_was_lost_is_refused() -> None:
    history = added()
    history.start(20, "7")
    history.lost(1500, "7")
    history.end(2000, "7")
    history.settled(2001, "7")
    assert history.broken == {"fence/applied_after_loss"}


def test_a_lock_may_be_found_lost_while_the_settlement_is_under_way() -> None:
    history = added()
    history.start(20, "7")
    history.end(30, "7")
    history.lost(31, "7")
    history.settled(32, "7")
    assert history.broken == set()


def test_more_attempts_than_promised_are_reported() -> None:
    history = added(max_attempts=2)
    for number in (1, 2, 3):
        history.run(number * 100, number * 100 + 10, "7", f"r{number}", outcome="retry", attempt=number)
    assert history.broken == {"attempts/too_many"}


def test_a_job_may_have_a_number_of_attempts_of_its_own() -> None:
    history = Written(max_attempts=1)
    history.add(10, job=NewJob(id="7", max_attempts=3))
    for number in (1, 2, 3):
        history.run(number * 100, number * 100 + 10, "7", f"r{number}", outcome="retry", attempt=number)
    assert history.broken == set()


@pytest.mark.parametrize(
    ("verb", "last", "broken"),
    [("retry", 3, set()), ("retry", 4, {"attempts/too_many"}), ("replay", 4, set())],
)
def test_a_retry_grants_one_attempt_and_a_replay_all_of_them(verb: Any, last: int, broken: set[str]) -> None:
    history = added(max_attempts=2)
    history.run(20, 30, "7", "r1", outcome="retry")
    history.run(40, 50, "7", "r2", outcome="dead")
    history.call(60, verb, "7")
    for number in range(3, last + 1):
        history.run(number * 100, number * 100 + 10, "7", f"r{number}", outcome="retry")
    assert history.broken == broken


def test_a_stall_is_not_an_attempt() -> None:
    for number, broken in ((1, set()), (2, {"attempts/wrong_number"})):
        history = added()
        history.start(20, "7", attempt=1)
        history.fault(100)
        history.run(1100, 1110, "7", "r2", "w2", attempt=number)
        assert history.broken == broken


def test_a_stall_is_an_attempt_where_that_is_promised() -> None:
    history = added(max_attempts=2, stalls_are_attempts=True)
    history.start(20, "7", attempt=1)
    history.start(1100, "7", "r2", "w2", attempt=2)
    assert history.broken == set()
    history.start(2200, "7", "r3", "w3", attempt=3)
    assert history.broken == {"attempts/too_many"}


def test_more_stalls_than_promised_are_reported() -> None:
    for stalls, broken in ((2, set()), (1, {"attempts/too_many_stalls"})):
        history = added(max_stalls=stalls)
        for number in range(3):
            history.start(20 + 1100 * number, "7", f"r{number}", f"w{number}", attempt=1)
        assert history.broken == broken


def test_an_attempt_that_failed_is_counted_in_the_next_number() -> None:
    history = added()
    history.run(20, 30, "7", "r1", outcome="retry", attempt=1)
    history.run(40, 50, "7", "r2", attempt=1)
    assert history.broken == {"attempts/wrong_number"}


def test_an_attempt_without_an_answer_may_be_counted_or_not() -> None:
    for number, broken in ((1, set()), (2, set()), (3, {"attempts/wrong_number"})):
        history = added()
        history.run(20, 30, "7", "r1", outcome="retry", verdict="unknown", attempt=1)
        history.run(1100, 1110, "7", "r2", attempt=number)
        assert history.broken == broken


def test_a_released_attempt_is_not_counted() -> None:
    history = added(max_attempts=1)
    history.run(20, 30, "7", "r1", outcome="released", attempt=1)
    history.run(40, 50, "7", "r2", attempt=1)
    assert history.broken == set()


def test_the_stored_number_of_attempts_is_that_of_the_history() -> None:
    for stored, broken in ((1, set()), (2, {"attempts/wrong_count"})):
        history = added()
        history.run(20, 30, "7")
        history.dump(100, {"7": "completed"}, attempts_made=stored)
        assert history.broken == broken


def test_answers_that_were_lost_do_not_grant_attempts_without_end() -> None:
    history = added(max_attempts=2, max_stalls=1)
    for number in range(4):
        history.run(
            20 + 100 * number, 30 + 100 * number, "7", f"r{number}", outcome="retry", verdict="unknown"
        )
    assert history.broken == {"attempts/too_many_starts"}


def test_a_delayed_job_does_not_start_early() -> None:
    for start, broken in ((520, set()), (400, {"delay/early"})):
        history = Written()
        history.add(10, job=NewJob(id="7", delay=500))
        history.run(start, start + 10, "7")
        assert history.broken == broken
        assert history.judged("delay") == 1


def test_a_delayed_job_that_was_promoted_starts_early() -> None:
    history = Written()
    history.add(10, job=NewJob(id="7", delay=500))
    history.call(20, "promote", "7")
    history.run(30, 40, "7")
    assert history.broken == set()


def test_a_retry_does_not_start_before_its_delay() -> None:
    for start, broken in ((140, set()), (100, {"delay/early_retry"})):
        history = added()
        history.run(20, 30, "7", "r1", outcome="retry", delay=100)
        history.run(start, start + 10, "7", "r2")
        assert history.broken == broken
