"""Which jobs a turn brings: by queue, target, order and limits, in a bounded number of looks."""

import asyncio
import json
import time

import pytest

from corral.core.outcome import Completed, Released, Retry
from corral.core.ports import RestReason
from corral.errors import InvalidOptions
from corral.protocols.bridgemq.broker import BridgemqBroker, Remaining
from tests.support.bridgemq_harness import BridgemqHarness
from tests.support.polling import becomes_true

OTHERS = {"target": {"server": "someone-else"}}


def fill(
    harness: BridgemqHarness, count: int, *, matching: dict[int, str] | None = None, padding: int = 0
) -> None:
    """Waiting jobs for someone else, as a stranger's pipeline writes them; those in `matching` fit anyone."""
    pipe = harness.client.pipeline(transaction=False)
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


def keys_read(harness: BridgemqHarness) -> int:
    """How many keys were read so far, inside scripts too."""
    stats = harness.client.info("stats")
    return stats["keyspace_hits"] + stats["keyspace_misses"]


# -- queue and target -------------------------------------------------------------------------------------


async def test_a_worker_gets_only_jobs_of_its_queue(harness: BridgemqHarness):
    mail, video = harness.on("mail").broker(), harness.on("video").broker()
    await mail.submit([harness.job(id="m1", queue="mail"), harness.job(id="m2", queue="mail")])
    await video.submit([harness.job(id="v1", queue="video")])
    assert [claim.job.id for claim in (await video.turn([], 5)).claims] == ["v1"]
    assert [claim.job.id for claim in (await mail.turn([], 5)).claims] == ["m1", "m2"]


async def test_a_job_that_names_no_queue_belongs_to_the_usual_one(harness: BridgemqHarness):
    harness.client.set("bridge:jobs:data:j1", '{"id":"j1","type":"work"}')
    harness.client.rpush("bridge:jobs:waiting", "j1")
    assert (await harness.on("mail").broker().turn([], 1)).claims == []
    claim = await harness.claim(harness.broker())
    assert (claim.job.id, claim.job.queue, claim.job.name) == ("j1", "default", "work")


async def test_a_job_goes_only_to_a_worker_that_fits(harness: BridgemqHarness):
    plain = harness.broker("plain", region="eu")
    gpu = harness.broker("gpu-1", region="us-east", capabilities=["gpu", "cuda"])
    target = {"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"}
    await plain.submit([harness.job(id="render", target=target), harness.job(id="any")])
    assert [claim.job.id for claim in (await plain.turn([], 5)).claims] == ["any"]
    assert [claim.job.id for claim in (await gpu.turn([], 5)).claims] == ["render"]


async def test_a_job_for_one_server_goes_to_that_server(harness: BridgemqHarness):
    await harness.broker("a").submit([harness.job(id="j1", target={"server": "b"})])
    assert (await harness.broker("a").turn([], 5)).claims == []
    assert (await harness.claim(harness.broker("x", server_id="b"))).job.id == "j1"


async def test_a_worker_is_python_unless_it_says_otherwise(harness: BridgemqHarness):
    await harness.broker().submit(
        [harness.job(id="p", target={"stack": ["python"]}), harness.job(target={"stack": ["node"]})]
    )
    assert [claim.job.id for claim in (await harness.broker().turn([], 5)).claims] == ["p"]


# -- order ------------------------------------------------------------------------------------------------


async def test_matches_come_in_their_order_however_they_are_mixed(harness: BridgemqHarness):
    broker = harness.broker()
    mine = {n: f"mine-{n}" for n in range(0, 900, 7)}
    fill(harness, 900, matching=mine)
    seen: list[str] = []
    while len(seen) < len(mine):
        seen += [claim.job.id for claim in (await broker.turn([], 13)).claims]
    assert seen == list(mine.values())
    left = harness.ids("waiting")
    assert left == [f"other-{n}" for n in range(900) if n not in mine], "and the others stay in theirs"


async def test_a_released_job_is_the_next_to_run(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id=f"j{n}") for n in range(3)])
    claim = await harness.claim(broker)
    await broker.turn([harness.settle(claim, Released())], 0)
    assert harness.ids("waiting") == ["j0", "j1", "j2"]


async def test_a_retry_of_a_high_priority_goes_to_the_front_again(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="low"), harness.job(id="high", priority=9)])
    claim = await harness.claim(broker)
    await broker.turn([harness.settle(claim, Retry(0, "boom"))], 0)
    assert harness.ids("waiting") == ["high", "low"]


async def test_a_job_pushed_in_front_is_found_before_those_behind(harness: BridgemqHarness):
    broker = harness.broker()
    fill(harness, 1000, matching={950: "deep"})
    for _ in range(3):
        await broker.turn([], 1)
    await broker.submit([harness.job(id=f"front-{n}", priority=9, **OTHERS) for n in range(150)])
    await broker.submit([harness.job(id="urgent", priority=9)])
    await broker.submit([harness.job(id=f"front2-{n}", priority=9, **OTHERS) for n in range(150)])
    found = [(await calls_until_claimed(broker))[1] for _ in range(2)]
    assert found == ["urgent", "deep"]


async def test_what_comes_to_fit_in_front_of_the_cursor_goes_before_what_lies_behind(
    harness: BridgemqHarness,
):
    """The search goes on after a claim; that hides nothing that it has passed."""
    fill(harness, 2000, matching={500: "limited", 700: "locked", 900: "first", 1900: "last"})
    limited = {"id": "limited", "type": "sms", "rateLimit": {"maxConcurrent": 1}}
    harness.client.set("bridge:jobs:data:limited", json.dumps(limited))
    harness.client.set("bridge:ratelimit:concurrent:sms", 1)
    harness.client.set("bridge:jobs:lock:locked", "someone", px=60_000)
    harness.now = harness.clock()
    broker = harness.broker()
    assert (await calls_until_claimed(broker))[1] == "first"
    harness.client.delete("bridge:ratelimit:concurrent:sms")
    assert (await calls_until_claimed(broker))[1] == "limited"
    harness.client.delete("bridge:jobs:lock:locked")
    harness.now += 60_000  # it would have run out by then
    assert [(await calls_until_claimed(broker))[1] for _ in range(2)] == ["locked", "last"]


async def test_what_comes_in_place_of_jobs_that_others_took_is_looked_at(harness: BridgemqHarness):
    ours, theirs = harness.broker("ours"), harness.broker("theirs")
    await theirs.submit([harness.job(id="a", target={"server": "nobody"})])
    assert (await ours.turn([], 1)).claims == []
    others = [
        harness.job(id="b", target={"server": "nobody"}),
        harness.job(id="c", target={"server": "theirs"}),
    ]
    await theirs.submit(others)
    assert (await ours.turn([], 1)).claims == []
    assert (await harness.claim(theirs)).job.id == "c"
    await theirs.submit([harness.job(id="d")])
    # it lies where c was when the search had passed that
    assert (await harness.claim(ours)).job.id == "d"


async def test_a_search_goes_on_where_the_head_has_grown_beyond_it(harness: BridgemqHarness):
    ours, theirs = harness.broker("ours"), harness.broker("theirs")
    for job_id in ("a", "b"):
        await theirs.submit([harness.job(id=job_id, target={"server": "theirs"})])
        assert (await ours.turn([], 1)).claims == []
    assert (await harness.claim(theirs)).job.id == "a"
    await theirs.submit([harness.job(id=job_id) for job_id in ("c", "d", "e")])
    assert [claim.job.id for claim in (await ours.turn([], 3)).claims] == ["c", "d", "e"]
    await theirs.submit([harness.job(id="f")])
    assert (await harness.claim(ours)).job.id == "f"
    assert (await ours.turn([], 1)).claims == []
    await theirs.submit([harness.job(id="g")])
    assert (await harness.claim(ours)).job.id == "g"


# -- bounds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [0, 99, 100, 101, 200, 5000, 10_000])
async def test_a_match_behind_others_is_found_after_so_many_calls(harness: BridgemqHarness, behind: int):
    fill(harness, behind + 50, matching={behind: "mine"})
    calls, job_id = await calls_until_claimed(harness.broker())
    assert job_id == "mine"
    assert calls <= max(behind // 100, 1)


async def test_every_match_is_found_within_a_hundred_calls_of_the_one_before(harness: BridgemqHarness):
    fill(harness, 10_000, matching={n: f"mine-{n}" for n in range(999, 10_000, 1000)}, padding=100)
    broker = harness.broker()
    for n in range(999, 10_000, 1000):
        calls, job_id = await calls_until_claimed(broker)
        assert job_id == f"mine-{n}"
        assert calls <= 11


async def test_a_call_looks_at_no_more_than_its_two_windows(harness: BridgemqHarness):
    fill(harness, 10_000, padding=1000)
    broker = harness.broker()
    before = keys_read(harness)
    for _ in range(50):
        await broker.turn([], 1)
    looks = keys_read(harness) - before
    assert looks <= 50 * (200 + BESIDES)
    assert looks >= 50 * 100, "each call goes on where the last one stopped"


async def test_how_many_jobs_of_others_a_call_looks_at_is_the_workers_to_say(harness: BridgemqHarness):
    fill(harness, 1000, matching={499: "mine"})
    broker = harness.broker(scan=10)
    before = keys_read(harness)
    calls, job_id = await calls_until_claimed(broker)
    assert (calls, job_id) == (49, "mine"), "ten at the head, and ten more with each call"
    assert keys_read(harness) - before <= calls * (20 + BESIDES)
    with pytest.raises(InvalidOptions, match="scan=1001 is not a whole number from 1 to 1000"):
        harness.broker(scan=1001)


async def test_a_head_that_did_not_change_is_not_looked_at_again(harness: BridgemqHarness):
    fill(harness, 5000)
    broker = harness.broker()
    await broker.turn([], 1)
    before = keys_read(harness)
    for _ in range(20):
        await broker.turn([], 1)
    assert keys_read(harness) - before <= 20 * (100 + BESIDES)


async def test_at_the_end_of_the_list_new_jobs_are_found_at_once(harness: BridgemqHarness):
    fill(harness, 2500)
    broker = harness.broker()
    while (await broker.turn([], 1)).rest.cursor is not Remaining.OTHERS:
        pass
    await harness.broker("producer").submit([harness.job(id="new")])
    assert (await calls_until_claimed(broker, most=2))[1] == "new"


async def test_jobs_that_others_take_do_not_hide_ours(harness: BridgemqHarness):
    """While one worker goes through others' jobs, another takes those from in front of it."""
    fill(harness, 3000, matching={2500: "mine"})
    ours, other = harness.broker("ours"), harness.broker("someone-else")
    for call in range(40):
        turn = await ours.turn([], 1)
        if turn.claims:
            assert turn.claims[0].job.id == "mine"
            return
        taken = await other.turn([], 30)
        assert len(taken.claims) == 30
        assert call < 26
    raise AssertionError("it was never found")


async def test_a_large_claim_comes_in_one_call(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job() for _ in range(1200)])
    assert [len((await broker.turn([], 500)).claims) for _ in range(3)] == [500, 500, 200]


async def test_a_claim_of_ten_thousand_comes_in_one_call_and_so_do_its_settlements(harness: BridgemqHarness):
    broker = harness.broker(lock_ms=600_000)
    await broker.submit([harness.job() for _ in range(10_000)])
    turn = await broker.turn([], 10_000)
    assert len(turn.claims) == 10_000
    assert harness.client.scard("bridge:jobs:active") == 10_000
    turn = await broker.turn([harness.settle(claim) for claim in turn.claims], 0)
    assert not any(turn.verdicts)
    assert harness.client.scard("bridge:jobs:active") == 0
    assert not harness.client.exists("bridge:ratelimit:concurrent:work", "bridge:jobs:holders")


async def test_a_job_settled_twice_in_one_trip_is_written_down_once(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(name="sms", id="j1"), harness.job(name="sms", id="j2")])
    first, second = (await broker.turn([], 2)).claims
    turn = await broker.turn(
        [harness.settle(first), harness.settle(first, Retry(0, "x")), harness.settle(second)], 0
    )
    assert [type(verdict).__name__ for verdict in turn.verdicts] == ["NoneType", "NotActive", "NoneType"]
    assert harness.text("jobs", "status", "j1") == "completed"
    assert harness.ids("waiting") == []
    assert harness.text("ratelimit", "concurrent", "sms") is None


async def test_large_jobs_are_claimed_a_few_at_a_time(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(data="x" * 1_500_000) for _ in range(6)])
    turns = [await broker.turn([], 6) for _ in range(3)]
    assert [len(turn.claims) for turn in turns] == [3, 3, 0]
    assert turns[0].rest.reason is RestReason.SATISFIED, "there is more: ask again"


# -- pause ------------------------------------------------------------------------------------------------


async def test_a_pause_holds_one_queue_and_no_other(harness: BridgemqHarness):
    mail, video = harness.on("mail").broker(), harness.on("video").broker()
    await mail.submit([harness.job(queue="mail")])
    await video.submit([harness.job(queue="video")])
    await harness.on("mail").operator.pause()
    turn = await mail.turn([], 1)
    assert (turn.claims, turn.rest.reason) == ([], RestReason.PAUSED)
    assert len((await video.turn([], 1)).claims) == 1
    await harness.on("mail").operator.resume()
    assert len((await mail.turn([], 1)).claims) == 1


async def test_what_runs_may_end_while_its_queue_is_paused(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    await harness.operator.pause()
    assert (await broker.turn([harness.settle(claim)], 1)).verdicts == [None]
    assert harness.text("jobs", "status", "j1") == "completed"


# -- limits -----------------------------------------------------------------------------------------------


async def test_no_more_run_at_a_time_than_the_limit_says(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(name="sms", rate={"concurrent": 3}) for _ in range(10)])
    turn = await broker.turn([], 10)
    assert (len(turn.claims), turn.rest.reason) == (3, RestReason.LIMITED)
    turn = await broker.turn([harness.settle(claim) for claim in turn.claims[:2]], 10)
    assert len(turn.claims) == 2, "two slots are free again"


async def test_a_limited_type_does_not_hold_up_the_others(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(name="sms", rate={"concurrent": 1}) for _ in range(500)])
    await broker.submit([harness.job(name="email", id="e1")])
    seen: list[str] = []
    for _ in range(8):
        seen += [claim.job.name for claim in (await broker.turn([], 10)).claims]
    assert seen == ["sms", "email"]


async def test_a_freed_slot_goes_to_the_first_of_its_type(harness: BridgemqHarness):
    broker, other = harness.broker("a"), harness.broker("b")
    await broker.submit([harness.job(name="sms", id=f"s{n}", rate={"concurrent": 1}) for n in range(600)])
    held = await harness.claim(other)
    for _ in range(10):
        assert (await broker.turn([], 1)).claims == []
    await other.turn([harness.settle(held)], 0)
    assert (await harness.claim(broker)).job.id == "s1", "although the search had gone far past it"


async def test_no_more_are_claimed_in_a_minute_than_the_limit_says(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(name="sms", rate={"per_minute": 4}) for _ in range(10)])
    turn = await broker.turn([], 10)
    assert (len(turn.claims), turn.rest.reason) == (4, RestReason.LIMITED)
    assert turn.rest.until is not None
    assert 55_000 < turn.rest.until - harness.clock() <= 60_000, "until this minute is over"
    turn = await broker.turn([harness.settle(claim) for claim in turn.claims], 10)
    assert turn.claims == [], "ending jobs frees nothing"
    harness.client.delete("bridge:ratelimit:minute:sms")  # the minute is over
    assert len((await broker.turn([], 10)).claims) == 4


async def test_a_minute_begins_with_its_first_claim_and_is_not_drawn_out(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(name="sms"), harness.job(name="sms")])
    await harness.claim(broker)
    harness.client.expire("bridge:ratelimit:minute:sms", 5)
    await harness.claim(broker)
    assert harness.text("ratelimit", "minute", "sms") == "2"
    assert harness.client.ttl("bridge:ratelimit:minute:sms") <= 5


async def test_a_minute_counter_that_someone_left_without_an_end_gets_one(harness: BridgemqHarness):
    harness.client.set("bridge:ratelimit:minute:work", 3)
    broker = harness.broker()
    await broker.submit([harness.job()])
    await harness.claim(broker)
    assert harness.text("ratelimit", "minute", "work") == "4"
    assert harness.client.ttl("bridge:ratelimit:minute:work") > 0


@pytest.mark.parametrize("limit", ["concurrent", "per_minute"])
async def test_the_limits_are_exact_under_twenty_competing_workers(harness: BridgemqHarness, limit: str):
    brokers = [harness.broker(f"w{n}") for n in range(20)]
    await brokers[0].submit([harness.job(name="sms", rate={limit: 7}) for _ in range(300)])
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
            counted = await harness.store.call("SCARD", "bridge:jobs:active")
            most = max(most, counted)
            settlements = [harness.settle(claim) for claim in turn.claims]
        await broker.turn(settlements, 0)

    await asyncio.gather(*map(work, brokers))
    if limit == "concurrent":
        assert most == 7
        assert claimed > 100
    else:
        assert claimed == 7
    assert harness.client.exists("bridge:ratelimit:concurrent:sms") == 0, "every slot came back"


async def test_the_counters_are_audited_against_what_is_really_active(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(name="sms"), harness.job(name="sms"), harness.job(name="email")])
    await broker.turn([], 3)
    harness.client.set("bridge:ratelimit:concurrent:sms", 9)
    harness.client.delete("bridge:ratelimit:concurrent:email")
    harness.client.set("bridge:ratelimit:concurrent:gone", 4)
    assert sorted(await harness.operator.audit()) == [("email", 0, 1), ("gone", 4, 0), ("sms", 9, 2)]
    assert await harness.inspector.concurrent() == {"sms": 2, "email": 1}
    assert await harness.operator.audit() == []


# -- waiting ----------------------------------------------------------------------------------------------


async def test_a_worker_before_others_jobs_polls_less_and_less(harness: BridgemqHarness):
    fill(harness, 50)
    broker = harness.broker()
    pauses = []
    for _ in range(6):
        rest = (await broker.turn([], 1)).rest
        begun = time.monotonic()
        await broker.wait(rest)
        pauses.append(time.monotonic() - begun)
    assert min(pauses[:2]) < 0.15 < 0.2 < pauses[-1]
    await harness.broker("producer").submit([harness.job()])
    await harness.claim(broker)
    rest = (await broker.turn([], 1)).rest
    begun = time.monotonic()
    await broker.wait(rest)
    assert time.monotonic() - begun < pauses[-1], "after a claim it looks again soon"


async def test_a_wait_for_a_limited_minute_ends_with_it(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(name="sms", rate={"per_minute": 1}) for _ in range(2)])
    await harness.claim(broker)
    harness.client.pexpire("bridge:ratelimit:minute:sms", 300)
    begun = time.monotonic()
    while not (turn := await broker.turn([], 1)).claims:
        await broker.wait(turn.rest)
        assert time.monotonic() - begun < 30
    assert time.monotonic() - begun > 0.2


async def test_all_who_wait_are_woken_by_a_strangers_push(harness: BridgemqHarness):
    brokers = [harness.broker(f"w{n}") for n in range(5)]
    rests = [(await broker.turn([], 1)).rest for broker in brokers]
    waits = [asyncio.create_task(broker.wait(rest)) for broker, rest in zip(brokers, rests, strict=True)]
    assert await becomes_true(lambda: harness.client.info("clients")["blocked_clients"] == len(brokers))
    assert not any(wait.done() for wait in waits)
    harness.client.set("bridge:jobs:data:j1", '{"id":"j1","type":"work"}')
    harness.client.rpush("bridge:jobs:waiting", "j1")
    await asyncio.wait_for(asyncio.gather(*waits), 1)
    claims = [claim for broker in brokers for claim in (await broker.turn([], 1)).claims]
    assert [claim.job.id for claim in claims] == ["j1"]


# -- trouble ----------------------------------------------------------------------------------------------


async def test_odd_entries_hold_up_nobody(harness: BridgemqHarness):
    client = harness.client
    for job_id, raw in (
        ("text", '"x"'),
        ("broken", "{"),
        ("list", "[1,2]"),
        ("odd", '{"target":{"mode":"no"}}'),
    ):
        client.set(f"bridge:jobs:data:{job_id}", raw)
    client.hset("bridge:jobs:data:hash", "a", "b")
    client.rpush("bridge:jobs:waiting", "text", "ghost", "broken", "", "hash", "list", "odd")
    broker = harness.broker()
    await broker.submit([harness.job(id="good")])
    assert [claim.job.id for claim in (await broker.turn([], 5)).claims] == ["good"]
    assert harness.ids("waiting") == []
    assert sorted(harness.ids("deadletter")) == ["broken", "list", "odd", "text"]
    dead = await harness.inspector.job("odd")
    assert dead is not None
    assert dead.reason == "its target cannot be read: no worker would ever fit it"


async def test_a_job_whose_own_keys_are_of_the_wrong_type_is_buried(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="j1"), harness.job(id="j2")])
    harness.client.sadd("bridge:jobs:fence:j1", "x")
    assert [claim.job.id for claim in (await broker.turn([], 5)).claims] == ["j2"]
    assert harness.ids("deadletter") == ["j1"]
    assert not harness.client.exists("bridge:jobs:lock:j1")


async def test_a_locked_job_waits_for_its_lock_to_go(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="j1")])
    harness.client.set("bridge:jobs:lock:j1", "someone", px=200)
    begun = time.monotonic()
    while not (turn := await broker.turn([], 1)).claims:
        await broker.wait(turn.rest)
        assert time.monotonic() - begun < 30
    assert time.monotonic() - begun > 0.15
    assert (await broker.turn([harness.settle(turn.claims[0], Completed(b"1"))], 0)).verdicts == [None]
