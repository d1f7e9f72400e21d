"""Schedules of the bridgemq protocol while their leaders are killed."""

import pytest

from corral import Corral
from tests.support.polling import becomes_true, eventually
from tests.support.servers import Server
from tests.support.worker_process_main import JOB
from tests.support.worker_processes import WorkerPool, worker_pool

KILLS = 4


def leader_of(client, pool: WorkerPool) -> str:
    """Return the name of the worker that leads, once that is one of the pool."""
    names = {process.name for process in pool.processes}

    def leader() -> str:
        name = (client.get("bridge:scheduler:lock") or b"").decode().partition(":")[0]
        return name if name in names else ""

    name = eventually(leader, 10)
    assert name, "nobody leads"
    return name


def ticks(client) -> list[int]:
    """Return the seconds for which the schedule has fired, in order."""
    added = [fields for _, fields in client.xrange("bridge:events") if fields[b"event"] == b"added"]
    times = [fields[b"jobId"].decode().partition("@")[2] for fields in added]
    return sorted(int(time) // 1000 for time in times if time)


@pytest.mark.faults
@pytest.mark.timeout(300)
async def test_a_schedule_of_every_second_misses_no_tick_when_its_leaders_are_killed(server: Server):
    async with Corral(server.url, protocol="bridgemq") as app:
        app.schedule(JOB, {"how": "nap", "seconds": 0, "number": 0}, id="tick", cron="* * * * * *")
        with worker_pool(server.url, "bridgemq", 3) as pool, server.connect() as client:
            await app.start_schedules()
            waits = []
            for _ in range(KILLS):
                before = len(ticks(client))
                assert await becomes_true(lambda before=before: len(ticks(client)) >= before + 8, 30)
                leader = leader_of(client, pool)
                [victim] = [process for process in pool.processes if process.name == leader]
                pool.processes.remove(victim)
                victim.kill()
                last = ticks(client)[-1]
                assert await becomes_true(lambda last=last: ticks(client)[-1] > last, 40)
                waits.append(int(client.time()[0]) - last)
                pool.start()
            end = ticks(client)[-1] + 3
            assert await becomes_true(lambda: ticks(client)[-1] >= end, 10)
            fired = ticks(client)
    due = fired[-1] - fired[0] + 1
    print(f"{KILLS} leaders killed: {len(fired)} of {due} ticks fired; the next after {waits} s")
    assert fired == list(range(fired[0], fired[-1] + 1))
    assert max(waits) <= 6, "within 5 s of the leader's death, which was within a second of its last tick"
