"""The rules about jobs as a whole: origin, refused, place and leaks."""

from typing import Any

import pytest

from tests.faults.checker.records import NewJob
from tests.faults.checker.written import Written, key


def completed(**promises: Any) -> Written:
    """A job that was added and completed."""
    history = Written(**promises)
    history.add(10, "7")
    history.run(20, 30, "7")
    return history


def test_a_job_that_was_added_and_completed_breaks_no_rule() -> None:
    history = completed(drained=True)
    history.dump(
        100, {"7": "completed"}, keeps_ended=True, keys=[key("meta", "queue"), key("job:7", "job", "7")]
    )
    assert history.broken == set()
    assert history.judged("place") == history.judged("leaks") == history.judged("origin") == 1


def test_a_job_that_completed_may_be_gone() -> None:
    history = completed()
    history.dump(100)
    assert history.broken == set()


def test_a_job_that_completed_is_lost_where_ended_jobs_are_kept() -> None:
    history = completed()
    history.dump(100, keeps_ended=True)
    assert history.broken == {"place/lost"}


def test_a_job_that_was_removed_is_not_lost() -> None:
    history = completed()
    history.call(50, "remove", "7")
    history.dump(100, keeps_ended=True)
    assert history.broken == set()


@pytest.mark.parametrize("answer", ["unknown", None])
def test_a_job_that_may_have_been_removed_is_not_lost(answer: Any) -> None:
    history = completed()
    history.call(50, "remove", "7", answer=answer)
    history.dump(100, keeps_ended=True)
    assert history.broken == set()


def test_an_acknowledged_job_without_end_and_place_is_lost() -> None:
    history = Written()
    history.add(10, "7")
    history.dump(100)
    assert history.broken == {"place/lost"}


def test_a_started_job_without_end_and_place_is_lost() -> None:
    history = Written()
    history.add(10, "7", answer="unknown")
    history.start(20, "7")
    history.dump(100)
    assert history.broken == {"place/lost"}


def test_a_job_of_a_batch_is_lost_alone() -> None:
    history = Written()
    history.call(10, "add", jobs=[NewJob(id="a"), NewJob(id="b"), NewJob(id="c")])
    history.dump(100, {"a": "waiting", "c": "waiting"})
    report = history.check()
    assert [violation.jobs for violation in report.violations] == [("b",)]


def test_a_job_whose_settlement_has_no_answer_may_have_ended() -> None:
    for verdict in ("unknown", None):
        history = Written()
        history.add(10, "7")
        history.run(20, 30, "7", verdict=verdict)
        history.dump(100)
        assert history.broken == set()


def test_a_job_whose_settlement_has_no_answer_may_still_wait() -> None:
    history = Written()
    history.add(10, "7")
    history.run(20, 30, "7", verdict="unknown")
    history.dump(100, {"7": "waiting"})
    assert history.broken == set()


def test_a_refused_settlement_is_no_end() -> None:
    history = Written()
    history.add(10, "7")
    history.run(20, 30, "7", verdict="refused")
    history.dump(100)
    assert history.broken == {"place/lost", "fence/refused_with_lock"}


def test_a_job_that_stalled_too_often_may_have_died() -> None:
    history = Written(max_stalls=0)
    history.add(10, "7")
    history.start(20, "7")
    history.dump(5000)
    assert history.broken == set()


def test_an_add_without_an_answer_may_have_made_a_job_or_not() -> None:
    for places in ({}, {"7": "waiting"}):
        history = Written()
        history.add(10, "7", answer="unknown")
        history.dump(100, places)
        assert history.broken == set()


def test_an_add_that_was_repeated_with_its_id_makes_one_job() -> None:
    history = Written()
    history.add(10, "7", answer="unknown")
    history.add(20, "7", existed=[0])
    history.run(30, 40, "7")
    history.dump(100)
    assert history.broken == set()


def test_a_job_in_two_places_is_reported() -> None:
    for places in ("waiting active", "waiting waiting", "completed active"):
        history = Written()
        history.add(10, "7")
        history.dump(100, {"7": places})
        assert "place/two_places" in history.broken


def test_a_job_that_ended_has_no_place_beside_it() -> None:
    history = completed()
    history.dump(100, {"7": "waiting"})
    assert history.broken == {"place/ended_and_placed"}


def test_a_job_that_died_and_was_replayed_has_a_place_again() -> None:
    history = Written()
    history.add(10, "7")
    history.run(20, 30, "7", outcome="dead")
    history.call(50, "replay", "7")
    history.dump(100, {"7": "waiting"})
    assert history.broken == set()


def test_a_drained_queue_has_no_unfinished_job() -> None:
    history = Written(drained=True)
    history.add(10, "7")
    history.dump(100, {"7": "delayed"})
    assert history.broken == {"place/not_ended"}


def test_without_a_dump_places_are_not_judged() -> None:
    history = Written()
    history.add(10, "7")
    assert history.broken == set()
    assert "place" in history.check().not_judged


def test_what_a_failover_may_lose_is_not_lost() -> None:
    history = Written()
    history.add(10, "old")
    history.add(200, "new")
    history.fault(250, "failover", "server", may_lose_ms=100)
    history.dump(300)
    assert [violation.jobs for violation in history.check().violations] == [("old",)]


def test_a_job_that_nobody_added_is_reported() -> None:
    history = Written()
    history.run(20, 30, "7")
    assert history.broken == {"origin/from_nowhere"}


def test_a_job_of_an_add_without_id_and_answer_is_explained_once() -> None:
    history = Written()
    history.add(10, answer="unknown")
    history.run(20, 30, "1")
    assert history.broken == set()
    history.run(40, 50, "2", "r2")
    assert history.broken == {"origin/made_twice"}


def test_a_tag_names_one_job() -> None:
    history = Written()
    history.add(10, job=NewJob(tag="t"), answer="unknown")
    history.run(20, 30, "1", tag="t")
    assert history.broken == set()
    history.run(40, 50, "2", "r2", tag="t")
    assert history.broken == {"origin/made_twice"}


def test_the_server_gives_no_id_twice() -> None:
    history = Written()
    history.add(10, result=["1"])
    history.add(20, result=["1"])
    assert history.broken == {"origin/id_given_twice"}


def test_a_refused_add_that_left_nothing_breaks_no_rule() -> None:
    history = Written()
    history.add(10, "7", answer="refused")
    history.dump(100)
    assert history.broken == set()
    assert history.judged("refused") == 1


@pytest.mark.parametrize("trace", ["key", "state", "event", "start"])
def test_a_refused_add_leaves_nothing(trace: str) -> None:
    history = Written()
    history.add(10, "7", answer="refused")
    if trace == "event":
        history.event(20, "7", "added")
    elif trace == "start":
        history.run(20, 30, "7")
    elif trace == "state":
        history.dump(100, {"7": "waiting"})
    else:
        history.dump(100, keys=[key("job:7", "job", "7")])
    assert history.broken == {"refused/left_something"}


def test_a_refused_job_of_a_batch_leaves_nothing() -> None:
    history = Written()
    history.call(10, "add", jobs=[NewJob(id="a"), NewJob(id="b")], result=["a", None])
    history.dump(100, {"a": "waiting", "b": "waiting"})
    assert history.broken == {"refused/left_something"}
    assert history.check().violations[0].jobs == ("b",)


def test_a_refused_add_with_a_tag_leaves_nothing() -> None:
    history = Written()
    history.add(10, job=NewJob(tag="t"), answer="refused")
    history.run(20, 30, "1", tag="t")
    assert history.broken == {"refused/left_something"}


def test_a_job_that_was_refused_and_then_added_is_there() -> None:
    history = Written()
    history.add(10, "7", answer="refused")
    history.add(20, "7")
    history.dump(100, {"7": "waiting"})
    assert history.broken == set()


def test_the_lock_of_a_running_job_is_no_leak() -> None:
    history = Written()
    history.add(10, "7")
    history.start(20, "7")
    history.dump(100, {"7": "active"}, keys=[key("job:7", "job", "7"), key("lock:7", "lock", "7")])
    assert history.broken == set()
    assert history.judged("leaks") == 2


def test_the_lock_of_a_job_that_does_not_run_is_a_leak() -> None:
    history = completed()
    history.dump(100, {"7": "completed"}, keys=[key("lock:7", "lock", "7")])
    assert history.broken == {"leaks/lock"}


def test_a_key_of_a_job_that_is_gone_is_a_leak() -> None:
    history = completed()
    history.dump(100, keys=[key("job:7:logs", "job", "7")])
    assert history.broken == {"leaks/orphan"}


def test_a_key_of_a_job_that_never_was_is_a_leak() -> None:
    history = Written()
    history.dump(100, keys=[key("job:8", "job", "8")])
    assert history.broken == {"leaks/orphan"}


def test_a_key_of_nobody_is_a_leak() -> None:
    history = Written()
    history.dump(100, keys=[key("tmp:1", "stray")])
    assert history.broken == {"leaks/stray"}
