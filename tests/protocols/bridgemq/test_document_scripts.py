"""The document's four scripts as a foreign client meets them: keys, arguments, answers and rules."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from corral.protocols.bridgemq.scripts import DOCUMENT_SCRIPTS
from tests.support.bridgemq_harness import BridgemqHarness
from tests.support.foreign_client_bridgemq import (
    ForeignProducer,
    ForeignScheduler,
    ForeignWorker,
    now_ms,
)


@pytest.fixture
def producer(client: redis.Redis) -> ForeignProducer:
    return ForeignProducer(client)


@pytest.fixture
def worker(client: redis.Redis) -> ForeignWorker:
    return ForeignWorker(client, "worker-1", stack="node", region="us-east", capabilities=("gpu", "email"))


def test_the_exported_scripts_are_whole(tmp_path: Path):
    command = [sys.executable, "-m", "corral.cli", "scripts", "export", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    scripts = {path.stem: path.read_text() for path in (tmp_path / "bridgemq").iterdir()}
    assert set(scripts) == set(DOCUMENT_SCRIPTS)
    for name, script in scripts.items():
        assert "-- use" not in script
        assert script.startswith(f"-- {name}: ")


# -- claim_job --------------------------------------------------------------------------------------------


def test_claim_job_answers_with_the_jobs_json_as_it_was_stored(client, producer, worker):
    raw = '{"id":"j1", "type":"work" ,"data":{"n":130775545883395173,"list":[],"f":1.50}}'
    producer.push("j1", raw)
    answer = worker.script(
        "claim_job",
        ["bridge:jobs:waiting", "bridge:jobs:active", "bridge:queues:paused"],
        ["worker-1", '["node"]', '["gpu"]', '["us-east"]', now_ms(), 30,
         "bridge:jobs:data:", "bridge:jobs:lock:", "bridge:ratelimit:concurrent:"],
    )  # fmt: skip
    assert answer == raw.encode()


def test_claim_job_locks_moves_and_counts(client, producer, worker):
    producer.dispatch("j1", "sms")
    assert worker.claim(lock_s=12)["id"] == "j1"
    assert client.get("bridge:jobs:lock:j1") == b"worker-1"
    assert 11 <= client.ttl("bridge:jobs:lock:j1") <= 12
    assert client.lrange("bridge:jobs:waiting", 0, -1) == []
    assert client.smembers("bridge:jobs:active") == {b"j1"}
    assert client.get("bridge:ratelimit:concurrent:sms") == b"1"
    assert client.get("bridge:ratelimit:minute:sms") == b"1"
    assert 58 <= client.ttl("bridge:ratelimit:minute:sms") <= 60
    assert client.get("bridge:jobs:status:j1") == b"active"
    assert client.get("bridge:jobs:fence:j1") == b"1"


def test_claim_job_answers_nil_where_nothing_fits(producer, worker):
    assert worker.claim() is None
    producer.dispatch("j1", target={"capabilities": ["tpu"], "mode": "all"})
    assert worker.claim() is None


def test_claim_job_takes_the_first_that_fits_and_leaves_the_others_in_order(client, producer, worker):
    for n in range(6):
        producer.dispatch(f"j{n}", target={"server": "other"} if n % 2 == 0 else {})
    assert [worker.claim()["id"] for _ in range(3)] == ["j1", "j3", "j5"]
    assert client.lrange("bridge:jobs:waiting", 0, -1) == [b"j0", b"j2", b"j4"]
    assert not client.exists("bridge:jobs:lock:j0"), "what does not fit is not locked"


def test_claim_job_looks_at_the_first_hundred(producer, worker):
    for n in range(100):
        producer.dispatch(f"other-{n}", target={"server": "other"})
    producer.dispatch("mine")
    assert worker.claim() is None
    worker.client.lpop("bridge:jobs:waiting")
    assert worker.claim()["id"] == "mine"


def test_claim_job_looks_at_as_many_as_it_is_told_to(producer, worker):
    for n in range(150):
        producer.dispatch(f"other-{n}", target={"server": "other"})
    producer.dispatch("mine")
    assert worker.claim(30, 150) is None
    assert worker.claim(30, 151)["id"] == "mine"


def test_claim_job_passes_over_a_job_that_is_locked(client, producer, worker):
    producer.dispatch("j1")
    producer.dispatch("j2")
    client.set("bridge:jobs:lock:j1", "someone", ex=30)
    assert worker.claim()["id"] == "j2"
    assert client.get("bridge:jobs:lock:j1") == b"someone"
    assert worker.claim() is None


def test_claim_job_passes_over_paused_queues(client, producer, worker):
    producer.dispatch("j1", queue="mail")
    producer.dispatch("j2", queue="video")
    client.sadd("bridge:queues:paused", "mail")
    assert worker.claim()["id"] == "j2"
    assert worker.claim() is None
    client.srem("bridge:queues:paused", "mail")
    assert worker.claim()["id"] == "j1"


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ({"maxConcurrent": 2}, 2),
        ({"concurrent": 2}, 2),
        ({"maxPerMinute": 3}, 3),
        ({"perMinute": 3}, 3),
        ({"maxConcurrent": 0}, 5),
        ({"maxConcurrent": None, "maxPerMinute": "3"}, 5),
        ([], 5),
    ],
)
def test_claim_job_keeps_to_the_limits(producer, worker, limits, allowed):
    for n in range(5):
        producer.dispatch(f"j{n}", rateLimit=limits)
    assert len([job for job in (worker.claim() for _ in range(5)) if job]) == allowed


def test_claim_job_clears_away_what_has_no_data(client, producer, worker):
    client.rpush("bridge:jobs:waiting", "ghost")
    producer.dispatch("j1")
    assert worker.claim()["id"] == "j1"
    assert client.llen("bridge:jobs:waiting") == 0
    assert not client.exists("bridge:jobs:lock:ghost")


@pytest.mark.parametrize(
    "raw", ["{no json", "[1]", "7", '"text"', "", '{"target":"gpu"}', '{"target":{"mode":"x"}}']
)
def test_claim_job_buries_what_no_worker_could_ever_run(client, producer, worker, raw):
    producer.push("bad", raw)
    producer.dispatch("good")
    assert worker.claim()["id"] == "good"
    assert client.lrange("bridge:jobs:deadletter", 0, -1) == [b"bad"]
    assert client.get("bridge:jobs:data:bad") == raw.encode(), "kept for whoever looks into it"
    assert producer.status("bad") == "dead"
    error = producer.result("bad")["error"]
    assert error["name"] in ("InvalidJob", "InvalidTarget")
    assert error["message"].startswith("its ")


def test_claim_job_refuses_names_that_are_not_the_documents(worker):
    with pytest.raises(redis.ResponseError, match="does not end in 'data:'"):
        worker.script(
            "claim_job", ["w", "a", "p"], ["x", "[]", "[]", "[]", 1, 30, "jobs/", "locks/", "limits/"]
        )


@pytest.mark.parametrize("broken", ["", "gpu", '"gpu"', "7", "null", "[gpu]"])
@pytest.mark.parametrize("position", [1, 2, 3])
async def test_claim_job_refuses_what_is_no_list_of_words(worker, producer, harness, position, broken):
    producer.dispatch("j1")
    before = harness.keyspace()
    prefixes = ["bridge:jobs:data:", "bridge:jobs:lock:", "bridge:ratelimit:concurrent:"]
    given = ["w1", "[]", "[]", "[]", now_ms(), 30, *prefixes]
    given[position] = broken
    with pytest.raises(redis.ResponseError, match="is no JSON array of words"):
        worker.script(
            "claim_job", ["bridge:jobs:waiting", "bridge:jobs:active", "bridge:queues:paused"], given
        )
    assert harness.keyspace() == before


def test_two_workers_never_get_the_same_job(producer, client):
    for n in range(50):
        producer.dispatch(f"j{n}")
    workers = [ForeignWorker(client, f"w{n}") for n in range(5)]
    claimed = [job["id"] for _ in range(10) for worker in workers if (job := worker.claim())]
    assert sorted(claimed) == sorted(f"j{n}" for n in range(50))


def dumped(client: redis.Redis) -> dict[bytes, bytes | None]:
    return {key: client.dump(key) for key in client.scan_iter()}


# -- release_lock -----------------------------------------------------------------------------------------


def test_release_lock_gives_back_what_its_holder_has(client, producer, worker):
    producer.dispatch("j1", "sms")
    producer.dispatch("j2", "sms")
    first, second = worker.claim(), worker.claim()
    assert worker.release(first) == 1
    assert not client.exists("bridge:jobs:lock:j1")
    assert client.smembers("bridge:jobs:active") == {b"j2"}
    assert client.get("bridge:ratelimit:concurrent:sms") == b"1"
    assert worker.release(second) == 1
    assert not client.exists("bridge:ratelimit:concurrent:sms")


def test_release_lock_refuses_who_does_not_hold_it(client, producer, worker):
    producer.dispatch("j1", "sms")
    job = worker.claim()
    other = ForeignWorker(client, "other")
    before = dumped(client)
    assert other.release(job) == 0
    assert dumped(client) == before
    assert worker.release(job) == 1
    assert worker.release(job) == 0, "and not twice"


def test_the_counter_never_goes_below_nothing(client, producer, worker):
    producer.dispatch("j1", "sms")
    job = worker.claim()
    client.delete("bridge:ratelimit:concurrent:sms")
    assert worker.release(job) == 1
    assert not client.exists("bridge:ratelimit:concurrent:sms")


# -- process_delayed --------------------------------------------------------------------------------------


def test_process_delayed_moves_what_is_due_in_its_order(client, producer):
    scheduler = ForeignScheduler(client)
    now = now_ms()
    for n, due in enumerate((now + 50, now - 5, now - 10, now + 60_000)):
        producer.dispatch(f"j{n}", delay=1)
        client.zadd("bridge:jobs:delayed", {f"j{n}": due})
    assert scheduler.process_delayed(now) == 2
    assert client.lrange("bridge:jobs:waiting", 0, -1) == [b"j2", b"j1"]
    assert [producer.status(f"j{n}") for n in range(4)] == ["delayed", "waiting", "waiting", "delayed"]
    assert scheduler.process_delayed(now) == 0
    assert scheduler.process_delayed(now + 50) == 1, "due at its very millisecond"


def test_process_delayed_moves_no_more_than_asked(client, producer):
    scheduler = ForeignScheduler(client)
    for n in range(250):
        client.zadd("bridge:jobs:delayed", {f"j{n}": n + 1})
    assert [scheduler.process_delayed(now_ms(), 60) for _ in range(5)] == [60, 60, 60, 60, 10]
    assert client.llen("bridge:jobs:waiting") == 250


def test_process_delayed_moves_a_hundred_where_nothing_is_asked(client, producer):
    scheduler = ForeignScheduler(client)
    for n in range(101):
        client.zadd("bridge:jobs:delayed", {f"j{n}": n + 1})
    keys = ["bridge:jobs:delayed", "bridge:jobs:waiting"]
    assert scheduler.script("process_delayed", keys, [now_ms()]) == 100
    assert scheduler.script("process_delayed", keys, [now_ms()]) == 1


# -- process_cron -----------------------------------------------------------------------------------------


def schedule(producer: ForeignProducer, due: int, **fields: Any) -> None:
    producer.dispatch("report", "report", {"n": 1}, cron="*/5 * * * *", next_run=due,
                      schedule={"timezone": "Europe/Berlin"}, **fields)  # fmt: skip


def test_process_cron_fires_an_instance_and_names_what_to_reschedule(client, producer, worker):
    due = now_ms() - 1000
    schedule(producer, due)
    scheduler = ForeignScheduler(client)
    assert scheduler.process_cron() == [
        {"jobId": "report", "cronExpression": "*/5 * * * *", "timezone": "Europe/Berlin"}
    ]
    assert client.lrange("bridge:jobs:waiting", 0, -1) == [f"report@{due}".encode()]
    assert client.exists("bridge:jobs:data:report"), "the schedule itself stays"
    job = worker.claim()
    assert job["id"] == f"report@{due}"
    assert job["data"] == {"n": 1}
    assert worker.complete(job, "done") == 1
    assert producer.result(f"report@{due}")["data"] == "done"
    assert client.exists("bridge:jobs:data:report")


def test_process_cron_does_not_fire_again_until_it_is_rescheduled(client, producer):
    now = now_ms()
    schedule(producer, now - 1000)
    scheduler = ForeignScheduler(client)
    assert len(scheduler.process_cron(now)) == 1
    assert scheduler.process_cron(now) == []
    assert scheduler.process_cron(now + 59_000) == []
    scheduler.reschedule("report", now + 5000)
    assert scheduler.process_cron(now + 4999) == []
    assert len(scheduler.process_cron(now + 5000)) == 1
    assert client.lrange("bridge:jobs:waiting", 0, -1) == [
        f"report@{now - 1000}".encode(),
        f"report@{now + 5000}".encode(),
    ]


def test_a_scheduler_that_never_came_back_is_taken_over_and_nothing_fires_twice(client, producer):
    now = now_ms()
    schedule(producer, now - 1000)
    assert len(ForeignScheduler(client, "first").process_cron(now)) == 1
    second = ForeignScheduler(client, "second")
    assert second.process_cron(now + 61_000) == [
        {"jobId": "report", "cronExpression": "*/5 * * * *", "timezone": "Europe/Berlin"}
    ]
    assert client.lrange("bridge:jobs:waiting", 0, -1) == [f"report@{now - 1000}".encode()]


def test_process_cron_answers_with_an_empty_array(client):
    assert ForeignScheduler(client).process_cron() == []


def test_process_cron_takes_no_more_than_asked(client, producer):
    for n in range(7):
        producer.dispatch(f"s{n}", cron="* * * * *", next_run=1000 + n)
    scheduler = ForeignScheduler(client)
    assert [len(scheduler.process_cron(most=3)) for _ in range(3)] == [3, 3, 1]


def test_process_cron_buries_a_schedule_that_is_no_json(client, producer):
    producer.push("bad", "{no json", next_run=1000)
    assert ForeignScheduler(client).process_cron() == []
    assert client.zcard("bridge:jobs:cron") == 0
    assert client.lrange("bridge:jobs:deadletter", 0, -1) == [b"bad"]


NAMES = [
    '{"id":"old","data":[]}',
    '{ "data" : {"id":"inner","text":"}\\"id\\":\\\\"} , "id" : "old" , "n":130775545883395173 }',
    '{"data":[{"id":1},[],"x"],"id":null,"jobId":"old"}',
    '{"type":"work","n":1.50,"empty":{},"list":[]}',
    "{}",
    ' {"a":"\\u00e9\\ud83d\\udc0e","id":{"deep":[1,{"x":"]"}]},"b":true}',
]


@pytest.mark.parametrize("raw", NAMES)
def test_an_instance_differs_from_its_schedule_only_in_its_id(client, producer, raw):
    producer.push("s", raw, next_run=5000)
    ForeignScheduler(client).process_cron()
    made = client.get("bridge:jobs:data:s@5000").decode()
    expected = {**json.loads(raw), "id": "s@5000"}
    if "jobId" in expected:
        expected["jobId"] = "s@5000"
    assert json.loads(made) == expected
    for piece in ("130775545883395173", "1.50", '"empty":{}', '"list":[]', "\\u00e9\\ud83d"):
        assert (piece in made) == (piece in raw), "byte for byte"


# -- beside Corral's own parts ----------------------------------------------------------------------------


async def test_what_a_script_claimed_fences_our_own_late_settlement(
    harness: BridgemqHarness, client, producer, worker
):
    broker = harness.broker("worker-1")
    producer.dispatch("j1")
    claim = await harness.claim(broker)
    client.delete("bridge:jobs:lock:j1")
    await broker.recover()
    assert worker.claim()["id"] == "j1", "a stranger with the very same id has it now"
    [late] = (await broker.turn([harness.settle(claim)], 0)).verdicts
    assert late is not None
    assert client.smembers("bridge:jobs:active") == {b"j1"}


async def test_the_scripts_tell_their_events_too(harness: BridgemqHarness, client, producer, worker):
    producer.dispatch("j1")
    worker.claim()
    [event] = await harness.events.range()
    assert (event.kind, event.job_id, event.worker, event.name) == ("active", "j1", "worker-1", "work")
