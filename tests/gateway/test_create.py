"""POST /v1/jobs, sentence by sentence."""

import asyncio
import json
import threading
from uuid import UUID

import httpx2
import pytest
import redis

from corral.gateway.models import NewJob
from corral.protocols.streams.codec import TASKS
from tests.gateway.conftest import Open
from tests.support.foreign_client_streams import ForeignGateway, ForeignWorker, story
from tests.support.gateway import Gateway, keyspace

PAYLOAD = {"text": "grüße 🐎", "numbers": [1, 2.5, 130775545883395173], "empty": [{}, []], "none": None}


def test_a_job_is_accepted_with_its_id_and_where_it_is(gateway: Gateway) -> None:
    answer = gateway.client.post("/v1/jobs", json={"task": "embed", "payload": PAYLOAD})
    assert answer.status_code == 202
    document = answer.json()
    assert UUID(document["job_id"]).version == 4
    assert answer.headers["location"] == f"/v1/jobs/{document['job_id']}"
    assert (document["task"], document["status"], document["ttl_s"]) == ("embed", "queued", 3600)


def test_it_creates_the_hash_with_the_nine_fields(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit(PAYLOAD, ttl_s=77)
    fields = {name.decode(): value.decode() for name, value in client.hgetall(f"job:{job_id}").items()}
    assert set(fields) == {
        "job_id", "task", "payload", "status", "created_ts", "updated_ts", "ttl_s", "result", "error"
    }  # fmt: skip
    assert json.loads(fields["payload"]) == PAYLOAD
    assert (fields["job_id"], fields["task"], fields["status"]) == (job_id, "embed", "queued")
    assert (fields["ttl_s"], fields["result"], fields["error"]) == ("77", "", "")
    assert 75 <= client.ttl(f"job:{job_id}") <= 77


def test_it_emits_the_first_event(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit(ttl_s=77)
    [(_, event)] = client.xrange(f"job:{job_id}:events")
    assert event.pop(b"ts").isdigit()
    assert event == {b"type": b"queued", b"step": b"gateway.enqueue", b"data": b"{}"}
    assert 75 <= client.ttl(f"job:{job_id}:events") <= 77


def test_it_enqueues_exactly_three_fields(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit(PAYLOAD)
    [(_, entry)] = client.xrange("jobs:stream")
    assert json.loads(entry.pop(b"payload")) == PAYLOAD
    assert entry == {b"job_id": job_id.encode(), b"task": b"embed"}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_of_the_document_is_taken(gateway: Gateway, task: str) -> None:
    assert gateway.client.post("/v1/jobs", json={"task": task, "payload": {}}).status_code == 202


def test_the_interface_knows_the_protocols_tasks_and_no_others() -> None:
    assert tuple(NewJob.model_json_schema()["properties"]["task"]["enum"]) == TASKS


def test_without_a_time_to_live_the_gateways_holds(opened: Open, client: redis.Redis, monkeypatch) -> None:
    monkeypatch.setenv("JOB_TTL_S", "123")
    gateway = opened()
    assert 121 <= client.ttl(f"job:{gateway.submit()}") <= 123


def test_a_stranger_works_off_what_the_gateway_created(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit({"n": 20})
    assert ForeignWorker(client).work(lambda task, payload: {task: payload["n"] + 1}) == [job_id]
    job = gateway.client.get(f"/v1/jobs/{job_id}").json()
    assert (job["status"], job["result"], job["error"]) == ("done", {"embed": 21}, None)
    assert story(client, job_id) == ["queued", "running", "done"]


# -- what is refused ----------------------------------------------------------------------------------------

REFUSED = {
    "an unknown task": ({"task": "dance", "payload": {}}, "/task"),
    "no task": ({"payload": {}}, "/task"),
    "no payload": ({"task": "chat"}, "/payload"),
    "a payload that is a list": ({"task": "chat", "payload": []}, "/payload"),
    "a payload that is text": ({"task": "chat", "payload": "{}"}, "/payload"),
    "a ttl of zero": ({"task": "chat", "payload": {}, "ttl_s": 0}, "/ttl_s"),
    "a ttl below zero": ({"task": "chat", "payload": {}, "ttl_s": -1}, "/ttl_s"),
    "a ttl in text": ({"task": "chat", "payload": {}, "ttl_s": "60"}, "/ttl_s"),
    "a ttl beyond the server's": ({"task": "chat", "payload": {}, "ttl_s": 2**31}, "/ttl_s"),
    "a field nobody knows": ({"task": "chat", "payload": {}, "ttl": 60}, "/ttl"),
    "a body that is a list": ([], ""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_that_does_not_fit_is_refused_by_its_place(
    gateway: Gateway, client: redis.Redis, case: str
) -> None:
    document, pointer = REFUSED[case]
    answer = gateway.client.post("/v1/jobs", json=document)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:corral:problem:invalid-request"
    assert (problem["status"], problem["title"]) == (422, "The request does not fit")
    assert pointer in [error["pointer"] for error in problem["errors"]]
    assert client.dbsize() == 0


@pytest.mark.parametrize("body", [b"", b"{", b'{"task": "chat", "payload": {', b"\xff\xfe", b"{'a': 1}"])
def test_a_body_that_is_no_json_is_a_problem_of_its_own(gateway: Gateway, body: bytes) -> None:
    answer = gateway.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:corral:problem:malformed-json")


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ('{"n": 18446744073709551616}', "payload.n is 18446744073709551616"),
        ('{"n": NaN}', "JSON has no such number"),
    ],
)
def test_what_json_cannot_carry_on_is_refused(gateway: Gateway, payload: str, said: str) -> None:
    body = f'{{"task": "chat", "payload": {payload}}}'
    answer = gateway.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_type_is_refused(gateway: Gateway, media_type: str) -> None:
    answer = gateway.client.post(
        "/v1/jobs", content=b'{"task": "chat", "payload": {}}', headers={"Content-Type": media_type}
    )
    assert (answer.status_code, answer.json()["type"]) == (415, "urn:corral:problem:unsupported-media-type")


def sized(size: int, filler: str = "x") -> str:
    """A payload of so many bytes as sent."""
    empty = '{"t": ""}'
    return '{"t": "' + filler * ((size - len(empty)) // len(filler.encode())) + '"}'


@pytest.mark.parametrize("filler", ["x", "é", "\\u00e9"], ids=["ascii", "two bytes", "escaped"])
def test_a_payload_is_counted_as_it_comes_over_the_wire(gateway: Gateway, filler: str) -> None:
    def ask(payload: str) -> httpx2.Response:
        body = f'{{"task": "chat", "payload": {payload}, "ttl_s": 60}}'
        return gateway.client.post(
            "/v1/jobs", content=body.encode(), headers={"Content-Type": "application/json"}
        )

    fits = sized(204_800, filler)
    assert len(fits.encode()) <= 204_800
    assert ask(fits).status_code == 202
    over = ask(sized(204_800 + len(filler.encode()), filler))
    assert (over.status_code, over.json()["type"]) == (413, "urn:corral:problem:payload-too-large")


def test_a_payload_of_exactly_200_kb_is_taken_and_one_byte_more_is_not(gateway: Gateway) -> None:
    def ask(size: int) -> int:
        body = f'{{"task": "chat", "payload": {sized(size)}}}'
        return gateway.client.post(
            "/v1/jobs", content=body, headers={"Content-Type": "application/json"}
        ).status_code

    assert [ask(204_800), ask(204_801)] == [202, 413]


# -- idempotency --------------------------------------------------------------------------------------------


def test_the_same_request_under_the_same_key_is_the_same_job(gateway: Gateway, client: redis.Redis) -> None:
    key = {"Idempotency-Key": "order-7"}
    first = gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {"a": 1, "b": 2}}, headers=key)
    again = gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {"b": 2, "a": 1}}, headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert client.get("idempotency:order-7") == first.json()["job_id"].encode()
    assert 3590 < client.ttl("idempotency:order-7") <= 3600
    assert client.xlen("jobs:stream") == 1


def test_another_request_under_the_same_key_is_refused_and_writes_nothing(
    gateway: Gateway, client: redis.Redis
) -> None:
    gateway.submit({"a": 1}, headers={"Idempotency-Key": "k"})
    before = keyspace(client)
    answer = gateway.client.post(
        "/v1/jobs", json={"task": "embed", "payload": {"a": 2}}, headers={"Idempotency-Key": "k"}
    )
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:corral:problem:idempotency-key-reused")
    assert keyspace(client) == before


def test_a_key_whose_job_is_still_being_created_elsewhere_is_in_flight(
    gateway: Gateway, client: redis.Redis
) -> None:
    """A stranger's gateway writes its key first and the job after it: in between, nobody may use the key."""
    client.set("idempotency:k", "0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55", ex=60)
    request = {"json": {"task": "chat", "payload": {}}, "headers": {"Idempotency-Key": "k"}}
    early = gateway.client.post("/v1/jobs", **request)
    assert (early.status_code, early.json()["type"]) == (409, "urn:corral:problem:idempotency-in-flight")
    assert early.headers["retry-after"] == "1"
    ForeignGateway(client).create("chat", {}, job_id="0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55")
    late = gateway.client.post("/v1/jobs", **request)
    assert (late.status_code, late.json()["job_id"]) == (202, "0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55")


@pytest.mark.parametrize("key", ["", "two words", "k" * 256, "tab\tbed"])
def test_a_key_that_does_not_fit_is_refused(gateway: Gateway, client: redis.Redis, key: str) -> None:
    answer = gateway.client.post(
        "/v1/jobs", json={"task": "chat", "payload": {}}, headers={"Idempotency-Key": key}
    )
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:corral:problem:invalid-idempotency-key")
    assert client.dbsize() == 0


async def test_a_thousand_posts_at_once_with_one_key_make_one_job(opened: Open, client: redis.Redis) -> None:
    """Every connection is open before the first request goes out, half of them to each of two gateways."""
    gateways = [opened(), opened()]
    body = b'{"task": "chat", "payload": {"n": 1}}'
    head = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Idempotency-Key: the-one\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    links = [await asyncio.open_connection("127.0.0.1", gateways[n % 2].port) for n in range(1000)]
    for _, writer in links:
        writer.write(head + body)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, str]:
        raw = await reader.read()
        writer.close()
        top, _, document = raw.partition(b"\r\n\r\n")
        return top.split()[1], json.loads(document)["job_id"]

    async with asyncio.timeout(60):
        found = set(await asyncio.gather(*(answer(*link) for link in links)))
    assert {status for status, _ in found} == {b"202"}
    assert len(found) == 1
    assert client.xlen("jobs:stream") == 1
    assert len(client.keys("job:*")) == 2


# -- backpressure -------------------------------------------------------------------------------------------


def test_past_the_backlog_the_queue_is_full_and_says_when_to_ask_again(
    opened: Open, client: redis.Redis
) -> None:
    gateway = opened(max_backlog=2)
    first = gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}})
    assert first.headers["ratelimit-policy"] == '"backlog";q=2'
    assert first.headers["ratelimit"] == '"backlog";r=1'
    assert (first.headers["ratelimit-limit"], first.headers["ratelimit-remaining"]) == ("2", "1")
    gateway.submit()
    before = keyspace(client)
    full = gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}})
    assert (full.status_code, full.json()["type"]) == (429, "urn:corral:problem:backlog-full")
    assert int(full.headers["retry-after"]) >= 1
    assert full.headers["ratelimit"] == '"backlog";r=0'
    assert keyspace(client) == before


def test_what_is_pending_counts_and_what_was_acknowledged_does_not(opened: Open, client: redis.Redis) -> None:
    """A stranger only acknowledges: the length of the stream says nothing about the backlog."""
    gateway, worker = opened(max_backlog=2), ForeignWorker(client)
    ids = [gateway.submit(), gateway.submit()]
    taken = worker.take(2)
    assert gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}}).status_code == 429
    for (entry, _), job_id in zip(taken, ids, strict=True):
        worker.finish(entry, job_id, {})
    assert client.xlen("jobs:stream") == 2
    assert gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}}).status_code == 202


def test_the_backlog_is_counted_where_the_server_cannot_tell_it(opened: Open, client: redis.Redis) -> None:
    """A deleted entry that was not delivered takes the server's own count away."""
    gateway = opened(max_backlog=4)
    ids = [gateway.submit() for _ in range(4)]
    ForeignWorker(client).take(1)
    entries = [entry for entry, _ in client.xrange("jobs:stream")]
    client.xdel("jobs:stream", entries[2])
    [group] = client.xinfo_groups("jobs:stream")
    assert group["lag"] is None
    answers = [gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 429], ids


def test_a_replay_is_answered_even_while_the_queue_is_full(opened: Open) -> None:
    gateway = opened(max_backlog=1)
    job_id = gateway.submit(headers={"Idempotency-Key": "k"})
    assert gateway.submit(headers={"Idempotency-Key": "k"}) == job_id


def test_a_client_past_its_share_is_told_to_wait_and_others_are_not(
    opened: Open, client: redis.Redis
) -> None:
    keys = [
        {"name": name, "key": f"a-long-secret-of-{name}", "roles": ["submit"]} for name in ("shop", "bank")
    ]
    gateway = opened(client_jobs=3, client_window_s=60, keys=json.dumps(keys))

    def ask(name: str) -> httpx2.Response:
        secret = {"Authorization": f"Bearer a-long-secret-of-{name}"}
        return gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}}, headers=secret)

    answers = [ask("shop") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [202, 202, 202, 429]
    assert [answer.headers["ratelimit-remaining"] for answer in answers] == ["2", "1", "0", "0"]
    assert answers[0].headers["ratelimit-policy"] == '"backlog";q=10000, "client";q=3;w=60'
    assert answers[3].json()["type"] == "urn:corral:problem:client-limit"
    assert 1 <= int(answers[3].headers["retry-after"]) <= 20
    assert ask("bank").status_code == 202
    assert client.xlen("jobs:stream") == 4


def test_a_clients_share_comes_back_evenly(opened: Open) -> None:
    gateway = opened(client_jobs=50, client_window_s=1)
    sent = 0
    while gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}}).status_code == 202:
        sent += 1
        assert sent < 500
    assert sent >= 50
    threading.Event().wait(0.1)
    assert gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}}).status_code == 202
