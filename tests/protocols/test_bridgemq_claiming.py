"""Which jobs a turn brings: by queue, target, order and limits, in a bounded number of looks."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest

from corral.core.outcome import Completed, Released, Retry
from corral.core.ports import Why
from corral.errors import InvalidOptions
from corral.protocols.bridgemq.broker import BridgemqBroker
from corral.protocols.bridgemq.idling import Mark
from corral.store.client import Store
from tests.support.bridgemq_yard import Yard, open_yard
from tests.support.polling import becomes_true
from tests.support.servers import Server

OTHERS = {"target": {"server": "someone-else"}}


@pytest.fixture
async def yard(store: Store, server: Server) -> AsyncIterator[Yard]:
    with server.connect() as client:
        async with open_yard(store, client) as yard:
            yield yard


def fill(yard: Yard, count: int, *, matching: dict[int, str] | None = None, padding: int = 0) -> None:
    """Waiting jobs for someone else, as a stranger's pipeline writes them; those in `matching` fit anyone."""
    pipe = yard.client.pipeline(transaction=False)
    for n in range(count):
        job_id = (matching or {}).get(n, f"other-{n}")
        target = {} if n in (matching or {}) else {"server": "someone-else"}
        job = {"id": job_id, "type": "work", "queue": "default", "target": target, "data": "x" * padding}
        pipe.set(f"bridge:jobs:data:{job_id}", json.dumps(job))
        pipe.rpush("bridge:jobs:waiting", job_id)
        if n % 5000 == 4999:
            pipe.execute()
    pipe.execute()


async def calls_until_claimed(broker: BridgemqBroker, most: int = 1000) -> tuple[int, str]:
    for call in range(1, most + 1):
        turn = await broker.turn([], 1)
        if turn.claims:
            return call, turn.claims[0].job.id
    raise AssertionError(f"nothing was claimed in {most} calls")


BESIDES = 15
"""Keys a turn reads besides the jobs it looks at: the list and its cursor, pauses, what is due."""


def keys_read(yard: Yard) -> int:
    """How many keys were read so far, inside scripts too."""
    stats = yard.client.info("stats")
    return stats["keyspace_hits"] + stats["keyspace_misses"]


# -- queue and target -------------------------------------------------------------------------------------


async def test_a_worker_gets_only_jobs_of_its_queue(yard: Yard):
    mail, video = yard.broker(queue="mail"), yard.broker(queue="video")
    await mail.submit([yard.job(id="m1", queue="mail"), yard.job(id="m2", queue="mail")])
    await video.submit([yard.job(id="v1", queue="video")])
    assert [claim.job.id for claim in (await video.turn([], 5)).claims] == ["v1"]
    assert [claim.job.id for claim in (await mail.turn([], 5)).claims] == ["m1", "m2"]


async def test_a_job_that_names_no_queue_belongs_to_the_usual_one(yard: Yard):
    yard.client.set("bridge:jobs:data:j1", '{"id":"j1","type":"work"}')
    yard.client.rpush("bridge:jobs:waiting", "j1")
    assert (await yard.broker(queue="mail").turn([], 1)).claims == []
    claim = await yard.claim(yard.broker())
    assert (claim.job.id, claim.job.queue, claim.job.name) == ("j1", "default", "work")


async def test_a_job_goes_only_to_a_worker_that_fits(yard: Yard):
    plain = yard.broker("plain", region="eu")
    gpu = yard.broker("gpu-1", region="us-east", capabilities=["gpu", "cuda"])
    target = {"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"}
    await plain.submit([yard.job(id="render", target=target), yard.job(id="any")])
    assert [claim.job.id for claim in (await plain.turn([], 5)).claims] == ["any"]
    assert [claim.job.id for claim in (await gpu.turn([], 5)).claims] == ["render"]


async def test_a_job_for_one_server_goes_to_that_server(yard: Yard):
    await yard.broker("a").submit([yard.job(id="j1", target={"server": "b"})])
    assert (await yard.broker("a").turn([], 5)).claims == []
    assert (await yard.claim(yard.broker("x", server_id="b"))).job.id == "j1"


async def test_a_worker_is_python_unless_it_says_otherwise(yard: Yard):
    await yard.broker().submit(
        [yard.job(id="p", target={"stack": ["python"]}), yard.job(target={"stack": ["node"]})]
    )
    assert [claim.job.id for claim in (await yard.broker().turn([], 5)).claims] == ["p"]


# -- order ------------------------------------------------------------------------------------------------


async def test_matches_come_in_their_order_however_they_are_mixed(yard: Yard):
    broker = yard.broker()
    mine = {n: f"mine-{n}" for n in range(0, 900, 7)}
    fill(yard, 900, matching=mine)
    seen: list[str] = []
    while len(seen) < len(mine):
        seen += [claim.job.id for claim in (await broker.turn([], 13)).claims]
    assert seen == list(mine.values())
    left = yard.ids("waiting")
    assert left == [f"other-{n}" for n in range(900) if n not in mine], "and the others stay in theirs"


async def test_a_released_job_is_the_next_to_run(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job(id=f"j{n}") for n in range(3)])
    claim = await yard.claim(broker)
    await broker.turn([yard.settle(claim, Released())], 0)
    assert yard.ids("waiting") == ["j0", "j1", "j2"]


async def test_a_retry_of_a_high_priority_goes_to_the_front_again(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job(id="low"), yard.job(id="high", priority=9)])
    claim = await yard.claim(broker)
    await broker.turn([yard.settle(claim, Retry(0, "boom"))], 0)
    assert yard.ids("waiting") == ["high", "low"]


async def test_a_job_pushed_in_front_is_found_before_those_behind(yard: Yard):
    broker = yard.broker()
    fill(yard, 1000, matching={950: "deep"})
    for _ in range(3):
        await broker.turn([], 1)
    await broker.submit([yard.job(id=f"front-{n}", priority=9, **OTHERS) for n in range(150)])
    await broker.submit([yard.job(id="urgent", priority=9)])
    await broker.submit([yard.job(id=f"front2-{n}", priority=9, **OTHERS) for n in range(150)])
    found = [(await calls_until_claimed(broker))[1] for _ in range(2)]
    assert found == ["urgent", "deep"]


async def test_what_comes_to_fit_in_front_of_the_cursor_goes_before_what_lies_behind(yard: Yard):
    """The search goes on after a claim; that hides nothing that it has passed."""
    fill(yard, 2000, matching={500: "limited", 700: "locked", 900: "first", 1900: "last"})
    limited = {"id": "limited", "type": "sms", "rateLimit": {"maxConcurrent": 1}}
    yard.client.set("bridge:jobs:data:limited", json.dumps(limited))
    yard.client.set("bridge:ratelimit:concurrent:sms", 1)
    yard.client.set("bridge:jobs:lock:locked", "someone", px=60_000)
    yard.now = yard.clock()
    broker = yard.broker()
    assert (await calls_until_claimed(broker))[1] == "first"
    yard.client.delete("bridge:ratelimit:concurrent:sms")
    assert (await calls_until_claimed(broker))[1] == "limited"
    yard.client.delete("bridge:jobs:lock:locked")
    yard.now += 60_000  # it would have run out by then
    assert [(await calls_until_claimed(broker))[1] for _ in range(2)] == ["locked", "last"]


async def test_what_comes_in_place_of_jobs_that_others_took_is_looked_at(yard: Yard):
    ours, theirs = yard.broker("ours"), yard.broker("theirs")
    await theirs.submit([yard.job(id="a", target={"server": "nobody"})])
    assert (await ours.turn([], 1)).claims == []
    others = [yard.job(id="b", target={"server": "nobody"}), yard.job(id="c", target={"server": "theirs"})]
    await theirs.submit(others)
    assert (await ours.turn([], 1)).claims == []
    assert (await yard.claim(theirs)).job.id == "c"
    await theirs.submit([yard.job(id="d")])
    # it lies where c was when the search had passed that
    assert (await yard.claim(ours)).job.id == "d"


async def test_a_search_goes_on_where_the_head_has_grown_beyond_it(yard: Yard):
    ours, theirs = yard.broker("ours"), yard.broker("theirs")
    for job_id in ("a", "b"):
        await theirs.submit([yard.job(id=job_id, target={"server": "theirs"})])
        assert (await ours.turn([], 1)).claims == []
    assert (await yard.claim(theirs)).job.id == "a"
    await theirs.submit([yard.job(id=job_id) for job_id in ("c", "d", "e")])
    assert [claim.job.id for claim in (await ours.turn([], 3)).claims] == ["c", "d", "e"]
    await theirs.submit([yard.job(id="f")])
    assert (await yard.claim(ours)).job.id == "f"
    assert (await ours.turn([], 1)).claims == []
    await theirs.submit([yard.job(id="g")])
    assert (await yard.claim(ours)).job.id == "g"


# -- bounds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [0, 99, 100, 101, 200, 5000, 10_000])
async def test_a_match_behind_others_is_found_after_so_many_calls(yard: Yard, behind: int):
    fill(yard, behind + 50, matching={behind: "mine"})
    calls, job_id = await calls_until_claimed(yard.broker())
    assert job_id == "mine"
    assert calls <= max(behind // 100, 1)


async def test_every_match_is_found_within_a_hundred_calls_of_the_one_before(yard: Yard):
    fill(yard, 10_000, matching={n: f"mine-{n}" for n in range(999, 10_000, 1000)}, padding=100)
    broker = yard.broker()
    for n in range(999, 10_000, 1000):
        calls, job_id = await calls_until_claimed(broker)
        assert job_id == f"mine-{n}"
        assert calls <= 11


async def test_a_call_looks_at_no_more_than_its_two_windows(yard: Yard):
    fill(yard, 10_000, padding=1000)
    broker = yard.broker()
    before = keys_read(yard)
    for _ in range(50):
        await broker.turn([], 1)
    looks = keys_read(yard) - before
    assert looks <= 50 * (200 + BESIDES)
    assert looks >= 50 * 100, "each call goes on where the last one stopped"


async def test_how_many_jobs_of_others_a_call_looks_at_is_the_workers_to_say(yard: Yard):
    fill(yard, 1000, matching={499: "mine"})
    broker = yard.broker(scan=10)
    before = keys_read(yard)
    calls, job_id = await calls_until_claimed(broker)
    assert (calls, job_id) == (49, "mine"), "ten at the head, and ten more with each call"
    assert keys_read(yard) - before <= calls * (20 + BESIDES)
    with pytest.raises(InvalidOptions, match="scan=1001 is not a whole number from 1 to 1000"):
        yard.broker(scan=1001)


async def test_a_head_that_did_not_change_is_not_looked_at_again(yard: Yard):
    fill(yard, 5000)
    broker = yard.broker()
    await broker.turn([], 1)
    before = keys_read(yard)
    for _ in range(20):
        await broker.turn([], 1)
    assert keys_read(yard) - before <= 20 * (100 + BESIDES)


async def test_at_the_end_of_the_list_new_jobs_are_found_at_once(yard: Yard):
    fill(yard, 2500)
    broker = yard.broker()
    while (await broker.turn([], 1)).rest.cursor is not Mark.OTHERS:
        pass
    await yard.broker("producer").submit([yard.job(id="new")])
    assert (await calls_until_claimed(broker, most=2))[1] == "new"


async def test_jobs_that_others_take_do_not_hide_ours(yard: Yard):
    """While one worker goes through others' jobs, another takes those from in front of it."""
    fill(yard, 3000, matching={2500: "mine"})
    ours, other = yard.broker("ours"), yard.broker("someone-else")
    for call in range(40):
        turn = await ours.turn([], 1)
        if turn.claims:
            assert turn.claims[0].job.id == "mine"
            return
        taken = await other.turn([], 30)
        assert len(taken.claims) == 30
        assert call < 26
    raise AssertionError("it was never found")


async def test_a_large_claim_comes_in_one_call(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job() for _ in range(1200)])
    assert [len((await broker.turn([], 500)).claims) for _ in range(3)] == [500, 500, 200]


async def test_a_claim_of_ten_thousand_comes_in_one_call_and_so_do_its_settlements(yard: Yard):
    broker = yard.broker(lock_ms=600_000)
    await broker.submit([yard.job() for _ in range(10_000)])
    turn = await broker.turn([], 10_000)
    assert len(turn.claims) == 10_000
    assert yard.client.scard("bridge:jobs:active") == 10_000
    turn = await broker.turn([yard.settle(claim) for claim in turn.claims], 0)
    assert not any(turn.verdicts)
    assert yard.client.scard("bridge:jobs:active") == 0
    assert not yard.client.exists("bridge:ratelimit:concurrent:work", "bridge:jobs:holders")


async def test_a_job_settled_twice_in_one_trip_is_written_down_once(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job("sms", id="j1"), yard.job("sms", id="j2")])
    first, second = (await broker.turn([], 2)).claims
    turn = await broker.turn([yard.settle(first), yard.settle(first, Retry(0, "x")), yard.settle(second)], 0)
    assert [type(verdict).__name__ for verdict in turn.verdicts] == ["NoneType", "NotActive", "NoneType"]
    assert yard.text("jobs", "status", "j1") == "completed"
    assert yard.ids("waiting") == []
    assert yard.text("ratelimit", "concurrent", "sms") is None


async def test_large_jobs_are_claimed_a_few_at_a_time(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job(data="x" * 1_500_000) for _ in range(6)])
    turns = [await broker.turn([], 6) for _ in range(3)]
    assert [len(turn.claims) for turn in turns] == [3, 3, 0]
    assert turns[0].rest.why is Why.SATISFIED, "there is more: ask again"


# -- pause ------------------------------------------------------------------------------------------------


async def test_a_pause_holds_one_queue_and_no_other(yard: Yard):
    mail, video = yard.broker(queue="mail"), yard.broker(queue="video")
    await mail.submit([yard.job(queue="mail")])
    await video.submit([yard.job(queue="video")])
    await yard.operator("mail").pause()
    turn = await mail.turn([], 1)
    assert (turn.claims, turn.rest.why) == ([], Why.PAUSED)
    assert len((await video.turn([], 1)).claims) == 1
    await yard.operator("mail").resume()
    assert len((await mail.turn([], 1)).claims) == 1


async def test_what_runs_may_end_while_its_queue_is_paused(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job(id="j1")])
    claim = await yard.claim(broker)
    await yard.operator().pause()
    assert (await broker.turn([yard.settle(claim)], 1)).verdicts == [None]
    assert yard.text("jobs", "status", "j1") == "completed"


# -- limits -----------------------------------------------------------------------------------------------


async def test_no_more_run_at_a_time_than_the_limit_says(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job("sms", rate={"concurrent": 3}) for _ in range(10)])
    turn = await broker.turn([], 10)
    assert (len(turn.claims), turn.rest.why) == (3, Why.LIMITED)
    turn = await broker.turn([yard.settle(claim) for claim in turn.claims[:2]], 10)
    assert len(turn.claims) == 2, "two slots are free again"


async def test_a_limited_type_does_not_hold_up_the_others(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job("sms", rate={"concurrent": 1}) for _ in range(500)])
    await broker.submit([yard.job("email", id="e1")])
    seen: list[str] = []
    for _ in range(8):
        seen += [claim.job.name for claim in (await broker.turn([], 10)).claims]
    assert seen == ["sms", "email"]


async def test_a_freed_slot_goes_to_the_first_of_its_type(yard: Yard):
    broker, other = yard.broker("a"), yard.broker("b")
    await broker.submit([yard.job("sms", id=f"s{n}", rate={"concurrent": 1}) for n in range(600)])
    held = await yard.claim(other)
    for _ in range(10):
        assert (await broker.turn([], 1)).claims == []
    await other.turn([yard.settle(held)], 0)
    assert (await yard.claim(broker)).job.id == "s1", "although the search had gone far past it"


async def test_no_more_are_claimed_in_a_minute_than_the_limit_says(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job("sms", rate={"per_minute": 4}) for _ in range(10)])
    turn = await broker.turn([], 10)
    assert (len(turn.claims), turn.rest.why) == (4, Why.LIMITED)
    assert turn.rest.until is not None
    assert 55_000 < turn.rest.until - yard.clock() <= 60_000, "until this minute is over"
    turn = await broker.turn([yard.settle(claim) for claim in turn.claims], 10)
    assert turn.claims == [], "ending jobs frees nothing"
    yard.client.delete("bridge:ratelimit:minute:sms")  # the minute is over
    assert len((await broker.turn([], 10)).claims) == 4


async def test_a_minute_begins_with_its_first_claim_and_is_not_drawn_out(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job("sms"), yard.job("sms")])
    await yard.claim(broker)
    yard.client.expire("bridge:ratelimit:minute:sms", 5)
    await yard.claim(broker)
    assert yard.text("ratelimit", "minute", "sms") == "2"
    assert yard.client.ttl("bridge:ratelimit:minute:sms") <= 5


async def test_a_minute_counter_that_someone_left_without_an_end_gets_one(yard: Yard):
    yard.client.set("bridge:ratelimit:minute:work", 3)
    broker = yard.broker()
    await broker.submit([yard.job()])
    await yard.claim(broker)
    assert yard.text("ratelimit", "minute", "work") == "4"
    assert yard.client.ttl("bridge:ratelimit:minute:work") > 0


@pytest.mark.parametrize("limit", ["concurrent", "per_minute"])
async def test_the_limits_are_exact_under_twenty_competing_workers(yard: Yard, limit: str):
    brokers = [yard.broker(f"w{n}") for n in range(20)]
    await brokers[0].submit([yard.job("sms", rate={limit: 7}) for _ in range(300)])
    running = most = claimed = 0

    async def work(broker: BridgemqBroker) -> None:
        nonlocal running, most, claimed
        settlements: list = []
        for _ in range(15):
            leaving = len(settlements)
            turn = await broker.turn(settlements, 3)
            assert not any(turn.verdicts)
            running += len(turn.claims) - leaving
            claimed += len(turn.claims)
            counted = await yard.store.call("SCARD", "bridge:jobs:active")
            most = max(most, counted)
            settlements = [yard.settle(claim) for claim in turn.claims]
        await broker.turn(settlements, 0)

    await asyncio.gather(*map(work, brokers))
    if limit == "concurrent":
        assert most == 7
        assert claimed > 100
    else:
        assert claimed == 7
    assert yard.client.exists("bridge:ratelimit:concurrent:sms") == 0, "every slot came back"


async def test_the_counters_are_audited_against_what_is_really_active(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job("sms"), yard.job("sms"), yard.job("email")])
    await broker.turn([], 3)
    yard.client.set("bridge:ratelimit:concurrent:sms", 9)
    yard.client.delete("bridge:ratelimit:concurrent:email")
    yard.client.set("bridge:ratelimit:concurrent:gone", 4)
    assert sorted(await yard.operator().audit()) == [("email", 0, 1), ("gone", 4, 0), ("sms", 9, 2)]
    assert await yard.inspector().concurrent() == {"sms": 2, "email": 1}
    assert await yard.operator().audit() == []


# -- waiting ----------------------------------------------------------------------------------------------


async def test_a_worker_before_others_jobs_polls_less_and_less(yard: Yard):
    fill(yard, 50)
    broker = yard.broker()
    pauses = []
    for _ in range(6):
        rest = (await broker.turn([], 1)).rest
        begun = time.monotonic()
        await broker.wait(rest)
        pauses.append(time.monotonic() - begun)
    assert pauses[0] < 0.1
    assert pauses[-1] > 0.2
    await yard.broker("producer").submit([yard.job()])
    await yard.claim(broker)
    begun = time.monotonic()
    await broker.wait((await broker.turn([], 1)).rest)
    assert time.monotonic() - begun < 0.1, "after a claim it looks again soon"


async def test_a_wait_for_a_limited_minute_ends_with_it(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job("sms", rate={"per_minute": 1}) for _ in range(2)])
    await yard.claim(broker)
    yard.client.pexpire("bridge:ratelimit:minute:sms", 300)
    begun = time.monotonic()
    while not (turn := await broker.turn([], 1)).claims:
        await broker.wait(turn.rest)
        assert time.monotonic() - begun < 3
    assert time.monotonic() - begun > 0.2


async def test_all_who_wait_are_woken_by_a_strangers_push(yard: Yard):
    brokers = [yard.broker(f"w{n}") for n in range(5)]
    rests = [(await broker.turn([], 1)).rest for broker in brokers]
    waits = [asyncio.create_task(broker.wait(rest)) for broker, rest in zip(brokers, rests, strict=True)]
    assert await becomes_true(lambda: yard.client.info("clients")["blocked_clients"] == len(brokers))
    assert not any(wait.done() for wait in waits)
    yard.client.set("bridge:jobs:data:j1", '{"id":"j1","type":"work"}')
    yard.client.rpush("bridge:jobs:waiting", "j1")
    await asyncio.wait_for(asyncio.gather(*waits), 1)
    claims = [claim for broker in brokers for claim in (await broker.turn([], 1)).claims]
    assert [claim.job.id for claim in claims] == ["j1"]


# -- trouble ----------------------------------------------------------------------------------------------


async def test_odd_entries_hold_up_nobody(yard: Yard):
    client = yard.client
    for job_id, raw in (
        ("text", '"x"'),
        ("broken", "{"),
        ("list", "[1,2]"),
        ("odd", '{"target":{"mode":"no"}}'),
    ):
        client.set(f"bridge:jobs:data:{job_id}", raw)
    client.hset("bridge:jobs:data:hash", "a", "b")
    client.rpush("bridge:jobs:waiting", "text", "ghost", "broken", "", "hash", "list", "odd")
    broker = yard.broker()
    await broker.submit([yard.job(id="good")])
    assert [claim.job.id for claim in (await broker.turn([], 5)).claims] == ["good"]
    assert yard.ids("waiting") == []
    assert sorted(yard.ids("deadletter")) == ["broken", "list", "odd", "text"]
    dead = await yard.inspector().job("odd")
    assert dead is not None
    assert dead.reason == "its target cannot be read: no worker would ever fit it"


async def test_a_job_whose_own_keys_are_of_the_wrong_type_is_buried(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job(id="j1"), yard.job(id="j2")])
    yard.client.sadd("bridge:jobs:fence:j1", "x")
    assert [claim.job.id for claim in (await broker.turn([], 5)).claims] == ["j2"]
    assert yard.ids("deadletter") == ["j1"]
    assert not yard.client.exists("bridge:jobs:lock:j1")


async def test_a_locked_job_waits_for_its_lock_to_go(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job(id="j1")])
    yard.client.set("bridge:jobs:lock:j1", "someone", px=200)
    begun = time.monotonic()
    while not (turn := await broker.turn([], 1)).claims:
        await broker.wait(turn.rest)
        assert time.monotonic() - begun < 3
    assert time.monotonic() - begun > 0.15
    assert (await broker.turn([yard.settle(turn.claims[0], Completed(b"1"))], 0)).verdicts == [None]
