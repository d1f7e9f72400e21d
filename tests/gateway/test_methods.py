"""Methods, query parameters and values as HTTP and the OpenAPI document say."""

import pytest

from tests.support.gateway import Gateway, problem_of

QUEUE = "/v1/queues/streams/jobs"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/jobs", "GET, HEAD, OPTIONS, POST"),
        ("PUT", "/v1/jobs/x", "GET, HEAD, OPTIONS"),
        ("GET", "/v1/jobs/x/cancel", "OPTIONS, POST"),
        ("POST", "/v1/jobs/x/events", "GET, HEAD, OPTIONS"),
        ("PUT", f"{QUEUE}/jobs", "GET, HEAD, OPTIONS, POST"),
        ("POST", f"{QUEUE}/workers", "GET, HEAD, OPTIONS"),
        ("POST", f"{QUEUE}/dead-letters", "GET, HEAD, OPTIONS"),
        ("GET", f"{QUEUE}/drain", "OPTIONS, POST"),
        ("GET", f"{QUEUE}/retry", "OPTIONS, POST"),
        ("PATCH", f"{QUEUE}/jobs/x/retry", "OPTIONS, POST"),
        ("POST", "/metrics", "GET, HEAD, OPTIONS"),
        ("POST", "/", "GET, HEAD, OPTIONS"),
    ],
)
def test_a_wrong_method_is_405_with_those_that_are_allowed(
    gateway: Gateway, method: str, path: str, allowed: str
) -> None:
    response = gateway.client.request(method, path, json={})
    assert problem_of(response) == (405, "method-not-allowed")
    assert response.headers["allow"] == allowed
    options = gateway.client.options(path)
    assert (options.status_code, options.headers["allow"], options.content) == (204, allowed, b"")


@pytest.mark.parametrize("path", [f"{QUEUE}/explode", f"{QUEUE}/jobs/x/explode", "/v1/nothing"])
def test_an_unknown_path_is_404_for_every_method(gateway: Gateway, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS", "DELETE"):
        assert problem_of(gateway.client.request(method, path, json={})) == (404, "not-found")


def test_head_is_get_without_the_body(gateway: Gateway) -> None:
    job_id = gateway.submit()
    for path in ("/", "/livez", "/v1/jobs", f"/v1/jobs/{job_id}", "/v1/queues", f"/v1/jobs/{job_id}x", "/x"):
        head, get = gateway.client.head(path), gateway.client.get(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        for name in ("content-type", "content-length"):
            assert head.headers[name] == get.headers[name], path
    for path in (f"/v1/jobs/{job_id}/events", "/v1/events"):
        head = gateway.client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert not gateway.state._tails_by_client


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs?stat=done",
        "/v1/jobs?limit=5&Limit=5",
        "/v1/jobs/x?verbose=1",
        "/v1/queues?protcol=bullmq",
        f"{QUEUE}?x=",
        f"{QUEUE}/jobs?state=waiting&page=2",
        "/v1/events?last_id=0",
    ],
)
def test_an_unknown_query_parameter_is_refused(gateway: Gateway, path: str) -> None:
    response = gateway.client.get(path)
    assert problem_of(response) == (422, "invalid-request")
    assert response.json()["errors"][0]["in"] == "query"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("drain", {"delayed": 0}),
        ("drain", {"delayed": "false"}),
        ("drain", {"delayed": None}),
        ("clean", {"state": "completed", "limit": "5"}),
        ("clean", {"state": "completed", "limit": True}),
        ("clean", {"state": "completed", "older_than_s": 1.5}),
        ("replay", {"limit": "5"}),
        ("retry", {"ids": [1]}),
        ("retry", {"ids": "1"}),
    ],
)
def test_a_value_of_another_type_is_refused(gateway: Gateway, path: str, body: object) -> None:
    response = gateway.client.post(f"{QUEUE}/{path}", json=body)
    assert problem_of(response) == (422, "invalid-request")
