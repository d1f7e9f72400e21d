"""GET /v1/jobs, GET /v1/jobs/{id}, POST …/cancel and `Prefer: wait`."""

import asyncio
import json
import re
import time
from typing import Any

import pytest
import redis

from corral import Corral
from tests.gateway.conftest import OpenGateway
from tests.support.apps import working
from tests.support.foreign_client_streams import ForeignGateway, ForeignWorker
from tests.support.gateway import Gateway, problem_of
from tests.support.sse import job_events

UNKNOWN_ID = "0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55"


def test_a_job_is_shown_with_its_json_fields_parsed(gateway: Gateway) -> None:
    job_id = gateway.submit({"text": "hé", "n": [1, {}]}, ttl_s=60)
    job = gateway.client.get(f"/v1/jobs/{job_id}").json()
    created = job.pop("created_ts")
    assert abs(created - time.time() * 1000) < 10_000
    assert job.pop("updated_ts") >= created
    assert job == {
        "job_id": job_id,
        "task": "embed",
        "payload": {"text": "hé", "n": [1, {}]},
        "status": "queued",
        "ttl_s": 60,
        "result": None,
        "error": None,
    }


@pytest.mark.parametrize(
    ("field", "written", "shown"),
    [
        ("result", '{"a": [1, 2.50, 12345678901234567890123]}', '{"a": [1, 2.50, 12345678901234567890123]}'),
        ("error", '"just text"', '"just text"'),
        ("error", '{"code": 7}', '{"code": 7}'),
        ("payload", "no json", '{"_raw":"no json"}'),
    ],
)
def test_fields_written_by_a_foreign_client_are_shown_unchanged(
    gateway: Gateway, client: redis.Redis, field: str, written: str, shown: str
) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    client.hset(f"job:{job_id}", field, written)
    assert f'"{field}":{shown}' in gateway.client.get(f"/v1/jobs/{job_id}").text


def test_a_malformed_hash_can_still_be_shown(gateway: Gateway, client: redis.Redis) -> None:
    client.hset("job:odd", mapping={"status": "unknown", "created_ts": "noon", "more": "\xff"})
    job = gateway.client.get("/v1/jobs/odd").json()
    assert (job["status"], job["created_ts"], job["payload"]) == ("unknown", 0, None)


def test_a_job_that_does_not_exist_is_a_problem(gateway: Gateway) -> None:
    response = gateway.client.get(f"/v1/jobs/{UNKNOWN_ID}")
    assert problem_of(response) == (404, "job-not-found")
    assert response.headers["content-type"] == "application/problem+json"


# -- listing ------------------------------------------------------------------------------------------------


def walk(gateway: Gateway, path: str) -> tuple[list[dict[str, Any]], int]:
    """Follow a listing's links; return its jobs and the number of pages."""
    jobs, pages = [], 0
    while path:
        response = gateway.client.get(path)
        assert response.status_code == 200, response.text
        page = response.json()
        jobs += page["jobs"]
        pages += 1
        link = re.fullmatch(r'<(.+)>; rel="next"', response.headers.get("link", ""))
        assert (link is None) == (page["next"] is None)
        path = link[1] if link else ""
    return jobs, pages


def test_every_job_is_listed_once_page_by_page(gateway: Gateway, client: redis.Redis) -> None:
    ours = {gateway.submit({"n": n}) for n in range(55)}
    theirs = {ForeignGateway(client).create("chat", {"n": n}) for n in range(5)}
    client.mset({f"other:{n}": n for n in range(500)})
    jobs, pages = walk(gateway, "/v1/jobs?limit=7")
    assert sorted(job["job_id"] for job in jobs) == sorted(ours | theirs)
    assert pages >= 60 // 7


def test_no_page_exceeds_its_limit(gateway: Gateway) -> None:
    for n in range(40):
        gateway.submit({"n": n})
    cursor = ""
    while cursor is not None:
        page = gateway.client.get("/v1/jobs", params={"limit": 3, "cursor": cursor}).json()
        assert len(page["jobs"]) <= 3
        cursor = page["next"]


def test_jobs_are_listed_by_status_and_task(gateway: Gateway, client: redis.Redis) -> None:
    worker = ForeignWorker(client)
    done = [gateway.submit(task="rag") for _ in range(2)]
    worker.work(lambda task, payload: {}, count=2)
    queued = [gateway.submit(task="rag"), gateway.submit(task="plan")]

    def listed(query: str) -> list[str]:
        return sorted(job["job_id"] for job in walk(gateway, f"/v1/jobs?{query}")[0])

    assert listed("status=done") == sorted(done)
    assert listed("status=queued&limit=1") == sorted(queued)
    assert listed("task=rag") == sorted([*done, queued[0]])
    assert listed("status=queued&task=plan") == [queued[1]]
    assert listed("status=canceled") == []


@pytest.mark.parametrize(
    "query",
    [
        *("status=lost", "task=dance", "limit=0", "limit=501", "limit=x"),
        *("cursor=abc", f"cursor={2**64}.10.", "cursor=0.0.", "cursor=1.10.a:b"),
    ],
)
def test_an_invalid_listing_is_refused(gateway: Gateway, query: str) -> None:
    response = gateway.client.get(f"/v1/jobs?{query}")
    assert response.status_code == (400 if query.startswith("cursor") else 422)
    assert response.headers["content-type"] == "application/problem+json"


# -- cancelling ---------------------------------------------------------------------------------------------


def test_a_waiting_job_is_canceled_and_its_tails_end(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    with gateway.tail(job_id) as tail:
        tail.until("queued")
        response = gateway.client.post(f"/v1/jobs/{job_id}/cancel")
        assert (response.status_code, response.json()["status"]) == (200, "canceled")
        assert [event.kind for event in tail] == ["canceled"]
    assert ForeignWorker(client).client.hget(f"job:{job_id}", "status") == b"canceled"


def test_a_job_that_has_ended_cannot_be_canceled(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    ForeignWorker(client).work(lambda task, payload: {})
    response = gateway.client.post(f"/v1/jobs/{job_id}/cancel")
    assert problem_of(response) == (409, "job-ended")
    assert response.json()["job_status"] == "done"
    assert gateway.client.post(f"/v1/jobs/{UNKNOWN_ID}/cancel").status_code == 404


async def test_a_running_handler_is_cancelled(gateway: Gateway, server: Any) -> None:
    app = Corral(server.url, protocol="streams")
    started, cancelled = asyncio.Event(), asyncio.Event()

    @app.job("embed")
    async def embed(job: Any) -> None:
        started.set()
        await job.wait_cancelled()
        cancelled.set()

    job_id = gateway.submit()
    async with app, working(app, lock_ms=400):
        await asyncio.wait_for(started.wait(), 10)
        response = await asyncio.to_thread(gateway.client.post, f"/v1/jobs/{job_id}/cancel")
        assert response.json()["status"] == "canceled"
        await asyncio.wait_for(cancelled.wait(), 10)
    with gateway.tail(job_id) as tail:
        assert [event.kind for event in job_events(list(tail))] == ["queued", "running", "canceled"]


# -- Prefer: wait -------------------------------------------------------------------------------------------


async def test_a_preferred_wait_returns_the_job_when_it_has_ended(gateway: Gateway, server: Any) -> None:
    app = Corral(server.url, protocol="streams")

    @app.job("embed")
    async def embed(job: Any) -> dict[str, int]:
        await asyncio.sleep(0.1)
        return {"n": job.data["n"] + 1}

    async with app, working(app):
        response = await asyncio.to_thread(
            gateway.create, {"n": 41}, headers={"Prefer": "respond-async, wait=10"}
        )
    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=10"
    job = response.json()
    assert (job["status"], job["result"]) == ("done", {"n": 42})
    assert response.headers["location"] == f"/v1/jobs/{job['job_id']}"


def test_a_preferred_wait_that_is_too_short_returns_202(gateway: Gateway) -> None:
    began = time.monotonic()
    response = gateway.create(headers={"Prefer": "wait=1"})
    assert response.status_code == 202
    assert 0.9 < time.monotonic() - began < 5
    assert "preference-applied" not in response.headers
    assert gateway.state.tails.count == 0


def test_a_preferred_wait_is_bounded(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(max_wait_s=0)
    response = gateway.create(headers={"Prefer": "wait=600"})
    assert response.status_code == 202


@pytest.mark.parametrize("prefer", ["wait=soon", "wait", "wait=-1", "return=minimal", "wait=9999999999"])
def test_an_invalid_preference_is_ignored(gateway: Gateway, prefer: str) -> None:
    began = time.monotonic()
    response = gateway.create(headers={"Prefer": prefer})
    assert response.status_code == 202
    assert time.monotonic() - began < 5


def test_a_preferred_wait_returns_the_job_as_it_is_shown(gateway: Gateway, client: redis.Redis) -> None:
    """An idempotent request for a job that has ended returns at once."""
    key = {"Idempotency-Key": "k"}
    job_id = gateway.submit(headers=key)
    ForeignWorker(client).work(lambda task, payload: {"x": 1})
    response = gateway.create(headers={**key, "Prefer": "wait=5"})
    assert response.status_code == 200
    assert response.json() == json.loads(gateway.client.get(f"/v1/jobs/{job_id}").text)


def test_pages_of_jobs_are_limited_by_bytes(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(max_page_bytes=10_000)
    ids = {gateway.submit({"filler": "x" * size}) for size in (*[3000] * 12, 50_000)}
    for path in ("/v1/jobs?limit=500", "/v1/queues/streams/jobs/jobs?state=waiting&limit=500"):
        listed: list[str] = []
        following: str | None = ""
        while following is not None:
            page = gateway.client.get(f"{path}&cursor={following}").json()
            sizes = [len(str(job)) for job in page["jobs"]]
            assert len(sizes) <= 1 or sum(sizes) < 15_000
            listed += [job.get("job_id") or job["id"] for job in page["jobs"]]
            following = page["next"]
        assert len(listed) == len(ids)
        assert set(listed) == ids
