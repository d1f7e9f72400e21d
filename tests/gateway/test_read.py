"""GET /v1/jobs, GET /v1/jobs/{id}, POST …/cancel and `Prefer: wait`."""

import asyncio
import json
import re
import time
from typing import Any

import pytest
import redis

from corral import Corral
from tests.gateway.conftest import Open
from tests.support.apps import working
from tests.support.foreign_client_streams import ForeignGateway, ForeignWorker
from tests.support.gateway import Gateway
from tests.support.sse import stories

NOWHERE = "0b9f2a52-6a3c-4bb5-9a3c-3c1b6f3f0e55"


def test_a_job_is_shown_with_its_json_read(gateway: Gateway) -> None:
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
def test_what_a_stranger_wrote_is_shown_as_it_stands(
    gateway: Gateway, client: redis.Redis, field: str, written: str, shown: str
) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    client.hset(f"job:{job_id}", field, written)
    assert f'"{field}":{shown}' in gateway.client.get(f"/v1/jobs/{job_id}").text


def test_a_hash_of_nonsense_can_still_be_shown(gateway: Gateway, client: redis.Redis) -> None:
    client.hset("job:odd", mapping={"status": "unheard of", "created_ts": "noon", "more": "\xff"})
    job = gateway.client.get("/v1/jobs/odd").json()
    assert (job["status"], job["created_ts"], job["payload"]) == ("unheard of", 0, None)


def test_a_job_that_is_not_there_is_a_problem(gateway: Gateway) -> None:
    answer = gateway.client.get(f"/v1/jobs/{NOWHERE}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:corral:problem:job-not-found")
    assert answer.headers["content-type"] == "application/problem+json"


# -- listing ------------------------------------------------------------------------------------------------


def walk(gateway: Gateway, path: str) -> tuple[list[dict[str, Any]], int]:
    """All jobs of a listing, following its links, and the number of pages."""
    jobs, pages = [], 0
    while path:
        answer = gateway.client.get(path)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        jobs += page["jobs"]
        pages += 1
        link = re.fullmatch(r'<(.+)>; rel="next"', answer.headers.get("link", ""))
        assert (link is None) == (page["next"] is None)
        path = link[1] if link else ""
    return jobs, pages


def test_every_job_is_listed_once_page_by_page(gateway: Gateway, client: redis.Redis) -> None:
    mine = {gateway.submit({"n": n}) for n in range(55)}
    theirs = {ForeignGateway(client).create("chat", {"n": n}) for n in range(5)}
    client.mset({f"other:{n}": n for n in range(500)})
    jobs, pages = walk(gateway, "/v1/jobs?limit=7")
    assert sorted(job["job_id"] for job in jobs) == sorted(mine | theirs)
    assert pages >= 60 // 7


def test_no_page_has_more_than_was_asked_for(gateway: Gateway) -> None:
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
def test_a_listing_that_does_not_fit_is_refused(gateway: Gateway, query: str) -> None:
    answer = gateway.client.get(f"/v1/jobs?{query}")
    assert answer.status_code == (400 if query.startswith("cursor") else 422)
    assert answer.headers["content-type"] == "application/problem+json"


# -- cancelling ---------------------------------------------------------------------------------------------


def test_a_waiting_job_is_canceled_and_its_tails_end(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    with gateway.tail(job_id) as tail:
        tail.until("queued")
        answer = gateway.client.post(f"/v1/jobs/{job_id}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (200, "canceled")
        assert [event.kind for event in tail] == ["canceled"]
    assert ForeignWorker(client).client.hget(f"job:{job_id}", "status") == b"canceled"


def test_a_job_that_is_over_cannot_be_canceled(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit()
    ForeignWorker(client).work(lambda task, payload: {})
    answer = gateway.client.post(f"/v1/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:corral:problem:job-over")
    assert answer.json()["job_status"] == "done"
    assert gateway.client.post(f"/v1/jobs/{NOWHERE}/cancel").status_code == 404


async def test_a_running_handler_is_told(gateway: Gateway, server: Any) -> None:
    app = Corral(server.url, protocol="streams")
    started, told = asyncio.Event(), asyncio.Event()

    @app.job("embed")
    async def embed(job: Any) -> None:
        started.set()
        await job.wait_cancelled()
        told.set()

    job_id = gateway.submit()
    async with app, working(app, lock_ms=400):
        await asyncio.wait_for(started.wait(), 10)
        answer = await asyncio.to_thread(gateway.client.post, f"/v1/jobs/{job_id}/cancel")
        assert answer.json()["status"] == "canceled"
        await asyncio.wait_for(told.wait(), 10)
    with gateway.tail(job_id) as tail:
        assert [event.kind for event in stories(list(tail))] == ["queued", "running", "canceled"]


# -- Prefer: wait -------------------------------------------------------------------------------------------


async def test_a_preferred_wait_brings_the_job_when_it_is_over(gateway: Gateway, server: Any) -> None:
    app = Corral(server.url, protocol="streams")

    @app.job("embed")
    async def embed(job: Any) -> dict[str, int]:
        await asyncio.sleep(0.1)
        return {"n": job.data["n"] + 1}

    async with app, working(app):
        answer = await asyncio.to_thread(
            gateway.client.post,
            "/v1/jobs",
            json={"task": "embed", "payload": {"n": 41}},
            headers={"Prefer": "respond-async, wait=10"},
        )
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait=10"
    job = answer.json()
    assert (job["status"], job["result"]) == ("done", {"n": 42})
    assert answer.headers["location"] == f"/v1/jobs/{job['job_id']}"


def test_a_preferred_wait_that_is_too_short_is_answered_as_ever(gateway: Gateway) -> None:
    began = time.monotonic()
    answer = gateway.client.post(
        "/v1/jobs", json={"task": "embed", "payload": {}}, headers={"Prefer": "wait=1"}
    )
    assert answer.status_code == 202
    assert 0.9 < time.monotonic() - began < 5
    assert "preference-applied" not in answer.headers
    assert gateway.hall.tails.count == 0


def test_a_preferred_wait_is_bounded(opened: Open) -> None:
    gateway = opened(max_wait_s=0)
    answer = gateway.client.post(
        "/v1/jobs", json={"task": "embed", "payload": {}}, headers={"Prefer": "wait=600"}
    )
    assert answer.status_code == 202


@pytest.mark.parametrize("prefer", ["wait=soon", "wait", "wait=-1", "return=minimal", "wait=9999999999"])
def test_a_preference_that_cannot_be_read_is_left_alone(gateway: Gateway, prefer: str) -> None:
    began = time.monotonic()
    answer = gateway.client.post(
        "/v1/jobs", json={"task": "embed", "payload": {}}, headers={"Prefer": prefer}
    )
    assert answer.status_code == 202
    assert time.monotonic() - began < 5


def test_the_shown_job_is_what_the_wait_brings(gateway: Gateway, client: redis.Redis) -> None:
    """A replay of a job that is over is answered at once."""
    key = {"Idempotency-Key": "k"}
    job_id = gateway.submit(headers=key)
    ForeignWorker(client).work(lambda task, payload: {"x": 1})
    answer = gateway.client.post(
        "/v1/jobs", json={"task": "embed", "payload": {}}, headers={**key, "Prefer": "wait=5"}
    )
    assert answer.status_code == 200
    assert answer.json() == json.loads(gateway.client.get(f"/v1/jobs/{job_id}").text)
