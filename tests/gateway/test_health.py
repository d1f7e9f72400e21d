"""/livez, /readyz, /metrics and /openapi.json."""

from typing import Any

import redis

from corral.gateway.problems import KINDS
from tests.gateway.conftest import OpenGateway
from tests.support.gateway import Gateway, problem_of
from tests.support.polling import eventually
from tests.support.proxy import Proxy


def test_a_process_that_runs_is_alive_even_without_redis(open_gateway: OpenGateway, server) -> None:
    with Proxy(server.port) as proxy:
        gateway = open_gateway(proxy.url)
        proxy.go_away()
        response = gateway.client.get("/livez")
        assert (response.status_code, response.json()) == (200, {"status": "alive"})


def test_a_gateway_is_ready_with_server_scripts_and_group(gateway: Gateway, client: redis.Redis) -> None:
    client.script_flush()
    response = gateway.client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ready",
        "checks": {"redis": "ok", "scripts": "ok", "group": "ok"},
    }
    [group] = client.xinfo_groups("jobs:stream")
    assert group["name"] == b"workers"
    assert gateway.client.get("/readyz").status_code == 200


def test_a_gateway_without_redis_is_not_ready(open_gateway: OpenGateway, server) -> None:
    with Proxy(server.port) as proxy:
        gateway = open_gateway(proxy.url)
        proxy.go_away()
        response = gateway.client.get("/readyz")
        assert problem_of(response) == (503, "redis-unavailable")
        proxy.come_back()
        assert eventually(lambda: gateway.client.get("/readyz").status_code == 200)


def test_the_group_that_readiness_creates_skips_no_job(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    assert gateway.client.get("/readyz").status_code == 200
    response = client.xreadgroup("workers", "w", {"jobs:stream": ">"})
    assert response[0][1][0][1][b"job_id"].decode() == job_id


def test_metrics_count_requests_tails_and_queues(open_gateway: OpenGateway, client: redis.Redis) -> None:
    gateway = open_gateway(sweep_s=0.05)
    job_id = gateway.submit()
    gateway.client.get("/v1/jobs/nobody")
    gateway.client.get("/no/such/path")
    client.hset("bull:mail:meta", "x", 1)
    client.zadd("bull:mail:failed", {"1": 1})
    with gateway.tail(job_id) as tail:
        tail.until("queued")
        text = gateway.client.get("/metrics").text
    for line in (
        'corral_gateway_requests_total{method="POST",route="/v1/jobs",status="202"} 1.0',
        'corral_gateway_requests_total{method="GET",route="/v1/jobs/{job_id}",status="404"} 1.0',
        'corral_gateway_requests_total{method="other",route="other",status="404"} 1.0',
        'corral_gateway_tails{kind="job"} 1.0',
        'corral_gateway_events_sent_total{kind="job"} 1.0',
        'corral_job_count{protocol="streams",queue="jobs",state="waiting"} 1.0',
        'corral_job_count{protocol="bullmq",queue="mail",state="dead"} 1.0',
        'bullmq_job_count{queue="mail",state="failed"} 1.0',
        "corral_gateway_redis_up 1.0",
    ):
        assert line in text.splitlines(), line


def test_metrics_are_served_while_redis_is_unavailable(open_gateway: OpenGateway, server) -> None:
    with Proxy(server.port) as proxy:
        gateway = open_gateway(proxy.url)
        proxy.go_away()
        response = gateway.client.get("/metrics")
        assert response.status_code == 200
        assert "corral_gateway_redis_up 0.0" in response.text.splitlines()


def test_the_interface_describes_every_path_with_examples_and_problems(gateway: Gateway) -> None:
    document = gateway.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    paths = document["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            assert operation["operationId"], (method, path)
            assert operation["responses"], (method, path)
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                assert schema["examples"], (method, path)
            for status, response in operation["responses"].items():
                if status >= "400":
                    assert "application/problem+json" in response["content"], (method, path, status)
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert {"/v1/jobs", "/v1/jobs/{job_id}", "/v1/jobs/{job_id}/events"} < set(paths)


def test_the_first_request_does_not_wait_for_routes_to_be_prepared(
    open_gateway: OpenGateway, monkeypatch: Any
) -> None:
    gateway = open_gateway()

    def too_late(*_: Any, **__: Any) -> None:
        raise AssertionError("a route is prepared while a client waits")

    monkeypatch.setattr("pydantic.TypeAdapter.__init__", too_late)
    for path in ("/livez", "/v1/jobs", "/v1/queues", "/openapi.json"):
        assert gateway.client.get(path).status_code == 200


def test_every_problem_has_a_unique_name() -> None:
    names = [kind.name for kind in KINDS]
    assert len(set(names)) == len(names)
    assert all(400 <= kind.status < 600 and kind.title for kind in KINDS)
