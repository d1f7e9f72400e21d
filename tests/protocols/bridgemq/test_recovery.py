"""Dead workers' jobs come back, attempts are counted, limits are mended; late words are refused."""

import time

import pytest

from corral.core.event import EventKind
from corral.core.job import JobState
from corral.core.outcome import (
    AlreadyMoved,
    Cancelled,
    Completed,
    Dead,
    Postponed,
    Released,
    Retry,
    WaitingChildren,
)
from corral.errors import JobMissing, LockMissing, LockStolen, NotActive, SettlementFailed
from tests.support.bridgemq_harness import BridgemqHarness
from tests.support.foreign_client_bridgemq import ForeignProducer, ForeignWorker
from tests.support.jobs import submit
from tests.support.polling import until


def dies(harness: BridgemqHarness, worker: str, *job_ids: str) -> None:
    """The worker sent no heartbeat for 30 s: it has expired, and its locks with it."""
    harness.client.delete(
        f"bridge:workers:heartbeat:{worker}", *[f"bridge:jobs:lock:{job}" for job in job_ids]
    )


# -- back to waiting, or dead -----------------------------------------------------------------------------


async def test_a_dead_workers_jobs_go_back_with_an_attempt_counted(harness: BridgemqHarness):
    broker, other = harness.broker("w1"), harness.broker("w2")
    await broker.submit([harness.job({"n": 1}, name="sms", id="j1", rate={"concurrent": 1})])
    await harness.claim(broker)
    dies(harness, "w1", "j1")
    recovery = await other.recover()
    assert (list(recovery.requeued), list(recovery.ended)) == (["j1"], [])
    assert (harness.ids("waiting"), harness.ids("active")) == (["j1"], [])
    assert harness.text("jobs", "status", "j1") == "waiting"
    assert harness.client.exists("bridge:ratelimit:concurrent:sms") == 0, "its slot came back"
    claim = await harness.claim(other)
    assert (claim.job.attempts_made, claim.job.data) == (1, {"n": 1})
    assert claim.job.reason == "its worker w1 is gone: the job was abandoned"


async def test_a_dead_workers_job_does_not_queue_behind_all_others_again(harness: BridgemqHarness):
    broker, other = harness.broker("w1"), harness.broker("w2")
    await submit(broker, [harness.job(id="j1"), harness.job(id="j2"), harness.job(id="j3")])
    await harness.claim(broker)
    dies(harness, "w1", "j1")
    await other.recover()
    assert harness.ids("waiting") == ["j1", "j2", "j3"]
    assert (await harness.claim(other)).job.id == "j1"


async def test_a_job_whose_attempts_are_spent_goes_to_the_dead_letters(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1", attempts=2)])
    for _ in range(2):
        await harness.claim(broker)
        dies(harness, "w1", "j1")
        recovery = await harness.broker("w2").recover()
    assert list(recovery.ended) == ["j1"]
    assert (harness.ids("deadletter"), harness.ids("waiting"), harness.ids("active")) == (["j1"], [], [])
    job = await harness.inspector.job("j1")
    assert job is not None
    assert (job.state, job.attempts_made, job.reason) == (
        JobState.DEAD, 2, "its worker w1 is gone: the job was abandoned",
    )  # fmt: skip
    assert harness.json("jobs", "result", "j1")["error"]["name"] == "Abandoned"


async def test_attempts_in_the_json_count_too(harness: BridgemqHarness):
    ForeignProducer(harness.client).dispatch("j1", attempt=2, maxAttempts=3)
    broker = harness.broker("w1")
    claim = await harness.claim(broker)
    assert claim.job.attempts_made == 2
    dies(harness, "w1", "j1")
    assert list((await broker.recover()).ended) == ["j1"]


async def test_earlier_traces_survive_an_abandonment(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    await broker.turn([harness.settle(await harness.claim(broker), Retry(0, "boom", "trace 1"))], 0)
    await harness.claim(broker)
    dies(harness, "w1", "j1")
    await broker.recover()
    claim = await harness.claim(broker)
    assert claim.job.trace == ("trace 1",)
    assert claim.job.attempts_made == 2


async def test_a_living_workers_jobs_are_left_alone(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    assert list((await harness.broker("w2").recover()).requeued) == []
    assert (await broker.turn([harness.settle(claim)], 0)).verdicts == [None]


async def test_a_lock_does_not_outlive_the_heartbeat_of_a_known_worker(harness: BridgemqHarness):
    """A lock may be long; its worker is dead when its heartbeat has expired."""
    broker = harness.broker("w1", lock_ms=3_600_000)
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    dies(harness, "w1")
    assert harness.client.exists("bridge:jobs:lock:j1")
    assert list((await harness.broker("w2").recover()).requeued) == ["j1"]
    assert not harness.client.exists("bridge:jobs:lock:j1")
    [late] = (await broker.turn([harness.settle(claim)], 0)).verdicts
    assert isinstance(late, LockMissing)


async def test_a_killed_worker_is_noticed_within_its_heartbeat_and_a_sweep(harness: BridgemqHarness):
    """The real thing with short times: the heartbeat expires, the leader's next search puts the job back."""
    broker = harness.broker("w1", heartbeat_ms=300, lock_ms=60_000)
    await broker.submit([harness.job(id="j1")])
    await harness.claim(broker)
    leader, other = harness.broker("w2", heartbeat_ms=300), harness.broker("w3", heartbeat_ms=300)
    await leader.promote()
    await other.promote()
    begun = time.monotonic()

    async def is_back() -> bool:
        return bool((await leader.recover()).requeued)

    assert await until(is_back, seconds=3)
    assert time.monotonic() - begun > 0.2
    assert harness.ids("waiting") == ["j1"]
    assert (await leader.recover()).next_ms == 50, "a sixth of the heartbeat's lifetime"
    assert (await other.recover()).next_ms is None, "as often as its profile says"


async def test_many_jobs_of_many_dead_workers_come_back_in_pages(harness: BridgemqHarness):
    brokers = [harness.broker(f"w{n}") for n in range(4)]
    ids = await submit(brokers[0], [harness.job() for _ in range(1000)])
    for broker in brokers:
        assert len((await broker.turn([], 250)).claims) == 250
    for n in (0, 2):
        dies(harness, f"w{n}", *ids[n * 250 : (n + 1) * 250])
    recovery = await brokers[1].recover()
    assert sorted(recovery.requeued) == sorted(ids[:250] + ids[500:750])
    assert harness.client.scard("bridge:jobs:active") == 500
    assert harness.text("ratelimit", "concurrent", "work") == "500"


async def test_a_recovery_is_told_as_an_event(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    await harness.claim(broker)
    dies(harness, "w1", "j1")
    await broker.recover()
    [event] = [event for event in await harness.events.range() if event.kind == EventKind.STALLED]
    assert (event.job_id, event.attempt) == ("j1", 1)


async def test_a_worker_long_dead_is_forgotten(harness: BridgemqHarness):
    await harness.reporter("old").beat()
    await harness.reporter("new").beat()
    dies(harness, "old")
    await harness.broker().recover()
    assert harness.client.smembers("bridge:workers:active") == {b"old", b"new"}, "for a day it is still shown"
    harness.now = harness.clock() + 86_400_000 + 60_000
    await harness.reporter("new").beat()
    await harness.broker().recover()
    assert harness.client.smembers("bridge:workers:active") == {b"new"}
    assert not harness.client.exists("bridge:workers:old")


# -- strangers --------------------------------------------------------------------------------------------


async def test_a_stranger_that_does_not_renew_keeps_its_job_while_it_beats(harness: BridgemqHarness):
    ForeignProducer(harness.client).dispatch("j1")
    stranger = ForeignWorker(harness.client, "s1")
    stranger.register()
    job = stranger.claim(lock_s=1)
    harness.client.delete("bridge:jobs:lock:j1")  # it never renews
    assert list((await harness.broker().recover()).requeued) == []
    dies(harness, "s1")
    assert list((await harness.broker().recover()).requeued) == ["j1"]
    assert stranger.complete(job, "late") == 0, "release_lock says so"


async def test_a_stranger_that_claims_by_its_own_means_is_watched_first(harness: BridgemqHarness):
    """Lock and active set by plain commands, with no heartbeat: it has as long as a heartbeat lives."""
    ForeignProducer(harness.client).dispatch("j1")
    harness.client.lrem("bridge:jobs:waiting", 1, "j1")
    harness.client.sadd("bridge:jobs:active", "j1")
    harness.now = harness.clock()
    broker = harness.broker()
    assert list((await broker.recover()).requeued) == []
    harness.now += 29_000
    assert list((await broker.recover()).requeued) == []
    harness.now += 2000
    assert list((await broker.recover()).requeued) == ["j1"]


async def test_a_stranger_without_heartbeat_keeps_its_job_while_its_lock_lives(harness: BridgemqHarness):
    ForeignProducer(harness.client).dispatch("j1")
    ForeignWorker(harness.client, "silent").claim()
    assert list((await harness.broker().recover()).requeued) == []
    dies(harness, "silent", "j1")
    assert list((await harness.broker().recover()).requeued) == ["j1"]


@pytest.mark.parametrize("last_step", ["complete", "bury", "retry", "requeue"])
async def test_a_stranger_that_died_just_before_it_let_go_leaves_no_second_run(
    harness: BridgemqHarness, last_step: str
):
    ForeignProducer(harness.client).dispatch("j1")
    stranger = ForeignWorker(harness.client, "s1")
    stranger.register()
    job = stranger.claim()
    stranger.release = lambda job: 0
    if last_step == "complete":
        stranger.complete(job, "done")
    elif last_step == "bury":
        stranger.bury(job, "boom")
    elif last_step == "retry":
        stranger.retry(job, 60_000)
    else:
        harness.client.set("bridge:jobs:status:j1", "waiting")
        harness.client.rpush("bridge:jobs:waiting", "j1")
    dies(harness, "s1", "j1")
    recovery = await harness.broker().recover()
    assert (list(recovery.requeued), list(recovery.ended)) == ([], [])
    assert harness.ids("active") == []
    places = {"complete": [], "bury": ["deadletter"], "retry": ["delayed"], "requeue": ["waiting"]}[last_step]
    found = [place for place in ("waiting", "delayed", "deadletter") if harness.ids(place)]
    assert found == places
    assert not harness.client.exists("bridge:ratelimit:concurrent:work")


# -- fencing ----------------------------------------------------------------------------------------------


async def test_a_claim_of_the_same_worker_fences_its_own_earlier_one(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    first = await harness.claim(broker)
    dies(harness, "w1", "j1")
    await broker.recover()
    second = await harness.claim(broker)
    before = harness.keyspace()
    [late] = (await broker.turn([harness.settle(first, Completed(b'"late"'))], 0)).verdicts
    assert isinstance(late, LockStolen)
    assert harness.keyspace() == before, "nothing was written"
    assert (await broker.turn([harness.settle(second, Completed(b'"right"'))], 0)).verdicts == [None]
    assert harness.json("jobs", "result", "j1")["data"] == "right"


async def test_a_settlement_under_the_lock_of_a_stranger_that_knows_no_fence_is_refused(
    harness: BridgemqHarness,
):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    harness.client.set("bridge:jobs:lock:j1", "stranger", px=30_000)
    before = harness.keyspace()
    [verdict] = (await broker.turn([harness.settle(claim)], 0)).verdicts
    assert isinstance(verdict, LockStolen)
    assert harness.keyspace() == before, "nothing was written"


async def test_a_new_life_of_an_id_is_fenced_from_the_last(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    first = await harness.claim(broker)
    await broker.turn([harness.settle(first)], 0)
    await harness.operator.remove(["j1"])
    await broker.submit([harness.job(id="j1")])
    second = await harness.claim(broker)
    assert second.receipt.fence > first.receipt.fence
    [late] = (await broker.turn([harness.settle(first, Dead("late"))], 0)).verdicts
    assert isinstance(late, LockStolen)


@pytest.mark.parametrize("outcome", [Completed(b"1"), Retry(0, "x"), Retry(9, "x"), Dead("x"), Cancelled()])
async def test_an_expired_lock_refuses_every_outcome_before_anything_is_written(
    harness: BridgemqHarness, outcome
):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    harness.client.delete("bridge:jobs:lock:j1")
    before = harness.keyspace()
    [late] = (await broker.turn([harness.settle(claim, outcome)], 0)).verdicts
    assert isinstance(late, LockMissing)
    assert harness.keyspace() == before


async def test_a_job_taken_out_of_active_by_others_is_not_settled(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    harness.client.srem("bridge:jobs:active", "j1")
    [verdict] = (await broker.turn([harness.settle(claim)], 0)).verdicts
    assert isinstance(verdict, NotActive)


async def test_a_job_whose_data_was_deleted_leaves_nothing_behind(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(name="sms", id="j1")])
    claim = await harness.claim(broker)
    harness.client.delete("bridge:jobs:data:j1")
    [verdict] = (await broker.turn([harness.settle(claim, Retry(0, "boom"))], 0)).verdicts
    assert isinstance(verdict, JobMissing)
    assert (harness.ids("active"), harness.ids("waiting")) == ([], [])
    assert not harness.client.exists("bridge:ratelimit:concurrent:sms")


async def test_one_settlement_the_server_refuses_leaves_its_neighbours_alone(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id=f"j{n}") for n in range(3)])
    claims = (await broker.turn([], 3)).claims
    harness.client.set("bridge:jobs:failure:j1", "no hash")
    verdicts = (await broker.turn([harness.settle(claim, Dead("x")) for claim in claims], 0)).verdicts
    assert [type(verdict) for verdict in verdicts] == [type(None), SettlementFailed, type(None)]
    assert harness.ids("deadletter") == ["j2", "j0"]


async def test_what_a_handler_moved_itself_is_left_alone(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    before = harness.keyspace()
    assert (await broker.turn([harness.settle(claim, AlreadyMoved())], 0)).verdicts == [None]
    assert harness.keyspace() == before


async def test_a_handler_that_waits_for_children_ends_dead_for_there_are_none(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    await broker.turn([harness.settle(await harness.claim(broker), WaitingChildren())], 0)
    job = await harness.inspector.job("j1")
    assert job is not None
    assert job.reason == "the handler waits for children, but protocol 'bridgemq' has none"


# -- lost answers -----------------------------------------------------------------------------------------


async def test_a_trip_that_arrives_after_it_was_given_up_takes_nothing(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    real, held = harness.store.run, []

    async def hold(*call):
        held.append(call)
        raise ConnectionError("it is still on its way")

    harness.store.run = hold
    with pytest.raises(ConnectionError):
        await broker.turn([], 1)
    harness.store.run = real
    assert list((await broker.recover(owner=broker.unanswered)).claims) == []
    await real(*held[0])
    assert harness.ids("waiting") == ["j1"]
    assert (await harness.claim(broker)).job.id == "j1", "the next trip takes it"


async def test_one_claim_can_be_taken_up_by_its_receipt(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    [again] = (await broker.recover(owner=claim.receipt)).claims
    assert again.receipt == claim.receipt
    await broker.turn([harness.settle(claim)], 0)
    assert list((await broker.recover(owner=claim.receipt)).claims) == []


# -- cancelling -------------------------------------------------------------------------------------------


async def test_a_claim_that_went_to_another_is_not_adopted(harness: BridgemqHarness):
    broker, other = harness.broker("w1"), harness.broker("w2")
    await broker.submit([harness.job(id="j1")])
    first = await harness.claim(broker)
    dies(harness, "w1", "j1")
    await other.recover()
    second = await harness.claim(other)
    assert (await broker.recover(owner=first.receipt)).claims == []
    assert [claim.receipt for claim in (await other.recover(owner=second.receipt)).claims] == [second.receipt]


async def test_a_cancelled_active_job_ends_in_the_dead_letters(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    await harness.operator.cancel(["j1"])
    assert [claim.job.id for claim in (await broker.extend([claim])).cancelled] == ["j1"]
    await broker.turn([harness.settle(claim, Cancelled())], 0)
    job = await harness.inspector.job("j1")
    assert job is not None
    assert (job.state, job.reason) == (JobState.DEAD, "cancelled")
    assert harness.ids("deadletter") == ["j1"]
    assert not harness.client.exists("bridge:jobs:cancelling")


async def test_a_cancel_outlives_the_worker_that_did_not_know_of_it(harness: BridgemqHarness):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    await harness.claim(broker)
    assert await harness.operator.cancel(["j1"]) == ["j1"]
    dies(harness, "w1", "j1")
    recovery = await harness.broker("w2").recover()
    assert (list(recovery.requeued), list(recovery.ended)) == ([], ["j1"])
    await assert_cancelled(harness)


@pytest.mark.parametrize("outcome", [Released(), Postponed(9), Retry(0, "x"), Retry(9, "x")])
async def test_a_cancel_outlives_an_outcome_that_would_run_the_job_again(harness: BridgemqHarness, outcome):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    await harness.operator.cancel(["j1"])
    assert (await broker.turn([harness.settle(claim, outcome)], 0)).verdicts == [None]
    await assert_cancelled(harness)


async def assert_cancelled(harness: BridgemqHarness) -> None:
    """The only job has ended for good as cancelled, and nothing of it is left elsewhere."""
    job = await harness.inspector.job("j1")
    assert job is not None
    assert (job.state, job.reason) == (JobState.DEAD, "cancelled")
    assert (harness.ids("waiting"), harness.ids("delayed"), harness.ids("active")) == ([], [], [])
    assert not harness.client.exists("bridge:jobs:cancelling", "bridge:ratelimit:concurrent:work")
    last = (await harness.events.range())[-1]
    assert (last.job_id, last.kind) == ("j1", EventKind.DEAD)
    assert last.data == {"reason": "cancelled", "cancelled": True}


@pytest.mark.parametrize("options", [{}, {"delay": 60_000}, {"priority": 9}])
async def test_a_cancelled_waiting_job_leaves_only_its_fence(harness: BridgemqHarness, options):
    broker = harness.broker("w1")
    await broker.submit([harness.job(id="j1", **options)])
    assert await harness.operator.cancel(["j1"]) == ["j1"]
    assert [key for key in harness.keyspace() if b"j1" in key] == []
    assert (harness.ids("waiting"), harness.ids("delayed")) == ([], [])
    assert await harness.operator.cancel(["j1"]) == []


async def test_a_schedule_is_not_cancelled_but_unscheduled(harness: BridgemqHarness):
    await harness.broker().submit([harness.job(id="s1", cron="@daily")])
    assert await harness.operator.cancel(["s1"]) == []
    assert await harness.schedules.remove("s1")
    assert not await harness.schedules.remove("s1")
