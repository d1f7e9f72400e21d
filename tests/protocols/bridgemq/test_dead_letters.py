"""Dead letters: kept with reason, traces and attempts; replayed whole or not at all; discarded."""

import random

import pytest

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.outcome import Completed, Dead, Retry
from corral.errors import RedisConnectionError
from tests.support.bridgemq_harness import BridgemqHarness


@pytest.fixture
def harness(harness: BridgemqHarness) -> BridgemqHarness:
    harness.now = 1_732_376_323_000
    return harness


async def bury(harness: BridgemqHarness, *jobs, reason: str = "boom") -> None:
    broker = harness.broker()
    await broker.submit(list(jobs))
    turn = await broker.turn([], len(jobs))
    assert len(turn.claims) == len(jobs)
    await broker.turn(
        [harness.settle(claim, Dead(reason, f"trace of {claim.job.id}")) for claim in turn.claims], 0
    )


async def test_a_dead_letter_tells_its_reason_traces_and_attempts(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job({"to": "x"}, name="sms", id="j1")])
    for n in range(2):
        await broker.turn(
            [harness.settle(await harness.claim(broker), Retry(0, f"boom {n}", f"trace {n}"))], 0
        )
    await broker.turn([harness.settle(await harness.claim(broker), Dead("boom 2", "trace 2"))], 0)
    [dead] = await harness.inspector.jobs(JobState.DEAD)
    assert (dead.id, dead.name, dead.data, dead.state) == ("j1", "sms", {"to": "x"}, JobState.DEAD)
    assert (dead.reason, dead.trace, dead.attempts_made) == ("boom 2", ("trace 0", "trace 1", "trace 2"), 3)
    assert dead.finished_at == harness.now


async def test_a_dead_letter_outlives_its_result(harness: BridgemqHarness):
    await bury(harness, harness.job(id="j1"))
    harness.client.delete("bridge:jobs:result:j1")  # a day later
    [dead] = await harness.inspector.jobs(JobState.DEAD)
    assert (dead.reason, dead.trace, dead.finished_at) == ("boom", ("trace of j1",), harness.now)


async def test_dead_letters_are_listed_newest_first_and_by_queue(harness: BridgemqHarness):
    await bury(harness, *[harness.job(id=f"j{n}") for n in range(5)])
    other = harness.on("mail").broker()
    await other.submit([harness.job(id="mail", queue="mail")])
    await other.turn([harness.settle(await harness.claim(other), Dead("x"))], 0)
    assert [job.id for job in await harness.inspector.jobs(JobState.DEAD, 4)] == ["j4", "j3", "j2", "j1"]
    assert [job.id for job in await harness.on("mail").inspector.jobs(JobState.DEAD)] == ["mail"]
    assert (await harness.inspector.counts())[JobState.DEAD] == 5


async def test_a_replayed_job_has_all_its_attempts_again(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job({"n": 1}, name="sms", id="j1", attempts=2)])
    await broker.turn([harness.settle(await harness.claim(broker), Retry(0, "boom"))], 0)
    await broker.turn([harness.settle(await harness.claim(broker), Dead("boom"))], 0)
    assert await harness.operator.replay(["j1"]) == ["j1"]
    assert (harness.ids("deadletter"), harness.ids("waiting")) == ([], ["j1"])
    claim = await harness.claim(broker)
    assert (claim.job.attempts_made, claim.job.data) == (0, {"n": 1})
    await broker.turn([harness.settle(claim, Completed(b'"fine"'))], 0)
    job = await harness.inspector.job("j1")
    assert job is not None
    assert (job.state, job.result, job.reason) == (JobState.COMPLETED, "fine", None)


async def test_a_replay_counts_anew_whatever_the_json_says(harness: BridgemqHarness):
    harness.client.set("bridge:jobs:data:j1", '{"id":"j1","type":"work","attempt":3,"maxAttempts":3}')
    harness.client.set("bridge:jobs:status:j1", "dead")
    harness.client.lpush("bridge:jobs:deadletter", "j1")
    await harness.operator.replay(["j1"])
    assert (await harness.claim(harness.broker())).job.attempts_made == 0


async def test_replay_by_filter_takes_what_it_names(harness: BridgemqHarness):
    await bury(
        harness,
        harness.job(name="sms", id="a"),
        harness.job(name="email", id="b"),
        reason="connection timed out",
    )
    harness.now = harness.now + 60_000
    await bury(harness, harness.job(name="sms", id="c"), reason="no such number")
    assert await harness.operator.replay(JobFilter(names=frozenset({"sms"}), reason="timed out")) == ["a"]
    assert await harness.operator.replay(JobFilter(ended_since=harness.now)) == ["c"]
    assert await harness.operator.replay(JobFilter(ended_until=harness.now - 1)) == ["b"]
    assert harness.ids("deadletter") == []


async def test_replay_of_everything_in_many_batches(harness: BridgemqHarness):
    await bury(harness, *[harness.job(id=f"j{n}") for n in range(450)])
    assert len(await harness.operator.replay(JobFilter(limit=10))) == 10
    assert len(await harness.operator.replay(JobFilter())) == 440
    assert sorted(harness.ids("waiting")) == sorted(f"j{n}" for n in range(450))
    assert harness.ids("deadletter") == []


async def test_an_interrupted_replay_loses_nothing_and_doubles_nothing(harness: BridgemqHarness):
    ids = [f"j{n:03}" for n in range(950)]
    await bury(harness, *[harness.job(id=job_id) for job_id in ids])
    real, chance = harness.store.run, random.Random(5)

    async def fails_at_times(*call):
        luck = chance.random()
        if luck < 0.2:
            raise RedisConnectionError("before it was sent")
        answer = await real(*call)
        if luck > 0.8:
            raise RedisConnectionError("after it ran, the answer was lost")
        return answer

    harness.store.run = fails_at_times
    interrupted = 0
    for _ in range(100):
        try:
            await harness.operator.replay(JobFilter())
            break
        except RedisConnectionError:
            interrupted += 1
            waiting, dead = harness.ids("waiting"), harness.ids("deadletter")
            assert sorted(waiting + dead) == ids, "each is in one place, and in one only"
    harness.store.run = real
    assert interrupted > 3
    assert sorted(harness.ids("waiting")) == ids
    assert harness.ids("deadletter") == []


async def test_an_id_that_stands_twice_among_the_dead_letters_is_replayed_once(harness: BridgemqHarness):
    await bury(harness, harness.job(id="j1"))
    harness.client.lpush("bridge:jobs:deadletter", "j1")
    assert await harness.operator.replay(JobFilter()) == ["j1"]
    assert await harness.operator.retry(["j1"]) == []
    broker = harness.broker()
    await broker.turn([harness.settle(await harness.claim(broker))], 0)
    assert await harness.operator.retry(["j1"]) == []
    assert harness.ids("waiting") == []


async def test_a_dead_letter_is_discarded(harness: BridgemqHarness):
    await bury(harness, harness.job(name="sms", id="a"), harness.job(name="email", id="b"))
    assert await harness.operator.remove(JobFilter(names=frozenset({"sms"}))) == ["a"]
    assert harness.ids("deadletter") == ["b"]
    assert [key for key in harness.keyspace() if key.endswith(b":a")] == [b"bridge:jobs:fence:a"]
    assert harness.client.ttl("bridge:jobs:fence:a") > 0
    assert await harness.operator.remove(["b", "no-such"]) == ["b"]


async def test_other_queues_dead_letters_are_neither_replayed_nor_discarded(harness: BridgemqHarness):
    await bury(harness, harness.job(id="a"))
    assert await harness.on("mail").operator.replay(JobFilter()) == []
    assert await harness.on("mail").operator.remove(["a"]) == []
    assert harness.ids("deadletter") == ["a"]


async def test_what_cannot_be_read_stays_where_it_is(harness: BridgemqHarness):
    harness.client.set("bridge:jobs:data:bad", "{")
    harness.client.set("bridge:jobs:status:bad", "dead")
    harness.client.lpush("bridge:jobs:deadletter", "bad")
    assert await harness.operator.retry(["bad", "ghost"]) == []
    assert harness.ids("deadletter") == ["bad"]


@pytest.mark.parametrize("keep_data", [True, False])
async def test_a_completed_job_runs_again_only_where_its_data_was_kept(
    harness: BridgemqHarness, keep_data: bool
):
    broker = harness.broker()
    await broker.submit([harness.job(id="j1", data={"n": 1}, keep_data=keep_data)])
    await broker.turn([harness.settle(await harness.claim(broker), Completed(b"1"))], 0)
    assert await harness.operator.retry(["j1"]) == (["j1"] if keep_data else [])
    if keep_data:
        assert harness.client.ttl("bridge:jobs:data:j1") == -1, (
            "it is a waiting job again, not one that expires"
        )
        claim = await harness.claim(broker)
        assert (claim.job.data, claim.job.attempts_made) == ({"n": 1}, 0)
        assert (await broker.turn([harness.settle(claim)], 0)).verdicts == [None]
