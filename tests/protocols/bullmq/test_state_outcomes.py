"""PairedOutcome jobs leaves the very state that Node BullMQ 5.62.0 leaves."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.protocols.bullmq.paired_outcomes import Done, Failed, Postpone, Release
from tests.protocols.bullmq.paired_queue import PairedQueue

MakePair = Callable[..., Awaitable[PairedQueue]]

# -- ending well --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result", [None, 0, False, "", "text", [], {}, {"a": [1, 2.5]}, "ünï", 9_007_199_254_740_991]
)
async def test_completing_with_a_result(paired_queue: MakePair, result: Any) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.claim()
    await queue.complete("1", result)
    assert json.loads(queue.entry("1")["returnvalue"]) == result
    assert queue.events()[-2:] == ["completed", "drained"]


async def test_completing_with_no_result_at_all(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.claim()
    await queue.complete("1")
    assert queue.entry("1")["returnvalue"] == b"null"


async def test_completing_and_claiming_the_next_in_one_turn(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for priority in ({}, {"priority": 1}, {}):
        await queue.add("send", **priority)
    await queue.claim()
    assert await queue.complete("1", 1, want=1) == ["3"]
    assert await queue.complete("3", 2, want=2) == ["2"]
    assert await queue.complete("2", 3, want=1) == []
    assert queue.events()[-1] == "drained"


async def test_a_turn_that_ends_several_and_claims_several(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for _ in range(8):
        await queue.add("send", attempts=2)
    await queue.claim(4)
    assert await queue.turn([Done("1", 1), Done("3", 3), Failed("2")], 3) == ["5", "6", "7"]
    assert await queue.turn([Done(n, n) for n in "4567"], 4) == ["8", "2"]
    assert await queue.turn([Done("2"), Failed("8", unrecoverable=True)], 2) == []
    assert queue.events()[-1] == "drained"


async def test_drained_is_not_told_while_a_delayed_job_is_known_to_come(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.add("send", delay=60_000)
    await queue.claim()
    await queue.complete("1", want=1)
    assert "drained" not in queue.events()


async def test_drained_is_told_without_asking_for_more(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.add("send", delay=60_000)
    await queue.claim()
    await queue.complete("1")
    assert queue.events()[-1] == "drained"


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (True, 0), (False, 5), (0, 0), (1, 1), (3, 3),
        ({"age": 10}, 3), ({"count": 2}, 2), ({"age": 10, "count": 2}, 2), ({"count": 0}, 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ending", ["completed", "failed"])
async def test_each_removal_policy(paired_queue: MakePair, policy: Any, kept: int, ending: str) -> None:
    queue = await paired_queue()
    option = "removeOnComplete" if ending == "completed" else "removeOnFail"
    for _ in range(5):
        job_id = await queue.add("send", **{option: policy})
        await queue.claim()
        await queue.log(job_id, "a line that goes with its job")
        await (queue.complete(job_id) if ending == "completed" else queue.fail(job_id))
        await queue.advance(4_000)
    assert len(queue.entry(ending) or []) == kept


async def test_the_workers_removal_policy_where_a_job_has_none(paired_queue: MakePair) -> None:
    queue = await paired_queue(removeOnComplete={"count": 2}, removeOnFail={"age": 5})
    for number in range(5):
        job_id = await queue.add("send", **({"removeOnComplete": False} if number == 4 else {}))
        other = await queue.add("send")
        await queue.claim(2)
        await queue.complete(job_id)
        await queue.fail(other)
        await queue.advance(3_000)
    assert len(queue.entry("completed")) == 3
    assert len(queue.entry("failed")) == 2


async def test_several_ended_in_one_turn_under_different_policies(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for policy in (2, None, 3, True, 3):
        await queue.add("send", **({} if policy is None else {"removeOnComplete": policy}))
    await queue.claim(5)
    await queue.turn([Done(str(n), n) for n in range(1, 6)])
    assert len(queue.entry("completed")) == 3


async def test_a_large_turn_of_every_ending_and_policy(paired_queue: MakePair) -> None:
    queue = await paired_queue(metrics={"maxDataPoints": 5})
    kinds: list[dict[str, Any]] = [
        {}, {"removeOnComplete": 2}, {"removeOnComplete": True}, {"priority": 3},
        {"attempts": 2}, {"attempts": 2, "backoff": 40}, {"removeOnFail": 1},
    ]  # fmt: skip
    for number in range(42):
        await queue.add("send", {"n": number}, **kinds[number % 7])
    ids = await queue.claim(30)
    await queue.set_concurrency(20)
    chosen = [Failed(job_id) if place % 3 else Done(job_id, place) for place, job_id in enumerate(ids[:20])]
    await queue.turn([*chosen, Postpone(ids[20], 500, queue.now), Release(ids[21])], 12)
    await queue.advance(1_000)
    held = queue.held()
    assert await queue.turn([Done(job_id) for job_id in held], 30) != []
    await queue.turn([Failed(job_id, unrecoverable=True) for job_id in queue.held()], 30)


async def test_drained_is_told_by_the_last_job_that_ends_and_by_no_other(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for _ in range(4):
        await queue.add("send")
    await queue.claim(4)
    await queue.turn([Done("1"), Postpone("2", 50, queue.now)])
    await queue.turn([Done("3"), Postpone("4", 50, queue.now)])
    assert "drained" not in queue.events()
    await queue.advance(100)
    await queue.claim(2)
    await queue.turn([Postpone("2", 50_000, queue.now), Done("4")])
    assert queue.events()[-1] == "drained"


# -- ending badly -------------------------------------------------------------------------------------------


async def test_failing_for_good(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", attempts=1)
    await queue.claim()
    await queue.fail("1", "no such mailbox")
    assert queue.entry("1")["failedReason"] == b"no such mailbox"
    assert queue.events()[-3:] == ["failed", "retries-exhausted", "drained"]


async def test_failing_a_job_without_a_word_on_attempts(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.claim()
    await queue.fail("1", "")
    assert "retries-exhausted" in queue.events()


async def test_a_retry_after_a_delay(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", attempts=3, backoff={"type": "exponential", "delay": 1000})
    for delay in (1000, 2000):
        await queue.claim()
        await queue.fail("1", f"waits {delay}")
        assert int(queue.entry("1")["delay"]) == delay
        assert await queue.claim() == []
        await queue.advance(delay)
    await queue.claim()
    await queue.fail("1", "enough")
    assert len(json.loads(queue.entry("1")["stacktrace"])) == 3


@pytest.mark.parametrize(
    ("opts", "after"),
    [
        ({}, ["2", "1"]),
        ({"lifo": True}, ["1", "2"]),
        ({"priority": 7}, ["2", "1"]),
        ({"lifo": True, "priority": 7}, ["2", "1"]),
    ],
)
async def test_a_retry_at_once(paired_queue: MakePair, opts: dict[str, Any], after: list[str]) -> None:
    queue = await paired_queue()
    await queue.add("send", attempts=2, **opts)
    await queue.claim()
    await queue.add("send", **opts)
    await queue.fail("1", "again")
    assert await queue.claim(2) == after


async def test_a_retry_of_a_prioritized_job_after_a_delay(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", attempts=2, backoff=500, priority=7)
    await queue.add("send", priority=7)
    await queue.claim()
    await queue.fail("1", "again", want=1)
    await queue.advance(500)
    assert await queue.complete("2", want=1) == ["1"]


async def test_a_retry_at_once_promotes_what_is_due(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", attempts=2)
    await queue.add("send", delay=50)
    await queue.claim()
    await queue.advance(100)
    await queue.fail("1")
    assert await queue.claim(2) == ["2", "1"]


async def test_a_failure_that_must_not_be_retried(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", attempts=5, backoff=1000)
    await queue.claim()
    await queue.fail("1", "never again", unrecoverable=True)
    assert queue.events()[-2:] == ["failed", "drained"]


@pytest.mark.parametrize("limit", [0, 1, 2])
async def test_no_more_traces_than_asked_for(paired_queue: MakePair, limit: int) -> None:
    queue = await paired_queue()
    await queue.add("send", attempts=4, stackTraceLimit=limit)
    for n in range(4):
        await queue.claim()
        await queue.fail("1", f"failure {n}", trace=f"trace {n}")
    assert len(json.loads(queue.entry("1")["stacktrace"])) == limit


async def test_a_success_after_a_failure_keeps_the_old_reason(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", attempts=2)
    await queue.claim()
    await queue.fail("1", "the first time")
    await queue.claim()
    await queue.complete("1", "the second time")
    assert queue.entry("1")["failedReason"] == b"the first time"


async def test_a_job_put_off_spends_no_attempt(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", attempts=2, priority=3)
    await queue.claim()
    await queue.postpone("1", 5_000)
    assert "atm" not in queue.entry("1")
    await queue.advance(5_000)
    assert await queue.claim() == ["1"]
    await queue.postpone("1", 0)
    assert await queue.claim() == ["1"]


@pytest.mark.parametrize("opts", [{}, {"priority": 3}])
async def test_a_job_given_back_is_next(paired_queue: MakePair, opts: dict[str, Any]) -> None:
    queue = await paired_queue()
    await queue.add("send", **opts)
    await queue.add("send", **opts)
    await queue.claim()
    await queue.release("1")
    assert "atm" not in queue.entry("1")
    assert await queue.claim() == ["1"]


@pytest.mark.parametrize("ending", ["done", "failed", "retried", "delayed", "put off", "given back", "none"])
async def test_the_marker_after_each_ending(paired_queue: MakePair, ending: str) -> None:
    queue = await paired_queue()
    await queue.add("send", attempts=2)
    await queue.add("send", attempts=2, backoff=50)
    await queue.claim(2)
    queue.take_markers()
    match ending:
        case "done":
            await queue.complete("1")
        case "failed":
            await queue.fail("1", unrecoverable=True)
        case "retried":
            await queue.fail("1")
        case "delayed":
            await queue.fail("2")
        case "put off":
            await queue.postpone("1", 100)
        case "given back":
            await queue.release("1")
    assert bool(queue.entry("marker")) == (ending in ("retried", "delayed", "put off", "given back"))


@pytest.mark.parametrize("sizes", [1, 9])
async def test_a_job_that_ends_is_no_suspect_of_stalling_any_more(paired_queue: MakePair, sizes: int) -> None:
    queue = await paired_queue()
    for _ in range(4 * sizes):
        await queue.add("send", attempts=2, backoff=10)
    ids = await queue.claim(4 * sizes)
    await queue.sweep()
    assert len(queue.entry("stalled")) == 4 * sizes
    await queue.turn([Done(job_id) for job_id in ids[:sizes]])
    await queue.turn([Failed(job_id) for job_id in ids[sizes : 2 * sizes]])
    await queue.turn([Postpone(job_id, 10, queue.now) for job_id in ids[2 * sizes : 3 * sizes]])
    await queue.turn([Release(job_id) for job_id in ids[3 * sizes :]])
    assert queue.entry("stalled") is None
