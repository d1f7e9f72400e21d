"""The rules about ends: end_once, events and result."""

from typing import Any

import pytest

from tests.faults.checker.written import Written


def added(**promises: Any) -> Written:
    history = Written(**promises)
    history.add(10, "7")
    return history


def test_one_end_breaks_no_rule() -> None:
    history = added(events=True)
    history.run(20, 30, "7")
    history.event(31, "7", "completed", "e1", value="MQ==")
    history.result(40, "7", "MQ==")
    assert history.broken == set()
    assert history.judged("end_once") == history.judged("result") == 1
    assert history.judged("events") == 2


def test_two_applied_settlements_are_two_ends() -> None:
    history = added()
    history.run(20, 30, "7", "r1", lock_ms=None)
    history.run(20, 32, "7", "r2", "w2", lock_ms=None)
    assert history.broken == {"end_once/ended_twice"}


def test_a_settlement_that_was_sent_again_is_one_end() -> None:
    for verdict in ("applied", "refused"):
        history = added()
        history.run(20, 30, "7", verdict="unknown")
        history.settled(50, "7", verdict=verdict)
        assert history.broken == set()


def test_a_refused_settlement_beside_an_applied_one_is_one_end() -> None:
    history = added()
    history.run(20, 3000, "7", "r1", verdict="refused")
    history.run(1500, 1600, "7", "r2", "w2")
    assert history.broken == set()


def test_a_cancel_that_was_acknowledged_and_a_settlement_are_two_ends() -> None:
    history = added()
    history.call(15, "cancel", "7")
    history.run(20, 30, "7", requested_at=14.0)
    assert "end_once/ended_twice" in history.broken


def test_a_cancel_that_only_requested_the_end_is_no_end() -> None:
    history = added()
    history.call(25, "cancel", "7", result=[])
    history.run(20, 30, "7")
    assert history.broken == set()


def test_a_cancel_without_an_answer_may_have_ended_the_job() -> None:
    history = added()
    history.call(15, "cancel", "7", answer="unknown")
    history.dump(100)
    assert history.broken == set()


def test_a_dead_job_that_is_replayed_may_end_again() -> None:
    history = added()
    history.run(20, 30, "7", outcome="dead")
    history.call(40, "replay", "7")
    history.run(50, 60, "7", "r2")
    assert history.broken == set()


def test_one_replay_allows_one_more_end() -> None:
    history = added()
    history.run(20, 30, "7", outcome="dead")
    history.call(40, "replay", "7")
    history.run(50, 60, "7", "r2", outcome="dead")
    history.run(70, 80, "7", "r3")
    assert {"end_once/ended_twice", "end_once/started_after_end"} <= history.broken


def test_a_replay_before_the_end_explains_no_second_one() -> None:
    history = added()
    history.call(15, "replay", "7")
    history.run(20, 30, "7", "r1", lock_ms=None)
    history.run(25, 32, "7", "r2", "w2", lock_ms=None)
    assert history.broken == {"end_once/ended_twice"}


def test_a_job_does_not_start_after_its_end() -> None:
    history = added()
    history.run(20, 30, "7")
    history.start(100, "7", "r2", "w2")
    assert history.broken == {"end_once/started_after_end"}


def test_a_start_after_its_own_lock_ran_out_is_an_old_claim() -> None:
    history = added()
    history.run(20, 30, "7")
    history.start(2000, "7", "r2", "w2", lock_ms=-500)
    assert history.broken == set()


def test_a_cancelled_job_does_not_start() -> None:
    history = added()
    history.call(15, "cancel", "7")
    history.start(100, "7")
    assert history.broken == {"end_once/started_after_end"}


def test_a_removed_job_is_not_settled_afterwards() -> None:
    history = added()
    history.start(12, "7")
    history.call(15, "remove", "7")
    history.end(100, "7")
    history.settled(101, "7")
    assert history.broken == {"end_once/ended_twice"}


def test_a_job_may_be_removed_after_its_end() -> None:
    history = added()
    history.run(20, 30, "7")
    history.call(40, "remove", "7")
    history.dump(100, keeps_ended=True)
    assert history.broken == set()


def test_an_id_that_is_used_again_is_a_new_job_where_that_is_promised() -> None:
    for reuse_ids, broken in ((True, set()), (False, {"end_once/ended_twice", "end_once/started_after_end"})):
        history = added(reuse_ids=reuse_ids)
        history.run(20, 30, "7", value="MQ==")
        history.add(50, "7")
        history.run(60, 70, "7", "r2", value="Mg==")
        assert history.broken == broken


def test_an_event_that_was_read_twice_is_one_end() -> None:
    history = added()
    history.run(20, 30, "7")
    history.event(31, "7", "completed", "e1")
    history.event(90, "7", "completed", "e1")
    assert history.broken == set()


def test_two_events_are_two_ends() -> None:
    history = added()
    history.run(20, 30, "7")
    history.event(31, "7", "completed", "e1")
    history.event(32, "7", "completed", "e2")
    assert history.broken == {"end_once/logged_twice"}


def test_events_without_ids_count_once() -> None:
    history = added()
    history.run(20, 30, "7")
    history.event(31, "7", "completed")
    history.event(32, "7", "completed")
    assert history.broken == set()


@pytest.mark.parametrize("source", ["event", "state"])
def test_all_records_have_the_same_outcome(source: str) -> None:
    history = added()
    history.run(20, 30, "7", outcome="dead")
    if source == "event":
        history.event(31, "7", "cancelled", "e1")
    else:
        history.dump(100, {"7": "cancelled"})
    assert history.broken == {"end_once/outcomes_differ"}


def test_an_end_that_a_failover_may_have_undone_may_come_again() -> None:
    history = added()
    history.run(20, 30, "7", value="MQ==")
    history.event(31, "7", "completed", "e1", value="MQ==")
    history.fault(50, "failover", "server", may_lose_ms=45)
    history.run(60, 70, "7", "r2", "w2", value="Mg==")
    history.event(71, "7", "completed", "e2", value="Mg==")
    assert history.broken == set()


def test_an_end_missing_in_the_event_log_is_reported_where_it_is_complete() -> None:
    for complete, broken in ((True, {"events/missing"}), (None, set())):
        history = added(events=complete)
        history.run(20, 30, "7")
        assert history.broken == broken


def test_an_end_that_no_handler_brought_about_is_reported() -> None:
    history = added(events=True)
    history.run(20, 30, "7", verdict="refused")
    history.event(31, "7", "completed", "e1")
    assert history.broken == {"events/invented", "fence/refused_with_lock"}


def test_a_completed_job_needs_a_handler_that_returned() -> None:
    history = added()
    history.start(20, "7")
    history.dump(100, {"7": "completed"})
    assert history.broken == {"result/by_nobody"}


@pytest.mark.parametrize("source", ["result", "event", "state"])
def test_a_result_is_what_the_handler_returned(source: str) -> None:
    for value, broken in (("MQ==", set()), ("MQ= =", {"result/differs"})):
        history = added()
        history.run(20, 30, "7", value="MQ==")
        if source == "result":
            history.result(40, "7", value)
        elif source == "event":
            history.event(40, "7", "completed", "e1", value=value)
        else:
            history.dump(100, {"7": "completed"}, result=value)
        assert history.broken == broken


def test_a_result_is_that_of_the_attempt_that_was_applied() -> None:
    for value, broken in (("Mg==", set()), ("MQ==", {"result/differs"})):
        history = added()
        history.run(20, 3000, "7", "r1", verdict="refused", value="MQ==")
        history.run(1500, 1600, "7", "r2", "w2", value="Mg==")
        history.result(4000, "7", value)
        assert history.broken == broken


def test_a_result_may_be_that_of_an_attempt_without_an_answer() -> None:
    history = added()
    history.run(20, 30, "7", verdict="unknown", value="MQ==")
    history.result(40, "7", "MQ==")
    assert history.broken == set()
