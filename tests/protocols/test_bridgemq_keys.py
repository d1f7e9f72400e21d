"""The document's keys, types, schemas and lifetimes, sentence by sentence."""

import json
import os
import re
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from corral.core.job import Backoff, JobState
from corral.core.outcome import Completed, Dead, Postponed, Retry
from corral.errors import InvalidName, InvalidOptions, InvalidPayload, PayloadTooLarge, Refused, Unsupported
from corral.store.client import Store
from tests.support.bridgemq_yard import Yard, open_yard
from tests.support.servers import Server

DAY_S = 86_400


@pytest.fixture
async def yard(store: Store, server: Server) -> AsyncIterator[Yard]:
    with server.connect() as client:
        async with open_yard(store, client) as yard:
            yield yard


# -- worker registry ----------------------------------------------------------------------------------------


async def test_a_worker_registers_with_metadata_heartbeat_and_a_place_in_the_set(yard: Yard):
    before = yard.clock()
    await yard.reporter(
        "worker-1", stack="python", region="us-east", capabilities=["sms", "email", "gpu"]
    ).beat()
    metadata = yard.json("workers", "worker-1")
    assert metadata.pop("lastSeen") >= before
    assert metadata == {
        "serverId": "worker-1",
        "stack": "python",
        "region": "us-east",
        "capabilities": ["email", "gpu", "sms"],
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
    }
    assert yard.client.ttl("bridge:workers:worker-1") == -1, "metadata is persistent"
    assert int(yard.text("workers", "heartbeat", "worker-1") or 0) >= before
    assert 29 <= yard.client.ttl("bridge:workers:heartbeat:worker-1") <= 30
    assert yard.client.smembers("bridge:workers:active") == {b"worker-1"}


async def test_every_claiming_turn_says_that_its_worker_lives(yard: Yard):
    broker = yard.broker("worker-1", region="eu")
    await broker.turn([], 1)
    assert yard.json("workers", "worker-1")["region"] == "eu"
    first = yard.text("workers", "heartbeat", "worker-1")
    yard.now = yard.clock() + 9_000
    await broker.turn([], 1)
    assert yard.text("workers", "heartbeat", "worker-1") == first, "not more often than every 10 s"
    yard.now += 1_000
    await broker.turn([], 1)
    assert yard.text("workers", "heartbeat", "worker-1") == str(yard.now)
    assert yard.json("workers", "worker-1")["lastSeen"] == yard.now


async def test_a_heartbeat_that_was_lost_is_there_again_with_the_next_claim(yard: Yard):
    broker, other = yard.broker("worker-1"), yard.broker("other")
    await broker.turn([], 1)
    yard.client.delete("bridge:workers:heartbeat:worker-1")
    await broker.submit([yard.job()])
    await yard.claim(broker)
    assert 29_000 < yard.client.pttl("bridge:workers:heartbeat:worker-1") <= 30_000
    assert list((await other.recover()).requeued) == [], "nobody takes it for dead"


async def test_a_renewal_says_so_too(yard: Yard):
    broker = yard.broker("worker-1")
    await broker.submit([yard.job()])
    claim = await yard.claim(broker)
    yard.client.delete("bridge:workers:heartbeat:worker-1")
    await broker.extend([claim])
    assert yard.client.exists("bridge:workers:heartbeat:worker-1")


async def test_a_worker_that_says_good_bye_leaves_nothing_of_itself(yard: Yard):
    reporter = yard.reporter("worker-1")
    await reporter.beat()
    await reporter.beat(stopping=True)
    assert yard.client.dbsize() == 0


async def test_the_inspector_lists_workers_that_beat(yard: Yard):
    await yard.reporter("worker-1", capabilities=["gpu"]).beat()
    await yard.reporter("worker-2").beat()
    yard.client.delete("bridge:workers:heartbeat:worker-2")
    [worker] = await yard.inspector().workers()
    assert worker.name == "worker-1"
    assert worker.extra["capabilities"] == ["gpu"]
    assert worker.seen_at is not None


@pytest.mark.parametrize("server_id", ["active", "heartbeat", "a:b", "", "x" * 256, "a\nb"])
async def test_a_server_id_that_would_be_another_key_is_refused(yard: Yard, server_id: str):
    with pytest.raises(Refused):
        yard.broker(server_id)


# -- job data -----------------------------------------------------------------------------------------------


async def test_the_jobs_json_has_the_contracts_fields(yard: Yard):
    yard.now = 1_732_376_323_000
    job = yard.job(
        "transcode",
        {"file": "a.mov", "big": 130775545883395173, "empty": []},
        id="j1",
        queue="video",
        priority=3,
        attempts=5,
        backoff=Backoff("exponential", 2000, 0.5),
        target={"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"},
        rate={"concurrent": 3, "per_minute": 100},
        keep_data=True,
    )
    await yard.broker(queue="video").submit([job])
    assert yard.json("jobs", "data", "j1") == {
        "id": "j1",
        "type": "transcode",
        "queue": "video",
        "data": {"file": "a.mov", "big": 130775545883395173, "empty": []},
        "priority": 3,
        "attempt": 0,
        "maxAttempts": 5,
        "backoff": {"type": "exponential", "delay": 2000, "jitter": 0.5},
        "target": {"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"},
        "schedule": None,
        "rateLimit": {"maxConcurrent": 3, "maxPerMinute": 100},
        "createdAt": 1_732_376_323_000,
        "keepData": True,
    }
    assert yard.client.ttl("bridge:jobs:data:j1") == -1


async def test_a_job_is_routed_by_its_schedule(yard: Yard):
    yard.now = 1_732_376_323_000
    broker = yard.broker()
    await broker.submit(
        [yard.job(id="now"), yard.job(id="later", delay=5000), yard.job(id="often", cron="0 * * * *")]
    )
    assert yard.ids("waiting") == ["now"]
    assert yard.client.zscore("bridge:jobs:delayed", "later") == 1_732_376_328_000
    assert yard.client.zscore("bridge:jobs:cron", "often") == 1_732_377_600_000
    assert [yard.text("jobs", "status", job_id) for job_id in ("now", "later", "often")] == [
        "waiting",
        "delayed",
        "cron",
    ]
    assert yard.json("jobs", "data", "later")["schedule"] == {"delay": 5000, "runAt": 1_732_376_328_000}
    assert yard.json("jobs", "data", "often")["schedule"] == {
        "cron": "0 * * * *",
        "timezone": "UTC",
        "catchUp": "once",
    }


async def test_a_high_priority_goes_to_the_front_and_others_to_the_back(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job(id=f"p{priority}", priority=priority) for priority in (0, 6, 7, 3, 10)])
    assert yard.ids("waiting") == ["p10", "p7", "p0", "p6", "p3"]


async def test_the_status_follows_the_job_through_its_life(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job(id="j1")])

    def status() -> str | None:
        return yard.text("jobs", "status", "j1")

    assert status() == "waiting"
    claim = await yard.claim(broker)
    assert status() == "active"
    await broker.turn([yard.settle(claim, Retry(60_000, "boom"))], 0)
    assert status() == "failed", "the document's word for one that waits for its retry"
    await yard.operator().promote(["j1"])
    assert status() == "waiting"
    await broker.turn([yard.settle(await yard.claim(broker), Postponed(60_000))], 0)
    assert status() == "delayed"
    await yard.operator().promote(["j1"])
    await broker.turn([yard.settle(await yard.claim(broker), Dead("boom"))], 0)
    assert status() == "dead"
    await yard.operator().retry(["j1"])
    await broker.turn([yard.settle(await yard.claim(broker))], 0)
    assert status() == "completed"


async def test_a_result_has_the_documents_schema_and_lives_for_a_day(yard: Yard):
    yard.now = 1_732_376_323_000
    broker = yard.broker()
    await broker.submit([yard.job(id="j1")])
    claim = await yard.claim(broker)
    yard.now += 234
    await broker.turn([yard.settle(claim, Completed(b'{"n":130775545883395173,"list":[]}'))], 0)
    assert yard.text("jobs", "result", "j1") == (
        '{"success":true,"data":{"n":130775545883395173,"list":[]},'
        '"completedAt":1732376323234,"processingTime":234}'
    ), "the handler's bytes, untouched"
    for part in ("result", "status"):
        assert DAY_S - 5 <= yard.client.ttl(f"bridge:jobs:{part}:j1") <= DAY_S


async def test_a_failed_result_says_what_went_wrong(yard: Yard):
    yard.now = 1_732_376_323_000
    broker = yard.broker()
    await broker.submit([yard.job(id="j1")])
    trace = "Traceback …\n  File …\nshop.errors.CardRefused: no cover"
    await broker.turn([yard.settle(await yard.claim(broker), Dead("no cover", trace))], 0)
    assert yard.json("jobs", "result", "j1") == {
        "success": False,
        "error": {"message": "no cover", "stack": trace, "name": "CardRefused"},
        "completedAt": 1_732_376_323_000,
        "processingTime": 0,
    }
    assert DAY_S - 5 <= yard.client.ttl("bridge:jobs:result:j1") <= DAY_S


async def test_data_goes_when_the_result_is_there(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job(id="gone"), yard.job(id="kept", keep_data=True)])
    turn = await broker.turn([], 2)
    await broker.turn([yard.settle(claim) for claim in turn.claims], 0)
    assert yard.client.exists("bridge:jobs:data:gone") == 0
    assert DAY_S - 5 <= yard.client.ttl("bridge:jobs:data:kept") <= DAY_S, "as long as the result"


async def test_nothing_of_a_completed_job_stays_for_ever(yard: Yard):
    broker, reporter = yard.broker(result_s=3600), yard.reporter()
    await broker.submit([yard.job(id="j1", rate={"concurrent": 1})])
    await broker.turn([yard.settle(await yard.claim(broker), Retry(0, "once", "trace"))], 0)
    claim = await yard.claim(broker)
    await reporter.progress(claim, 10)
    await reporter.log(claim, "line")
    await broker.turn([yard.settle(claim)], 0)
    of_the_job = [key for key in yard.keyspace() if b"j1" in key]
    assert of_the_job
    assert all(0 < yard.client.ttl(key) <= 3600 for key in of_the_job), of_the_job
    assert yard.client.exists("bridge:ratelimit:concurrent:work") == 0


async def test_a_lock_holds_the_workers_id_for_its_time(yard: Yard):
    broker = yard.broker("worker-1", lock_ms=30_000)
    await broker.submit([yard.job(id="j1")])
    claim = await yard.claim(broker)
    assert yard.text("jobs", "lock", "j1") == "worker-1"
    assert 29_000 < yard.client.pttl("bridge:jobs:lock:j1") <= 30_000
    yard.client.pexpire("bridge:jobs:lock:j1", 1000)
    await broker.extend([claim])
    assert yard.client.pttl("bridge:jobs:lock:j1") > 29_000, "renewed while the job runs"
    await broker.turn([yard.settle(claim)], 0)
    assert yard.client.exists("bridge:jobs:lock:j1") == 0


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (75, {"percent": 75}),
        ({"progress": 75, "message": "step 3 of 4"}, {"percent": 75, "message": "step 3 of 4"}),
        ({"scene": 3}, {"percent": None, "data": {"scene": 3}}),
        ([1, 2], {"percent": None, "data": [1, 2]}),
        (True, {"percent": None, "data": True}),
    ],
)
async def test_progress_has_the_documents_schema_and_reads_back(yard: Yard, value, wire):
    yard.now = 1_732_376_323_000
    broker = yard.broker()
    await broker.submit([yard.job(id="j1")])
    await yard.reporter().progress(await yard.claim(broker), value)
    assert yard.json("jobs", "progress", "j1") == {**wire, "updatedAt": 1_732_376_323_000}
    job = await yard.inspector().job("j1")
    assert job is not None
    assert job.progress == value


# -- queues -------------------------------------------------------------------------------------------------


async def test_active_is_a_set_and_dead_letters_a_list_with_the_newest_first(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job(id="a"), yard.job(id="b"), yard.job(id="c")])
    turn = await broker.turn([], 3)
    assert yard.client.type("bridge:jobs:active") == b"set"
    assert yard.ids("active") == ["a", "b", "c"]
    await broker.turn([yard.settle(turn.claims[0], Dead("x")), yard.settle(turn.claims[1], Dead("y"))], 0)
    assert yard.ids("deadletter") == ["b", "a"]
    assert yard.ids("active") == ["c"]
    assert yard.client.exists("bridge:jobs:data:a"), "kept for whoever looks into it"


async def test_pausing_a_queue_is_its_name_in_a_set(yard: Yard):
    await yard.operator("mail").pause()
    assert yard.client.smembers("bridge:queues:paused") == {b"mail"}
    assert await yard.inspector("mail").is_paused()
    assert not await yard.inspector("video").is_paused()
    await yard.operator("mail").resume()
    assert yard.client.exists("bridge:queues:paused") == 0


async def test_the_limits_are_counted_under_the_documents_keys(yard: Yard):
    broker = yard.broker()
    await broker.submit([yard.job("sms"), yard.job("sms"), yard.job("email")])
    turn = await broker.turn([], 3)
    assert yard.text("ratelimit", "concurrent", "sms") == "2"
    assert yard.text("ratelimit", "concurrent", "email") == "1"
    assert yard.text("ratelimit", "minute", "sms") == "2"
    assert 58 <= yard.client.ttl("bridge:ratelimit:minute:sms") <= 60
    await broker.turn([yard.settle(turn.claims[0])], 0)
    assert yard.text("ratelimit", "concurrent", "sms") == "1"


async def test_the_scheduler_lock_is_an_id_for_thirty_seconds(yard: Yard):
    await yard.broker("worker-1").promote()
    holder = yard.text("scheduler", "lock")
    assert holder is not None
    assert holder.startswith("worker-1:")
    assert 29 <= yard.client.ttl("bridge:scheduler:lock") <= 30
    assert yard.text("scheduler", "fence") == "1"


async def test_the_monitoring_keys_are_gauges(yard: Yard):
    broker = yard.broker()
    await broker.submit(
        [
            yard.job("sms"),
            yard.job("sms"),
            yard.job(delay=60_000),
            yard.job(id="s", cron="@daily"),
            yard.job("x"),
        ]
    )
    turn = await broker.turn([], 2)
    await broker.turn([yard.settle(turn.claims[0], Dead("x"))], 0)
    yard.client.sadd("bridge:workers:active", "long-gone")
    told = await yard.inspector().gauges()
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    assert {gauge.name for gauge in told} == set(re.findall(r"^\| `(bridgemq_\w+)` ", page, re.MULTILINE))
    gauges = {(gauge.name, *gauge.labels.values()): gauge.value for gauge in told}
    events = gauges.pop(("bridgemq_events",))
    assert events > 5
    assert gauges == {
        ("bridgemq_jobs_waiting",): 1,
        ("bridgemq_jobs_active",): 1,
        ("bridgemq_jobs_delayed",): 1,
        ("bridgemq_jobs_cron",): 1,
        ("bridgemq_jobs_deadletter",): 1,
        ("bridgemq_workers_registered",): 2,
        ("bridgemq_workers_alive",): 1,
        ("bridgemq_ratelimit_concurrent", "sms"): 1,
    }


# -- namespaces ---------------------------------------------------------------------------------------------


async def test_a_namespace_keeps_tenants_apart(store: Store, server: Server):
    with server.connect() as client:
        async with open_yard(store, client, "shop") as shop, open_yard(store, client, "{bank}") as bank:
            await shop.broker().submit([shop.job(id="j1")])
            assert (await bank.broker().turn([], 1)).claims == []
            claim = await shop.claim(shop.broker())
            await shop.broker().turn([shop.settle(claim)], 0)
            await bank.broker().promote()
            keys = client.keys()
            assert all(key.startswith((b"shop:", b"{bank}:")) for key in keys), keys


@pytest.mark.parametrize("namespace", ["", "a b", "a:", "{}", "{a}{b}", "x" * 101, "ü"])
async def test_a_namespace_that_does_not_fit_is_refused(yard: Yard, namespace: str):
    yard.namespace = namespace
    with pytest.raises(InvalidName, match="namespace"):
        yard.broker()


# -- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"target": {"mode": "some"}}, InvalidOptions, "target mode is 'some'; use 'all' or 'any'"),
        ({"target": "gpu"}, InvalidOptions, "target is 'gpu'"),
        ({"rate": {"concurrent": 0}}, InvalidOptions, "rate concurrent is 0; use a whole number from 1"),
        ({"rate": {"perMinute": 1}}, InvalidOptions, "rate has 'perMinute'; use 'concurrent', 'per_minute'"),
        ({"rate": 5}, InvalidOptions, "rate is 5; use a dict"),
        ({"keep_data": "yes"}, InvalidOptions, "keep_data is 'yes'; use True or False"),
        ({"cron": "61 * * * *"}, InvalidOptions, "minute '61' is outside 0..59"),
        ({"cron": "* * *"}, InvalidOptions, "has 3 fields; use five"),
        ({"cron": "0 0 31 2 *"}, InvalidOptions, "day of month '31' does not exist"),
        (
            {"cron": "* * * * *", "timezone": "Mars/Olympus"},
            InvalidOptions,
            "time zone 'Mars/Olympus' is not known",
        ),
        (
            {"cron": "* * * * *", "catch_up": "most"},
            InvalidOptions,
            "catch_up is 'most'; use 'skip', 'once', 'all'",
        ),
        ({"timezone": "Europe/Berlin"}, InvalidOptions, "timezone='Europe/Berlin' needs a cron"),
        ({"lifo": True}, Unsupported, "protocol 'bridgemq' has no lifo"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_nothing_is_written(yard: Yard, options, error, told):
    with pytest.raises(error) as refused:
        await yard.broker().submit([yard.job(), yard.job(**options)])
    assert told in str(refused.value)
    assert yard.client.dbsize() == 0


async def test_data_that_cannot_be_carried_is_refused_and_nothing_is_written(yard: Yard):
    broker = yard.broker()
    with pytest.raises(PayloadTooLarge):
        await broker.submit([yard.job(), yard.job(data="x" * 11_000_000)])
    with pytest.raises(InvalidPayload):
        await broker.submit([yard.job(), yard.job(data={"when": float("nan")})])
    assert yard.client.dbsize() == 0


@pytest.mark.parametrize(
    "extra", [{"capabilities": 7}, {"region": [None]}, {"heartbeat_ms": 0}, {"result_s": "x"}]
)
async def test_a_worker_that_makes_no_sense_is_refused(yard: Yard, extra):
    with pytest.raises(InvalidOptions):
        yard.broker(**extra)


# -- reads --------------------------------------------------------------------------------------------------


async def test_a_completed_job_is_still_known_by_name_and_times(yard: Yard):
    broker = yard.broker("worker-1", queue="mail")
    yard.now = 1_732_376_323_000
    await broker.submit([yard.job("send", {"to": "x"}, id="j1", queue="mail")])
    yard.now += 1000
    claim = await yard.claim(broker)
    yard.now += 1000
    await broker.turn([yard.settle(claim, Completed(b'"sent"'))], 0)
    job = await yard.inspector("mail").job("j1")
    assert job is not None
    assert (job.name, job.queue, job.state, job.result, job.attempt) == (
        "send", "mail", JobState.COMPLETED, "sent", 1,
    )  # fmt: skip
    assert (job.created_at, job.started_at, job.finished_at) == (
        1_732_376_323_000,
        1_732_376_324_000,
        1_732_376_325_000,
    )
    assert job.worker == "worker-1"
    assert [found.id for found in await yard.inspector("mail").jobs(JobState.COMPLETED)] == ["j1"]


async def test_queues_share_the_lists_but_not_the_counts(yard: Yard):
    mail, video = yard.broker(queue="mail"), yard.broker(queue="video")
    await mail.submit([yard.job(queue="mail"), yard.job(queue="mail"), yard.job(queue="mail", delay=60_000)])
    await video.submit([yard.job(queue="video") for _ in range(5)])
    await mail.turn([], 1)
    assert yard.client.llen("bridge:jobs:waiting") == 6
    counts = await yard.inspector("mail").counts()
    assert (counts[JobState.WAITING], counts[JobState.DELAYED], counts[JobState.ACTIVE]) == (1, 1, 1)
    assert (await yard.inspector("video").counts())[JobState.WAITING] == 5
    assert [job.queue for job in await yard.inspector("video").jobs(JobState.WAITING, 1, 2)] == ["video"] * 2


async def test_queues_are_known_by_what_was_submitted_and_paused(yard: Yard):
    from corral.protocols.bridgemq.inspector import bridgemq_queues

    await yard.broker(queue="mail").submit([yard.job(queue="mail")])
    yard.client.sadd("bridge:queues:paused", "audio")
    assert await bridgemq_queues(yard.store, "bridge") == ["audio", "mail"]


async def test_fields_of_others_survive_untouched(yard: Yard):
    raw = json.dumps(
        {"id": "j1", "type": "work", "traceparent": "00-abc", "data": {"n": 1.50}, "deep": {"list": []}}
    )
    yard.client.set("bridge:jobs:data:j1", raw)
    yard.client.rpush("bridge:jobs:waiting", "j1")
    broker = yard.broker()
    claim = await yard.claim(broker)
    assert claim.job.extra["traceparent"] == "00-abc"
    await broker.turn([yard.settle(claim, Retry(0, "boom"))], 0)
    await broker.turn([yard.settle(await yard.claim(broker), Retry(60_000, "boom"))], 0)
    assert yard.text("jobs", "data", "j1") == raw
    assert yard.text("jobs", "attempts", "j1") == "2"


async def test_the_event_stream_is_trimmed(yard: Yard):
    broker = yard.broker(max_events=100)
    for _ in range(6):
        await broker.submit([yard.job() for _ in range(200)])
    assert yard.client.xlen("bridge:events") < 400


async def test_how_many_events_are_kept_is_the_namespaces_to_say(yard: Yard):
    await yard.operator().keep_events(100_000)
    broker = yard.broker(max_events=100)
    for _ in range(6):
        await broker.submit([yard.job() for _ in range(200)])
    assert yard.client.xlen("bridge:events") == 1200
    await yard.operator().keep_events(None)
    await broker.submit([yard.job()])
    assert yard.client.xlen("bridge:events") < 400
    with pytest.raises(InvalidOptions):
        await yard.operator().keep_events(0)


async def test_events_of_other_queues_are_no_end_of_ours(yard: Yard):
    mail, video = yard.broker(queue="mail"), yard.broker(queue="video")
    await mail.submit([yard.job(id="first", queue="mail")])
    await video.submit([yard.job(queue="video") for _ in range(50)])
    await mail.submit([yard.job(id="last", queue="mail")])
    told = [event.job_id for event in await yard.events("mail").range(count=2)]
    assert told == ["first", "last"]


async def test_waiting_on_an_empty_list_moves_nothing(yard: Yard):
    broker = yard.broker()
    rest = (await broker.turn([], 1)).rest
    begun = time.monotonic()
    await yard.broker("producer").submit([yard.job(id="a"), yard.job(id="b")])
    await broker.wait(rest)
    assert time.monotonic() - begun < 1
    assert yard.ids("waiting") == ["a", "b"]
