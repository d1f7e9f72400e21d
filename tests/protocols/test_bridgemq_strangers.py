"""Strangers who know only the document, beside Corral: either adds, either works, either schedules."""

import json
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from corral.core.job import JobState
from corral.core.outcome import Completed, Dead, Retry
from corral.store.client import Store
from tests.support.bridgemq_yard import Yard, open_yard
from tests.support.servers import Server
from tests.support.stranger_bridgemq import StrangerProducer, StrangerScheduler, StrangerWorker, now_ms


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with server.connect() as client:
        yield client


@pytest.fixture
async def yard(store: Store, client: redis.Redis) -> AsyncIterator[Yard]:
    async with open_yard(store, client) as yard:
        yield yard


# -- they add, we work ------------------------------------------------------------------------------------


@pytest.mark.parametrize("says_status", [True, False])
async def test_a_strangers_job_is_worked_by_us(yard: Yard, client, says_status: bool):
    producer = StrangerProducer(client)
    producer.dispatch("j1", "sms", {"to": "x"}, says_status=says_status)
    waiting = await yard.inspector().job("j1")
    assert waiting is not None
    assert waiting.state is JobState.WAITING
    broker = yard.broker()
    claim = await yard.claim(broker)
    assert (claim.job.name, claim.job.data, claim.job.options.attempts) == ("sms", {"to": "x"}, 3)
    await broker.turn([yard.settle(claim, Completed(b'{"sent":true}'))], 0)
    assert producer.result("j1")["success"] is True
    assert producer.result("j1")["data"] == {"sent": True}
    assert producer.status("j1") == "completed"
    assert not client.exists("bridge:jobs:data:j1")


async def test_a_strangers_delayed_job_is_promoted_by_us(yard: Yard, client):
    StrangerProducer(client).dispatch("j1", delay=5000, says_status=False)
    yard.now = now_ms()
    broker = yard.broker()
    assert (await broker.turn([], 1)).claims == []
    yard.now += 5001
    assert (await yard.claim(broker)).job.id == "j1"


async def test_a_strangers_schedule_is_fired_by_us(yard: Yard, client):
    due = 1_732_377_000_000  # 2024-11-23 15:50 UTC
    producer = StrangerProducer(client)
    producer.dispatch("report", "report", {"n": 1}, cron="*/10 * * * *", next_run=due)
    yard.now = due + 5
    broker = yard.broker()
    assert await broker.promote() == 1
    claim = await yard.claim(broker)
    assert (claim.job.id, claim.job.name, claim.job.data) == (f"report@{due}", "report", {"n": 1})
    assert client.zscore("bridge:jobs:cron", "report") == due + 600_000


async def test_a_job_in_a_strangers_spelling_is_read(yard: Yard, client):
    """`jobId`, `payload`, `retry`, `attempts`: the words other clients of this data model use."""
    job = {
        "jobId": "j1", "type": "sms", "payload": {"to": "x"}, "attempts": 1,
        "retry": {"attempts": 5, "backoff": {"type": "linear", "delay": 100, "maxDelay": 150}},
        "rateLimit": {"maxConcurrent": 2, "maxPerMinute": 9}, "schedule": {}, "target": {},
    }  # fmt: skip
    StrangerProducer(client).push("j1", json.dumps(job))
    claim = await yard.claim(yard.broker())
    assert (claim.job.id, claim.job.data, claim.job.attempt) == ("j1", {"to": "x"}, 1)
    assert claim.job.options.attempts == 5
    assert claim.job.options.backoff is not None
    assert claim.job.options.backoff.delay == 150
    assert claim.job.options.extra["rate"] == {"concurrent": 2, "per_minute": 9}


async def test_a_strangers_retry_counts_as_an_attempt(yard: Yard, client):
    StrangerProducer(client).dispatch("j1")
    stranger = StrangerWorker(client)
    assert stranger.retry(stranger.claim()) == 1
    broker = yard.broker()
    claim = await yard.claim(broker)
    assert claim.job.attempt == 1
    await broker.turn([yard.settle(claim, Retry(0, "boom"))], 0)
    assert (await yard.claim(broker)).job.attempt == 2


# -- we add, they work ------------------------------------------------------------------------------------


async def test_our_job_is_worked_by_a_stranger(yard: Yard, client):
    [job_id] = await yard.broker().submit([yard.job("sms", {"to": "x", "big": 130775545883395173})])
    stranger = StrangerWorker(client)
    stranger.register()
    job = stranger.claim()
    assert (job["id"], job["type"], job["data"]["big"]) == (job_id, "sms", 130775545883395173)
    active = await yard.inspector().job(job_id)
    assert active is not None
    assert (active.state, active.worker) == (JobState.ACTIVE, "stranger")
    stranger.progress(job_id, 40, "half")
    active = await yard.inspector().job(job_id)
    assert active is not None
    assert active.progress == {"progress": 40, "message": "half"}
    assert stranger.complete(job, {"sent": True}) == 1
    done = await yard.inspector().job(job_id)
    assert done is not None
    assert (done.state, done.result) == (JobState.COMPLETED, {"sent": True})
    assert not client.exists("bridge:ratelimit:concurrent:sms")


async def test_our_routed_job_waits_for_the_stranger_that_fits(yard: Yard, client):
    target = {"capabilities": ["gpu"], "region": ["eu"], "mode": "all"}
    await yard.broker().submit([yard.job(id="j1", target=target)])
    assert StrangerWorker(client, "a", region="eu").claim() is None
    assert StrangerWorker(client, "b", region="eu", capabilities=("gpu",)).claim()["id"] == "j1"


async def test_our_limits_hold_for_strangers_too(yard: Yard, client):
    await yard.broker().submit([yard.job("sms", rate={"concurrent": 2}) for _ in range(5)])
    stranger, broker = StrangerWorker(client), yard.broker()
    assert stranger.claim() is not None
    assert len((await broker.turn([], 5)).claims) == 1
    assert stranger.claim() is None


async def test_our_delayed_job_is_promoted_by_a_stranger(yard: Yard, client):
    yard.now = 1_000_000_000_000
    await yard.broker().submit([yard.job(id="j1", delay=500)])
    assert StrangerScheduler(client).process_delayed(1_000_000_000_500) == 1
    assert StrangerWorker(client).claim()["id"] == "j1"


async def test_our_schedule_is_fired_by_a_stranger(yard: Yard, client):
    yard.now = 1_732_377_000_000
    await yard.broker().submit(
        [yard.job("report", {"n": 1}, id="report", cron="0 * * * *", timezone="Asia/Tokyo")]
    )
    scheduler = StrangerScheduler(client)
    [due] = scheduler.process_cron(1_732_377_600_000)
    assert due == {"jobId": "report", "cronExpression": "0 * * * *", "timezone": "Asia/Tokyo"}
    scheduler.reschedule("report", 1_732_381_200_000)
    job = StrangerWorker(client).claim()
    assert (job["id"], job["data"]) == ("report@1732377600000", {"n": 1})


async def test_our_dead_letter_is_read_by_a_stranger_and_theirs_by_us(yard: Yard, client):
    producer, stranger, broker = StrangerProducer(client), StrangerWorker(client), yard.broker()
    await broker.submit([yard.job(id="ours")])
    await broker.turn([yard.settle(await yard.claim(broker), Dead("no cover"))], 0)
    assert producer.result("ours")["error"]["message"] == "no cover"
    producer.dispatch("theirs")
    stranger.bury(stranger.claim(), "kaput")
    assert client.lrange("bridge:jobs:deadletter", 0, -1) == [b"theirs", b"ours"]
    dead = await yard.inspector().dead_letters()
    assert [(job.id, job.reason, job.trace) for job in dead] == [
        ("theirs", "kaput", ("at …",)),
        ("ours", "no cover", ()),
    ]
    assert sorted(await yard.operator().replay()) == ["ours", "theirs"]
    assert {stranger.claim()["id"] for _ in range(2)} == {"ours", "theirs"}


async def test_a_queue_paused_by_a_stranger_is_paused_for_us(yard: Yard, client):
    await yard.broker().submit([yard.job()])
    client.sadd("bridge:queues:paused", "default")
    assert (await yard.broker().turn([], 1)).claims == []


# -- together ---------------------------------------------------------------------------------------------


async def test_strangers_and_we_share_a_crowd_of_jobs_without_overlap(yard: Yard, server: Server):
    broker = yard.broker("ours")
    with server.connect() as client:
        producer = StrangerProducer(client)
        for n in range(150):
            producer.dispatch(f"theirs-{n}")
    await broker.submit([yard.job(id=f"ours-{n}") for n in range(150)])
    ran: list[str] = []

    def stranger(name: str) -> None:
        with server.connect() as client:
            ran.extend(StrangerWorker(client, name).work(lambda job: "done"))

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
        settlements = [yard.settle(claim) for claim in turn.claims]
    for thread in threads:
        thread.join(20)
    assert sorted(ran) == sorted(f"{whose}-{n}" for whose in ("ours", "theirs") for n in range(150))
    assert yard.client.keys("bridge:ratelimit:concurrent:*") == []
    assert yard.client.keys("bridge:jobs:lock:*") == []


async def test_a_stranger_that_leads_keeps_our_scheduler_from_firing(yard: Yard, client):
    yard.now = 1_732_377_000_000
    broker = yard.broker()
    await broker.submit([yard.job(id="s", cron="* * * * *")])
    stranger = StrangerScheduler(client)
    assert stranger.lead()
    yard.now += 60_000
    await broker.promote()
    assert yard.ids("waiting") == []
    client.delete("bridge:scheduler:lock")
    await broker.promote()
    assert yard.ids("waiting") == ["s@1732377060000"]
    assert not stranger.lead(), "now we lead"
