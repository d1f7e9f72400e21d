"""/livez, /readyz, /metrics and the interface's own description."""

from typing import Any

import redis

from corral.gateway.problems import KINDS
from tests.gateway.conftest import Open
from tests.support.gateway import Gateway
from tests.support.polling import eventually
from tests.support.proxy import Proxy


def test_a_process_that_runs_is_alive_whatever_the_server_does(opened: Open, server) -> None:
    with Proxy(server.port) as proxy:
        gateway = opened(proxy.url)
        proxy.go_away()
        answer = gateway.client.get("/livez")
        assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


def test_a_gateway_is_ready_with_server_scripts_and_group(gateway: Gateway, client: redis.Redis) -> None:
    client.script_flush()
    answer = gateway.client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "checks": {"server": "answers", "scripts": "known", "group": "there"},
    }
    [group] = client.xinfo_groups("jobs:stream")
    assert group["name"] == b"workers"
    assert gateway.client.get("/readyz").status_code == 200


def test_a_gateway_without_its_server_is_not_ready(opened: Open, server) -> None:
    with Proxy(server.port) as proxy:
        gateway = opened(proxy.url)
        proxy.go_away()
        answer = gateway.client.get("/readyz")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:corral:problem:server-away")
        proxy.come_back()
        assert eventually(lambda: gateway.client.get("/readyz").status_code == 200)


def test_the_group_that_readiness_makes_loses_no_job_that_was_there(
    gateway: Gateway, client: redis.Redis
) -> None:
    job_id = gateway.submit()
    assert gateway.client.get("/readyz").status_code == 200
    answer = client.xreadgroup("workers", "w", {"jobs:stream": ">"})
    assert answer[0][1][0][1][b"job_id"].decode() == job_id


def test_metrics_tell_requests_tails_and_queues(opened: Open, client: redis.Redis) -> None:
    gateway = opened(sweep_s=0.05)
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
        'corral_gateway_events_told_total{kind="job"} 1.0',
        'corral_job_count{queue="jobs",protocol="streams",state="waiting"} 1.0',
        'corral_job_count{queue="mail",protocol="bullmq",state="dead"} 1.0',
        'bullmq_job_count{queue="mail",state="failed"} 1.0',
        "corral_gateway_server_up 1.0",
    ):
        assert line in text.splitlines(), line


def test_metrics_come_even_while_the_server_is_away(opened: Open, server) -> None:
    with Proxy(server.port) as proxy:
        gateway = opened(proxy.url)
        proxy.go_away()
        answer = gateway.client.get("/metrics")
        assert answer.status_code == 200
        assert "corral_gateway_server_up 0.0" in answer.text.splitlines()


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


def test_the_first_request_waits_for_no_route_to_be_made_ready(opened: Open, monkeypatch: Any) -> None:
    gateway = opened()

    def too_late(*_: Any, **__: Any) -> None:
        raise AssertionError("a route is made ready while a client waits")

    monkeypatch.setattr("pydantic.TypeAdapter.__init__", too_late)
    for path in ("/livez", "/v1/jobs", "/v1/queues", "/openapi.json"):
        assert gateway.client.get(path).status_code == 200


def test_every_problem_has_a_name_of_its_own() -> None:
    names = [kind.name for kind in KINDS]
    assert len(set(names)) == len(names)
    assert all(400 <= kind.status < 600 and kind.title for kind in KINDS)
