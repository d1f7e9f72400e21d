"""Adding and claiming jobs leaves the very state that Node BullMQ 5.62.0 leaves."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.protocols.bullmq.paired_queue import PairedQueue

MakePair = Callable[..., Awaitable[PairedQueue]]

EVERY_OPTION: dict[str, Any] = {
    "priority": 3,
    "attempts": 4,
    "backoff": {"type": "exponential", "delay": 250, "jitter": 0.5},
    "removeOnComplete": {"age": 60, "count": 10},
    "removeOnFail": 5,
    "keepLogs": 20,
    "jobId": "invoice-2024",
    "stackTraceLimit": 2,
    "sizeLimit": 10_000,
}


# -- adding -------------------------------------------------------------------------------------------------


async def test_a_plain_job(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    assert await queue.add("send", {"to": "ann@example.org"}) == "1"
    assert queue.events() == ["added", "waiting"]


async def test_a_job_with_every_option(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    assert await queue.add("send", {"n": 1}, **EVERY_OPTION) == "invoice-2024"
    assert json.loads(queue.entry("invoice-2024")["opts"])["kl"] == 20


@pytest.mark.parametrize("data", [{}, [], "text", 7, 2.5, True, None, {"a": [], "b": {}, "c": [[], [{}]]}])
async def test_data_of_every_shape(paired_queue: MakePair, data: Any) -> None:
    queue = await paired_queue()
    await queue.add_many([("send", data, {})])
    assert await queue.claim() == ["1"]
    assert queue.claimed("1").data == data


async def test_jobs_of_several_priorities_run_lowest_number_first(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for priority in (5, 1, 2_097_152 - queue.is_six, 1, 5):
        await queue.add("send", priority=priority)
    assert await queue.claim(5) == ["2", "4", "1", "5", "3"]


async def test_waiting_jobs_run_before_prioritized_ones(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", priority=1)
    await queue.add("send")
    assert await queue.claim(3) == ["2", "1"]
    assert queue.entry("pc") is None


async def test_delayed_jobs_of_one_millisecond_keep_their_order(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add_many([("send", {"n": n}, {"delay": 5000}) for n in range(4)])
    await queue.add("send", delay=5000 - 7)
    assert [member for member, _ in queue.entry("delayed")] == [b"1", b"2", b"3", b"4", b"5"]
    assert queue.entry("marker")


async def test_a_millisecond_holds_no_more_than_4096_places(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    last = (queue.now + 5_000) * 4096 + 4095
    queue.plant("ZADD", "delayed", last - 1, "earlier")
    await queue.add_many([("send", {}, {"delay": 5_000}) for _ in range(3)])
    assert [score for _, score in queue.entry("delayed")[1:]] == [last] * 3


async def test_a_delayed_job_sooner_than_the_first_moves_the_marker(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", delay=60_000)
    first = queue.entry("marker")
    await queue.add("send", delay=1_000)
    assert queue.entry("marker")[0][1] < first[0][1]


async def test_a_delayed_prioritized_job_is_delayed_first(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", delay=1_000, priority=4)
    assert await queue.claim() == []
    await queue.advance(1_000)
    assert await queue.claim() == ["1"]


async def test_lifo_jobs_run_first(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for lifo in ({}, {"lifo": True}, {}, {"lifo": True}):
        await queue.add("send", **lifo)
    assert await queue.claim(4) == ["4", "2", "1", "3"]


async def test_a_custom_id_still_takes_a_number(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    assert await queue.add("send", jobId="first") == "first"
    assert await queue.add("send") == "2"


@pytest.mark.parametrize("opts", [{}, {"delay": 900}, {"priority": 9}])
async def test_a_duplicate_id_changes_nothing_but_tells(paired_queue: MakePair, opts: dict[str, Any]) -> None:
    queue = await paired_queue()
    await queue.add("send", {"first": True}, jobId="once")
    assert await queue.add("send", {"first": False}, jobId="once", **opts) == "once"
    assert queue.events()[-1] == "duplicated"
    assert queue.entry("once")["data"] == b'{"first":true}'


async def test_a_bulk_of_mixed_kinds(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    kinds: list[dict[str, Any]] = [
        {}, {"priority": 2}, {"delay": 50}, {"lifo": True}, {"jobId": "mine"}, {"jobId": "mine"},
        {"priority": 1}, {"delay": 20, "priority": 1}, {"removeOnComplete": True},
        {"attempts": 3, "backoff": 100}, {},
    ]  # fmt: skip
    await queue.add_many([(f"kind-{n}", {"n": n}, kind) for n, kind in enumerate(kinds)])
    await queue.advance(100)
    assert len(await queue.claim(20)) == 10


async def test_a_bulk_larger_than_one_batch(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add_many([("send", {"n": n}, {"lifo": True} if n % 7 == 0 else {}) for n in range(1_100)])
    assert len(await queue.claim(40)) == 40


async def test_text_beyond_ascii(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("grüße-📮", {"näme": 'Zoë ☃ \u2028 "quoted" \\ \n', "空": ["日本語"]})
    await queue.claim()
    await queue.fail("1", "größer als ∞: „nein“ 🤷", trace="Fehler: größer\n    at ☃.js:1")
    assert queue.entry("1")["failedReason"] == "größer als ∞: „nein“ 🤷".encode()


async def test_large_integers_and_empty_arrays_pass_untouched(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    raw = b'{"big":130775545883395173,"none":[],"empty":{},"tiny":1e-7,"nested":[[],[[]]]}'
    await queue.add("send", attempts=2)
    queue.plant("HSET", "1", "data", raw)
    await queue.claim()
    assert queue.claimed("1").data["big"] == 130775545883395173
    await queue.fail("1")
    await queue.claim()
    await queue.complete("1", {"none": [], "empty": {}})
    assert queue.entry("1")["data"] == raw
    assert queue.entry("1")["returnvalue"] == b'{"none":[],"empty":{}}'


# -- claiming -----------------------------------------------------------------------------------------------


async def test_claiming_one_of_several(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.add("send")
    assert await queue.claim() == ["1"]
    assert queue.entry("1")["pb"] == b"anna"


async def test_claiming_from_a_queue_nobody_has_used(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    assert await queue.claim() == []
    assert await queue.claim(10) == []
    assert queue.events() == []


async def test_claiming_more_than_there_is(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.add("send", priority=2)
    await queue.add("send", delay=60_000)
    assert await queue.claim(10) == ["1", "2"]
    assert await queue.claim(10) == []


async def test_due_jobs_of_mixed_priorities_are_promoted_at_a_claim(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    for delay, priority in ((100, 0), (200, 3), (150, 1), (100, 0), (9_000, 0)):
        await queue.add("send", delay=delay, **({"priority": priority} if priority else {}))
    await queue.advance(300)
    assert await queue.claim() == ["1"]
    assert await queue.claim(5) == ["4", "3", "2"]


async def test_jobs_of_one_millisecond_are_all_due_in_it_and_none_before(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    due = queue.now + 1_000
    await queue.add_many([("send", {"n": n}, {"delay": 1_000}) for n in range(3)])
    await queue.advance(due - 1 - queue.now)
    assert await queue.claim(3) == []
    await queue.advance(due - queue.now)
    assert await queue.claim(3) == ["1", "2", "3"]


@pytest.mark.parametrize("want", [1, 2, 5])
async def test_a_marker_of_an_older_generation_in_the_list_is_no_job(
    paired_queue: MakePair, want: int
) -> None:
    queue = await paired_queue()
    for _ in range(3):
        await queue.add("send")
    queue.plant("RPUSH", "wait", "0:5000")
    assert await queue.claim(want) == ["1", "2", "3"][:want]


async def test_due_jobs_are_promoted_by_a_settling_turn_too(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send")
    await queue.add("send", delay=100, lifo=True)
    await queue.claim()
    await queue.advance(100)
    assert await queue.complete("1", "done", want=1) == ["2"]


@pytest.mark.parametrize("opts", [{}, {"priority": 2}, {"lifo": True}, {"delay": 5}])
async def test_the_marker_is_set_again_by_whatever_a_worker_may_want_to_know(
    paired_queue: MakePair, opts: dict[str, Any]
) -> None:
    queue = await paired_queue()
    await queue.add("send", **opts)
    assert queue.entry("marker")
    queue.take_markers()
    await queue.add("send", **opts)
    assert queue.entry("marker")
    await queue.advance(10)
    queue.take_markers()
    assert len(await queue.claim(1)) == 1
    assert queue.entry("marker") == [(b"0", 0.0)]
    queue.take_markers()
    assert len(await queue.claim(5)) == 1
    assert queue.entry("marker") == [(b"0", 0.0)]
    queue.take_markers()
    assert await queue.claim(5) == []
    assert queue.entry("marker") is None
