"""Schedules: one leader fires each time once; caught up after a downtime; paused, changed, run now."""

import random
from collections import Counter
from typing import Any

import pytest

from corral.core.cron import Cron
from corral.core.job import JobState
from corral.core.outcome import Completed
from corral.errors import InvalidName, InvalidOptions, RedisConnectionError
from corral.protocols.bridgemq.broker import BridgemqBroker
from corral.protocols.bridgemq.schedules.leader import LEASE_MS, ScheduleLeader
from tests.support.bridgemq_harness import BridgemqHarness
from tests.support.jobs import submit
from tests.support.polling import until

START = 1_732_377_000_000
"""2024-11-23 15:50:00 UTC."""
MINUTE = 60_000


@pytest.fixture
def harness(harness: BridgemqHarness) -> BridgemqHarness:
    harness.now = START
    return harness


def advance(harness: BridgemqHarness, ms: int) -> None:
    harness.now += ms


def scheduler(harness: BridgemqHarness, name: str) -> ScheduleLeader:
    return ScheduleLeader(harness.binding(name))


def lock_expires(harness: BridgemqHarness) -> None:
    harness.client.delete("bridge:scheduler:lock")


async def fired(harness: BridgemqHarness, broker: BridgemqBroker) -> list[str]:
    """Ids of what waits, worked off: no trace of them is left that could hide a second firing."""
    ids: list[str] = []
    while claims := (await broker.turn([], 200)).claims:
        await broker.turn([harness.settle(claim, Completed(b"null")) for claim in claims], 0)
        ids += [claim.job.id for claim in claims]
    await harness.operator.remove(ids)
    return ids


# -- firing -----------------------------------------------------------------------------------------------


async def test_a_schedule_fires_at_its_times_as_a_job_of_its_own(harness: BridgemqHarness):
    broker = harness.broker()
    data = {"n": 130775545883395173, "empty": []}
    await broker.submit(
        [harness.job(data, name="report", id="s", cron="*/5 * * * *", priority=4, attempts=7)]
    )
    assert await broker.promote() == 0
    advance(harness, 5 * MINUTE)
    assert await broker.promote() == 1
    assert await broker.promote() == 0
    claim = await harness.claim(broker)
    assert claim.job.id == f"s@{START + 5 * MINUTE}"
    assert (claim.job.name, claim.job.data, claim.job.queue) == ("report", data, "default")
    assert (claim.job.options.priority, claim.job.options.attempts) == (4, 7)
    assert claim.job.created_at == harness.now
    assert harness.client.zscore("bridge:jobs:cron", "s") == START + 10 * MINUTE


async def test_a_firing_that_is_due_again_is_not_added_again(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="s", cron="*/5 * * * *")])
    advance(harness, 5 * MINUTE)
    assert await broker.promote() == 1
    # as another client does that sets the schedule back to the time it has just fired
    harness.client.zadd("bridge:jobs:cron", {"s": START + 5 * MINUTE})
    assert await broker.promote() == 0
    assert harness.ids("waiting") == [f"s@{START + 5 * MINUTE}"]


async def test_a_firing_keeps_target_and_limits_and_goes_to_the_front_by_priority(harness: BridgemqHarness):
    broker = harness.broker(capabilities=["gpu"])
    target = {"capabilities": ["gpu"], "mode": "all"}
    await broker.submit(
        [
            harness.job(id="s", cron="* * * * *", priority=8, target=target, rate={"concurrent": 1}),
            harness.job(id="first"),
        ]
    )
    advance(harness, MINUTE)
    await broker.promote()
    assert harness.ids("waiting") == [f"s@{START + MINUTE}", "first"]
    assert harness.json("jobs", "data", f"s@{START + MINUTE}")["target"] == target
    assert harness.json("jobs", "data", f"s@{START + MINUTE}")["rateLimit"] == {"maxConcurrent": 1}


async def test_a_schedule_follows_the_clocks_of_its_zone(harness: BridgemqHarness):
    harness.now = 1_711_825_200_000  # 2024-03-30 20:00 in Berlin, the evening before clocks go forward
    broker = harness.broker()
    await broker.submit([harness.job(id="s", cron="30 2 * * *", timezone="Europe/Berlin")])
    assert harness.client.zscore("bridge:jobs:cron", "s") == 1_711_848_600_000, "03:30 summer time"
    harness.now = 1_711_848_600_000
    await broker.promote()
    assert harness.client.zscore("bridge:jobs:cron", "s") == 1_711_931_400_000, "02:30 summer time"


async def test_six_fields_fire_by_the_second(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="s", cron="*/10 * * * * *", catch_up="all")])
    advance(harness, 30_000)
    assert await broker.promote() == 3
    assert harness.ids("waiting") == [f"s@{START + n * 10_000}" for n in (1, 2, 3)]


async def test_a_worker_that_waits_fires_what_becomes_due(harness: BridgemqHarness):
    """No loop of the worker has to come round: whoever waits for work looks after the schedules."""
    harness.now = None
    broker = harness.broker()
    await broker.submit([harness.job(id="s", cron="* * * * * *")])
    turn = await broker.turn([], 1)
    assert turn.rest.until is not None
    assert turn.rest.until - harness.clock() <= 1000
    for _ in range(20):
        if turn.claims:
            break
        await broker.wait(turn.rest)
        turn = await broker.turn([], 1)
    assert turn.claims[0].job.id.startswith("s@")


# -- catching up ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catch_up", "late", "expected"),
    [
        ("all", 7, [1, 2, 3, 4, 5, 6, 7]),
        ("once", 7, [7]),
        ("skip", 7, [7]),
        ("all", 0, [0]),
    ],
)
async def test_after_a_downtime(harness: BridgemqHarness, catch_up: str, late: int, expected: list[int]):
    broker = harness.broker()
    harness.now = START + 30_000
    await broker.submit([harness.job(id="s", cron="* * * * *", catch_up=catch_up)])
    harness.now = START + MINUTE * max(late, 1) + 1000
    await broker.promote()
    wanted = [f"s@{START + n * MINUTE}" for n in expected] if late else [f"s@{START + MINUTE}"]
    assert harness.ids("waiting") == wanted
    assert harness.client.zscore("bridge:jobs:cron", "s") == START + (max(late, 1) + 1) * MINUTE


async def test_skip_lets_go_what_is_late(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="s", cron="0 * * * *", catch_up="skip")])
    advance(harness, 130 * MINUTE)  # 18:00; 16:00 and 17:00 were missed, and 18:00 is now
    assert await broker.promote() == 1
    assert harness.ids("waiting") == [f"s@{START + 130 * MINUTE}"]
    advance(harness, 65 * MINUTE)
    assert await broker.promote() == 0
    assert harness.client.zscore("bridge:jobs:cron", "s") == START + 250 * MINUTE


async def test_a_long_downtime_is_made_up_for_in_bounded_goes(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="s", cron="* * * * *", catch_up="all")])
    advance(harness, 1700 * MINUTE)
    assert await broker.promote() == 1700
    ids = harness.ids("waiting")
    assert ids == [f"s@{START + n * MINUTE}" for n in range(1, 1701)]


# -- leadership -------------------------------------------------------------------------------------------


async def test_only_the_leader_fires(harness: BridgemqHarness):
    first, second = harness.broker("a"), harness.broker("b")
    await first.submit([harness.job(id="s", cron="* * * * *")])
    await first.promote()
    advance(harness, MINUTE)
    await second.promote()
    assert harness.ids("waiting") == []
    await first.promote()
    assert harness.ids("waiting") == [f"s@{START + MINUTE}"]


async def test_each_leadership_has_a_number_of_its_own(harness: BridgemqHarness):
    for n, name in enumerate(("a", "b", "a"), start=1):
        await scheduler(harness, name).fire_due()
        assert harness.text("scheduler", "fence") == str(n)
        lock_expires(harness)


async def test_a_leader_renews_and_resigns_when_it_closes(harness: BridgemqHarness):
    broker = harness.broker("a")
    await broker.promote()
    harness.client.expire("bridge:scheduler:lock", 3)
    await broker.promote()
    assert harness.client.ttl("bridge:scheduler:lock") > 25
    assert harness.text("scheduler", "fence") == "1", "the same leadership"
    await broker.close()
    assert not harness.client.exists("bridge:scheduler:lock"), "nobody has to wait for it to run out"


async def test_who_does_not_lead_resigns_from_nothing(harness: BridgemqHarness):
    leader, other = harness.broker("a"), harness.broker("b")
    await leader.promote()
    await other.promote()
    await other.close()
    assert harness.client.exists("bridge:scheduler:lock")


async def test_a_paused_ex_leaders_writes_are_refused(harness: BridgemqHarness):
    await harness.broker().submit([harness.job(id="s", cron="* * * * *", catch_up="all")])
    advance(harness, MINUTE)
    old, new = scheduler(harness, "old"), scheduler(harness, "new")
    taken = await old.take()
    assert taken is not None
    assert len(taken.rows) == 1
    lock_expires(harness)  # it is paused here for longer than its lock lives
    assert await new.fire_due() == 1
    before = harness.keyspace()
    assert await old.fire(taken) is None
    assert harness.keyspace() == before, "not a byte"
    assert harness.ids("waiting") == [f"s@{START + MINUTE}"]


async def test_a_leader_whose_lock_ran_out_is_refused_even_where_nobody_else_leads(harness: BridgemqHarness):
    await harness.broker().submit([harness.job(id="s", cron="* * * * *")])
    advance(harness, MINUTE)
    old = scheduler(harness, "old")
    taken = await old.take()
    assert taken is not None
    lock_expires(harness)
    assert await old.fire(taken) is None
    assert await old.fire_due() == 1, "leading again"
    assert harness.ids("waiting") == [f"s@{START + MINUTE}"]


async def test_the_lease_of_a_leader_that_died_is_taken_over_at_once(harness: BridgemqHarness):
    await harness.broker().submit([harness.job(id="s", cron="* * * * *", catch_up="all")])
    advance(harness, MINUTE)
    await scheduler(harness, "old").take()
    lock_expires(harness)
    advance(harness, 5000)
    assert await scheduler(harness, "new").fire_due() == 1
    assert harness.ids("waiting") == [f"s@{START + MINUTE}"], "the time it was due, not the time it was found"


async def test_the_lease_of_a_leader_that_lost_the_answer_ends(harness: BridgemqHarness):
    await harness.broker().submit([harness.job(id="s", cron="* * * * *")])
    advance(harness, MINUTE)
    leader = scheduler(harness, "a")
    await leader.take()
    assert await leader.fire_due() == 0
    advance(harness, LEASE_MS + 1)
    assert await leader.fire_due() == 1
    assert harness.ids("waiting") == [f"s@{START + MINUTE}"]


async def test_a_leader_that_beats_no_more_is_replaced_before_its_lock_expires(harness: BridgemqHarness):
    await harness.broker().submit([harness.job(id="s", cron="* * * * *")])
    old, new = scheduler(harness, "old"), scheduler(harness, "new")
    assert await old.fire_due() == 0
    advance(harness, MINUTE)
    taken = await old.take()
    assert taken is not None
    harness.client.pexpire("bridge:scheduler:beat", 28_000)
    assert await new.fire_due() is None, "two seconds without a beat"
    harness.client.pexpire("bridge:scheduler:beat", 26_000)
    assert harness.client.exists("bridge:scheduler:lock")
    assert await new.fire_due() == 1
    assert harness.text("scheduler", "fence") == "2"
    assert await old.fire(taken) is None
    assert await old.fire_due() is None
    assert harness.ids("waiting") == [f"s@{START + MINUTE}"]


async def test_a_scheduler_of_another_kind_leads_as_long_as_its_lock_lives(harness: BridgemqHarness):
    corral = scheduler(harness, "a")
    await corral.fire_due()
    lock_expires(harness)
    harness.client.set("bridge:scheduler:lock", "a-stranger", ex=30, nx=True)
    harness.client.pexpire("bridge:scheduler:beat", 10)
    assert await corral.fire_due() is None
    await until(lambda: gone(harness, "bridge:scheduler:beat"))
    assert await corral.fire_due() is None, "it never beats"


async def gone(harness: BridgemqHarness, key: str) -> bool:
    return not harness.client.exists(key)


@pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
async def test_the_gap_of_a_takeover_is_made_up_for_whatever_catch_up_says(
    harness: BridgemqHarness, catch_up: str
):
    await harness.broker().submit([harness.job(id="s", cron="* * * * * *", catch_up=catch_up)])
    await scheduler(harness, "old").fire_due()
    advance(harness, 5000)
    harness.client.pexpire("bridge:scheduler:beat", 25_000)
    assert await scheduler(harness, "new").fire_due() == 5
    assert harness.ids("waiting") == [f"s@{START + 1000 * n}" for n in range(1, 6)]


@pytest.mark.parametrize(("catch_up", "count"), [("skip", 1), ("once", 1), ("all", 20)])
async def test_a_time_without_a_leader_is_downtime(harness: BridgemqHarness, catch_up: str, count: int):
    await harness.broker().submit([harness.job(id="s", cron="* * * * * *", catch_up=catch_up)])
    await scheduler(harness, "old").fire_due()
    advance(harness, 20_000)
    harness.client.delete("bridge:scheduler:lock", "bridge:scheduler:beat")
    assert await scheduler(harness, "new").fire_due() == count


async def test_a_schedule_changed_between_take_and_fire_is_not_fired(harness: BridgemqHarness):
    await harness.upsert(harness.job(id="s", cron="* * * * *"))
    advance(harness, MINUTE)
    leader = scheduler(harness, "a")
    taken = await leader.take()
    assert taken is not None
    await harness.schedules.pause("s")
    assert await leader.fire(taken) == 0
    assert harness.ids("waiting") == []


async def test_a_thousand_ticks_with_leaders_killed_and_paused_fire_each_time_once(harness: BridgemqHarness):
    """Schedulers come and go, stop between two steps and go on later; answers are lost on the way."""
    chance = random.Random(20_241_123)
    crons = {"a": "* * * * *", "b": "*/25 * * * * *", "c": "30 */10 * * * *", "d": "15 3,4 * * *"}
    worker = harness.broker("worker")
    await worker.submit([harness.job(id=name, cron=cron, catch_up="all") for name, cron in crons.items()])
    alive = [scheduler(harness, f"s{n}") for n in range(3)]
    paused: list[tuple[ScheduleLeader, Any]] = []
    counts: Counter[str] = Counter()
    real, born, refused = harness.store.run, 3, 0

    async def loses_answers(*call: Any) -> Any:
        answer = await real(*call)
        if chance.random() < 0.05:
            raise RedisConnectionError("the answer was lost")
        return answer

    for _ in range(1000):
        advance(harness, chance.choice((1000, 5000, 20_000, 61_000)))
        harness.store.run = loses_answers
        try:
            match chance.random():
                case luck if luck < 0.05:  # the leader is killed, and another process takes its place
                    alive.pop(chance.randrange(len(alive)))
                    alive.append(scheduler(harness, f"s{born}"))
                    born += 1
                    lock_expires(harness)
                case luck if luck < 0.15:  # one stops in the middle, for longer than its lock lives
                    who = chance.choice(alive)
                    if taken := await who.take():
                        paused.append((who, taken))
                        lock_expires(harness)
                case luck if luck < 0.25 and paused:  # and goes on where it stopped
                    who, taken = paused.pop(chance.randrange(len(paused)))
                    refused += await who.fire(taken) is None
                case _:
                    await chance.choice(alive).fire_due()
        except RedisConnectionError:
            pass
        finally:
            harness.store.run = real
        counts.update(await fired(harness, worker))
    lock_expires(harness)
    advance(harness, LEASE_MS + 1)
    await alive[0].fire_due()
    counts.update(await fired(harness, worker))
    expected = []
    for name, text in crons.items():
        at = Cron.parse(text).next_after(START)
        while at is not None and at <= harness.now:
            expected.append(f"{name}@{at}")
            at = Cron.parse(text).next_after(at)
    assert len(expected) > 1000
    assert refused > 20, "paused leaders were refused"
    assert [job_id for job_id in expected if counts[job_id] == 0] == [], "skipped"
    assert [job_id for job_id, count in counts.items() if count > 1] == [], "doubled"
    assert sorted(counts) == sorted(expected)


# -- for operators ----------------------------------------------------------------------------------------


async def test_a_schedule_is_added_kept_and_changed(harness: BridgemqHarness):
    assert await harness.upsert(harness.job({"v": 1}, name="report", id="s", cron="*/5 * * * *")) == "added"
    advance(harness, 60_000)
    assert await harness.upsert(harness.job({"v": 2}, name="report", id="s", cron="*/5 * * * *")) == "kept"
    assert harness.json("jobs", "data", "s")["data"] == {"v": 2}
    assert harness.client.zscore("bridge:jobs:cron", "s") == START + 5 * MINUTE
    changed = harness.job(name="report", id="s", cron="*/5 * * * *", timezone="Asia/Kolkata")
    assert await harness.upsert(changed) == "changed"
    assert await harness.upsert(harness.job(name="report", id="s", cron="0 0 * * *")) == "changed"
    assert len(await harness.schedules.list()) == 1


async def test_a_start_of_the_program_while_a_schedule_is_leased_loses_no_firing(harness: BridgemqHarness):
    job = harness.job(id="s", cron="* * * * *", catch_up="all")
    await harness.upsert(job)
    advance(harness, MINUTE)
    leader = scheduler(harness, "a")
    taken = await leader.take()
    assert taken is not None
    assert await harness.upsert(job) == "kept"
    assert await leader.fire(taken) == 1


async def test_a_schedule_cannot_take_the_id_of_a_job(harness: BridgemqHarness):
    await harness.broker().submit([harness.job(id="j1")])
    before = harness.keyspace()
    with pytest.raises(InvalidName, match="'j1' exists and is no schedule"):
        await harness.upsert(harness.job(id="j1", cron="@daily"))
    with pytest.raises(InvalidName, match="needs an id"):
        await harness.upsert(harness.job(cron="@daily"))
    with pytest.raises(InvalidOptions, match="needs a cron"):
        await harness.upsert(harness.job(id="s"))
    assert harness.keyspace() == before


async def test_submitting_a_schedule_that_exists_changes_nothing(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="s", cron="@hourly")])
    before = harness.client.get("bridge:jobs:data:s")
    assert await submit(broker, [harness.job(id="s", cron="@daily")]) == ["s"]
    assert harness.client.get("bridge:jobs:data:s") == before


async def test_one_schedule_is_paused_and_resumed(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id=name, cron="* * * * *", catch_up="all") for name in ("a", "b")])
    assert await harness.schedules.pause("a")
    advance(harness, 3 * MINUTE)
    await broker.promote()
    assert {job_id[0] for job_id in harness.ids("waiting")} == {"b"}
    [b, a] = await harness.schedules.list()
    assert (a.id, a.next_at, b.next_at is None) == ("a", None, False)
    assert await harness.schedules.resume("a")
    advance(harness, MINUTE)
    await broker.promote()
    assert [job_id for job_id in harness.ids("waiting") if job_id[0] == "a"] == [f"a@{START + 4 * MINUTE}"]
    assert not await harness.schedules.pause("no-such")
    assert not await harness.schedules.resume("no-such")


async def test_a_schedule_is_run_now_besides_its_times(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job({"n": 1}, name="report", id="s", cron="@daily")])
    due = harness.client.zscore("bridge:jobs:cron", "s")
    job_id = await harness.schedules.run_now("s")
    assert job_id == f"s@{START}"
    assert (await harness.claim(broker)).job.data == {"n": 1}
    assert harness.client.zscore("bridge:jobs:cron", "s") == due
    assert await harness.schedules.run_now("no-such") is None


async def test_the_inspector_lists_the_schedules_of_a_queue(harness: BridgemqHarness):
    await harness.broker().submit(
        [harness.job(name="report", id="s", cron="@daily", timezone="Europe/Berlin", catch_up="skip")]
    )
    await harness.on("mail").broker().submit([harness.job(id="m", queue="mail", cron="@hourly")])
    [schedule] = await harness.schedules.list()
    assert (schedule.job.id, schedule.job.name) == ("s", "report")
    assert schedule.job.options.extra == {"cron": "@daily", "timezone": "Europe/Berlin", "catch_up": "skip"}
    assert schedule.next_at == Cron.parse("@daily", "Europe/Berlin").next_after(START)


async def test_a_leased_schedule_still_shows_when_it_was_due(harness: BridgemqHarness):
    await harness.broker().submit([harness.job(id="s", cron="* * * * *")])
    advance(harness, MINUTE)
    await scheduler(harness, "a").take()
    [schedule] = await harness.schedules.list()
    assert schedule.next_at == START + MINUTE


async def test_unscheduling_leaves_what_was_fired(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="s", cron="* * * * *")])
    advance(harness, MINUTE)
    await broker.promote()
    assert await harness.schedules.remove("s")
    assert harness.ids("waiting") == [f"s@{START + MINUTE}"]
    assert [key for key in harness.keyspace() if key.endswith(b":s")] == []
    assert harness.client.hlen("bridge:scheduler:leases") == 0


@pytest.mark.parametrize(
    "raw",
    [
        '{"id":"s","type":"x","schedule":{"cron":"61 * * * *"}}',
        '{"id":"s","type":"x","schedule":{"cron":"* * * * *","timezone":"Mars/Olympus"}}',
        '{"id":"s","type":"x"}',
        "{no json",
    ],
)
async def test_a_strangers_schedule_that_cannot_be_read_goes_to_the_dead_letters(
    harness: BridgemqHarness, raw: str
):
    harness.client.set("bridge:jobs:data:s", raw)
    harness.client.zadd("bridge:jobs:cron", {"s": START})
    broker = harness.broker()
    await broker.submit([harness.job(id="good", cron="* * * * *")])
    advance(harness, MINUTE)
    assert await broker.promote() == 1
    assert harness.ids("deadletter") == ["s"]
    assert harness.ids("cron") == ["good"]
    [dead] = await harness.inspector.jobs(JobState.DEAD)
    assert dead.reason
