"""Keys, roles, owners, limits, origins."""

import json
import logging
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from corral.errors import InvalidOptions
from corral.gateway import GatewaySettings, create_app
from corral.gateway.security.auth import ApiKeys
from corral.gateway.server import check_address
from tests.gateway.conftest import OpenGateway
from tests.support.foreign_client_streams import ForeignWorker
from tests.support.gateway import KEYS, KEYS_JSON, Gateway, bearer, problem_of
from tests.support.logs import capture_logs


@pytest.fixture
def gateway_with_keys(open_gateway: OpenGateway) -> Gateway:
    """A gateway with a key for each role."""
    return open_gateway(keys=KEYS_JSON)


def request(gateway: Gateway, method: str, path: str, role: str | None, **more: Any) -> httpx2.Response:
    return gateway.client.request(method, path, headers=bearer(role) if role else {}, **more)


# -- keys and roles -----------------------------------------------------------------------------------------

ROLES_OF_ROUTES = [
    ("POST", "/v1/jobs", {"submit", "admin"}),
    ("POST", "/v1/jobs/x/cancel", {"submit", "admin"}),
    ("GET", "/v1/jobs", {"read", "operate", "admin"}),
    ("GET", "/v1/jobs/x", {"read", "operate", "admin"}),
    ("GET", "/v1/jobs/x/events", {"read", "operate", "admin"}),
    ("GET", "/v1/queues", {"read", "operate", "admin"}),
    ("GET", "/v1/queues/bullmq/x/jobs/y", {"read", "operate", "admin"}),
    ("GET", "/metrics", {"read", "operate", "admin"}),
    ("POST", "/v1/queues/bullmq/x/pause", {"operate", "admin"}),
    ("POST", "/v1/queues/bullmq/x/drain", {"admin"}),
    ("POST", "/v1/queues/bullmq/x/clean", {"admin"}),
    ("POST", "/v1/queues/bullmq/x/remove", {"admin"}),
    ("POST", "/v1/queues/bullmq/x/retry", {"operate", "admin"}),
    ("POST", "/v1/queues/bullmq/x/jobs/y/retry", {"operate", "admin"}),
]


def test_each_role_allows_its_own_routes_and_no_others(gateway_with_keys: Gateway) -> None:
    for method, path, allowed in ROLES_OF_ROUTES:
        for role in KEYS:
            response = request(gateway_with_keys, method, path, role)
            if role in allowed:
                assert response.status_code not in (401, 403), (method, path, role, response.text)
            else:
                assert problem_of(response) == (403, "forbidden"), (method, path, role)


def test_requests_without_a_valid_key_are_refused(gateway_with_keys: Gateway) -> None:
    wrong = [{}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong-key-of-the-tests"}]
    wrong += [{"Authorization": f"Basic {KEYS['admin']}"}, {"Authorization": KEYS["admin"]}]
    wrong += [{"Authorization": f"Bearer {KEYS['admin'][:-1]}"}, {"Authorization": "Bearer \u00e9\u00e9"}]
    for method, path, _ in [*ROLES_OF_ROUTES, ("GET", "/no/such/path", set())]:
        for headers in wrong:
            raw = {name: value.encode("latin-1") for name, value in headers.items()}
            response = gateway_with_keys.client.request(method, path, headers=raw)
            assert problem_of(response) == (401, "unauthorized")
            assert response.headers["www-authenticate"].startswith('Bearer realm="corral"')


def test_probes_need_no_key(gateway_with_keys: Gateway) -> None:
    for path in ("/livez", "/readyz", "/openapi.json"):
        assert request(gateway_with_keys, "GET", path, None).status_code == 200


def test_every_key_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr("corral.gateway.security.auth.hmac.compare_digest", compare)
    keys = ApiKeys.parse(json.loads(KEYS_JSON))
    assert keys.client_of(KEYS["submit"]).name == "submit"
    assert len(compared) == len(KEYS)


def test_a_key_can_be_given_as_its_digest_in_json_or_toml(open_gateway: OpenGateway, tmp_path: Path) -> None:
    digest = sha256(b"the-secret-of-the-shop").hexdigest()
    as_json, as_toml = tmp_path / "keys.json", tmp_path / "keys.toml"
    as_json.write_text(json.dumps([{"name": "shop", "sha256": digest, "roles": ["submit"]}]))
    as_toml.write_text(f'[[keys]]\nname = "shop"\nsha256 = "{digest}"\nroles = ["submit"]\n')
    for path in (as_json, as_toml):
        gateway = open_gateway(keys_file=path)
        response = gateway.client.post(
            "/v1/jobs",
            json={"task": "chat", "payload": {}},
            headers={"Authorization": "Bearer the-secret-of-the-shop"},
        )
        assert response.status_code == 202


BAD_KEYS = {
    "not JSON": "{nope",
    "not a list": '{"name": "a"}',
    "no name": '[{"key": "0123456789abcdef", "roles": ["read"]}]',
    "an invalid name": '[{"name": "a b", "key": "0123456789abcdef", "roles": ["read"]}]',
    "a short key": '[{"name": "a", "key": "short-secret", "roles": ["read"]}]',
    "no roles": '[{"name": "a", "key": "0123456789abcdef", "roles": []}]',
    "an unknown role": '[{"name": "a", "key": "0123456789abcdef", "roles": ["king"]}]',
    "an unknown field": '[{"name": "a", "key": "0123456789abcdef", "roles": ["read"], "x": 1}]',
    "key and digest": '[{"name": "a", "key": "0123456789abcdef", "sha256": "00", "roles": ["read"]}]',
    "one name twice": '[{"name": "a", "key": "0123456789abcdef", "roles": ["read"]},'
    '{"name": "a", "key": "0123456789abcdeX", "roles": ["read"]}]',
}


@pytest.mark.parametrize("case", BAD_KEYS)
def test_invalid_keys_are_refused_without_being_shown(case: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(BAD_KEYS[case])
    for options in ({"keys": BAD_KEYS[case]}, {"keys_file": path}):
        with pytest.raises(InvalidOptions) as caught:
            create_app(GatewaySettings(redis_url="redis://127.0.0.1:1", **options))
        assert "0123456789abcde" not in str(caught.value)
        assert "short-secret" not in str(caught.value)


def test_a_missing_keys_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="cannot be read"):
        create_app(GatewaySettings(keys_file=tmp_path / "nothing"))


def test_keys_are_never_logged_or_sent(
    gateway_with_keys: Gateway, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    texts = []
    for role in KEYS:
        for method, path, _ in ROLES_OF_ROUTES:
            texts.append(request(gateway_with_keys, method, path, role).text)
    texts.append(gateway_with_keys.client.post("/v1/jobs", content=b"{", headers=bearer("submit")).text)
    texts.append(request(gateway_with_keys, "GET", "/metrics", "read").text)
    texts += [repr(GatewaySettings(keys=KEYS_JSON)), caplog.text, *capfd.readouterr()]
    for key in KEYS.values():
        assert not any(key in text for text in texts)


def test_keys_in_wrong_places_are_neither_logged_nor_sent(
    gateway_with_keys: Gateway, capfd: pytest.CaptureFixture[str]
) -> None:
    key = KEYS["admin"]
    get = gateway_with_keys.client.get
    responses = [
        get("/v1/jobs", headers={"Authorization": f"Basic {key}"}),
        get("/v1/jobs", headers={"Authorization": f"Bearer x{key}"}),
        get(f"/v1/jobs?key={key}"),
        get(f"/v1/jobs?key={key}", headers=bearer("read")),
        get("/v1/jobs", headers={**bearer("read"), "X-Api-Key": key}),
        get("/metrics", headers=bearer("read")),
    ]
    texts = [response.text + str(response.headers) for response in responses]
    assert not any(key in text for text in (*texts, *capfd.readouterr()))


PASSWORDS = ("s3cret", "s3c/ret", "s3c?ret", "s3c#ret", "s3c%2Fret")


@pytest.mark.parametrize("password", PASSWORDS)
def test_the_password_of_redis_is_neither_logged_nor_sent(
    password: str, open_gateway: OpenGateway, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"redis://:{password}@127.0.0.1:1"
    texts = [repr(GatewaySettings(redis_url=url))]
    try:
        gateway = open_gateway(url, redis_timeout_s=0.3)
        texts += [
            gateway.create().text,
            gateway.client.get("/readyz").text,
            gateway.client.get("/metrics").text,
        ]
    except AssertionError:
        pass  # an address that cannot be read does not start
    texts += capfd.readouterr()
    assert not any("s3c" in text for text in texts), texts


async def test_a_request_without_a_key_costs_little_and_logs_a_line_a_second(
    gateway_with_keys: Gateway,
) -> None:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/jobs",
        "raw_path": b"/v1/jobs",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer a-guess-of-somebody")],
        "client": ("192.0.2.7", 1234),
    }
    statuses: Counter[int] = Counter()

    async def receive() -> Any:
        raise AssertionError("the body is not read")

    async def send(message: Any) -> None:
        statuses[message.get("status", 0)] += 1

    began, used = time.monotonic(), time.thread_time()
    with capture_logs() as lines:
        for _ in range(500):
            await gateway_with_keys.app(dict(scope), receive, send)
    seconds, passed = time.thread_time() - used, time.monotonic() - began
    assert statuses[401] == 500
    assert seconds < 0.5
    assert {line["event"] for line in lines} == {"no valid key"}
    assert len(lines) <= 1 + passed
    assert lines[0]["last_address"] == "192.0.2.7"
    assert "a-guess" not in str(lines)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "corral.example", ""])
def test_without_keys_only_loopback_is_listened_on(host: str) -> None:
    with pytest.raises(InvalidOptions, match="without keys the gateway listens on loopback only"):
        check_address(host, ApiKeys(()))
    check_address(host, ApiKeys.parse(json.loads(KEYS_JSON)))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    check_address(host, ApiKeys(()))


# -- owners -------------------------------------------------------------------------------------------------

CLIENT_KEYS = json.dumps(
    [
        {"name": name, "key": f"a-long-secret-of-{name}", "roles": roles}
        for name, roles in (
            ("shop", ["submit", "read"]),
            ("bank", ["submit", "read"]),
            ("operator", ["operate"]),
        )
    ]
)


CLIENTS = ("shop", "bank", "operator")


def key_of(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer a-long-secret-of-{name}"}


def test_with_ownership_a_client_sees_only_its_own_jobs(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    gateway = open_gateway(keys=CLIENT_KEYS, ownership=True)
    get, post = gateway.client.get, gateway.client.post
    mine = gateway.submit({"n": 1}, headers=key_of("shop"))
    theirs = gateway.submit({"n": 2}, headers=key_of("bank"))
    assert client.hget(f"job:{mine}", "client") == b"shop"
    for path in (f"/v1/jobs/{mine}", f"/v1/jobs/{mine}/events"):
        assert get(path, headers=key_of("bank")).status_code == 404
    assert post(f"/v1/jobs/{mine}/cancel", headers=key_of("bank")).status_code == 404
    assert client.hget(f"job:{mine}", "status") == b"queued"
    for name, visible in (("shop", {mine}), ("bank", {theirs}), ("operator", {mine, theirs})):
        listed = get("/v1/jobs", headers=key_of(name)).json()["jobs"]
        assert {job["job_id"] for job in listed} == visible
    assert get(f"/v1/jobs/{mine}", headers=key_of("shop")).json()["payload"] == {"n": 1}
    assert post(f"/v1/jobs/{mine}/cancel", headers=key_of("shop")).status_code == 200
    with gateway.tail(mine, headers=key_of("shop")) as tail:
        assert [event.kind for event in tail] == ["hello", "queued", "canceled"]


def test_with_ownership_queues_need_the_role_operate(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(keys=CLIENT_KEYS, ownership=True)
    gateway.submit(headers=key_of("shop"))
    for path in ("/v1/queues", "/v1/queues/streams/jobs/jobs?state=waiting", "/v1/events"):
        assert gateway.client.get(path, headers=key_of("shop")).status_code == 403
    assert gateway.client.get("/v1/queues", headers=key_of("operator")).status_code == 200


def test_with_ownership_two_clients_may_use_the_same_idempotency_key(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    gateway = open_gateway(keys=CLIENT_KEYS, ownership=True)
    ids = [
        gateway.submit({"of": name}, headers={**key_of(name), "Idempotency-Key": "k" * 255})
        for name in ("shop", "bank", "shop")
    ]
    assert ids[0] == ids[2] != ids[1]
    assert client.get("idempotency:shop:" + "k" * 255) == ids[0].encode()


def test_without_ownership_nothing_is_added_to_a_job(gateway_with_keys: Gateway, client: redis.Redis) -> None:
    job_id = gateway_with_keys.submit(headers=bearer("submit"))
    assert not client.hexists(f"job:{job_id}", "client")


def test_ownership_without_keys_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="ownership needs keys"):
        create_app(GatewaySettings(ownership=True))


@pytest.mark.parametrize(("depth", "status"), [(60, 202), (65, 422), (190, 422), (100_000, 400)])
def test_json_that_is_nested_too_deep_is_refused(gateway: Gateway, depth: int, status: int) -> None:
    body = '{"task": "chat", "payload": {"a": ' + "[" * depth + "]" * depth + "}}"
    response = gateway.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == status, response.text


# -- what a role does not show ------------------------------------------------------------------------------


def test_removing_a_job_needs_the_role_admin(gateway_with_keys: Gateway, client: redis.Redis) -> None:
    client.hset("bull:mail:meta", "opts.maxLenEvents", 100)
    client.lpush("bull:mail:wait", "1")
    client.hset("bull:mail:1", mapping={"name": "send", "data": "{}", "opts": "{}", "timestamp": 1})
    for path in ("/jobs/1/remove", "/remove"):
        response = request(
            gateway_with_keys, "POST", f"/v1/queues/bullmq/mail{path}", "operate", json={"ids": ["1"]}
        )
        assert problem_of(response) == (403, "forbidden")
    assert client.exists("bull:mail:1")
    response = request(gateway_with_keys, "POST", "/v1/queues/bullmq/mail/jobs/1/remove", "admin")
    assert response.json()["done"] == ["1"]


def test_a_key_for_submitting_does_not_read_results(gateway_with_keys: Gateway, client: redis.Redis) -> None:
    document = {"task": "embed", "payload": {"secret": 1}}
    headers = {**bearer("submit"), "Idempotency-Key": "k", "Prefer": "wait=5"}
    job_id = gateway_with_keys.client.post("/v1/jobs", json=document, headers=headers).json()["job_id"]
    ForeignWorker(client).work(lambda task, payload: {"secret": 2})
    again = gateway_with_keys.client.post("/v1/jobs", json=document, headers=headers)
    assert again.status_code == 202
    assert again.json()["job_id"] == job_id
    assert "preference-applied" not in again.headers
    waiting = gateway_with_keys.submit({"secret": 3}, headers=bearer("submit"))
    answer = request(gateway_with_keys, "POST", f"/v1/jobs/{waiting}/cancel", "submit")
    assert answer.json()["status"] == "canceled"
    assert "secret" not in again.text + answer.text


def test_with_ownership_metrics_show_a_reader_only_its_own(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(keys=CLIENT_KEYS, ownership=True)
    job_id = gateway.submit(headers=key_of("shop"))
    with gateway.tail(job_id, headers=key_of("shop")) as tail:
        tail.until("queued")
        texts = {name: gateway.client.get("/metrics", headers=key_of(name)).text for name in CLIENTS}
    assert 'corral_gateway_client_tails{client="shop"} 1.0' in texts["shop"]
    assert 'corral_gateway_client_tails{client="bank"} 0.0' in texts["bank"]
    assert "corral_job_count" not in texts["shop"] + texts["bank"]
    assert "corral_job_count" in texts["operator"]


# -- other origins -----------------------------------------------------------------------------------------


def test_a_page_of_another_origin_cannot_change_anything(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    malformed = ("http://[", "http://[::1", "http://[v1.x]:80/", "//", "http://a@b:c")
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{gateway.port + 1}", *malformed):
        response = gateway.client.post(f"/v1/jobs/{job_id}/cancel", headers={"Origin": origin})
        assert problem_of(response) == (403, "cross-origin")
    assert client.hget(f"job:{job_id}", "status") == b"queued"
    own = gateway.client.post(f"/v1/jobs/{job_id}/cancel", headers={"Origin": gateway.url})
    assert own.status_code == 200


def test_no_response_allows_other_origins(gateway: Gateway) -> None:
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    for response in (
        gateway.client.options("/v1/jobs", headers=preflight),
        gateway.client.get("/v1/jobs", headers={"Origin": "https://evil.example"}),
    ):
        assert not any(name.startswith("access-control-") for name in response.headers)


def test_without_keys_unknown_host_names_are_refused(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(hosts=["jobs.internal"])
    for host, status in (
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("jobs.internal", 200),
        ("LOCALHOST:80", 200),
        ("[::1]:8080", 200),
        ("localhost@evil.example", 400),
        ("user:password@localhost", 400),
        ("[::1]evil.example", 400),
        ("[::1]:80:80", 400),
        ("[::1", 400),
        ("localhost:80x", 400),
        ("localhost/x", 400),
    ):
        assert gateway.client.get("/v1/jobs", headers={"Host": host}).status_code == status, host


def test_every_response_has_the_security_headers(gateway: Gateway) -> None:
    responses = [gateway.client.get(path) for path in ("/livez", "/v1/jobs", "/nothing", "/openapi.json")]
    responses.append(gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}}))
    for response in responses:
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert "server" not in response.headers


def test_an_internal_error_reveals_no_addresses_or_keys(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    gateway = open_gateway()
    client.set("jobs:stream", "nonsense")
    response = gateway.create()
    assert problem_of(response) == (502, "redis-error")
    assert "redis://" not in response.text
    assert "jobs:stream" not in response.text


def test_ids_cannot_be_guessed(gateway: Gateway) -> None:
    ids = {gateway.submit() for _ in range(50)}
    assert len({job_id[:8] for job_id in ids}) == 50
