"""POST /v1/jobs."""

import asyncio
import json
import threading
from uuid import UUID

import httpx2
import pytest
import redis
from starlette.requests import Request
from starlette.types import Message

from corral.gateway import GatewaySettings
from corral.gateway.models import JobRequest
from corral.gateway.requests import read_json
from corral.protocols.streams.codec import TASKS
from tests.gateway.conftest import OpenGateway
from tests.support.foreign_client_streams import ForeignGateway, ForeignWorker, story
from tests.support.gateway import Gateway, keyspace, problem_of

PAYLOAD = {"text": "grüße 🐎", "numbers": [1, 2.5, 130775545883395173], "empty": [{}, []], "none": None}


def test_a_job_is_accepted_with_its_id_and_location(gateway: Gateway) -> None:
    response = gateway.create(PAYLOAD)
    assert response.status_code == 202
    document = response.json()
    assert UUID(document["job_id"]).version == 4
    assert response.headers["location"] == f"/v1/jobs/{document['job_id']}"
    assert (document["task"], document["status"], document["ttl_s"]) == ("embed", "queued", 3600)


async def test_a_body_that_an_integration_has_read_is_read_again() -> None:
    """As Sentry's for FastAPI does before the handler."""
    body = json.dumps({"task": "embed", "payload": PAYLOAD}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop()

    headers = [(b"content-type", b"application/json")]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
    await request.body()
    parsed, raw = await read_json(request, JobRequest, GatewaySettings())
    assert (parsed.payload, raw) == (PAYLOAD, body)


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
def test_every_task_of_the_contract_is_accepted(gateway: Gateway, task: str) -> None:
    assert gateway.create(task=task).status_code == 202


def test_the_interface_accepts_the_protocols_tasks_and_no_others() -> None:
    assert tuple(JobRequest.model_json_schema()["properties"]["task"]["enum"]) == TASKS


def test_without_a_time_to_live_the_gateways_default_applies(
    open_gateway: OpenGateway, client: redis.Redis, monkeypatch
) -> None:
    monkeypatch.setenv("JOB_TTL_S", "123")
    gateway = open_gateway()
    assert 121 <= client.ttl(f"job:{gateway.submit()}") <= 123


def test_a_foreign_worker_completes_what_the_gateway_created(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit({"n": 20})
    assert ForeignWorker(client).work(lambda task, payload: {task: payload["n"] + 1}) == [job_id]
    job = gateway.client.get(f"/v1/jobs/{job_id}").json()
    assert (job["status"], job["result"], job["error"]) == ("done", {"embed": 21}, None)
    assert story(client, job_id) == ["queued", "running", "done"]


# -- invalid requests ---------------------------------------------------------------------------------------

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
    "an unknown field": ({"task": "chat", "payload": {}, "ttl": 60}, "/ttl"),
    "a body that is a list": ([], ""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_request_is_refused_with_a_pointer_to_the_field(
    gateway: Gateway, client: redis.Redis, case: str
) -> None:
    document, pointer = REFUSED[case]
    response = gateway.client.post("/v1/jobs", json=document)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["type"] == "urn:corral:problem:invalid-request"
    assert (problem["status"], problem["title"]) == (422, "The request is not valid")
    assert pointer in [error["pointer"] for error in problem["errors"]]
    assert client.dbsize() == 0


@pytest.mark.parametrize("body", [b"", b"{", b'{"task": "chat", "payload": {', b"\xff\xfe", b"{'a': 1}"])
def test_a_body_that_is_not_json_is_malformed(gateway: Gateway, body: bytes) -> None:
    response = gateway.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert problem_of(response) == (400, "malformed-json")


@pytest.mark.parametrize(
    ("payload", "detail"),
    [
        ('{"n": 18446744073709551616}', "payload.n is 18446744073709551616"),
        ('{"n": NaN}', "JSON has no such number"),
    ],
)
def test_numbers_that_json_cannot_represent_are_refused(gateway: Gateway, payload: str, detail: str) -> None:
    body = f'{{"task": "chat", "payload": {payload}}}'
    response = gateway.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert detail in response.json()["detail"]


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_type_is_refused(gateway: Gateway, media_type: str) -> None:
    response = gateway.client.post(
        "/v1/jobs", content=b'{"task": "chat", "payload": {}}', headers={"Content-Type": media_type}
    )
    assert problem_of(response) == (415, "unsupported-media-type")


def sized(size: int, filler: str = "x") -> str:
    """Return a payload of so many bytes as sent."""
    empty = '{"t": ""}'
    return '{"t": "' + filler * ((size - len(empty)) // len(filler.encode())) + '"}'


@pytest.mark.parametrize("filler", ["x", "é", "\\u00e9"], ids=["ascii", "two bytes", "escaped"])
def test_a_payload_is_measured_as_sent(gateway: Gateway, filler: str) -> None:
    def create(payload: str) -> httpx2.Response:
        body = f'{{"task": "chat", "payload": {payload}, "ttl_s": 60}}'
        return gateway.client.post(
            "/v1/jobs", content=body.encode(), headers={"Content-Type": "application/json"}
        )

    fits = sized(204_800, filler)
    assert len(fits.encode()) <= 204_800
    assert create(fits).status_code == 202
    over = create(sized(204_800 + len(filler.encode()), filler))
    assert problem_of(over) == (413, "payload-too-large")


def test_a_payload_of_exactly_200_kb_is_accepted_and_one_byte_more_is_not(gateway: Gateway) -> None:
    def create(size: int) -> int:
        body = f'{{"task": "chat", "payload": {sized(size)}}}'
        return gateway.client.post(
            "/v1/jobs", content=body, headers={"Content-Type": "application/json"}
        ).status_code

    assert [create(204_800), create(204_801)] == [202, 413]


# -- idempotency --------------------------------------------------------------------------------------------


def test_the_same_request_under_the_same_key_is_the_same_job(gateway: Gateway, client: redis.Redis) -> None:
    key = {"Idempotency-Key": "order-7"}
    first = gateway.create({"a": 1, "b": 2}, headers=key)
    again = gateway.create({"b": 2, "a": 1}, headers=key)
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
    response = gateway.create({"a": 2}, headers={"Idempotency-Key": "k"})
    assert problem_of(response) == (422, "idempotency-key-reused")
    assert keyspace(client) == before


def test_a_key_whose_job_is_still_being_created_elsewhere_is_in_flight(
    gateway: Gateway, client: redis.Redis
) -> None:
    """A foreign gateway writes its key before the job: in between, nobody may use the key."""
    client.set("idempotency:k", "0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55", ex=60)
    request = {"json": {"task": "chat", "payload": {}}, "headers": {"Idempotency-Key": "k"}}
    early = gateway.client.post("/v1/jobs", **request)
    assert problem_of(early) == (409, "idempotency-in-flight")
    assert early.headers["retry-after"] == "1"
    ForeignGateway(client).create("chat", {}, job_id="0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55")
    late = gateway.client.post("/v1/jobs", **request)
    assert (late.status_code, late.json()["job_id"]) == (202, "0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55")


@pytest.mark.parametrize("key", ["", "two words", "k" * 256, "tab\tbed"])
def test_an_invalid_key_is_refused(gateway: Gateway, client: redis.Redis, key: str) -> None:
    response = gateway.create(headers={"Idempotency-Key": key})
    assert problem_of(response) == (400, "invalid-idempotency-key")
    assert client.dbsize() == 0


async def test_a_thousand_posts_at_once_with_one_key_make_one_job(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    """Every connection is open before the first request goes out, half of them to each of two gateways."""
    gateways = [open_gateway(), open_gateway()]
    body = b'{"task": "chat", "payload": {"n": 1}}'
    head = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Idempotency-Key: the-one\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    connections = [await asyncio.open_connection("127.0.0.1", gateways[n % 2].port) for n in range(1000)]
    for _, writer in connections:
        writer.write(head + body)

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, str]:
        raw = await reader.read()
        writer.close()
        top, _, document = raw.partition(b"\r\n\r\n")
        return top.split()[1], json.loads(document)["job_id"]

    async with asyncio.timeout(60):
        results = set(await asyncio.gather(*(read(*connection) for connection in connections)))
    assert {status for status, _ in results} == {b"202"}
    assert len(results) == 1
    assert client.xlen("jobs:stream") == 1
    assert len(client.keys("job:*")) == 2


# -- backpressure -------------------------------------------------------------------------------------------


def test_past_the_backlog_requests_are_refused_with_retry_after(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    gateway = open_gateway(max_backlog=2)
    first = gateway.create()
    assert first.headers["ratelimit-policy"] == '"backlog";q=2'
    assert first.headers["ratelimit"] == '"backlog";r=1'
    assert (first.headers["ratelimit-limit"], first.headers["ratelimit-remaining"]) == ("2", "1")
    gateway.submit()
    before = keyspace(client)
    full = gateway.create()
    assert problem_of(full) == (429, "backlog-full")
    assert int(full.headers["retry-after"]) >= 1
    assert full.headers["ratelimit"] == '"backlog";r=0'
    assert keyspace(client) == before


def test_pending_jobs_count_and_acknowledged_ones_do_not(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    """A foreign worker only acknowledges, so the stream's length is not the backlog."""
    gateway, worker = open_gateway(max_backlog=2), ForeignWorker(client)
    ids = [gateway.submit(), gateway.submit()]
    taken = worker.take(2)
    assert gateway.create().status_code == 429
    for (entry, _), job_id in zip(taken, ids, strict=True):
        worker.finish(entry, job_id, {})
    assert client.xlen("jobs:stream") == 2
    assert gateway.create().status_code == 202


def test_the_backlog_is_counted_where_redis_does_not_know_it(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    """Redis loses count of the lag when an undelivered entry is deleted."""
    gateway = open_gateway(max_backlog=4)
    ids = [gateway.submit() for _ in range(4)]
    ForeignWorker(client).take(1)
    entries = [entry for entry, _ in client.xrange("jobs:stream")]
    client.xdel("jobs:stream", entries[2])
    [group] = client.xinfo_groups("jobs:stream")
    assert group["lag"] is None
    responses = [gateway.create() for _ in range(2)]
    assert [response.status_code for response in responses] == [202, 429], ids


def test_an_idempotent_request_succeeds_even_while_the_queue_is_full(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(max_backlog=1)
    job_id = gateway.submit(headers={"Idempotency-Key": "k"})
    assert gateway.submit(headers={"Idempotency-Key": "k"}) == job_id


def test_a_client_past_its_quota_is_refused_and_others_are_not(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    keys = [
        {"name": name, "key": f"a-long-secret-of-{name}", "roles": ["submit"]} for name in ("shop", "bank")
    ]
    gateway = open_gateway(client_jobs=3, client_window_s=60, keys=json.dumps(keys))

    def create(name: str) -> httpx2.Response:
        secret = {"Authorization": f"Bearer a-long-secret-of-{name}"}
        return gateway.create(headers=secret)

    responses = [create("shop") for _ in range(4)]
    assert [response.status_code for response in responses] == [202, 202, 202, 429]
    assert [response.headers["ratelimit-remaining"] for response in responses] == ["2", "1", "0", "0"]
    assert responses[0].headers["ratelimit-policy"] == '"backlog";q=10000, "client";q=3;w=60'
    assert problem_of(responses[3]) == (429, "rate-limited")
    assert 1 <= int(responses[3].headers["retry-after"]) <= 20
    assert create("bank").status_code == 202
    assert client.xlen("jobs:stream") == 4


def test_a_clients_quota_refills_evenly(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(client_jobs=50, client_window_s=1)
    sent = 0
    while gateway.create().status_code == 202:
        sent += 1
        assert sent < 500
    assert sent >= 50
    threading.Event().wait(0.1)
    assert gateway.create().status_code == 202
