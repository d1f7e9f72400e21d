"""Every number the contracts name for the time between attempts."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from corral.core.job import Backoff, Job, JobOptions
from corral.core.retry import BACKOFF_CAP_MS, LONGEST_DELAY_MS, backoff_ms, delay_before

EXPONENTIAL = Backoff("exponential", 1000)


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [
        *((n + 1, 2**n) for n in range(11)),  # 1s, 2s, 4s, 8s … 512s, 1024s
        (12, 2048),
        *((n, 3600) for n in (13, 14, 15, 20, 100, 10_000)),
    ],
)
def test_exponential_delays_follow_the_formula_up_to_an_hour(attempt: int, seconds: int) -> None:
    assert backoff_ms(EXPONENTIAL, attempt) == seconds * 1000


def test_before_the_first_attempt_the_base_delay_holds() -> None:
    assert [backoff_ms(EXPONENTIAL, attempt) for attempt in (-1, 0)] == [1000, 1000]


def test_the_cap_holds_from_the_first_attempt_on() -> None:
    assert backoff_ms(Backoff("exponential", 7_200_000), 1) == BACKOFF_CAP_MS == 3_600_000


def test_a_fixed_delay_is_always_the_same_and_never_capped() -> None:
    assert {backoff_ms(Backoff("fixed", 5000), attempt) for attempt in (1, 2, 50)} == {5000}
    assert backoff_ms(Backoff("fixed", 7_200_000), 1) == 7_200_000


def test_without_a_cap_the_delay_doubles_on_and_still_fits_every_peer() -> None:
    assert backoff_ms(EXPONENTIAL, 15, cap=None) == 2**14 * 1000
    assert backoff_ms(EXPONENTIAL, 10_000, cap=None) == LONGEST_DELAY_MS == 2**53 - 1


@given(
    kind=some.sampled_from(["fixed", "exponential"]),
    delay=some.integers(1, 10**7),
    jitter=some.floats(0, 1),
    attempt=some.integers(0, 10_000),
    draw=some.floats(0, 1, exclude_max=True),
)
def test_jitter_takes_away_at_most_its_share(
    kind: str, delay: int, jitter: float, attempt: int, draw: float
) -> None:
    whole = backoff_ms(Backoff(kind, delay), attempt)
    shaken = backoff_ms(Backoff(kind, delay, jitter), attempt, random=lambda: draw)
    assert isinstance(shaken, int)
    # floor() may take one more millisecond
    assert whole * (1 - jitter) - 1 <= shaken <= whole


def test_jitter_reaches_both_ends() -> None:
    shaken = Backoff("fixed", 1000, 0.5)
    assert backoff_ms(shaken, 1, random=lambda: 0.0) == 500
    assert backoff_ms(shaken, 1, random=lambda: 0.5) == 750
    assert backoff_ms(shaken, 1, random=lambda: 1.0) == 1000
    drawn = [backoff_ms(Backoff("exponential", 1000, 1.0), 3, random=Random(7).random) for _ in range(5)]
    assert all(0 <= delay <= 4000 for delay in drawn)


def delay_of(backoff: Backoff | None, rule: Any = None, cap: int | None = BACKOFF_CAP_MS) -> int:
    job = Job(name="n", data={}, queue="q", options=JobOptions(backoff=backoff))
    return delay_before(job, 2, ValueError("why"), rule, cap, lambda: 1.0)


def test_a_job_without_backoff_runs_again_at_once() -> None:
    assert delay_of(None) == 0


def test_a_job_with_backoff_waits_by_it_and_not_by_the_rule() -> None:
    assert delay_of(EXPONENTIAL, rule=lambda *_: 5) == 2000


def test_a_rule_of_ones_own_is_asked_with_all_that_is_known() -> None:
    arguments: list[Any] = []

    def rule(attempts: int, kind: str, error: BaseException, job: Job) -> int:
        arguments.extend([attempts, kind, str(error), job.name])
        return 1234

    assert delay_of(Backoff("custom"), rule) == 1234
    assert arguments == [2, "custom", "why", "n"]


def test_a_rule_may_say_no_more() -> None:
    assert delay_of(Backoff("custom"), lambda *_: -1) == -1


def test_a_rule_is_capped_where_a_cap_is_set() -> None:
    assert delay_of(Backoff("custom"), lambda *_: 10**9) == BACKOFF_CAP_MS
    assert delay_of(Backoff("custom"), lambda *_: 10**9, cap=None) == 10**9
    assert delay_of(Backoff("custom"), lambda *_: 10**30, cap=None) == LONGEST_DELAY_MS


def test_a_kind_nobody_has_a_rule_for_is_an_error() -> None:
    with pytest.raises(LookupError, match="'custom' needs a rule, and this worker has none"):
        delay_of(Backoff("custom"))
