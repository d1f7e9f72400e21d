"""Strangers who know only the document, beside Corral: either adds, either works, either schedules."""

import json
import threading

import pytest

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.outcome import Completed, Dead, Retry
from tests.support.bridgemq_harness import BridgemqHarness
from tests.support.foreign_client_bridgemq import ForeignProducer, ForeignScheduler, ForeignWorker, now_ms
from tests.support.jobs import submit
from tests.support.servers import Server

# -- they add, we work ------------------------------------------------------------------------------------


@pytest.mark.parametrize("says_status", [True, False])
async def test_a_strangers_job_is_worked_by_us(harness: BridgemqHarness, client, says_status: bool):
    producer = ForeignProducer(client)
    producer.dispatch("j1", "sms", {"to": "x"}, says_status=says_status)
    waiting = await harness.inspector.job("j1")
    assert waiting is not None
    assert waiting.state is JobState.WAITING
    broker = harness.broker()
    claim = await harness.claim(broker)
    assert (claim.job.name, claim.job.data, claim.job.options.attempts) == ("sms", {"to": "x"}, 3)
    await broker.turn([harness.settle(claim, Completed(b'{"sent":true}'))], 0)
    assert producer.result("j1")["success"] is True
    assert producer.result("j1")["data"] == {"sent": True}
    assert producer.status("j1") == "completed"
    assert not client.exists("bridge:jobs:data:j1")


async def test_a_strangers_delayed_job_is_promoted_by_us(harness: BridgemqHarness, client):
    ForeignProducer(client).dispatch("j1", delay=5000, says_status=False)
    harness.now = now_ms()
    broker = harness.broker()
    assert (await broker.turn([], 1)).claims == []
    harness.now += 5001
    assert (await harness.claim(broker)).job.id == "j1"


async def test_a_strangers_schedule_is_fired_by_us(harness: BridgemqHarness, client):
    due = 1_732_377_000_000  # 2024-11-23 15:50 UTC
    producer = ForeignProducer(client)
    producer.dispatch("report", "report", {"n": 1}, cron="*/10 * * * *", next_run=due)
    harness.now = due + 5
    broker = harness.broker()
    assert await broker.promote() == 1
    claim = await harness.claim(broker)
    assert (claim.job.id, claim.job.name, claim.job.data) == (f"report@{due}", "report", {"n": 1})
    assert client.zscore("bridge:jobs:cron", "report") == due + 600_000


async def test_a_job_in_a_strangers_spelling_is_read(harness: BridgemqHarness, client):
    """`jobId`, `payload`, `retry`, `attempts`: the words other clients of this data model use."""
    job = {
        "jobId": "j1", "type": "sms", "payload": {"to": "x"}, "attempts": 1,
        "retry": {"attempts": 5, "backoff": {"type": "linear", "delay": 100, "maxDelay": 150}},
        "rateLimit": {"maxConcurrent": 2, "maxPerMinute": 9}, "schedule": {}, "target": {},
    }  # fmt: skip
    ForeignProducer(client).push("j1", json.dumps(job))
    claim = await harness.claim(harness.broker())
    assert (claim.job.id, claim.job.data, claim.job.attempts_made) == ("j1", {"to": "x"}, 1)
    assert claim.job.options.attempts == 5
    assert claim.job.options.backoff is not None
    assert claim.job.options.backoff.delay == 150
    assert claim.job.options.extra["rate"] == {"concurrent": 2, "per_minute": 9}


async def test_a_strangers_retry_counts_as_an_attempt(harness: BridgemqHarness, client):
    ForeignProducer(client).dispatch("j1")
    stranger = ForeignWorker(client)
    assert stranger.retry(stranger.claim()) == 1
    broker = harness.broker()
    claim = await harness.claim(broker)
    assert claim.job.attempts_made == 1
    await broker.turn([harness.settle(claim, Retry(0, "boom"))], 0)
    assert (await harness.claim(broker)).job.attempts_made == 2


# -- we add, they work ------------------------------------------------------------------------------------


async def test_our_job_is_worked_by_a_stranger(harness: BridgemqHarness, client):
    [job_id] = await submit(
        harness.broker(), [harness.job({"to": "x", "big": 130775545883395173}, name="sms")]
    )
    stranger = ForeignWorker(client)
    stranger.register()
    job = stranger.claim()
    assert (job["id"], job["type"], job["data"]["big"]) == (job_id, "sms", 130775545883395173)
    active = await harness.inspector.job(job_id)
    assert active is not None
    assert (active.state, active.worker) == (JobState.ACTIVE, "foreign")
    stranger.progress(job_id, 40, "half")
    active = await harness.inspector.job(job_id)
    assert active is not None
    assert active.progress == {"progress": 40, "message": "half"}
    assert stranger.complete(job, {"sent": True}) == 1
    done = await harness.inspector.job(job_id)
    assert done is not None
    assert (done.state, done.result) == (JobState.COMPLETED, {"sent": True})
    assert not client.exists("bridge:ratelimit:concurrent:sms")


async def test_our_routed_job_waits_for_the_stranger_that_fits(harness: BridgemqHarness, client):
    target = {"capabilities": ["gpu"], "region": ["eu"], "mode": "all"}
    await harness.broker().submit([harness.job(id="j1", target=target)])
    assert ForeignWorker(client, "a", region="eu").claim() is None
    assert ForeignWorker(client, "b", region="eu", capabilities=("gpu",)).claim()["id"] == "j1"


async def test_our_limits_hold_for_strangers_too(harness: BridgemqHarness, client):
    await harness.broker().submit([harness.job(name="sms", rate={"concurrent": 2}) for _ in range(5)])
    stranger, broker = ForeignWorker(client), harness.broker()
    assert stranger.claim() is not None
    assert len((await broker.turn([], 5)).claims) == 1
    assert stranger.claim() is None


async def test_our_delayed_job_is_promoted_by_a_stranger(harness: BridgemqHarness, client):
    harness.now = 1_000_000_000_000
    await harness.broker().submit([harness.job(id="j1", delay=500)])
    assert ForeignScheduler(client).process_delayed(1_000_000_000_500) == 1
    assert ForeignWorker(client).claim()["id"] == "j1"


async def test_our_schedule_is_fired_by_a_stranger(harness: BridgemqHarness, client):
    harness.now = 1_732_377_000_000
    await harness.broker().submit(
        [harness.job({"n": 1}, name="report", id="report", cron="0 * * * *", timezone="Asia/Tokyo")]
    )
    scheduler = ForeignScheduler(client)
    [due] = scheduler.process_cron(1_732_377_600_000)
    assert due == {"jobId": "report", "cronExpression": "0 * * * *", "timezone": "Asia/Tokyo"}
    scheduler.reschedule("report", 1_732_381_200_000)
    job = ForeignWorker(client).claim()
    assert (job["id"], job["data"]) == ("report@1732377600000", {"n": 1})


async def test_our_dead_letter_is_read_by_a_stranger_and_theirs_by_us(harness: BridgemqHarness, client):
    producer, stranger, broker = ForeignProducer(client), ForeignWorker(client), harness.broker()
    await broker.submit([harness.job(id="ours")])
    await broker.turn([harness.settle(await harness.claim(broker), Dead("no cover"))], 0)
    assert producer.result("ours")["error"]["message"] == "no cover"
    producer.dispatch("theirs")
    stranger.bury(stranger.claim(), "kaput")
    assert client.lrange("bridge:jobs:deadletter", 0, -1) == [b"theirs", b"ours"]
    dead = await harness.inspector.jobs(JobState.DEAD)
    assert [(job.id, job.reason, job.trace) for job in dead] == [
        ("theirs", "kaput", ("at …",)),
        ("ours", "no cover", ()),
    ]
    assert sorted(await harness.operator.replay(JobFilter())) == ["ours", "theirs"]
    assert {stranger.claim()["id"] for _ in range(2)} == {"ours", "theirs"}


async def test_a_queue_paused_by_a_stranger_is_paused_for_us(harness: BridgemqHarness, client):
    await harness.broker().submit([harness.job()])
    client.sadd("bridge:queues:paused", "default")
    assert (await harness.broker().turn([], 1)).claims == []


# -- together ---------------------------------------------------------------------------------------------


async def test_strangers_and_we_share_a_crowd_of_jobs_without_overlap(
    harness: BridgemqHarness, server: Server
):
    broker = harness.broker("ours")
    with server.connect() as client:
        producer = ForeignProducer(client)
        for n in range(150):
            producer.dispatch(f"theirs-{n}")
    await broker.submit([harness.job(id=f"ours-{n}") for n in range(150)])
    ran: list[str] = []

    def stranger(name: str) -> None:
        with server.connect() as client:
            ran.extend(ForeignWorker(client, name).work(lambda job: "done"))

    threads = [threading.Thread(target=stranger, args=(f"s{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    settlements: list = []
    while True:
        turn = await broker.turn(settlements, 5)
        assert not any(turn.verdicts)
        if not turn.claims:
            break
        ran.extend(claim.job.id for claim in turn.claims)
        settlements = [harness.settle(claim) for claim in turn.claims]
    for thread in threads:
        thread.join(20)
    assert sorted(ran) == sorted(f"{whose}-{n}" for whose in ("ours", "theirs") for n in range(150))
    assert harness.client.keys("bridge:ratelimit:concurrent:*") == []
    assert harness.client.keys("bridge:jobs:lock:*") == []


async def test_a_stranger_that_leads_keeps_our_scheduler_from_firing(harness: BridgemqHarness, client):
    harness.now = 1_732_377_000_000
    broker = harness.broker()
    await broker.submit([harness.job(id="s", cron="* * * * *")])
    stranger = ForeignScheduler(client)
    assert stranger.lead()
    harness.now += 60_000
    await broker.promote()
    assert harness.ids("waiting") == []
    client.delete("bridge:scheduler:lock")
    await broker.promote()
    assert harness.ids("waiting") == ["s@1732377060000"]
    assert not stranger.lead(), "now we lead"
