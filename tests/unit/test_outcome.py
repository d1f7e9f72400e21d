"""How an attempt ends: every path of the one function that decides it."""

import asyncio
from typing import Any

import pytest

from corral import errors
from corral.core.job import Backoff, Job, JobOptions
from corral.core.known_errors import FailureKind
from corral.core.outcome import (
    Abandoned,
    Cancelled,
    Dead,
    Outcome,
    Postponed,
    Released,
    Retry,
    RetryPolicy,
    decide,
    reason_of,
)
from corral.core.retry import classifier

POLICY = RetryPolicy()


def outcome(
    error: BaseException, policy: RetryPolicy = POLICY, attempts_made: int = 0, **options: Any
) -> Outcome:
    job = Job(name="n", data={}, queue="q", attempts_made=attempts_made, options=JobOptions(**options))
    return decide(job, error, "trace", policy)


def test_a_transient_failure_is_tried_again_after_its_backoff() -> None:
    assert outcome(ConnectionError("gone")) == Retry(1000, "gone", "trace", "ConnectionError")
    assert outcome(ConnectionError("gone"), attempts_made=1) == Retry(
        2000, "gone", "trace", "ConnectionError"
    )


def test_the_last_attempt_ends_the_job() -> None:
    assert outcome(ConnectionError("gone"), attempts_made=2) == Dead("gone", "trace", "ConnectionError")
    assert outcome(ConnectionError("gone"), attempts_made=7) == Dead("gone", "trace", "ConnectionError")
    assert outcome(ConnectionError("gone"), attempts=1) == Dead("gone", "trace", "ConnectionError")


def test_attempts_of_zero_mean_one_run() -> None:
    assert outcome(ConnectionError("gone"), attempts=0) == Dead("gone", "trace", "ConnectionError")


def test_a_permanent_failure_ends_the_job_at_once() -> None:
    assert outcome(ValueError("bad address")) == Dead("bad address", "trace", "ValueError")


def test_a_job_without_backoff_is_tried_again_at_once() -> None:
    assert outcome(ConnectionError("gone"), backoff=None) == Retry(0, "gone", "trace", "ConnectionError")


def test_handlers_may_postpone_give_back_or_be_cancelled_without_spending_an_attempt() -> None:
    assert outcome(errors.Postpone(500), attempts_made=2) == Postponed(500)
    assert outcome(errors.Postpone(-5)) == Postponed(0)
    assert outcome(errors.Release(), attempts_made=2) == Released()
    assert outcome(errors.JobCancelled(), attempts_made=2) == Cancelled()


def test_a_lone_error_in_a_task_group_speaks_for_the_handler() -> None:
    async def handler() -> None:
        async def child() -> None:
            raise errors.Postpone(70)

        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(handler())
    assert outcome(caught.value) == Postponed(70)
    nested = ExceptionGroup("g", [ExceptionGroup("h", [ValueError("inner")])])
    assert outcome(nested) == Dead("inner", "trace", "ValueError")


def test_several_errors_in_a_group_are_judged_together() -> None:
    assert isinstance(outcome(ExceptionGroup("g", [ConnectionError(), TimeoutError()])), Retry)
    assert isinstance(outcome(ExceptionGroup("g", [ConnectionError(), ValueError()])), Dead)


@pytest.mark.parametrize(
    "classify", [None, lambda _: FailureKind.TRANSIENT, classifier(retry_on=[Exception])]
)
def test_unrecoverable_ends_the_job_under_every_policy(classify: Any) -> None:
    policy = RetryPolicy(classify=classify)
    assert outcome(errors.Unrecoverable("never"), policy) == Dead("never", "trace", "Unrecoverable")
    theirs = type("UnrecoverableError", (Exception,), {})
    assert outcome(theirs("never"), policy) == Dead("never", "trace", "UnrecoverableError")


def test_transient_is_tried_again_under_every_policy() -> None:
    policy = RetryPolicy(classify=lambda _: FailureKind.PERMANENT)
    assert outcome(errors.Transient("again"), policy) == Retry(1000, "again", "trace", "Transient")


def test_without_a_table_everything_else_is_tried_again() -> None:
    assert outcome(ValueError("bad"), RetryPolicy(classify=None)) == Retry(1000, "bad", "trace", "ValueError")


def test_own_rules_decide_for_the_worker() -> None:
    policy = RetryPolicy(classify=classifier(retry_on=[KeyError], give_up_on=["builtins.ConnectionError"]))
    assert isinstance(outcome(KeyError("x"), policy), Retry)
    assert isinstance(outcome(ConnectionResetError(), policy), Dead)


def test_a_classifier_may_answer_in_plain_words() -> None:
    assert isinstance(outcome(ValueError(), RetryPolicy(classify=lambda _: "transient")), Retry)  # type: ignore[arg-type,return-value]
    assert isinstance(outcome(ConnectionError(), RetryPolicy(classify=lambda _: None)), Dead)  # type: ignore[arg-type,return-value]


def test_the_workers_own_backoff_rule_decides_the_delay_and_may_say_no_more() -> None:
    custom = Backoff("custom")
    assert outcome(OSError(11, "x"), RetryPolicy(backoff_rule=lambda *_: 42), backoff=custom) == Retry(
        42, "[Errno 11] x", "trace", "BlockingIOError"
    )
    assert isinstance(outcome(TimeoutError(), RetryPolicy(backoff_rule=lambda *_: -1), backoff=custom), Dead)


def test_the_cap_and_the_jitter_are_the_policys() -> None:
    slow = {"attempts": 50, "backoff": Backoff("exponential", 1000, 0.5)}
    assert outcome(TimeoutError("t"), attempts_made=20, **slow) == Retry(
        3_600_000, "t", "trace", "TimeoutError"
    )
    policy = RetryPolicy(cap=10_000, random=lambda: 0.0)
    assert outcome(TimeoutError("t"), policy, attempts_made=20, **slow) == Retry(
        5_000, "t", "trace", "TimeoutError"
    )


def fails(*_: Any) -> Any:
    raise RuntimeError("a bug in the rule")


@pytest.mark.parametrize(
    ("policy", "backoff"),
    [
        (RetryPolicy(classify=fails), Backoff()),
        (RetryPolicy(backoff_rule=fails), Backoff("custom")),
        (RetryPolicy(backoff_rule=lambda *_: None), Backoff("custom")),  # type: ignore[arg-type,return-value]
        (RetryPolicy(backoff_rule=lambda *_: float("nan")), Backoff("custom")),  # type: ignore[arg-type,return-value]
    ],
)
def test_a_rule_that_fails_itself_still_ends_the_job_and_the_trace_says_why(
    policy: RetryPolicy, backoff: Backoff
) -> None:
    ended = outcome(ConnectionError("gone"), policy, backoff=backoff)
    assert isinstance(ended, Dead)
    assert ended.reason == "gone"
    assert ended.trace.startswith("trace\nno other attempt, because the retry policy failed: ")


def test_a_postponement_nobody_can_read_ends_the_job() -> None:
    ended = outcome(errors.Postpone("soon"))  # type: ignore[arg-type]
    assert isinstance(ended, Dead)


def test_a_reason_is_the_message_or_else_the_type() -> None:
    assert reason_of(ValueError("bad address")) == "bad address"
    assert reason_of(ValueError()) == "ValueError"


def test_a_reason_can_always_be_written_down() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert reason_of(Mute()) == "Mute"
    assert reason_of(ValueError("half \ud83d")) == "half \\ud83d"
    assert reason_of(ValueError("ganz 😀")) == "ganz 😀"


def test_a_job_with_a_kind_of_backoff_this_worker_has_no_rule_for_is_left_to_others() -> None:
    ended = outcome(ConnectionError("gone"), RetryPolicy(), backoff=Backoff("custom"))
    assert isinstance(ended, Abandoned)
    assert "'custom' needs a rule" in ended.reason
    assert ended.reason.endswith("gone")
    assert isinstance(outcome(ValueError("bad"), RetryPolicy(), backoff=Backoff("custom")), Dead)
