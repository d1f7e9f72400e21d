"""Keys, roles, owners, limits, origins: who is let in, and what they may do."""

import json
import logging
import socket
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from corral.errors import InvalidOptions
from corral.gateway import Settings, create_app
from corral.gateway.callers import KeyRing
from corral.gateway.serving import check_address
from tests.gateway.conftest import Open
from tests.support.gateway import KEYS, Gateway, bearer

EVERY_KEY = json.dumps([{"name": role, "key": key, "roles": [role]} for role, key in KEYS.items()])


@pytest.fixture
def locked(opened: Open) -> Gateway:
    """A gateway with a key for each role."""
    return opened(keys=EVERY_KEY)


def answer_of(gateway: Gateway, method: str, path: str, role: str | None, **more: Any) -> httpx2.Response:
    return gateway.client.request(method, path, headers=bearer(role) if role else {}, **more)


# -- keys and roles -----------------------------------------------------------------------------------------

NEEDS = [
    ("POST", "/v1/jobs", {"submit", "admin"}),
    ("POST", "/v1/jobs/x/cancel", {"submit", "admin"}),
    ("GET", "/v1/jobs", {"read", "operate", "admin"}),
    ("GET", "/v1/jobs/x", {"read", "operate", "admin"}),
    ("GET", "/v1/jobs/x/events", {"read", "operate", "admin"}),
    ("GET", "/v1/queues", {"read", "operate", "admin"}),
    ("GET", "/v1/queues/bullmq/x/jobs/y", {"read", "operate", "admin"}),
    ("GET", "/metrics", {"read", "operate", "admin"}),
    ("POST", "/v1/queues/bullmq/x/pause", {"operate", "admin"}),
    ("POST", "/v1/queues/bullmq/x/drain", {"operate", "admin"}),
    ("POST", "/v1/queues/bullmq/x/retry", {"operate", "admin"}),
    ("POST", "/v1/queues/bullmq/x/jobs/y/remove", {"operate", "admin"}),
]


def test_each_role_may_do_its_own_and_no_more(locked: Gateway) -> None:
    for method, path, allowed in NEEDS:
        for role in KEYS:
            answer = answer_of(locked, method, path, role)
            if role in allowed:
                assert answer.status_code not in (401, 403), (method, path, role, answer.text)
            else:
                assert answer.status_code == 403, (method, path, role)
                assert answer.json()["type"] == "urn:corral:problem:forbidden"


def test_without_a_key_or_with_a_wrong_one_nobody_is_let_in(locked: Gateway) -> None:
    wrong = [{}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong-key-of-the-tests"}]
    wrong += [{"Authorization": f"Basic {KEYS['admin']}"}, {"Authorization": KEYS["admin"]}]
    wrong += [{"Authorization": f"Bearer {KEYS['admin'][:-1]}"}, {"Authorization": "Bearer \u00e9\u00e9"}]
    for method, path, _ in [*NEEDS, ("GET", "/no/such/path", set())]:
        for headers in wrong:
            raw = {name: value.encode("latin-1") for name, value in headers.items()}
            answer = locked.client.request(method, path, headers=raw)
            assert (answer.status_code, answer.json()["type"]) == (401, "urn:corral:problem:unauthorized")
            assert answer.headers["www-authenticate"].startswith('Bearer realm="corral"')


def test_probes_need_no_key(locked: Gateway) -> None:
    for path in ("/livez", "/readyz", "/openapi.json"):
        assert answer_of(locked, "GET", path, None).status_code == 200


def test_every_key_is_compared_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr("corral.gateway.callers.hmac.compare_digest", compare)
    ring = KeyRing.of(json.loads(EVERY_KEY))
    assert ring.find(KEYS["submit"]).name == "submit"
    assert len(compared) == len(KEYS)


def test_a_key_can_be_kept_as_its_digest_in_json_or_toml(opened: Open, tmp_path: Path) -> None:
    digest = sha256(b"the-secret-of-the-shop").hexdigest()
    as_json, as_toml = tmp_path / "keys.json", tmp_path / "keys.toml"
    as_json.write_text(json.dumps([{"name": "shop", "sha256": digest, "roles": ["submit"]}]))
    as_toml.write_text(f'[[keys]]\nname = "shop"\nsha256 = "{digest}"\nroles = ["submit"]\n')
    for path in (as_json, as_toml):
        gateway = opened(keys_file=path)
        answer = gateway.client.post(
            "/v1/jobs",
            json={"task": "chat", "payload": {}},
            headers={"Authorization": "Bearer the-secret-of-the-shop"},
        )
        assert answer.status_code == 202


BAD_KEYS = {
    "no json": "{nope",
    "no list": '{"name": "a"}',
    "no name": '[{"key": "0123456789abcdef", "roles": ["read"]}]',
    "a name that does not fit": '[{"name": "a b", "key": "0123456789abcdef", "roles": ["read"]}]',
    "a short key": '[{"name": "a", "key": "short-secret", "roles": ["read"]}]',
    "no roles": '[{"name": "a", "key": "0123456789abcdef", "roles": []}]',
    "an unknown role": '[{"name": "a", "key": "0123456789abcdef", "roles": ["king"]}]',
    "a field nobody knows": '[{"name": "a", "key": "0123456789abcdef", "roles": ["read"], "x": 1}]',
    "key and digest": '[{"name": "a", "key": "0123456789abcdef", "sha256": "00", "roles": ["read"]}]',
    "one name twice": '[{"name": "a", "key": "0123456789abcdef", "roles": ["read"]},'
    '{"name": "a", "key": "0123456789abcdeX", "roles": ["read"]}]',
}


@pytest.mark.parametrize("case", BAD_KEYS)
def test_keys_that_do_not_fit_are_refused_without_being_shown(case: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(BAD_KEYS[case])
    for options in ({"keys": BAD_KEYS[case]}, {"keys_file": path}):
        with pytest.raises(InvalidOptions) as caught:
            create_app(Settings(redis_url="redis://127.0.0.1:1", **options))
        assert "0123456789abcde" not in str(caught.value)
        assert "short-secret" not in str(caught.value)


def test_a_keys_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="cannot be read"):
        create_app(Settings(keys_file=tmp_path / "nothing"))


def test_keys_are_never_logged_nor_told(
    locked: Gateway, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    heard = []
    for role in KEYS:
        for method, path, _ in NEEDS:
            heard.append(answer_of(locked, method, path, role).text)
    heard.append(locked.client.post("/v1/jobs", content=b"{", headers=bearer("submit")).text)
    heard.append(answer_of(locked, "GET", "/metrics", "read").text)
    heard += [repr(Settings(keys=EVERY_KEY)), caplog.text, *capfd.readouterr()]
    for key in KEYS.values():
        assert not any(key in text for text in heard)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "corral.example", ""])
def test_without_keys_only_loopback_is_listened_on(host: str) -> None:
    with pytest.raises(InvalidOptions, match="without keys the gateway listens on loopback only"):
        check_address(host, KeyRing(()))
    check_address(host, KeyRing.of(json.loads(EVERY_KEY)))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    check_address(host, KeyRing(()))


# -- owners -------------------------------------------------------------------------------------------------

SHOP_KEYS = json.dumps(
    [
        {"name": name, "key": f"a-long-secret-of-{name}", "roles": roles}
        for name, roles in (
            ("shop", ["submit", "read"]),
            ("bank", ["submit", "read"]),
            ("keeper", ["operate"]),
        )
    ]
)


def as_client(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer a-long-secret-of-{name}"}


def test_with_ownership_a_client_sees_only_its_own_jobs(opened: Open, client: redis.Redis) -> None:
    gateway = opened(keys=SHOP_KEYS, ownership=True)
    get, post = gateway.client.get, gateway.client.post
    mine = gateway.submit({"n": 1}, headers=as_client("shop"))
    theirs = gateway.submit({"n": 2}, headers=as_client("bank"))
    assert client.hget(f"job:{mine}", "client") == b"shop"
    for path in (f"/v1/jobs/{mine}", f"/v1/jobs/{mine}/events"):
        assert get(path, headers=as_client("bank")).status_code == 404
    assert post(f"/v1/jobs/{mine}/cancel", headers=as_client("bank")).status_code == 404
    assert client.hget(f"job:{mine}", "status") == b"queued"
    for name, seen in (("shop", {mine}), ("bank", {theirs}), ("keeper", {mine, theirs})):
        listed = get("/v1/jobs", headers=as_client(name)).json()["jobs"]
        assert {job["job_id"] for job in listed} == seen
    assert get(f"/v1/jobs/{mine}", headers=as_client("shop")).json()["payload"] == {"n": 1}
    assert post(f"/v1/jobs/{mine}/cancel", headers=as_client("shop")).status_code == 200
    with gateway.tail(mine, headers=as_client("shop")) as tail:
        assert [event.kind for event in tail] == ["hello", "queued", "canceled"]


def test_with_ownership_everybodys_jobs_are_for_operators(opened: Open) -> None:
    gateway = opened(keys=SHOP_KEYS, ownership=True)
    gateway.submit(headers=as_client("shop"))
    for path in ("/v1/queues", "/v1/queues/streams/jobs/jobs?state=waiting", "/v1/events"):
        assert gateway.client.get(path, headers=as_client("shop")).status_code == 403
    assert gateway.client.get("/v1/queues", headers=as_client("keeper")).status_code == 200


def test_with_ownership_two_clients_may_use_the_same_idempotency_key(
    opened: Open, client: redis.Redis
) -> None:
    gateway = opened(keys=SHOP_KEYS, ownership=True)
    ids = [
        gateway.submit({"of": name}, headers={**as_client(name), "Idempotency-Key": "k" * 255})
        for name in ("shop", "bank", "shop")
    ]
    assert ids[0] == ids[2] != ids[1]
    assert client.get("idempotency:shop:" + "k" * 255) == ids[0].encode()


def test_without_ownership_nothing_is_added_to_a_job(locked: Gateway, client: redis.Redis) -> None:
    job_id = locked.submit(headers=bearer("submit"))
    assert not client.hexists(f"job:{job_id}", "client")


def test_ownership_without_keys_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="ownership needs keys"):
        create_app(Settings(ownership=True))


# -- limits -------------------------------------------------------------------------------------------------


def raw(gateway: Gateway, request: bytes, seconds: float = 5.0) -> bytes:
    """What comes back for these very bytes, until the gateway closes."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=seconds) as link:
        link.sendall(request)
        found = b""
        while chunk := link.recv(65_536):
            found += chunk
            if b"\r\n\r\n" in found and b"connection: close" not in found.lower():
                break
        return found


def test_a_body_that_is_too_large_is_refused_before_it_has_come(opened: Open, client: redis.Redis) -> None:
    gateway = opened(max_body_bytes=2000)
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    said = raw(gateway, head + b"Content-Length: 5000000\r\n\r\n{")
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"urn:corral:problem:body-too-large" in said
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n"
    said = raw(gateway, chunked + b"400\r\n" + b"x" * 1024 + b"\r\n")
    assert b"urn:corral:problem:body-too-large" in said
    assert client.dbsize() == 0


def test_a_body_that_does_not_come_is_not_waited_for(opened: Open) -> None:
    gateway = opened(body_s=0.2)
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    said = raw(gateway, head + b"Connection: close\r\nContent-Length: 50\r\n\r\n{")
    assert said.startswith(b"HTTP/1.1 408 ")


def test_headers_that_are_too_many_or_too_large_are_refused(opened: Open) -> None:
    gateway = opened(max_headers=30, max_header_bytes=4000)
    many = {f"X-{n}": "1" for n in range(30)}
    for headers in (many, {"X-Big": "x" * 4000}):
        answer = gateway.client.get("/livez", headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (431, "urn:corral:problem:headers-too-large")
    assert gateway.client.get("/livez?" + "q" * 4000).status_code == 431


def test_a_head_without_end_is_cut_off(gateway: Gateway) -> None:
    said = raw(gateway, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 66_000)
    assert said.startswith(b"HTTP/1.1 431 ")


def test_a_head_that_does_not_come_is_not_waited_for(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.gateway.http_protocol.HEADERS_S", 0.2)
    began = time.monotonic()
    said = raw(gateway, b"GET /livez HTTP/1.1\r\nHost:")
    assert said.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 4


def test_what_is_no_http_is_a_problem_too(gateway: Gateway) -> None:
    said = raw(gateway, b"MEOW / HTTP/1.1\r\n\r\n")
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["type"] == "urn:corral:problem:malformed-request"


@pytest.mark.parametrize(("depth", "status"), [(60, 202), (65, 422), (190, 422), (100_000, 400)])
def test_json_that_is_nested_too_deep_is_refused(gateway: Gateway, depth: int, status: int) -> None:
    body = '{"task": "chat", "payload": {"a": ' + "[" * depth + "]" * depth + "}}"
    answer = gateway.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text


# -- pages of other origins ---------------------------------------------------------------------------------


def test_a_page_of_another_origin_cannot_change_anything(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{gateway.port + 1}"):
        answer = gateway.client.post(f"/v1/jobs/{job_id}/cancel", headers={"Origin": origin})
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:corral:problem:cross-origin")
    assert client.hget(f"job:{job_id}", "status") == b"queued"
    own = gateway.client.post(f"/v1/jobs/{job_id}/cancel", headers={"Origin": gateway.url})
    assert own.status_code == 200


def test_no_answer_opens_itself_to_other_origins(gateway: Gateway) -> None:
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    for answer in (
        gateway.client.options("/v1/jobs", headers=preflight),
        gateway.client.get("/v1/jobs", headers={"Origin": "https://evil.example"}),
    ):
        assert not any(name.startswith("access-control-") for name in answer.headers)


def test_without_keys_a_made_up_name_for_loopback_is_not_answered(opened: Open) -> None:
    gateway = opened(hosts=["jobs.internal"])
    for host, status in (
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("jobs.internal", 200),
        ("LOCALHOST:80", 200),
        ("[::1]:8080", 200),
    ):
        assert gateway.client.get("/v1/jobs", headers={"Host": host}).status_code == status, host


def test_every_answer_has_the_safe_headers(gateway: Gateway) -> None:
    answers = [gateway.client.get(path) for path in ("/livez", "/v1/jobs", "/nothing", "/openapi.json")]
    answers.append(gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}}))
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


def test_an_error_of_ours_tells_nothing_of_the_inside(opened: Open, client: redis.Redis) -> None:
    gateway = opened()
    client.set("jobs:stream", "nonsense")
    answer = gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {}})
    assert (answer.status_code, answer.json()["type"]) == (502, "urn:corral:problem:server-refused")
    assert "redis://" not in answer.text
    assert "jobs:stream" not in answer.text


def test_ids_cannot_be_guessed(gateway: Gateway) -> None:
    ids = {gateway.submit() for _ in range(50)}
    assert len({job_id[:8] for job_id in ids}) == 50
