"""Redis is unavailable and comes back; the gateway stops; several gateways serve one Redis."""

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

from tests.gateway.conftest import OpenGateway
from tests.support.gateway import Gateway, emit, problem_of
from tests.support.polling import block, eventually
from tests.support.proxy import Proxy, ProxyFault, runs
from tests.support.servers import Server, start_valkey
from tests.support.sse import job_events

JOB = {"task": "chat", "payload": {}}


@pytest.fixture
def proxy(server: Server) -> Any:
    with Proxy(server.port) as proxy:
        yield proxy


def open_quick(open_gateway: OpenGateway, url: str) -> Gateway:
    """Open a gateway with the default timeout of Redis, and quick sweeps."""
    return open_gateway(url, sweep_s=0.05, redis_timeout_s=0.9)


REQUESTS = [
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
    response = gateway.client.request(method, path, json=document if method == "POST" else None)
    return path, response, time.monotonic() - began


@pytest.mark.parametrize("way", ["gone", "silent"])
def test_an_unavailable_redis_is_reported_within_a_second(open_gateway: OpenGateway, way: str) -> None:
    """Gone: the process is killed. Silent: it is stopped, and its connections stay open."""
    server = start_valkey()
    try:
        gateway = open_quick(open_gateway, server.url)
        assert gateway.create().status_code == 202
        assert gateway.client.get("/v1/queues/streams/jobs").status_code == 200
        if way == "gone":
            server.process.kill()
            server.process.wait()
        else:
            os.kill(server.process.pid, signal.SIGSTOP)
        with ThreadPoolExecutor(len(REQUESTS)) as pool:
            for path, response, took in pool.map(lambda request: _timed(gateway, *request), REQUESTS):
                assert problem_of(response) == (503, "redis-unavailable"), path
                assert int(response.headers["retry-after"]) >= 1
                # well under a second on a quiet machine; tests share theirs
                assert took < 4, (path, took)
        assert gateway.client.get("/livez").status_code == 200
    finally:
        server.stop()


def test_redis_is_used_again_when_it_is_back(open_gateway: OpenGateway, proxy: Proxy) -> None:
    gateway = open_quick(open_gateway, proxy.url)
    proxy.go_away()
    assert gateway.create().status_code == 503
    proxy.come_back()
    assert eventually(lambda: gateway.create().status_code == 202)


def test_a_lost_reply_and_a_repeated_request_under_the_same_key_create_one_job(
    open_gateway: OpenGateway, proxy: Proxy, client: redis.Redis
) -> None:
    gateway = open_quick(open_gateway, proxy.url)
    gateway.submit()
    rule = proxy.rule(runs("EVALSHA"), ProxyFault.SWALLOW)
    key = {"Idempotency-Key": "order-7"}
    lost = gateway.create(headers=key)
    assert (lost.status_code, rule.met) == (503, 1)
    assert "same Idempotency-Key" in lost.json()["detail"]
    again = gateway.create(headers=key)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (202, "true")
    assert client.xlen("jobs:stream") == 2


def test_tails_report_an_outage_and_continue_by_themselves(
    open_gateway: OpenGateway, proxy: Proxy, client: redis.Redis
) -> None:
    gateway = open_quick(open_gateway, proxy.url)
    job_id = gateway.submit()
    with gateway.tail(job_id, seconds=30) as tail:
        tail.until("queued")
        for number in range(3):
            proxy.go_away()
            assert tail.until("gateway.disconnected")[-1].json["reason"]
            emit(client, job_id, f"step-{number}")
            proxy.come_back()
            events = tail.until(f"step-{number}")
            assert [event.kind for event in events] == ["gateway.reconnected", f"step-{number}"]
        emit(client, job_id, "done")
        assert [event.kind for event in tail] == ["done"]


def test_hints_are_used_again_after_an_outage(
    open_gateway: OpenGateway, proxy: Proxy, client: redis.Redis
) -> None:
    """A sweep once in a minute would not find the event in time."""
    gateway = open_gateway(proxy.url, sweep_s=0.1)
    first = gateway.submit()
    with gateway.tail(first, seconds=30) as tail:
        tail.until("queued")
        proxy.go_away()
        tail.until("gateway.disconnected")
        proxy.come_back()
        tail.until("gateway.reconnected")
        gateway.state.tails._sweep_s = 60
        assert eventually(lambda: client.info("clients")["blocked_clients"] >= 1)
        gateway.client.post(f"/v1/jobs/{first}/cancel")
        assert tail.until("canceled")[-1].kind == "canceled"


def test_a_gateway_starts_before_redis(open_gateway: OpenGateway) -> None:
    server = start_valkey()
    port = server.port
    server.stop()
    gateway = open_quick(open_gateway, f"redis://127.0.0.1:{port}")
    assert gateway.create().status_code == 503
    server = start_valkey(port=port)
    try:
        assert eventually(lambda: gateway.create().status_code == 202)
    finally:
        server.stop()


def test_a_blocked_event_loop_is_not_taken_for_an_outage(open_gateway: OpenGateway) -> None:
    """The event loop is blocked for longer than the timeout of Redis."""
    gateway = open_gateway(redis_timeout_s=0.3)
    loop = gateway.state._publishing.get_loop()

    def create(number: int) -> int:
        return gateway.create({"n": number}).status_code

    with ThreadPoolExecutor(5) as pool:
        requests = [pool.submit(create, number) for number in range(5)]
        for _ in range(3):
            loop.call_soon_threadsafe(block, 0.5)
            block(0.1)
        assert [request.result(20) for request in requests] == [202] * 5


# -- stopping -----------------------------------------------------------------------------------------------


def test_a_stopping_gateway_ends_its_tails_with_a_hint(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(retry_ms=777)
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


def test_a_preferred_wait_ends_when_the_gateway_stops(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(max_wait_s=30)
    responses: list[int] = []

    def create() -> None:
        response = gateway.create(headers={"Prefer": "wait=30"})
        responses.append(response.status_code)

    request = threading.Thread(target=create)
    request.start()
    assert eventually(lambda: gateway.state.tails.count == 1)
    gateway.server.should_exit = True
    request.join(10)
    assert responses == [202]


# -- several gateways ---------------------------------------------------------------------------------------


def test_a_tail_moves_from_one_gateway_to_another_without_a_gap(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    first, second = open_gateway(sweep_s=0.05), open_gateway(sweep_s=0.05)
    job_id = first.submit()
    for number in range(10):
        emit(client, job_id, f"step-{number}")
    with first.tail(job_id) as tail:
        early = job_events(tail.until("step-4"))
    for number in range(10, 20):
        emit(client, job_id, f"step-{number}")
    emit(client, job_id, "done")
    with second.tail(job_id, early[-1].id) as tail:
        late = job_events(list(tail))
    kinds = [event.kind for event in early + late]
    assert kinds == ["queued", *(f"step-{number}" for number in range(20)), "done"]


def test_one_gateway_shows_and_tails_what_another_creates_and_cancels(open_gateway: OpenGateway) -> None:
    first, second = open_gateway(), open_gateway()
    job_id = first.submit({"n": 1})
    with second.tail(job_id) as tail:
        tail.until("queued")
        assert first.client.post(f"/v1/jobs/{job_id}/cancel").status_code == 200
        assert [event.kind for event in tail] == ["canceled"]
    assert json.loads(second.client.get(f"/v1/jobs/{job_id}").text)["status"] == "canceled"
