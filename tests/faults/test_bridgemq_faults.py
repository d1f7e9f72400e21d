"""Kills, cuts and frozen workers in the BridgeMQ room; schedulers killed and stopped while schedules fire."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from corral.wire.bridgemq.broker import SCRIPTS
from tests.faults.cuts import finish, storm, through, work
from tests.faults.kills import assert_kills_hit, kill_at_random
from tests.faults.trips import cut_every, cuts
from tests.support.bridgemq_arena import BridgeArena
from tests.support.bridgemq_yard import open_yard
from tests.support.chaos import crew, scaled, seeded
from tests.support.polling import becomes_true, eventually
from tests.support.proxy import Fate, Proxy, runs_script
from tests.support.servers import Server

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

LOCK_MS = 2000
HELD = 5
END_S = 60.0
SHORT = {"lock_ms": LOCK_MS, "recover_ms": LOCK_MS // 4}


@pytest.fixture
async def arena(server: Server) -> AsyncIterator[BridgeArena]:
    arena = BridgeArena(server)
    yield arena
    await arena.close()


def attempts(number: int) -> int:
    return 2 if number % 3 == 0 else 1


async def test_workers_killed_at_random_lose_no_job_and_complete_none_twice(arena: BridgeArena):
    kills = scaled(200, least=2)
    await kill_at_random(arena, jobs=scaled(20_000, least=200), kills=kills, random=seeded())
    assert_kills_hit(arena, kills)


@pytest.mark.parametrize(("fate", "number"), cuts(2, 5))
async def test_turns_cut_at_every_place_lose_nothing(
    arena: BridgeArena, proxy: Proxy, fate: Fate, number: int
):
    rule = cut_every(proxy, number, runs_script(SCRIPTS["turn"].sha), fate)
    async with arena.worker(work, through(proxy), lock_ms=5000):
        await arena.add(scaled(600, least=60))
        await finish(arena)
    assert rule.met >= 3
    arena.assert_attempts(attempts)


async def test_a_storm_on_the_line_loses_nothing(arena: BridgeArena, proxy: Proxy):
    cut = await storm(arena, proxy, jobs=scaled(6000, least=600), random=seeded())
    assert cut >= 50
    arena.assert_attempts(attempts)


async def test_the_late_settlements_of_a_frozen_worker_are_refused_and_reported_as_lost_work(
    arena: BridgeArena,
):
    with crew(arena.server.url, arena.room, 1, **SHORT) as hands:
        [frozen] = hands.hands
        await arena.add(HELD, how="nap", seconds=0.3, is_announced=True)
        assert eventually(lambda: len(frozen.jobs_told("began")) == HELD)
        frozen.freeze()
        hands.hire().wait_ready()
        assert await arena.falls_to(0, END_S)
        frozen.thaw()
        assert await becomes_true(lambda: len(frozen.jobs_told("lost")) == HELD)
    for story in arena.assert_each_completed_once().values():
        assert (story.starts, story.recoveries, story.attempts) == (2, 1, 1)


async def test_handlers_that_block_the_loop_for_ten_locks_run_once(arena: BridgeArena):
    with crew(arena.server.url, arena.room, 3, concurrency=1, **SHORT) as hands:
        await arena.add(1, how="block", seconds=10 * LOCK_MS / 1000)
        await arena.add(1, how="spin", seconds=10 * LOCK_MS / 1000)
        assert await arena.falls_to(0, END_S)
        assert [hand.jobs_told("lost") for hand in hands.hands] == [[], [], []]
    for story in arena.assert_each_completed_once().values():
        assert (story.starts, story.recoveries, story.attempts) == (1, 0, 1)


async def test_a_hundred_real_ticks_with_leaders_killed_and_frozen_fire_each_second_once(
    server: Server, store
):
    """Real processes, real seconds, real locks of 30 s: every second of the run fires once."""
    random = seeded()
    with server.connect() as client:
        client.set("bridge:events:kept", 1_000_000)
        async with open_yard(store, client) as yard:
            order = {"number": 0, "how": "nap", "seconds": 0}
            await yard.broker("starter").submit(
                [yard.job("tool", order, id="tick", cron="* * * * * *", catch_up="all")]
            )
            first = int(client.zscore("bridge:jobs:cron", "tick") or 0)
            with crew(server.url, "bridgemq", 3, **SHORT) as hands:
                ends = time.monotonic() + scaled(110, least=40)
                while time.monotonic() < ends:
                    await asyncio.sleep(random.uniform(4, 9))
                    leader = (client.get("bridge:scheduler:lock") or b"").decode().partition(":")[0]
                    for hand in [hand for hand in hands.hands if hand.name == leader]:
                        if random.random() < 0.5:
                            hands.hands.remove(hand)
                            hand.kill()
                            hands.hire()
                        else:
                            hand.freeze()
                            await asyncio.sleep(random.uniform(1, 3))
                            hand.thaw()
                last = int(time.time()) * 1000
                assert await becomes_true(lambda: (client.zscore("bridge:jobs:cron", "tick") or 0) > last, 60)
                assert await becomes_true(lambda: client.llen("bridge:jobs:waiting") == 0, 30)
            counts = Counter(
                fields[b"jobId"].decode()
                for _, fields in client.xrange("bridge:events")
                if fields[b"event"] == b"added" and b"@" in fields[b"jobId"]
            )
    expected = {f"tick@{at}" for at in range(first, last + 1, 1000)}
    assert len(expected) >= 40
    assert expected - counts.keys() == set(), "skipped"
    assert {job_id for job_id, count in counts.items() if count > 1} == set(), "doubled"


async def test_a_match_in_a_hundred_thousand_is_found_within_a_hundred_calls(server: Server, store):
    """100,000 waiting jobs of 1 KB of which one in 10,000 matches."""
    from tests.wire.test_bridgemq_claiming import calls_until_claimed, commands_run, fill

    count, every = scaled(100_000, least=20_000), 10_000
    with server.connect() as client:
        async with open_yard(store, client) as yard:
            fill(yard, count, matching={n: f"mine-{n}" for n in range(every - 1, count, every)}, padding=900)
            broker = yard.broker()
            client.config_resetstat()
            calls = 0
            for n in range(every - 1, count, every):
                needed, job_id = await calls_until_claimed(broker)
                assert job_id == f"mine-{n}"
                assert needed <= 101
                calls += needed
            assert commands_run(yard)["get"] <= calls * 201
            spent = client.info("commandstats")["cmdstat_evalsha"]
            print(f"{calls} calls, {spent['usec'] / spent['calls']:.0f} µs of the server's time each")
