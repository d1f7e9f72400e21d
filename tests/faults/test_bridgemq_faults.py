"""What only the BridgeMQ protocol has to bear: schedulers killed and stopped while firing, a long list."""

import asyncio
import time
from collections import Counter

import pytest

from corral import Corral
from tests.support.bridgemq_harness import BridgemqHarness
from tests.support.polling import becomes_true
from tests.support.servers import Server
from tests.support.worker_processes import scaled, seeded, worker_pool

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SHORT = {"lock_ms": 2000, "recover_ms": 500}


async def test_a_hundred_real_ticks_with_leaders_killed_and_frozen_fire_each_second_once(
    server: Server, store
):
    """Real processes, real seconds, real locks of 30 s: every second of the run fires once."""
    random = seeded()
    with server.connect() as client:
        client.set("bridge:events:kept", 1_000_000)
        async with BridgemqHarness(store, client) as harness:
            order = {"number": 0, "how": "nap", "seconds": 0}
            await harness.broker("starter").submit(
                [harness.job(order, name="tool", id="tick", cron="* * * * * *", catch_up="all")]
            )
            first = int(client.zscore("bridge:jobs:cron", "tick") or 0)
            with worker_pool(server.url, "bridgemq", 3, **SHORT) as pool:
                ends = time.monotonic() + scaled(110, least=40)
                while time.monotonic() < ends:
                    await asyncio.sleep(random.uniform(4, 9))
                    leader = (client.get("bridge:scheduler:lock") or b"").decode().partition(":")[0]
                    for process in [process for process in pool.processes if process.name == leader]:
                        if random.random() < 0.5:
                            pool.processes.remove(process)
                            process.kill()
                            pool.start()
                        else:
                            process.freeze()
                            await asyncio.sleep(random.uniform(1, 3))
                            process.thaw()
                last = int(time.time()) * 1000

                def has_fired_all() -> bool:
                    # while a scheduler holds it, its score is out of reach, and nothing is fired yet
                    is_leased = client.hexists("bridge:scheduler:leases", "tick")
                    return not is_leased and (client.zscore("bridge:jobs:cron", "tick") or 0) > last

                # a leader that was killed while holding the schedule: its lock, then its lease
                assert await becomes_true(has_fired_all, 90)
                assert await becomes_true(lambda: client.llen("bridge:jobs:waiting") == 0, 30)
            counts = Counter(
                fields[b"jobId"].decode()
                for _, fields in client.xrange("bridge:events")
                if fields[b"event"] == b"added" and b"@" in fields[b"jobId"]
            )
    expected = {f"tick@{at}" for at in range(first, last + 1, 1000)}
    assert len(expected) >= scaled(100, least=35)
    assert expected - counts.keys() == set(), "skipped"
    assert {job_id for job_id, count in counts.items() if count > 1} == set(), "doubled"


async def test_a_killed_workers_jobs_are_back_within_35_seconds_and_so_are_its_slots(server: Server):
    """The usual times: a heartbeat of 30 s, a leader that looks every 5 s."""
    held, within = 5, 35.0
    async with Corral(server.url, protocol="bridgemq") as app:
        queue = app.queue()
        with server.connect() as client, worker_pool(server.url, "bridgemq", 1) as pool:
            [victim] = pool.processes
            order = {"number": 0, "how": "nap", "seconds": 600, "is_announced": True}
            await queue.add_many([("tool", order)] * held, rate={"concurrent": held}, attempts=2)
            assert await becomes_true(lambda: len(victim.jobs_reported("began")) == held)
            successor = pool.start().wait_ready()
            killed = time.monotonic()
            pool.processes.remove(victim)
            victim.kill()
            # they can begin again only where their slots have come back too
            assert await becomes_true(lambda: len(successor.jobs_reported("began")) == held, 2 * within)
            took = time.monotonic() - killed
            print(f"back and begun again after {took:.1f} s")
            assert client.get("bridge:ratelimit:concurrent:tool") == str(held).encode()
            stalled = [
                fields for _, fields in client.xrange("bridge:events") if fields[b"event"] == b"stalled"
            ]
    assert took <= within + 1, "and a second until the other worker has claimed them"
    assert len(stalled) == held
    assert {fields[b"attempt"] for fields in stalled} == {b"1"}, "the attempt counts"


async def test_a_match_in_a_hundred_thousand_is_found_within_a_hundred_calls(server: Server, store):
    """100,000 waiting jobs of 1 KB of which one in 10,000 matches."""
    from tests.protocols.bridgemq.test_claiming import BESIDES, calls_until_claimed, fill, keys_read

    count, every = scaled(100_000, least=20_000), 10_000
    with server.connect() as client:
        async with BridgemqHarness(store, client) as harness:
            fill(
                harness, count, matching={n: f"mine-{n}" for n in range(every - 1, count, every)}, padding=900
            )
            broker = harness.broker()
            client.config_resetstat()
            calls = 0
            for n in range(every - 1, count, every):
                needed, job_id = await calls_until_claimed(broker)
                assert job_id == f"mine-{n}"
                assert needed <= 100
                calls += needed
            assert keys_read(harness) <= calls * (200 + BESIDES)
            spent = client.info("commandstats")["cmdstat_evalsha"]
            print(f"{calls} calls, {spent['usec'] / spent['calls']:.0f} µs of the server's time each")
