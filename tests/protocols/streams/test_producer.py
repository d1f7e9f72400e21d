"""What the streams contract says of the producer, sentence by sentence."""

import json
from uuid import UUID, uuid4

import orjson
import pytest
import redis

from corral.core.job import Backoff, Job, JobOptions, Keep
from corral.core.ports import Profile
from corral.errors import (
    IdempotencyConflict,
    InvalidName,
    InvalidOptions,
    InvalidPayload,
    PayloadTooLarge,
    RedisResponseError,
    Unsupported,
)
from corral.protocols.base import Binding
from corral.protocols.streams.broker import StreamsBroker
from corral.protocols.streams.codec import TASKS
from corral.store.client import Store
from tests.support.foreign_client_streams import ForeignGateway
from tests.support.jobs import submit

NOW = 1_700_000_000_123


def broker_at(store: Store, namespace: str = "", **extra: object) -> StreamsBroker:
    return StreamsBroker(
        Binding(store, "jobs", namespace, lambda: NOW, Profile(name="producer", extra=extra))
    )


@pytest.fixture
def broker(store: Store) -> StreamsBroker:
    return broker_at(store)


def a_job(name: str = "chat", data: object = None, job_id: str = "", **options: object) -> Job:
    return Job(
        name=name, data={"text": "hello"} if data is None else data, queue="jobs", id=job_id,
        options=JobOptions(extra=options),
    )  # fmt: skip


def keyspace(client: redis.Redis) -> dict[bytes, bytes | None]:
    return {key: client.dump(key) for key in client.scan_iter()}


# -- what a created job looks like --------------------------------------------------------------------------


async def test_a_job_is_queued_with_exactly_three_fields(broker, client) -> None:
    (job_id,) = await submit(broker, [a_job("embed", {"n": [1, 2.5, None, "ä"]})])
    ((_, fields),) = client.xrange("jobs:stream")
    assert list(fields) == [b"job_id", b"task", b"payload"]
    assert fields[b"job_id"].decode() == job_id
    assert fields[b"task"] == b"embed"
    assert json.loads(fields[b"payload"]) == {"n": [1, 2.5, None, "ä"]}


async def test_its_id_is_a_fresh_uuid(broker) -> None:
    ids = await submit(broker, [a_job(), a_job()])
    assert len(set(ids)) == 2
    assert [str(UUID(job_id)) for job_id in ids] == ids
    assert {UUID(job_id).version for job_id in ids} == {4}


async def test_its_hash_has_the_nine_fields_and_no_others(broker, client) -> None:
    (job_id,) = await submit(broker, [a_job(ttl_s=77)])
    assert client.hgetall(f"job:{job_id}") == {
        b"job_id": job_id.encode(),
        b"task": b"chat",
        b"payload": b'{"text":"hello"}',
        b"status": b"queued",
        b"created_ts": b"%d" % NOW,
        b"updated_ts": b"%d" % NOW,
        b"ttl_s": b"77",
        b"result": b"",
        b"error": b"",
    }


async def test_its_hash_and_its_events_live_as_long_as_asked(broker, client) -> None:
    (job_id,) = await submit(broker, [a_job(ttl_s=77)])
    assert 75 <= client.ttl(f"job:{job_id}") <= 77
    assert 75 <= client.ttl(f"job:{job_id}:events") <= 77


async def test_without_a_time_of_its_own_it_lives_as_long_as_the_place_says(store, client) -> None:
    (an_hour,) = await submit(broker_at(store), [a_job()])
    (a_minute,) = await submit(broker_at(store, ttl_s=60), [a_job()])
    assert client.hget(f"job:{an_hour}", "ttl_s") == b"3600"
    assert client.hget(f"job:{a_minute}", "ttl_s") == b"60"
    assert 58 <= client.ttl(f"job:{a_minute}") <= 60


async def test_its_first_event_is_queued_by_the_gateway(broker, client) -> None:
    (job_id,) = await submit(broker, [a_job()])
    ((_, fields),) = client.xrange(f"job:{job_id}:events")
    assert fields == {b"type": b"queued", b"ts": b"%d" % NOW, b"step": b"gateway.enqueue", b"data": b"{}"}


async def test_the_shared_log_tells_the_same_event_and_whose_it_is(broker, client) -> None:
    (job_id,) = await submit(broker, [a_job("rag")])
    ((_, fields),) = client.xrange("jobs:events")
    assert fields == {
        b"type": b"queued", b"ts": b"%d" % NOW, b"step": b"gateway.enqueue", b"data": b"{}",
        b"job_id": job_id.encode(), b"task": b"rag",
    }  # fmt: skip


async def test_a_batch_is_queued_in_its_order(broker, client) -> None:
    ids = await submit(broker, [a_job(data={"n": n}) for n in range(1200)])
    entries = client.xrange("jobs:stream")
    assert [fields[b"job_id"].decode() for _, fields in entries] == ids
    assert [json.loads(fields[b"payload"])["n"] for _, fields in entries] == list(range(1200))


async def test_large_payloads_go_in_several_trips(broker, client) -> None:
    ids = await submit(broker, [a_job(data={"text": "x" * 150_000}) for _ in range(60)])
    assert client.xlen("jobs:stream") == 60
    assert len(set(ids)) == 60


async def test_a_payload_passes_the_server_byte_by_byte(broker, client) -> None:
    data = {"big": 130775545883395173, "empty": [], "none": {}, "text": "\u2028 \x00 \U0001f40e", "f": 1e300}
    (job_id,) = await submit(broker, [a_job(data=data)])
    assert client.hget(f"job:{job_id}", "payload") == orjson.dumps(data)
    assert ForeignGateway(client).read(job_id)["payload"] == data


@pytest.mark.parametrize("task", TASKS)
async def test_every_task_of_the_contract_is_taken(broker, client, task) -> None:
    (job_id,) = await submit(broker, [a_job(task)])
    assert client.hget(f"job:{job_id}", "task") == task.encode()


async def test_a_namespace_stands_before_every_key(store, client) -> None:
    (job_id,) = await submit(broker_at(store, "{shop}"), [a_job(idempotency_key="k")])
    assert sorted(client.keys()) == sorted(
        f"{{shop}}:{name}".encode()
        for name in ("jobs:stream", "jobs:events", f"job:{job_id}", f"job:{job_id}:events",
                     "idempotency:k", "idempotency-fingerprint:k")
    )  # fmt: skip


async def test_the_shared_log_is_trimmed(store, client) -> None:
    broker = broker_at(store, max_events=100)
    await broker.submit([a_job() for _ in range(1000)])
    assert client.xlen("jobs:events") < 300
    assert client.xlen("jobs:stream") == 1000


# -- given ids ----------------------------------------------------------------------------------------------


async def test_a_given_id_that_exists_is_returned_and_its_job_left_alone(broker, client) -> None:
    job_id = str(uuid4())
    assert await submit(broker, [a_job(job_id=job_id)]) == [job_id]
    before = keyspace(client)
    assert await submit(broker, [a_job("code", {"other": 1}, job_id=job_id)]) == [job_id]
    assert keyspace(client) == before


async def test_an_id_given_twice_in_one_batch_makes_one_job(broker, client) -> None:
    job_id = str(uuid4())
    assert await submit(broker, [a_job(job_id=job_id), a_job("code", job_id=job_id)]) == [job_id, job_id]
    assert client.xlen("jobs:stream") == 1
    assert client.hget(f"job:{job_id}", "task") == b"chat"


async def test_an_id_whose_job_has_expired_begins_a_story_of_its_own(broker, client) -> None:
    job_id = str(uuid4())
    client.xadd(f"job:{job_id}:events", {"type": "done", "ts": "1", "step": "", "data": "{}"})
    client.set(f"job:{job_id}:deliveries", 2)
    await broker.submit([a_job(job_id=job_id)])
    assert [fields[b"type"] for _, fields in client.xrange(f"job:{job_id}:events")] == [b"queued"]
    assert not client.exists(f"job:{job_id}:deliveries")


# -- idempotency --------------------------------------------------------------------------------------------


async def test_an_idempotency_key_holds_the_job_id_with_a_lifetime(broker, client) -> None:
    (job_id,) = await submit(broker, [a_job(idempotency_key="order:7", ttl_s=50)])
    assert client.get("idempotency:order:7") == job_id.encode()
    assert 48 <= client.ttl("idempotency:order:7") <= 50
    assert 48 <= client.ttl("idempotency-fingerprint:order:7") <= 50


async def test_the_same_request_under_the_same_key_is_the_same_job(broker, client) -> None:
    (first,) = await submit(broker, [a_job(data={"a": 1, "b": 2}, idempotency_key="k")])
    before = keyspace(client)
    assert await submit(broker, [a_job(data={"b": 2, "a": 1}, idempotency_key="k")]) == [first]
    assert keyspace(client) == before


@pytest.mark.parametrize(
    "other",
    [
        a_job("code", idempotency_key="k"),
        a_job(data={"x": 1}, idempotency_key="k"),
        a_job(idempotency_key="k", ttl_s=9),
    ],
    ids=["task", "payload", "ttl"],
)
async def test_another_request_under_the_same_key_is_refused_and_nothing_written(
    broker, client, other
) -> None:
    (first,) = await submit(broker, [a_job(idempotency_key="k")])
    before = keyspace(client)
    with pytest.raises(IdempotencyConflict, match=f"'k' belongs to job {first}"):
        await broker.submit([a_job(), other])
    assert keyspace(client) == before


async def test_one_key_twice_in_a_batch_makes_one_job_or_none(broker, client) -> None:
    one, two = await submit(broker, [a_job(idempotency_key="k"), a_job(idempotency_key="k")])
    assert one == two
    assert client.xlen("jobs:stream") == 1
    before = keyspace(client)
    with pytest.raises(IdempotencyConflict):
        await broker.submit([a_job(idempotency_key="j"), a_job("code", idempotency_key="j")])
    assert keyspace(client) == before


@pytest.mark.parametrize("first_in_list", [False, True], ids=["taken before", "taken in the same list"])
async def test_a_conflict_in_a_later_batch_leaves_the_earlier_ones_unwritten(
    broker, client, first_in_list
) -> None:
    jobs = [a_job(idempotency_key=f"n-{n}") for n in range(1100)]
    if first_in_list:
        jobs[7] = a_job(idempotency_key="k")
    else:
        await broker.submit([a_job(idempotency_key="k")])
    jobs[1050] = a_job("code", idempotency_key="k")
    before = keyspace(client)
    with pytest.raises(IdempotencyConflict, match="'k' belongs to job"):
        await broker.submit(jobs)
    assert keyspace(client) == before


async def test_a_long_list_under_keys_can_be_repeated(broker, client) -> None:
    jobs = [a_job(data={"n": n % 1000}, idempotency_key=f"n-{n % 1000}") for n in range(1200)]
    ids = await submit(broker, jobs)
    assert (len(set(ids)), ids[1000:]) == (1000, ids[:200])
    assert await submit(broker, jobs) == ids
    assert client.xlen("jobs:stream") == 1000


async def test_only_a_list_with_keys_is_looked_through_beforehand(broker, client) -> None:
    await broker.submit([a_job()])

    async def trips(jobs: list[Job]) -> int:
        client.config_resetstat()
        await broker.submit(jobs)
        return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])

    assert await trips([a_job() for _ in range(1100)]) == 3
    assert await trips([a_job(idempotency_key=f"few-{n}") for n in range(500)]) == 1
    assert await trips([*(a_job() for _ in range(1099)), a_job(idempotency_key="one")]) == 4


async def test_a_key_that_a_strangers_gateway_wrote_is_honoured(broker, client) -> None:
    theirs = ForeignGateway(client).create("chat", {"text": "theirs"})
    client.set("idempotency:k", theirs, ex=60)
    assert await submit(broker, [a_job(idempotency_key="k")]) == [theirs]
    assert client.xlen("jobs:stream") == 1


async def test_a_key_whose_job_is_gone_is_free_again(broker, client) -> None:
    (first,) = await submit(broker, [a_job(idempotency_key="k")])
    client.delete(f"job:{first}")
    (second,) = await submit(broker, [a_job("code", idempotency_key="k")])
    assert second != first
    assert client.get("idempotency:k") == second.encode()


# -- what is refused, with nothing written ------------------------------------------------------------------

REFUSED = {
    "a task the contract has not": (a_job("send-email"), InvalidName, "no task 'send-email'"),
    "an empty task": (a_job(""), InvalidName, "no task ''"),
    "an id that is no UUID": (a_job(job_id="meta"), InvalidName, "'meta' is not a UUID"),
    "an id with more behind it": (a_job(job_id=f"{uuid4()}:events"), InvalidName, "is not a UUID"),
    "an id with a newline": (a_job(job_id=f"{uuid4()}\n"), InvalidName, "is not a UUID"),
    "an upper-case id": (a_job(job_id=str(uuid4()).upper()), InvalidName, "lower-case"),
    "a payload that is no object": (a_job(data=[1]), InvalidPayload, "is a list"),
    "a text payload": (a_job(data="x"), InvalidPayload, "is a str"),
    "a payload past 200 KB": (a_job(data={"x": "y" * 204_800}), PayloadTooLarge, "204800"),
    "a payload with NaN": (a_job(data={"x": float("nan")}), InvalidPayload, "(?i)nan"),
    "a payload with half a surrogate": (a_job(data={"x": "\ud800"}), InvalidPayload, "payload"),
    "a payload with a 70-digit integer": (a_job(data={"x": 10**69}), InvalidPayload, "payload"),
    "a lifetime of nothing": (a_job(ttl_s=0), InvalidOptions, "ttl_s=0"),
    "a lifetime past the calendar": (a_job(ttl_s=2**31), InvalidOptions, "ttl_s=2147483648"),
    "a lifetime in words": (a_job(ttl_s="60"), InvalidOptions, "ttl_s='60'"),
    "a lifetime that is true": (a_job(ttl_s=True), InvalidOptions, "ttl_s=True"),
    "an empty idempotency key": (a_job(idempotency_key=""), InvalidOptions, "idempotency_key=''"),
    "an idempotency key with a space": (
        a_job(idempotency_key="a b"),
        InvalidOptions,
        "idempotency_key='a b'",
    ),
    "an idempotency key with a newline": (a_job(idempotency_key="a\n"), InvalidOptions, "idempotency_key="),
    "a long idempotency key": (a_job(idempotency_key="k" * 256), InvalidOptions, "1 to 255"),
    "an idempotency key that is no text": (a_job(idempotency_key=7), InvalidOptions, "idempotency_key=7"),
    "an option of another protocol": (a_job(stackTraceLimit=3), InvalidOptions, "'stackTraceLimit'"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_job_writes_nothing(broker, client, case) -> None:
    job, error, said = REFUSED[case]
    with pytest.raises(error, match=said):
        await broker.submit([a_job(), job])
    assert client.keys() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (JobOptions(delay=1000), "no delay, so delay=1000"),
        (JobOptions(priority=1), "no priority, so priority=1"),
        (JobOptions(lifo=True), "no lifo"),
        (JobOptions(attempts=5), "no retry, so attempts=5"),
        (JobOptions(backoff=Backoff("fixed", 5)), "no retry, so backoff="),
        (JobOptions(keep_completed=Keep(count=1)), "no removal policies"),
        (JobOptions(keep_dead=Keep(count=1)), "no removal policies"),
        (JobOptions(keep_logs=10), "no logs"),
    ],
)
async def test_what_the_contract_has_no_word_for_is_refused(broker, client, options, said) -> None:
    with pytest.raises(Unsupported, match=said):
        await broker.submit([Job(name="chat", data={}, queue="jobs", options=options)])
    assert client.keys() == []


@pytest.mark.parametrize("key", ["jobs:stream", "jobs:events", "idempotency:k", "idempotency-fingerprint:k"])
async def test_a_key_of_the_wrong_type_leaves_nothing_half_written(broker, client, key) -> None:
    client.sadd(key, "in the way")
    before = keyspace(client)
    with pytest.raises(RedisResponseError, match=f"{key} holds a set"):
        await broker.submit([a_job(), a_job(idempotency_key="k")])
    assert keyspace(client) == before


async def test_a_job_key_of_the_wrong_type_leaves_nothing_half_written(broker, client) -> None:
    job_id = str(uuid4())
    client.set(f"job:{job_id}", "in the way")
    before = keyspace(client)
    with pytest.raises(RedisResponseError, match="holds a string"):
        await broker.submit([a_job(), a_job(job_id=job_id)])
    assert keyspace(client) == before


@pytest.mark.parametrize("queue", ["mail", "", "jobs:stream"])
async def test_another_queue_is_refused(store, queue) -> None:
    with pytest.raises(InvalidName, match="one queue, 'jobs'"):
        StreamsBroker(Binding(store, queue, "", lambda: NOW))


@pytest.mark.parametrize("namespace", ["a b", "shop:", "ä", "x\n", "n" * 101])
async def test_a_namespace_outside_the_grammar_is_refused(store, namespace) -> None:
    with pytest.raises(InvalidName, match="namespace"):
        broker_at(store, namespace)


@pytest.mark.parametrize(
    "extra", [{"ttl_s": 0}, {"max_deliveries": "3"}, {"max_events": -1}, {"stranger_idle_ms": 1.5}]
)
async def test_a_setting_outside_its_limits_is_refused(store, extra) -> None:
    with pytest.raises(InvalidOptions, match=next(iter(extra))):
        broker_at(store, **extra)
