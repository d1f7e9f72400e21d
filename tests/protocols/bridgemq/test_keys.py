"""The document's keys, types, schemas and lifetimes, sentence by sentence."""

import json
import os
import re
import socket
import time
from pathlib import Path

import pytest
import redis

from corral.core.job import Backoff, JobState
from corral.core.outcome import Completed, Dead, Postponed, Retry
from corral.errors import InvalidName, InvalidOptions, InvalidPayload, PayloadTooLarge, Refused, Unsupported
from corral.store.client import Store
from tests.support.bridgemq_harness import BridgemqHarness

DAY_S = 86_400


# -- worker registry ----------------------------------------------------------------------------------------


async def test_a_worker_registers_with_metadata_heartbeat_and_a_place_in_the_set(harness: BridgemqHarness):
    before = harness.clock()
    await harness.reporter(
        "worker-1", stack="python", region="us-east", capabilities=["sms", "email", "gpu"]
    ).beat()
    metadata = harness.json("workers", "worker-1")
    assert metadata.pop("lastSeen") >= before
    assert metadata == {
        "serverId": "worker-1",
        "stack": "python",
        "region": "us-east",
        "capabilities": ["email", "gpu", "sms"],
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
    }
    assert harness.client.ttl("bridge:workers:worker-1") == -1, "metadata is persistent"
    assert int(harness.text("workers", "heartbeat", "worker-1") or 0) >= before
    assert 29 <= harness.client.ttl("bridge:workers:heartbeat:worker-1") <= 30
    assert harness.client.smembers("bridge:workers:active") == {b"worker-1"}


async def test_every_claiming_turn_says_that_its_worker_lives(harness: BridgemqHarness):
    broker = harness.broker("worker-1", region="eu")
    await broker.turn([], 1)
    assert harness.json("workers", "worker-1")["region"] == "eu"
    first = harness.text("workers", "heartbeat", "worker-1")
    harness.now = harness.clock() + 9_000
    await broker.turn([], 1)
    assert harness.text("workers", "heartbeat", "worker-1") == first, "not more often than every 10 s"
    harness.now += 1_000
    await broker.turn([], 1)
    assert harness.text("workers", "heartbeat", "worker-1") == str(harness.now)
    assert harness.json("workers", "worker-1")["lastSeen"] == harness.now


async def test_a_heartbeat_that_was_lost_is_there_again_with_the_next_claim(harness: BridgemqHarness):
    broker, other = harness.broker("worker-1"), harness.broker("other")
    await broker.turn([], 1)
    harness.client.delete("bridge:workers:heartbeat:worker-1")
    await broker.submit([harness.job()])
    await harness.claim(broker)
    assert 29_000 < harness.client.pttl("bridge:workers:heartbeat:worker-1") <= 30_000
    assert list((await other.recover()).requeued) == [], "nobody takes it for dead"


async def test_a_renewal_says_so_too(harness: BridgemqHarness):
    broker = harness.broker("worker-1")
    await broker.submit([harness.job()])
    claim = await harness.claim(broker)
    harness.client.delete("bridge:workers:heartbeat:worker-1")
    await broker.extend([claim])
    assert harness.client.exists("bridge:workers:heartbeat:worker-1")


async def test_a_renewal_keeps_the_heartbeat_alive_and_does_not_beat(harness: BridgemqHarness):
    broker = harness.broker("worker-1")
    await broker.submit([harness.job()])
    claim = await harness.claim(broker)
    beat = harness.text("workers", "heartbeat", "worker-1")
    harness.client.pexpire("bridge:workers:heartbeat:worker-1", 1000)
    harness.now = harness.clock() + 7_500
    await broker.extend([claim])
    assert harness.text("workers", "heartbeat", "worker-1") == beat
    assert harness.client.pttl("bridge:workers:heartbeat:worker-1") > 29_000


@pytest.mark.parametrize(
    ("settings", "every_ms"),
    [({}, 10_000), ({"heartbeat_ms": 3000}, 1000), ({"beat_ms": 4000}, 4000)],
)
async def test_a_worker_beats_every_ten_seconds_or_as_its_settings_say(
    harness: BridgemqHarness, settings: dict[str, int], every_ms: int
):
    assert await harness.reporter("worker-1", **settings).beat() == every_ms


async def test_a_beat_that_is_too_rare_for_the_heartbeats_lifetime_is_refused(harness: BridgemqHarness):
    with pytest.raises(InvalidOptions, match=r"beat_ms=16000 is more than half of heartbeat_ms=30000"):
        harness.reporter("worker-1", beat_ms=16_000)


async def test_a_worker_that_says_good_bye_leaves_nothing_of_itself(harness: BridgemqHarness):
    reporter = harness.reporter("worker-1")
    await reporter.beat()
    await reporter.beat(stopping=True)
    assert harness.client.dbsize() == 0


async def test_the_inspector_lists_workers_that_beat(harness: BridgemqHarness):
    await harness.reporter("worker-1", capabilities=["gpu"]).beat()
    await harness.reporter("worker-2").beat()
    harness.client.delete("bridge:workers:heartbeat:worker-2")
    [worker] = await harness.inspector.workers()
    assert worker.name == "worker-1"
    assert worker.extra["capabilities"] == ["gpu"]
    assert worker.seen_at is not None


@pytest.mark.parametrize("server_id", ["active", "heartbeat", "a:b", "", "x" * 256, "a\nb"])
async def test_a_server_id_that_would_be_another_key_is_refused(harness: BridgemqHarness, server_id: str):
    with pytest.raises(Refused):
        harness.broker(server_id)


# -- job data -----------------------------------------------------------------------------------------------


async def test_the_jobs_json_has_the_contracts_fields(harness: BridgemqHarness):
    harness.now = 1_732_376_323_000
    job = harness.job(
        {"file": "a.mov", "big": 130775545883395173, "empty": []},
        name="transcode",
        id="j1",
        queue="video",
        priority=3,
        attempts=5,
        backoff=Backoff("exponential", 2000, 0.5),
        target={"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"},
        rate={"concurrent": 3, "per_minute": 100},
        keep_data=True,
    )
    await harness.on("video").broker().submit([job])
    assert harness.json("jobs", "data", "j1") == {
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
    assert harness.client.ttl("bridge:jobs:data:j1") == -1


async def test_a_job_is_routed_by_its_schedule(harness: BridgemqHarness):
    harness.now = 1_732_376_323_000
    broker = harness.broker()
    await broker.submit(
        [
            harness.job(id="now"),
            harness.job(id="later", delay=5000),
            harness.job(id="often", cron="0 * * * *"),
        ]
    )
    assert harness.ids("waiting") == ["now"]
    assert harness.client.zscore("bridge:jobs:delayed", "later") == 1_732_376_328_000
    assert harness.client.zscore("bridge:jobs:cron", "often") == 1_732_377_600_000
    assert [harness.text("jobs", "status", job_id) for job_id in ("now", "later", "often")] == [
        "waiting",
        "delayed",
        "cron",
    ]
    assert harness.json("jobs", "data", "later")["schedule"] == {"delay": 5000, "runAt": 1_732_376_328_000}
    assert harness.json("jobs", "data", "often")["schedule"] == {
        "cron": "0 * * * *",
        "timezone": "UTC",
        "catchUp": "once",
    }


async def test_a_high_priority_goes_to_the_front_and_others_to_the_back(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id=f"p{priority}", priority=priority) for priority in (0, 6, 7, 3, 10)])
    assert harness.ids("waiting") == ["p10", "p7", "p0", "p6", "p3"]


async def test_the_status_follows_the_job_through_its_life(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="j1")])

    def status() -> str | None:
        return harness.text("jobs", "status", "j1")

    assert status() == "waiting"
    claim = await harness.claim(broker)
    assert status() == "active"
    await broker.turn([harness.settle(claim, Retry(60_000, "boom"))], 0)
    assert status() == "failed", "the document's word for one that waits for its retry"
    await harness.operator.promote(["j1"])
    assert status() == "waiting"
    await broker.turn([harness.settle(await harness.claim(broker), Postponed(60_000))], 0)
    assert status() == "delayed"
    await harness.operator.promote(["j1"])
    await broker.turn([harness.settle(await harness.claim(broker), Dead("boom"))], 0)
    assert status() == "dead"
    await harness.operator.retry(["j1"])
    await broker.turn([harness.settle(await harness.claim(broker))], 0)
    assert status() == "completed"


async def test_a_result_has_the_documents_schema_and_lives_for_a_day(harness: BridgemqHarness):
    harness.now = 1_732_376_323_000
    broker = harness.broker()
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    harness.now += 234
    await broker.turn([harness.settle(claim, Completed(b'{"n":130775545883395173,"list":[]}'))], 0)
    assert harness.text("jobs", "result", "j1") == (
        '{"success":true,"data":{"n":130775545883395173,"list":[]},'
        '"completedAt":1732376323234,"processingTime":234}'
    ), "the handler's bytes, untouched"
    for part in ("result", "status"):
        assert DAY_S - 5 <= harness.client.ttl(f"bridge:jobs:{part}:j1") <= DAY_S


async def test_a_failed_result_says_what_went_wrong(harness: BridgemqHarness):
    harness.now = 1_732_376_323_000
    broker = harness.broker()
    await broker.submit([harness.job(id="j1")])
    trace = "Traceback …\n  File …\nshop.errors.CardRefused: no cover"
    await broker.turn([harness.settle(await harness.claim(broker), Dead("no cover", trace))], 0)
    assert harness.json("jobs", "result", "j1") == {
        "success": False,
        "error": {"message": "no cover", "stack": trace, "name": "CardRefused"},
        "completedAt": 1_732_376_323_000,
        "processingTime": 0,
    }
    assert DAY_S - 5 <= harness.client.ttl("bridge:jobs:result:j1") <= DAY_S


async def test_data_goes_when_the_result_is_there(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="gone"), harness.job(id="kept", keep_data=True)])
    turn = await broker.turn([], 2)
    await broker.turn([harness.settle(claim) for claim in turn.claims], 0)
    assert harness.client.exists("bridge:jobs:data:gone") == 0
    assert DAY_S - 5 <= harness.client.ttl("bridge:jobs:data:kept") <= DAY_S, "as long as the result"


async def test_nothing_of_a_completed_job_stays_for_ever(harness: BridgemqHarness):
    broker, reporter = harness.broker(result_s=3600), harness.reporter()
    await broker.submit([harness.job(id="j1", rate={"concurrent": 1})])
    await broker.turn([harness.settle(await harness.claim(broker), Retry(0, "once", "trace"))], 0)
    claim = await harness.claim(broker)
    await reporter.progress(claim, 10)
    await reporter.log(claim, "line")
    await broker.turn([harness.settle(claim)], 0)
    of_the_job = [key for key in harness.keyspace() if b"j1" in key]
    assert of_the_job
    assert all(0 < harness.client.ttl(key) <= 3600 for key in of_the_job), of_the_job
    assert harness.client.exists("bridge:ratelimit:concurrent:work") == 0


async def test_a_lock_holds_the_workers_id_for_its_time(harness: BridgemqHarness):
    broker = harness.broker("worker-1", lock_ms=30_000)
    await broker.submit([harness.job(id="j1")])
    claim = await harness.claim(broker)
    assert harness.text("jobs", "lock", "j1") == "worker-1"
    assert 29_000 < harness.client.pttl("bridge:jobs:lock:j1") <= 30_000
    harness.client.pexpire("bridge:jobs:lock:j1", 1000)
    await broker.extend([claim])
    assert harness.client.pttl("bridge:jobs:lock:j1") > 29_000, "renewed while the job runs"
    await broker.turn([harness.settle(claim)], 0)
    assert harness.client.exists("bridge:jobs:lock:j1") == 0


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
async def test_progress_has_the_documents_schema_and_reads_back(harness: BridgemqHarness, value, wire):
    harness.now = 1_732_376_323_000
    broker = harness.broker()
    await broker.submit([harness.job(id="j1")])
    await harness.reporter().progress(await harness.claim(broker), value)
    assert harness.json("jobs", "progress", "j1") == {**wire, "updatedAt": 1_732_376_323_000}
    job = await harness.inspector.job("j1")
    assert job is not None
    assert job.progress == value


# -- queues -------------------------------------------------------------------------------------------------


async def test_active_is_a_set_and_dead_letters_a_list_with_the_newest_first(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(id="a"), harness.job(id="b"), harness.job(id="c")])
    turn = await broker.turn([], 3)
    assert harness.client.type("bridge:jobs:active") == b"set"
    assert harness.ids("active") == ["a", "b", "c"]
    await broker.turn(
        [harness.settle(turn.claims[0], Dead("x")), harness.settle(turn.claims[1], Dead("y"))], 0
    )
    assert harness.ids("deadletter") == ["b", "a"]
    assert harness.ids("active") == ["c"]
    assert harness.client.exists("bridge:jobs:data:a"), "kept for whoever looks into it"


async def test_pausing_a_queue_is_its_name_in_a_set(harness: BridgemqHarness):
    await harness.on("mail").operator.pause()
    assert harness.client.smembers("bridge:queues:paused") == {b"mail"}
    assert await harness.on("mail").inspector.is_paused()
    assert not await harness.on("video").inspector.is_paused()
    await harness.on("mail").operator.resume()
    assert harness.client.exists("bridge:queues:paused") == 0


async def test_the_limits_are_counted_under_the_documents_keys(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit([harness.job(name="sms"), harness.job(name="sms"), harness.job(name="email")])
    turn = await broker.turn([], 3)
    assert harness.text("ratelimit", "concurrent", "sms") == "2"
    assert harness.text("ratelimit", "concurrent", "email") == "1"
    assert harness.text("ratelimit", "minute", "sms") == "2"
    assert 58 <= harness.client.ttl("bridge:ratelimit:minute:sms") <= 60
    await broker.turn([harness.settle(turn.claims[0])], 0)
    assert harness.text("ratelimit", "concurrent", "sms") == "1"


async def test_the_scheduler_lock_is_an_id_for_thirty_seconds(harness: BridgemqHarness):
    await harness.broker("worker-1").promote()
    holder = harness.text("scheduler", "lock")
    assert holder is not None
    assert holder.startswith("worker-1:")
    assert 29 <= harness.client.ttl("bridge:scheduler:lock") <= 30
    assert harness.text("scheduler", "fence") == "1"


async def test_the_monitoring_keys_are_gauges(harness: BridgemqHarness):
    broker = harness.broker()
    await broker.submit(
        [
            harness.job(name="sms"),
            harness.job(name="sms"),
            harness.job(delay=60_000),
            harness.job(id="s", cron="@daily"),
            harness.job(name="x"),
        ]
    )
    turn = await broker.turn([], 2)
    await broker.turn([harness.settle(turn.claims[0], Dead("x"))], 0)
    harness.client.sadd("bridge:workers:active", "long-gone")
    listed = await harness.inspector.gauges()
    page = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text()
    assert {gauge.name for gauge in listed} == set(re.findall(r"^\| `(bridgemq_\w+)` ", page, re.MULTILINE))
    gauges = {(gauge.name, *gauge.labels.values()): gauge.value for gauge in listed}
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


async def test_a_namespace_keeps_tenants_apart(store: Store, client: redis.Redis):
    async with (
        BridgemqHarness(store, client, "shop") as shop,
        BridgemqHarness(store, client, "{bank}") as bank,
    ):
        await shop.broker().submit([shop.job(id="j1")])
        assert (await bank.broker().turn([], 1)).claims == []
        claim = await shop.claim(shop.broker())
        await shop.broker().turn([shop.settle(claim)], 0)
        await bank.broker().promote()
        keys = client.keys()
        assert all(key.startswith((b"shop:", b"{bank}:")) for key in keys), keys


@pytest.mark.parametrize("namespace", ["", "a b", "a:", "{}", "{a}{b}", "x" * 101, "ü"])
async def test_a_namespace_that_does_not_fit_is_refused(harness: BridgemqHarness, namespace: str):
    harness.namespace = namespace
    with pytest.raises(InvalidName, match="namespace"):
        harness.broker()


# -- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
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
async def test_what_makes_no_sense_is_refused_and_nothing_is_written(
    harness: BridgemqHarness, options, error, message
):
    with pytest.raises(error) as refused:
        await harness.broker().submit([harness.job(), harness.job(**options)])
    assert message in str(refused.value)
    assert harness.client.dbsize() == 0


async def test_data_that_cannot_be_carried_is_refused_and_nothing_is_written(harness: BridgemqHarness):
    broker = harness.broker()
    with pytest.raises(PayloadTooLarge):
        await broker.submit([harness.job(), harness.job(data="x" * 11_000_000)])
    with pytest.raises(InvalidPayload):
        await broker.submit([harness.job(), harness.job(data={"when": float("nan")})])
    assert harness.client.dbsize() == 0


@pytest.mark.parametrize(
    "extra", [{"capabilities": 7}, {"region": [None]}, {"heartbeat_ms": 0}, {"result_s": "x"}]
)
async def test_a_worker_that_makes_no_sense_is_refused(harness: BridgemqHarness, extra):
    with pytest.raises(InvalidOptions):
        harness.broker(**extra)


# -- reads --------------------------------------------------------------------------------------------------


async def test_a_completed_job_is_still_known_by_name_and_times(harness: BridgemqHarness):
    broker = harness.on("mail").broker("worker-1")
    harness.now = 1_732_376_323_000
    await broker.submit([harness.job({"to": "x"}, name="send", id="j1", queue="mail")])
    harness.now += 1000
    claim = await harness.claim(broker)
    harness.now += 1000
    await broker.turn([harness.settle(claim, Completed(b'"sent"'))], 0)
    job = await harness.on("mail").inspector.job("j1")
    assert job is not None
    assert (job.name, job.queue, job.state, job.result, job.attempts_made) == (
        "send", "mail", JobState.COMPLETED, "sent", 1,
    )  # fmt: skip
    assert (job.created_at, job.started_at, job.finished_at) == (
        1_732_376_323_000,
        1_732_376_324_000,
        1_732_376_325_000,
    )
    assert job.worker == "worker-1"
    assert [found.id for found in await harness.on("mail").inspector.jobs(JobState.COMPLETED)] == ["j1"]


async def test_queues_share_the_lists_but_not_the_counts(harness: BridgemqHarness):
    mail, video = harness.on("mail").broker(), harness.on("video").broker()
    await mail.submit(
        [harness.job(queue="mail"), harness.job(queue="mail"), harness.job(queue="mail", delay=60_000)]
    )
    await video.submit([harness.job(queue="video") for _ in range(5)])
    await mail.turn([], 1)
    assert harness.client.llen("bridge:jobs:waiting") == 6
    counts = await harness.on("mail").inspector.counts()
    assert (counts[JobState.WAITING], counts[JobState.DELAYED], counts[JobState.ACTIVE]) == (1, 1, 1)
    assert (await harness.on("video").inspector.counts())[JobState.WAITING] == 5
    assert [job.queue for job in await harness.on("video").inspector.jobs(JobState.WAITING, 2)] == [
        "video"
    ] * 2


async def test_queues_are_known_by_what_was_submitted_and_paused(harness: BridgemqHarness):
    from corral.protocols.bridgemq.inspector import bridgemq_queues

    await harness.on("mail").broker().submit([harness.job(queue="mail")])
    harness.client.sadd("bridge:queues:paused", "audio")
    assert await bridgemq_queues(harness.store, "bridge") == ["audio", "mail"]


async def test_fields_of_others_survive_untouched(harness: BridgemqHarness):
    raw = json.dumps(
        {"id": "j1", "type": "work", "traceparent": "00-abc", "data": {"n": 1.50}, "deep": {"list": []}}
    )
    harness.client.set("bridge:jobs:data:j1", raw)
    harness.client.rpush("bridge:jobs:waiting", "j1")
    broker = harness.broker()
    claim = await harness.claim(broker)
    assert claim.job.extra["traceparent"] == "00-abc"
    await broker.turn([harness.settle(claim, Retry(0, "boom"))], 0)
    await broker.turn([harness.settle(await harness.claim(broker), Retry(60_000, "boom"))], 0)
    assert harness.text("jobs", "data", "j1") == raw
    assert harness.text("jobs", "attempts", "j1") == "2"


async def test_the_event_stream_is_trimmed(harness: BridgemqHarness):
    broker = harness.broker(max_events=100)
    for _ in range(6):
        await broker.submit([harness.job() for _ in range(200)])
    assert harness.client.xlen("bridge:events") < 400


async def test_how_many_events_are_kept_is_the_namespaces_to_say(harness: BridgemqHarness):
    await harness.operator.keep_events(100_000)
    broker = harness.broker(max_events=100)
    for _ in range(6):
        await broker.submit([harness.job() for _ in range(200)])
    assert harness.client.xlen("bridge:events") == 1200
    await harness.operator.keep_events(None)
    await broker.submit([harness.job()])
    assert harness.client.xlen("bridge:events") < 400
    with pytest.raises(InvalidOptions):
        await harness.operator.keep_events(0)


async def test_events_of_other_queues_are_no_end_of_ours(harness: BridgemqHarness):
    mail, video = harness.on("mail").broker(), harness.on("video").broker()
    await mail.submit([harness.job(id="first", queue="mail")])
    await video.submit([harness.job(queue="video") for _ in range(50)])
    await mail.submit([harness.job(id="last", queue="mail")])
    ids = [event.job_id for event in await harness.on("mail").events.range(count=2)]
    assert ids == ["first", "last"]


async def test_waiting_on_an_empty_list_moves_nothing(harness: BridgemqHarness):
    broker = harness.broker()
    rest = (await broker.turn([], 1)).rest
    begun = time.monotonic()
    await harness.broker("producer").submit([harness.job(id="a"), harness.job(id="b")])
    await broker.wait(rest)
    assert time.monotonic() - begun < 4, "not the end of its block"
    assert harness.ids("waiting") == ["a", "b"]
