"""Schedulers leave the very state that Node BullMQ 5.62.0 leaves: made, changed, carried on, removed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from corral.errors import InvalidOptions
from corral.store.client import Store
from tests.protocols.bullmq.paired_queue import BEGIN
from tests.protocols.bullmq.paired_schedulers import PairedScheduledQueue
from tests.support.node import Node
from tests.support.servers import Server

MakeScheduled = Callable[..., Awaitable[PairedScheduledQueue]]
HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
async def scheduled(node: Node, server: Server, store: Store) -> AsyncIterator[MakeScheduled]:
    made: list[PairedScheduledQueue] = []

    async def make(**options: Any) -> PairedScheduledQueue:
        made.append(await PairedScheduledQueue(node, server, store, **options).open())
        return made[-1]

    yield make
    for each in made:
        await each.close()


TEMPLATES: list[dict[str, Any]] = [
    {},
    {"name": "report", "data": {"to": ["a", {"b": 130775545883395173 // 1000}], "ünï": None}},
    {"opts": {"attempts": 3, "backoff": 500, "removeOnComplete": 5, "removeOnFail": {"age": 60, "count": 3}}},
    {"opts": {"priority": 4, "lifo": True, "keepLogs": 7, "backoff": {"type": "exponential", "delay": 20}}},
    {"name": "x", "data": {"a": 1}, "opts": {"deduplication": {"id": "d"}, "lifo": True}},
    {"opts": {"telemetry": {"metadata": "abc", "omitContext": True}, "sizeLimit": 9000, "delay": 77}},
    {"opts": {"attempts": 2, "priority": None, "backoff": {"type": "fixed", "delay": 3, "jitter": 0.5}}},
]


# -- making -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
@pytest.mark.parametrize("repeat", [{"every": 1_000}, {"pattern": "*/5 * * * * *", "tz": "UTC"}], ids=str)
async def test_a_scheduler_and_its_first_jobs(
    scheduled: MakeScheduled, repeat: dict[str, Any], template: dict[str, Any]
) -> None:
    queue = await scheduled()
    assert await queue.upsert("tick", repeat, **template)
    for _ in range(3):
        for job_id in await queue.tick(5_000):
            await queue.complete(job_id)
    assert int(queue.entry("repeat:tick")["ic"]) == 4


@pytest.mark.parametrize(
    "repeat",
    [
        {"every": 1_000, "limit": 2},
        {"every": 60_000, "startDate": BEGIN + 90_000},
        {"every": 60_000, "startDate": BEGIN - 90_000},
        {"every": 60_000, "endDate": BEGIN + 100_000},
        {"every": 60_000, "offset": 700},
        {"every": 7_777, "immediately": True},
        {"every": 1_000, "count": 3, "limit": 5},
        {"every": 1_000, "limit": 0},
        {"pattern": "0 * * * * *", "tz": "UTC", "limit": 2},
        {"pattern": "0 * * * * *", "tz": "UTC", "startDate": BEGIN + 90_000},
        {"pattern": "0 * * * * *", "tz": "UTC", "endDate": BEGIN + 70_000},
        {"pattern": "0 0 1 1 *", "tz": "UTC", "endDate": BEGIN + 70_000},
        {"pattern": "0 * * * * *", "tz": "UTC", "immediately": True},
        {"pattern": "0 30 2 * * *", "tz": "Europe/Berlin"},
        {"pattern": "0 9 * * MON-FRI", "tz": "America/New_York"},
        {"pattern": "0 0 L * *", "tz": "Asia/Tokyo"},
        {"pattern": "@hourly", "tz": "UTC"},
        {"pattern": "0 0 12 * * *", "utc": True},
    ],
    ids=str,
)  # fmt: skip
async def test_when_a_scheduler_is_due(scheduled: MakeScheduled, repeat: dict[str, Any]) -> None:
    queue = await scheduled()
    await queue.upsert("tick", repeat)
    for gap in (0, 60_000, 60_000, HOUR, DAY, 31 * DAY):
        for job_id in await queue.tick(gap):
            await queue.complete(job_id)
    assert not queue.different()


async def test_a_pattern_without_a_zone_is_read_in_the_machines_own(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"pattern": "15 9 * * *"})
    await queue.tick(DAY)
    assert not queue.different()


async def test_times_may_be_written_as_text(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"every": 1000, "startDate": "2025-10-09T09:00:00Z", "endDate": "2025-10-10"})
    assert queue.entry("repeat:tick")["startDate"] == b"1760000400000"
    await queue.tick(HOUR)


@pytest.mark.parametrize(
    "repeat",
    [
        {},
        {"every": 1000, "pattern": "* * * * *"},
        {"every": 1000, "immediately": True, "startDate": BEGIN},
        {"every": 1000, "endDate": BEGIN - 1},
        {"pattern": "no pattern"},
        {"pattern": "61 * * * *"},
    ],
    ids=str,
)
async def test_what_cannot_be_kept_is_refused(scheduled: MakeScheduled, repeat: dict[str, Any]) -> None:
    queue = await scheduled()
    assert await queue.upsert("tick", repeat) == "refused"
    assert queue.entry("repeat") is None


@pytest.mark.parametrize("repeat", [{"every": 0.5}, {"every": True}, {"every": -5}, {"every": "1000"},
                                    {"every": 1000, "startDate": "soon"}, {"pattern": 7},
                                    {"every": 1000, "tz": {"name": "UTC"}}])  # fmt: skip
async def test_what_node_would_take_amiss_is_refused(scheduled: MakeScheduled, repeat: Any) -> None:
    queue = await scheduled()
    with pytest.raises(InvalidOptions):
        await queue.schedulers.upsert("tick", repeat)
    with pytest.raises(InvalidOptions, match="scheduler id"):
        await queue.schedulers.upsert("a:b:c:d:e", {"every": 1000})
    assert queue.entry("repeat") is None


async def test_a_change_that_is_refused_leaves_the_scheduler_as_it_was(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"every": 1000})
    before = queue.entry("repeat:tick")
    with pytest.raises(InvalidOptions, match="name of its jobs"):
        await queue.schedulers.upsert("tick", {"every": 2000}, name={"name": "tock"})  # type: ignore[arg-type]
    assert queue.entry("repeat:tick") == before


async def test_a_scheduler_of_a_paused_and_of_a_full_queue(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.set_concurrency(1)
    await queue.add("send")
    await queue.claim()
    await queue.upsert("full", {"every": 1_000})
    await queue.pause()
    await queue.upsert("paused", {"every": 1_000})
    await queue.upsert("paused", {"every": 2_000})
    # changed while the queue is paused, a scheduler of BullMQ 6 leaves its old job in the list
    assert len(queue.entry(queue.paused_list)) == 2 + queue.is_six


# -- changing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [{"every": 5_000}, {"pattern": "0 0 * * * *", "tz": "UTC"}], ids=str)
@pytest.mark.parametrize("opts", [{}, {"priority": 3}], ids=str)
@pytest.mark.parametrize("when", ["waiting", "delayed", "active", "done"])
async def test_changing_a_scheduler(
    scheduled: MakeScheduled, changed: dict[str, Any], opts: dict[str, Any], when: str
) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"every": 60_000}, data={"n": 1}, opts=opts)
    if when != "waiting":
        [first] = await queue.claim()
        if when == "done":
            await queue.complete(first)
        if when == "delayed":
            await queue.complete(first)
            await queue.advance(500)
    await queue.upsert("tick", changed, name="other", data={"n": 2}, opts=opts)
    for _ in range(2):
        for job_id in await queue.tick(HOUR):
            if job_id in queue.held():
                await queue.complete(job_id)
    assert not queue.different()


@pytest.mark.parametrize(
    ("node", "in_the_way", "expected"),
    [
        (5, 0, 2_000),
        (5, 1, 3_000),
        (5, 2, None),
        pytest.param(6, 1, 3_000, marks=pytest.mark.faults),
        (6, 32, 34_000),
        (6, 33, None),
    ],
    indirect=["node"],
)
async def test_a_scheduler_whose_next_jobs_are_there_already(
    scheduled: MakeScheduled, in_the_way: int, expected: int | None
) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"every": 1_000})
    await queue.claim()
    queue.plant("ZREM", "delayed", f"repeat:tick:{BEGIN + 1_000}")
    for n in range(in_the_way):
        queue.plant("HSET", f"repeat:tick:{BEGIN + 2_000 + n * 1_000}", "name", "in the way")
    answer = await queue.upsert("tick", {"every": 1_000})
    assert answer == ("refused -11" if expected is None else f"repeat:tick:{BEGIN + expected}")


async def test_a_pattern_whose_next_job_is_there_already(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"pattern": "0 0 0 * * *", "tz": "UTC"})
    due = int(dict(queue.entry("repeat"))[b"tick"])
    [first] = await queue.tick(due - queue.now)
    await queue.complete(first)
    queue.plant("ZREM", "delayed", f"repeat:tick:{due + DAY}")
    assert await queue.upsert("tick", {"pattern": "0 0 0 * * *", "tz": "UTC"}) == "refused -10"


# -- carrying on --------------------------------------------------------------------------------------------


async def test_ticks_that_were_missed_are_not_made_up_for(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"every": 1_000})
    for gap in (10, 350_000, 5, 999, 1_001, 2_500):
        for job_id in await queue.tick(gap):
            await queue.complete(job_id)
    assert not queue.different()


async def test_a_tick_that_is_tried_again_makes_no_second_next(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"every": 60_000}, opts={"attempts": 3, "backoff": 10})
    [first] = await queue.claim()
    await queue.fail(first)
    assert await queue.tick(500) == [first]
    assert ("nrjid" in queue.entry(first)) != queue.is_six
    assert len(queue.entry("delayed")) == 1


async def test_a_tick_that_stalls_is_put_back_and_never_fails_for_it(scheduled: MakeScheduled) -> None:
    queue = await scheduled(maxStalledCount=0)
    await queue.upsert("tick", {"every": 60_000})
    for _ in range(2):
        [first] = await queue.claim()
        queue.expire_locks(first)
        await queue.sweep()
        assert await queue.sweep() == [first]
    assert "defa" not in queue.entry(first)


async def test_a_tick_whose_scheduler_is_gone_is_the_last(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"every": 60_000})
    queue.plant("ZREM", "repeat", "tick")
    await queue.claim()
    assert queue.entry("delayed") is None


async def test_a_tick_whose_next_is_there_already(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"every": 60_000})
    queue.plant("HSET", f"repeat:tick:{BEGIN + 60_000}", "name", "in the way")
    await queue.claim()
    assert queue.events()[-1] == "duplicated"


async def test_several_schedulers_in_one_turn(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    for n in range(4):
        await queue.upsert(f"tick-{n}", {"every": 1_000 * (n + 1)}, data={"n": n})
        await queue.add("plain")
    for _ in range(3):
        for job_id in await queue.tick(4_000):
            await queue.complete(job_id)
    assert not queue.different()


async def test_a_schedulers_own_data_wins_over_the_jobs(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("tick", {"every": 60_000}, data={"n": 1})
    queue.plant("HSET", "repeat:tick", "data", '{"n":2}')
    await queue.claim()
    assert queue.entry(f"repeat:tick:{BEGIN + 60_000}")["data"] == b'{"n":2}'


async def test_a_job_that_does_not_say_how_it_repeats_is_put_off(scheduled: MakeScheduled) -> None:
    """Node tries three times within 7.5 s, then puts it off in the same way."""
    queue = await scheduled()
    await queue.schedulers.upsert("tick", {"pattern": "* * * * * *"})
    [(job_id, _)] = queue.entry("delayed")
    name = job_id.decode()
    queue._client.hset("corral:mail:" + name, "opts", '{"repeat":{"pattern":"a rule of my own"}}')
    await queue.advance(60_000)
    turn = await queue.broker.turn([], 5)
    assert turn.claims == []
    assert [member for member, _ in queue.entry("delayed")] == [job_id]
    assert queue.entry(name)["delay"] == b"2000"


# -- the first generations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "repeat",
    [
        {"every": 5_000},
        {"every": 5_000, "limit": 2},
        {"pattern": "*/10 * * * * *", "tz": "UTC"},
        {"every": 5_000, "key": "mine"},
        {"every": 5_000, "key": "a:b:c:d:e"},
        {"pattern": "*/10 * * * * *", "tz": "UTC", "key": "a:b:c:d:*/10"},
    ],
    ids=str,
)
@pytest.mark.parametrize("opts", [{}, {"priority": 2, "attempts": 3, "backoff": 9}, {"jobId": "x"}], ids=str)
async def test_repeatable_jobs_of_the_older_way(
    scheduled: MakeScheduled, repeat: dict[str, Any], opts: dict[str, Any]
) -> None:
    queue = await scheduled()
    await queue.node_queue("add", "old", {"id": 7}, {**opts, "repeat": repeat})
    queue.copy_from_node()
    for gap in (10_000, 5_000, 60_000):
        for job_id in await queue.tick(gap):
            await queue.complete(job_id)
    assert not queue.different()


async def test_a_removed_repeatable_of_the_older_way_is_carried_on_no_more(scheduled: MakeScheduled) -> None:
    """Node goes on making jobs, `repeat::<ms>`, without a scheduler."""
    queue = await scheduled()
    await queue.node_queue("add", "old", {}, {"repeat": {"every": 5_000, "key": "a:b:c:d:e"}})
    queue.copy_from_node()
    queue.plant("ZREM", "repeat", "a:b:c:d:e")
    await queue.advance(10_000)
    assert len((await queue.broker.turn([], 5)).claims) == 1
    assert queue.entry("delayed") is None


# -- removing and reading -----------------------------------------------------------------------------------


async def test_removing_a_scheduler(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("waits", {"every": 60_000})
    await queue.upsert("delays", {"pattern": "0 0 0 * * *", "tz": "UTC"})
    assert await queue.remove_scheduler("waits")
    assert await queue.remove_scheduler("delays")
    assert not await queue.remove_scheduler("delays")
    assert queue.entry("repeat") is None
    await queue.claim()


async def test_a_schedulers_next_job_goes_with_it_only(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    job_id = await queue.upsert("tick", {"pattern": "0 0 0 * * *", "tz": "UTC"})
    assert job_id is not None
    assert not await queue.remove(job_id)
    assert await queue.operator.cancel([job_id]) == []


async def test_schedulers_can_be_read(scheduled: MakeScheduled) -> None:
    queue = await scheduled()
    await queue.upsert("a", {"every": 60_000, "limit": 5, "endDate": BEGIN + DAY}, name="n", data={"x": 1})
    await queue.upsert("b", {"pattern": "0 0 0 * * *", "tz": "Asia/Tokyo"}, opts={"keepLogs": 3})
    theirs = await queue.node_queue("getJobSchedulers")
    ours = await queue.schedulers.all()
    assert [found.id for found in ours] == [found["key"] for found in theirs] == ["b", "a"]
    for own, their in zip(ours, theirs, strict=True):
        assert own == await queue.schedulers.get(own.id)
        assert (own.name, own.next, own.count) == (their["name"], their["next"], their["iterationCount"])
        assert (own.every, own.pattern) == (their.get("every"), their.get("pattern"))
        assert (own.zone, own.limit, own.end) == (their.get("tz"), their.get("limit"), their.get("endDate"))
        template = their.get("template", {})
        assert (own.data, own.options) == (template.get("data"), template.get("opts"))
    assert [found.id for found in await queue.schedulers.all(ascending=True)] == ["a", "b"]
    assert [found.id for found in await queue.schedulers.all(0, 0)] == ["b"]
    assert await queue.schedulers.count() == 2
    assert await queue.schedulers.get("c") is None
