"""The server goes away and comes back; the gateway stops; several gateways serve one server."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
import redis

from tests.gateway.conftest import Open
from tests.support.gateway import Gateway
from tests.support.polling import block, eventually
from tests.support.proxy import Fate, Proxy, runs
from tests.support.servers import Server, start_valkey
from tests.support.sse import stories

JOB = {"task": "chat", "payload": {}}


def tell(client: redis.Redis, job_id: str, kind: str) -> None:
    client.xadd(f"job:{job_id}:events", {"type": kind, "ts": "1", "step": "stranger", "data": "{}"})


@pytest.fixture
def proxy(server: Server) -> Any:
    with Proxy(server.port) as proxy:
        yield proxy


def quick(opened: Open, url: str) -> Gateway:
    """A gateway that waits for its server as long as it does out there, and looks often."""
    return opened(url, sweep_s=0.05, answer_s=0.9)


ASKED = [
    ("POST", "/v1/jobs"),
    ("GET", "/v1/jobs"),
    ("GET", "/v1/jobs/0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55"),
    ("GET", "/v1/jobs/0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55/events"),
    ("POST", "/v1/jobs/0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55/cancel"),
    ("GET", "/v1/queues"),
    ("GET", "/v1/queues/streams/jobs"),
    ("POST", "/v1/queues/streams/jobs/drain"),
    ("GET", "/v1/events"),
    ("GET", "/readyz"),
]


def _timed(gateway: Gateway, method: str, path: str) -> tuple[str, httpx2.Response, float]:
    began = time.monotonic()
    document = JOB if path == "/v1/jobs" else {}
    answer = gateway.client.request(method, path, json=document if method == "POST" else None)
    return path, answer, time.monotonic() - began


@pytest.mark.parametrize("way", ["gone", "silent"])
def test_a_server_that_is_away_is_told_within_a_second(opened: Open, way: str) -> None:
    """Gone: nobody listens any more. Silent: its process is stopped, and the connection stays open."""
    server = start_valkey()
    try:
        gateway = quick(opened, server.url)
        assert gateway.client.post("/v1/jobs", json=JOB).status_code == 202
        assert gateway.client.get("/v1/queues/streams/jobs").status_code == 200
        if way == "gone":
            server.process.kill()
            server.process.wait()
        else:
            os.kill(server.process.pid, signal.SIGSTOP)
        with ThreadPoolExecutor(len(ASKED)) as pool:
            for path, answer, took in pool.map(lambda asked: _timed(gateway, *asked), ASKED):
                assert answer.status_code == 503, path
                assert answer.json()["type"] == "urn:corral:problem:server-away"
                assert int(answer.headers["retry-after"]) >= 1
                assert took < 1, (path, took)
        assert gateway.client.get("/livez").status_code == 200
    finally:
        server.stop()


def test_a_server_that_comes_back_is_used_again(opened: Open, proxy: Proxy) -> None:
    gateway = quick(opened, proxy.url)
    proxy.go_away()
    assert gateway.client.post("/v1/jobs", json=JOB).status_code == 503
    proxy.come_back()
    assert eventually(lambda: gateway.client.post("/v1/jobs", json=JOB).status_code == 202)


def test_a_lost_answer_and_a_second_try_under_the_same_key_make_one_job(
    opened: Open, proxy: Proxy, client: redis.Redis
) -> None:
    gateway = quick(opened, proxy.url)
    gateway.submit()
    rule = proxy.rule(runs("EVALSHA"), Fate.SWALLOW)
    key = {"Idempotency-Key": "order-7"}
    lost = gateway.client.post("/v1/jobs", json=JOB, headers=key)
    assert (lost.status_code, rule.met) == (503, 1)
    assert "same Idempotency-Key" in lost.json()["detail"]
    again = gateway.client.post("/v1/jobs", json=JOB, headers=key)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (202, "true")
    assert client.xlen("jobs:stream") == 2


def test_tails_are_told_and_go_on_by_themselves(opened: Open, proxy: Proxy, client: redis.Redis) -> None:
    gateway = quick(opened, proxy.url)
    job_id = gateway.submit()
    with gateway.tail(job_id, seconds=30) as tail:
        tail.until("queued")
        for number in range(3):
            proxy.go_away()
            assert tail.until("gateway.away")[-1].json["reason"]
            tell(client, job_id, f"step-{number}")
            proxy.come_back()
            events = tail.until(f"step-{number}")
            assert [event.kind for event in events] == ["gateway.back", f"step-{number}"]
        tell(client, job_id, "done")
        assert [event.kind for event in tail] == ["done"]


def test_hints_are_taken_again_after_an_outage(opened: Open, proxy: Proxy, client: redis.Redis) -> None:
    """A sweep once in a minute would not tell these in time."""
    gateway = opened(proxy.url, sweep_s=0.1)
    first = gateway.submit()
    with gateway.tail(first, seconds=30) as tail:
        tail.until("queued")
        proxy.go_away()
        tail.until("gateway.away")
        proxy.come_back()
        tail.until("gateway.back")
        gateway.hall.tails._sweep_s = 60
        assert eventually(lambda: client.info("clients")["blocked_clients"] >= 1)
        gateway.client.post(f"/v1/jobs/{first}/cancel")
        assert tail.until("canceled")[-1].kind == "canceled"


def test_a_gateway_starts_before_its_server(opened: Open) -> None:
    server = start_valkey()
    port = server.port
    server.stop()
    gateway = quick(opened, f"redis://127.0.0.1:{port}")
    assert gateway.client.post("/v1/jobs", json=JOB).status_code == 503
    server = start_valkey(port=port)
    try:
        assert eventually(lambda: gateway.client.post("/v1/jobs", json=JOB).status_code == 202)
    finally:
        server.stop()


def test_a_busy_gateway_does_not_take_its_server_for_away(opened: Open) -> None:
    """Its own loop is blocked for longer than it would wait for the server."""
    gateway = opened(answer_s=0.3)
    loop = gateway.hall._publishing.get_loop()

    def ask(number: int) -> int:
        return gateway.client.post("/v1/jobs", json={"task": "chat", "payload": {"n": number}}).status_code

    with ThreadPoolExecutor(5) as pool:
        asking = [pool.submit(ask, number) for number in range(5)]
        for _ in range(3):
            loop.call_soon_threadsafe(block, 0.5)
            block(0.1)
        assert [one.result(20) for one in asking] == [202] * 5


# -- stopping -----------------------------------------------------------------------------------------------


def test_a_gateway_that_stops_ends_its_tails_with_a_hint(opened: Open) -> None:
    gateway = opened(retry_ms=777)
    job_id = gateway.submit()
    tails = [gateway.tail(job_id) for _ in range(3)]
    for tail in tails:
        tail.until("queued")
    began = time.monotonic()
    gateway.server.should_exit = True
    for tail in tails:
        assert [event.kind for event in tail] == ["gateway.stop"]
        assert tail.parser.retries == [777, 777]
    assert time.monotonic() - began < 5


def test_a_preferred_wait_ends_when_the_gateway_stops(opened: Open) -> None:
    gateway = opened(max_wait_s=30)
    answers: list[int] = []

    def ask() -> None:
        answer = gateway.client.post("/v1/jobs", json=JOB, headers={"Prefer": "wait=30"})
        answers.append(answer.status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    assert eventually(lambda: gateway.hall.tails.count == 1)
    gateway.server.should_exit = True
    asking.join(10)
    assert answers == [202]


# -- several gateways ---------------------------------------------------------------------------------------


def test_a_tail_moves_from_one_gateway_to_another_without_a_gap(opened: Open, client: redis.Redis) -> None:
    one, other = opened(sweep_s=0.05), opened(sweep_s=0.05)
    job_id = one.submit()
    for number in range(10):
        tell(client, job_id, f"step-{number}")
    with one.tail(job_id) as tail:
        first = stories(tail.until("step-4"))
    for number in range(10, 20):
        tell(client, job_id, f"step-{number}")
    tell(client, job_id, "done")
    with other.tail(job_id, first[-1].id) as tail:
        rest = stories(list(tail))
    told = [event.kind for event in first + rest]
    assert told == ["queued", *(f"step-{number}" for number in range(20)), "done"]


def test_what_one_gateway_creates_and_cancels_the_other_shows_and_tells(opened: Open) -> None:
    one, other = opened(), opened()
    job_id = one.submit({"n": 1})
    with other.tail(job_id) as tail:
        tail.until("queued")
        assert one.client.post(f"/v1/jobs/{job_id}/cancel").status_code == 200
        assert [event.kind for event in tail] == ["canceled"]
    assert json.loads(other.client.get(f"/v1/jobs/{job_id}").text)["status"] == "canceled"
