"""What a producer may ask for: every rule, its default, and what the refusal says."""

import math
from datetime import timedelta
from typing import Any

import pytest

from corral.core.job import Backoff, Job, JobOptions, Keep, Unique
from corral.core.options import LONGEST_DELAY_MS, Capability, build
from corral.core.ports import Limit
from corral.core.retry import delay_before
from corral.core.schedule import ScheduleRule
from corral.errors import CorralWarning, InvalidOptions, Unsupported
from corral.store.client import Reconnect
from corral.worker_options import profile_of

ALL = frozenset(Capability)
LAST_MILLISECOND_OF_2033 = 2_019_686_399_999


def options(**given: Any) -> JobOptions:
    return build("bullmq", ALL, **given)


def refusal(**given: Any) -> str:
    with pytest.raises(InvalidOptions) as caught:
        options(**given)
    return str(caught.value)


# -- defaults


def test_the_defaults_are_those_of_the_contract() -> None:
    assert options() == JobOptions(
        priority=0,
        delay=0,
        attempts=3,
        backoff=Backoff("exponential", 1000),
        keep_completed=None,
        keep_dead=None,
        lifo=False,
        keep_logs=1000,
    )


def test_none_counts_as_not_given() -> None:
    names = "priority delay attempts backoff remove_on_complete remove_on_fail lifo keep_logs"
    assert options(**dict.fromkeys(names.split())) == options()


def test_a_mapping_and_names_say_the_same() -> None:
    assert build("bullmq", ALL, frozenset(), {"delay": 5}) == options(delay=5)
    assert build("bullmq", ALL, frozenset(), {"delay": 5}, delay=6) == options(delay=6)


# -- priority


@pytest.mark.parametrize("priority", [0, 1, 10, 2**21])
def test_priority_goes_from_none_to_two_to_the_twenty_one(priority: int) -> None:
    assert options(priority=priority).priority == priority


def test_a_negative_priority_is_refused_with_the_way_out() -> None:
    assert refusal(priority=-1) == ("priority is -1; use 0 (no priority) or a positive number up to 2097152")


@pytest.mark.parametrize("priority", [2**21 + 1, 1.0, 1.5, True, False, "1", math.nan, [1]])
def test_a_priority_that_is_no_number_in_range_is_refused(priority: Any) -> None:
    assert refusal(priority=priority).startswith(f"priority is {priority!r}; use 0")


# -- delay


@pytest.mark.parametrize("delay", [0, 1, 86_400_000, LONGEST_DELAY_MS])
def test_a_delay_is_any_number_of_milliseconds_up_to_five_years(delay: int) -> None:
    assert options(delay=delay).delay == delay


@pytest.mark.parametrize("delay", [-1, LONGEST_DELAY_MS + 1, 1000.0, True, "1000", math.inf, 10**70])
def test_a_delay_outside_its_limits_is_refused_and_the_limit_is_named(delay: Any) -> None:
    said = refusal(delay=delay)
    assert said.startswith("delay is ")
    assert said.endswith(
        "use 0 (at once) or whole milliseconds up to 157680000000 (five years), or a timedelta"
    )


def test_the_longest_delay_still_has_an_exact_due_time() -> None:
    assert (LAST_MILLISECOND_OF_2033 + LONGEST_DELAY_MS) * 4096 < 2**53


# -- attempts


@pytest.mark.parametrize("attempts", [1, 3, 5, 1_000_000])
def test_attempts_are_one_or_more(attempts: int) -> None:
    assert options(attempts=attempts).attempts == attempts


@pytest.mark.parametrize("attempts", [0, -1, 2.0, True, "3", 2**53])
def test_attempts_below_one_or_not_whole_are_refused(attempts: Any) -> None:
    assert refusal(attempts=attempts) == (
        f"attempts is {attempts!r}; use a whole number from 1 (run once, never again)"
    )


# -- backoff


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("exponential", Backoff("exponential", 1000)),
        ("fixed", Backoff("fixed", 1000)),
        ("custom", Backoff("custom", 1000)),
        (250, Backoff("fixed", 250)),
        ({"type": "exponential", "delay": 2000}, Backoff("exponential", 2000)),
        ({"type": "fixed"}, Backoff("fixed", 1000)),
        ({"type": "fixed", "delay": 10, "jitter": 0.5}, Backoff("fixed", 10, 0.5)),
        ({"type": "fixed", "delay": 10, "jitter": 1}, Backoff("fixed", 10, 1.0)),
        (Backoff("fixed", 7, 0.1), Backoff("fixed", 7, 0.1)),
        (None, Backoff("exponential", 1000)),
    ],
)
def test_backoff_may_be_a_word_a_number_a_dict_or_a_value(given: Any, meant: Backoff) -> None:
    assert options(backoff=given).backoff == meant


@pytest.mark.parametrize("kind", ["linear", "", "Exponential", None, 5, ["fixed"]])
def test_a_backoff_type_nobody_knows_is_refused(kind: Any) -> None:
    assert refusal(backoff={"type": kind}) == (
        f"backoff type is {kind!r}; use 'fixed', 'exponential', or 'custom' (the worker's own rule)"
    )


def test_a_backoff_without_type_is_refused() -> None:
    assert refusal(backoff={"delay": 1000}).startswith("backoff type is None; use 'fixed'")


@pytest.mark.parametrize("delay", [0, -1, 1.5, 1000.0, True, "1000", None, LONGEST_DELAY_MS + 1])
def test_a_backoff_delay_that_is_not_positive_is_refused(delay: Any) -> None:
    assert refusal(backoff={"type": "fixed", "delay": delay}) == (
        f"backoff delay is {delay!r}; "
        f"use whole milliseconds from 1 up to 157680000000 (five years), or a timedelta"
    )


@pytest.mark.parametrize("given", [0, -5, Backoff("fixed", 0)])
def test_every_spelling_of_a_backoff_is_checked(given: Any) -> None:
    assert refusal(backoff=given).startswith("backoff delay is ")
    assert refusal(backoff="never").startswith("backoff type is 'never'")


@pytest.mark.parametrize("jitter", [-0.1, 1.1, math.nan, True, "0.5", None])
def test_jitter_is_a_share_from_none_to_all(jitter: Any) -> None:
    said = refusal(backoff={"type": "fixed", "delay": 1, "jitter": jitter})
    assert said == f"backoff jitter is {jitter!r}; use a share of the delay, from 0 to 1"


@pytest.mark.parametrize("given", [True, 1.5, ["fixed"], object])
def test_a_backoff_of_another_type_is_refused(given: Any) -> None:
    assert "use 'fixed', 'exponential', milliseconds, a timedelta, or {'type': …" in refusal(backoff=given)


def test_a_misspelt_part_of_a_backoff_is_refused() -> None:
    said = refusal(backoff={"type": "fixed", "wait": 5})
    assert said == "backoff has 'wait'; use 'type', 'delay', 'jitter'"


# -- what is kept of finished jobs


KEPT = [("remove_on_complete", "keep_completed"), ("remove_on_fail", "keep_dead")]


@pytest.mark.parametrize(("option", "field"), KEPT)
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (True, Keep(count=0)),
        (0, Keep(count=0)),
        (False, Keep(count=None, age=None)),
        (1, Keep(count=1)),
        (10_000, Keep(count=10_000)),
        ({"age": 3600}, Keep(age=3600)),
        ({"count": 5}, Keep(count=5)),
        ({"age": 3600, "count": 5}, Keep(count=5, age=3600)),
        (Keep(count=5, age=60), Keep(count=5, age=60)),
        (None, None),
    ],
)
def test_removal_says_how_much_is_kept(option: str, field: str, given: Any, meant: Keep | None) -> None:
    assert getattr(options(**{option: given}), field) == meant


def test_keeping_all_is_more_than_saying_nothing() -> None:
    assert options(remove_on_complete=False) != options()


@pytest.mark.parametrize(("option", "_"), KEPT)
@pytest.mark.parametrize("given", [-1, 1.0, "5", {"count": -1}, {"count": True}, {"count": 2.0}, [5]])
def test_a_number_to_keep_below_zero_or_not_whole_is_refused(option: str, _: str, given: Any) -> None:
    said = refusal(**{option: given})
    assert said.startswith(f"{option} is ")
    assert said.endswith("use True (remove), False (keep all), or how many to keep, from 0")


@pytest.mark.parametrize(("option", "_"), KEPT)
def test_an_age_is_whole_seconds_from_one(option: str, _: str) -> None:
    for age in (0, -1, 1.5, True):
        assert refusal(**{option: {"age": age}}).startswith(f"{option} age is {age!r}; use whole seconds")
    assert refusal(**{option: {}}) == f"{option} is empty; give it 'age' (seconds), 'count', or both"
    assert refusal(**{option: {"ages": 5}}) == f"{option} has 'ages'; use 'age', 'count'"


@pytest.mark.parametrize(("option", "field"), KEPT)
@pytest.mark.parametrize("given", [10_001, {"count": 10_001}, Keep(count=10_001)])
def test_keeping_more_than_ten_thousand_is_done_with_a_warning(option: str, field: str, given: Any) -> None:
    with pytest.warns(CorralWarning, match=f"{option} keeps 10001 jobs; above 10000"):
        kept = options(**{option: given})
    assert getattr(kept, field).count == 10_001


# -- the rest


def test_lifo_is_yes_or_no() -> None:
    assert options(lifo=True).lifo is True
    assert refusal(lifo=1) == "lifo is 1; use True (next to run) or False"


def test_log_lines_to_keep_are_one_or_more() -> None:
    assert options(keep_logs=5).keep_logs == 5
    assert refusal(keep_logs=0) == "keep_logs is 0; use how many lines to keep, from 1"
    assert refusal(keep_logs=True).startswith("keep_logs is True")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("removeOnComplete", "remove_on_complete"),
        ("remove_on_failed", "remove_on_fail"),
        ("prioritiy", "priority"),
        ("attempt", "attempts"),
        ("Delay", "delay"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(wrong: str, right: str) -> None:
    assert refusal(**{wrong: 1}) == f"there is no option {wrong!r}; did you mean {right!r}?"


def test_an_option_like_no_other_is_refused_with_all_names() -> None:
    said = refusal(xyz=1)
    assert said.startswith("there is no option 'xyz'; use any of attempts, backoff, debounce, delay, ")


def test_a_refused_option_is_not_hidden_by_none() -> None:
    assert "did you mean 'delay'?" in refusal(dely=None)


# -- protocols


STREAMS = frozenset({Capability.CUSTOM_ID, Capability.TTL, Capability.IDEMPOTENCY})


def test_a_protocols_own_options_go_through_as_they_are() -> None:
    built = build("streams", STREAMS, extras=frozenset({"ttl_s"}), ttl_s=60)
    assert built.extra == {"ttl_s": 60}
    with pytest.raises(InvalidOptions, match="did you mean 'ttl_s'"):
        build("streams", STREAMS, extras=frozenset({"ttl_s"}), ttl=60)
    with pytest.raises(InvalidOptions, match="there is no option 'ttl_s'"):
        options(ttl_s=60)


def test_a_protocol_without_retries_runs_a_job_once() -> None:
    built = build("streams", STREAMS)
    assert (built.attempts, built.backoff, built.keep_logs) == (1, None, None)


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ({"priority": 1}, "priority"),
        ({"delay": 1000}, "delay"),
        ({"attempts": 3}, "retry"),
        ({"backoff": "fixed"}, "retry"),
        ({"remove_on_complete": True}, "removal policies"),
        ({"remove_on_fail": False}, "removal policies"),
        ({"lifo": True}, "lifo"),
        ({"keep_logs": 10}, "logs"),
    ],
)
def test_what_a_protocol_cannot_keep_is_refused_where_asked_for(given: dict[str, Any], lacking: str) -> None:
    with pytest.raises(Unsupported) as caught:
        build("streams", STREAMS, **given)
    [(name, value)] = given.items()
    assert str(caught.value) == (
        f"protocol 'streams' has no {lacking}, so {name}={value!r} cannot be kept; "
        f"leave it out, or use a protocol that has it"
    )


@pytest.mark.parametrize("given", [{"priority": 0}, {"delay": 0}, {"attempts": 1}, {"lifo": False}])
def test_what_asks_for_nothing_is_kept_by_every_protocol(given: dict[str, Any]) -> None:
    assert build("streams", STREAMS, **given) == build("streams", STREAMS)


@pytest.mark.parametrize("given", [{"attempts": 0}, {"delay": -1}, {"priority": 2**22}, {"backoff": "x"}])
def test_the_limits_are_the_same_in_every_protocol(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions) as theirs:
        build("streams", STREAMS, **given)
    assert str(theirs.value) == refusal(**given)


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("value", [1 << 20_000, Unshowable(), "x" * 1_000_000, [[[[]]]] * 10_000], ids=type)
@pytest.mark.parametrize("name", ["priority", "delay", "attempts", "backoff", "remove_on_fail", "keep_logs"])
def test_a_refusal_is_short_whatever_was_given(name: str, value: Any) -> None:
    said = refusal(**{name: value})
    assert said.startswith(f"{name} ")
    assert len(said) < 300


# -- unique jobs


@pytest.mark.parametrize(
    ("given", "unique"),
    [
        ({"unique": "a"}, Unique(key="a")),
        ({"unique": True}, Unique(by_data=True)),
        ({"unique": False}, None),
        ({"unique": timedelta(seconds=1)}, Unique(by_data=True, period=1000)),
        ({"unique": {"key": "a", "period": 5}}, Unique(key="a", period=5)),
        ({"unique": {"period": 5}}, Unique(by_data=True, period=5)),
        ({"throttle": 5}, Unique(period=5)),
        ({"throttle": {"key": "a", "period": timedelta(seconds=1)}}, Unique(key="a", period=1000)),
        ({"debounce": timedelta(seconds=1)}, Unique(period=1000, is_last=True)),
        ({"unique": None, "throttle": 5}, Unique(period=5)),
    ],
)
def test_the_ways_to_say_which_jobs_count_as_one(given: Any, unique: Unique | None) -> None:
    assert options(**given).unique == unique


def test_a_debounced_job_is_delayed_by_its_period() -> None:
    assert options(debounce=timedelta(seconds=1)).delay == 1000
    assert refusal(debounce=500, delay=20) == (
        "debounce and delay=20: a debounced job runs 500 ms after the last was added; leave the delay out"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"unique": ""}, "unique is ''; use text of 1 to 512 bytes"),
        ({"unique": "x" * 513}, "use text of 1 to 512 bytes"),
        ({"unique": "\ud800"}, "half a surrogate pair"),
        (
            {"unique": 5},
            "unique is 5; use True (by name and data), a key, a timedelta, or {'key'",
        ),
        ({"unique": {"ttl": 5}}, "unique has 'ttl'; use 'key', 'period'"),
        ({"unique": {"key": 5}}, "unique key is 5; use text"),
        ({"throttle": {"key": "a"}}, "throttle has no 'period'; give whole milliseconds or a timedelta"),
        ({"throttle": 0}, "throttle period is 0; use whole milliseconds from 1"),
        ({"debounce": "5"}, "debounce period is '5'; use whole milliseconds from 1"),
        ({"unique": "a", "throttle": 5}, "throttle is given beside another of unique, throttle, debounce"),
    ],
)
def test_what_cannot_say_it_is_refused(given: Any, words: str) -> None:
    assert words in refusal(**given)


MINUTE = timedelta(minutes=1)


def test_a_time_may_be_a_timedelta_wherever_it_may_be_a_number() -> None:
    assert Backoff("fixed", MINUTE) == Backoff("fixed", 60_000)
    assert Keep(age=timedelta(seconds=1.5)) == Keep(age=2), "kept no shorter than asked"
    assert Limit(100, MINUTE) == Limit(100, 60_000)
    assert ScheduleRule(every_ms=MINUTE) == ScheduleRule(every_ms=60_000)
    assert 48 <= Reconnect(timedelta(seconds=1), MINUTE).delay(99) <= 72
    profile = profile_of(None, dict.fromkeys(("lock_ms", "recover_ms", "promote_ms"), MINUTE), {})
    assert {profile.lock_ms, profile.recover_ms, profile.promote_ms} == {60_000}
    job = Job(name="a", data={}, queue="q", options=JobOptions(backoff=Backoff("custom")))
    assert delay_before(job, 1, ValueError(), lambda *_: MINUTE, None, lambda: 1.0) == 60_000


@pytest.mark.parametrize("given", [{"unique": "k"}, {"unique": True}, {"throttle": 5}, {"debounce": 5}])
def test_a_protocol_without_unique_jobs_says_so(given: Any) -> None:
    [(name, value)] = given.items()
    with pytest.raises(Unsupported) as refusal:
        build("list", frozenset({Capability.DELAY}), **given)
    assert str(refusal.value) == (
        f"protocol 'list' has no unique jobs, so {name}={value!r} cannot be kept; "
        f"leave it out, or use a protocol that has it"
    )
