"""Deduplication leaves the very state that Node BullMQ 5.62.0 leaves: simple, throttled, debounced."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from corral.core.job import Job, JobOptions, Unique
from corral.errors import InvalidOptions
from corral.protocols.bullmq.codec import encode_job
from tests.protocols.bullmq.paired_outcomes import Done, Failed
from tests.protocols.bullmq.paired_queue import PairedQueue

MakePair = Callable[..., Awaitable[PairedQueue]]

SIMPLE = {"id": "a"}
THROTTLED = {"id": "a", "ttl": 60_000}
EXTENDED = {"id": "a", "ttl": 60_000, "extend": True}
REPLACED = {"id": "a", "replace": True}
DEBOUNCED = {"id": "a", "ttl": 60_000, "extend": True, "replace": True}
KEPT_TIME = {"id": "a", "ttl": 60_000, "replace": True}
ALL_MODES = [SIMPLE, THROTTLED, EXTENDED, REPLACED, DEBOUNCED, KEPT_TIME]


def _name(mode: Any) -> str:
    return "-".join(sorted(set(mode) - {"id"})) or "simple"


@pytest.mark.parametrize("mode", ALL_MODES, ids=_name)
@pytest.mark.parametrize("opts", [{}, {"delay": 5_000}, {"priority": 3}], ids=["wait", "delayed", "priority"])
async def test_adding_under_one_id_again_and_again(paired_queue: MakePair, mode: Any, opts: Any) -> None:
    queue = await paired_queue()
    first = await queue.add("send", {"n": 1}, deduplication=mode, **opts)
    for n in (2, 3):
        last = await queue.add("send", {"n": n}, deduplication=mode, **opts)
    replaces = "replace" in mode and "delay" in opts
    assert last == ("3" if replaces else first)
    assert queue.entry("de:a") == last.encode()
    assert queue.events().count("deduplicated") == (0 if "replace" in mode and not replaces else 2)


async def test_other_ids_do_not_meet(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    texts = ["a", "b", "a:b", "ü ☂", "a", "b"]
    await queue.add_many([("send", {}, {"deduplication": {"id": text}}) for text in texts])
    assert queue.entry("wait") == [b"4", b"3", b"2", b"1"]


async def test_many_under_one_id_in_one_call(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    rows: list[Any] = [("send", {"n": n}, {"deduplication": REPLACED, "delay": 500}) for n in range(4)]
    rows += [("send", {"n": n}, {"deduplication": SIMPLE}) for n in range(3)]
    assert await queue.add_many(rows) == ["1", "2", "3", "4", "4", "4", "4"]


@pytest.mark.parametrize("mode", [SIMPLE, THROTTLED], ids=_name)
@pytest.mark.parametrize("kept", [None, True, {"count": 1}])
@pytest.mark.parametrize("ending", [Done, Failed])
async def test_an_ended_job_lets_others_come_unless_a_time_was_set(
    paired_queue: MakePair, mode: Any, kept: Any, ending: Any
) -> None:
    queue = await paired_queue()
    policy = {} if kept is None else {"removeOnComplete": kept, "removeOnFail": kept}
    await queue.add("send", deduplication=mode, **policy)
    await queue.claim()
    await queue.add("send", deduplication=mode)
    await queue.turn([ending("1")])
    again = await queue.add("send", deduplication=mode)
    assert again == ("3" if mode is SIMPLE else "1")


async def test_a_retry_keeps_standing(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", deduplication=SIMPLE, attempts=2)
    await queue.claim()
    await queue.fail("1")
    assert await queue.add("send", deduplication=SIMPLE) == "1"
    await queue.claim()
    await queue.fail("1")
    assert await queue.add("send", deduplication=SIMPLE) == "3"


async def test_what_stands_for_another_is_not_let_go_by_an_older_job(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", deduplication=SIMPLE)
    await queue.claim()
    queue.forget("de:a")
    await queue.add("send", deduplication=SIMPLE)
    await queue.complete("1")
    assert queue.entry("de:a") == b"2"


@pytest.mark.parametrize("mode", ALL_MODES, ids=_name)
@pytest.mark.parametrize("opts", [{}, {"delay": 5_000}], ids=["wait", "delayed"])
async def test_a_removed_job_lets_others_come(paired_queue: MakePair, mode: Any, opts: Any) -> None:
    queue = await paired_queue()
    await queue.add("send", deduplication=mode, **opts)
    await queue.remove("1")
    assert queue.entry("de:a") is None
    assert await queue.add("send", deduplication=mode, **opts) == "2"


async def test_an_id_given_twice_is_a_duplicate_before_it_is_anything_else(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", jobId="mine", deduplication=SIMPLE)
    await queue.add("send", jobId="mine", deduplication={"id": "b"})
    await queue.add("send", jobId="other", deduplication=SIMPLE)
    debounced = [] if queue.is_six else ["debounced"]
    assert queue.events()[2:] == ["duplicated", *debounced, "deduplicated"]
    assert queue.entry("de:b") is None


@pytest.mark.parametrize("node", [5], indirect=True)
async def test_the_older_word_debounce(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", debounce={"id": "a", "ttl": 5_000})
    assert await queue.add("send", debounce={"id": "a"}) == "1"
    assert await queue.add("send", deduplication={"id": "a"}) == "1"


async def test_a_promoted_job_cannot_be_replaced_any_more(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", deduplication=REPLACED, delay=5_000)
    await queue.promote("1")
    assert await queue.add("send", deduplication=REPLACED, delay=5_000) == "1"


async def test_who_stands_can_be_asked_and_let_go(paired_queue: MakePair) -> None:
    queue = await paired_queue()
    await queue.add("send", deduplication=SIMPLE)
    assert await queue.inspector.deduplicated("a") == "1"
    assert await queue.inspector.deduplicated("b") is None
    assert await queue.node_queue("getDeduplicationJobId", "a") == "1"
    assert await queue.node_queue("removeDeduplicationKey", "a") == 1
    assert await queue.operator.release_deduplication("a")
    assert not await queue.operator.release_deduplication("a")
    assert not queue.different()


@pytest.mark.parametrize(
    "deduplication",
    [{}, {"id": ""}, {"id": 7}, "a", *({"id": "a", "ttl": ttl} for ttl in (-1, "1", True, 0.5))],
)
async def test_what_cannot_be_meant_is_refused_and_nothing_is_written(
    paired_queue: MakePair, deduplication: Any
) -> None:
    queue = await paired_queue()
    job = Job(name="send", data={}, queue="mail", options=JobOptions(extra={"deduplication": deduplication}))
    with pytest.raises(InvalidOptions, match="deduplication"):
        await queue.broker.submit([job])
    assert queue.entry("id") is None


@pytest.mark.parametrize(
    ("unique", "words", "adds"),
    [
        (Unique(key="a"), SIMPLE, False),
        (Unique(key="a", period=60_000), THROTTLED, False),
        (Unique(key="a", period=60_000, is_last=True), DEBOUNCED, True),
        (Unique(period=60_000), {"id": "send", "ttl": 60_000}, False),
    ],
)
def test_unique_is_the_same_in_native_words(unique: Unique, words: Any, adds: bool) -> None:
    native = Job(name="send", data={"n": 1}, queue="mail", options=JobOptions(unique=unique))
    peer = replace(native, options=JobOptions(extra={"deduplication": words}))
    (*row, deduplication, parent), data = encode_job(native)
    (*peer_row, (*others, _), peer_parent), peer_data = encode_job(peer)
    assert (row, parent, data) == (peer_row, peer_parent, peer_data)
    assert deduplication == (*others, adds)
