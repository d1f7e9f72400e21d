"""Queues of every protocol: read and operated by HTTP."""

import asyncio
from typing import Any

import pytest
import redis

from corral import Corral, JobState, Queue, Unrecoverable
from corral.core.options import Capability
from corral.protocols import protocol_names
from tests.support.apps import ended, reached, working
from tests.support.gateway import Gateway, keyspace, problem_of
from tests.support.sse import Tail

NAMES = {"streams": "embed"}
pytestmark = pytest.mark.parametrize("protocol", protocol_names())


class HttpQueue:
    """One queue of one protocol, directly and by HTTP."""

    def __init__(self, app: Corral, protocol: str, gateway: Gateway) -> None:
        self.app, self.gateway = app, gateway
        self.queue: Queue = app.queue(None if protocol == "streams" else "mail", protocol)
        self.name = NAMES.get(protocol, "send")
        self.path = f"/v1/queues/{protocol}/{self.queue.name}"

    async def add(self, *data: Any, **options: Any) -> list[str]:
        return [(await self.queue.add(self.name, datum, **options)).id for datum in data]

    async def get(self, path: str = "", **params: Any) -> Any:
        return await asyncio.to_thread(self.gateway.client.get, self.path + path, params=params)

    async def post(self, path: str, document: Any = None) -> Any:
        return await asyncio.to_thread(self.gateway.client.post, self.path + path, json=document)

    def can(self, capability: Capability) -> bool:
        return capability in self.queue.protocol.spec.capabilities


@pytest.fixture
async def http(gateway: Gateway, server: Any, protocol: str) -> Any:
    async with Corral(server.url) as app:
        yield HttpQueue(app, protocol, gateway)


def assert_refused(response: Any, status: int, kind: str) -> str:
    """Check that a response is this problem; return its detail."""
    assert problem_of(response) == (status, kind), response.text
    return str(response.json()["detail"])


# -- reads --------------------------------------------------------------------------------------------------


async def test_queues_are_listed_with_their_counts(http: HttpQueue, protocol: str) -> None:
    await http.add({"n": 1}, {"n": 2})
    response = await asyncio.to_thread(http.gateway.client.get, "/v1/queues", params={"protocol": protocol})
    [view] = response.json()["queues"]
    assert (view["protocol"], view["queue"], view["is_paused"]) == (protocol, http.queue.name, False)
    assert view["counts"]["waiting"] == 2
    assert set(view["capabilities"]) == {
        capability.value for capability in http.queue.protocol.spec.capabilities
    }
    # only a single queue is shown with its limits
    assert (await http.get()).json() == {**view, "limits": {"concurrency": None, "rate": None}}
    all_queues = await asyncio.to_thread(http.gateway.client.get, "/v1/queues")
    assert view in all_queues.json()["queues"]


async def test_unknown_protocols_queues_and_jobs_are_not_found(http: HttpQueue, protocol: str) -> None:
    get = http.gateway.client.get
    assert_refused(await asyncio.to_thread(get, "/v1/queues/nowhere/x"), 404, "protocol-not-found")
    assert_refused(await asyncio.to_thread(get, "/v1/queues?protocol=nowhere"), 404, "protocol-not-found")
    assert_refused(await asyncio.to_thread(get, f"/v1/queues/{protocol}/nothing"), 404, "queue-not-found")
    await http.add({})
    assert_refused(await http.get("/jobs/nobody"), 404, "job-not-found")


async def test_jobs_are_listed_by_state_page_by_page(http: HttpQueue) -> None:
    ids = await http.add(*({"n": n} for n in range(7)))
    listed: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        response = await http.get("/jobs", state="waiting", limit=3, cursor=cursor)
        page = response.json()
        assert len(page["jobs"]) <= 3
        assert ("link" in response.headers) == (page["next"] is not None)
        listed += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
    assert listed == ids
    assert (await http.get("/jobs", state="completed")).json() == {"jobs": [], "next": None}


async def test_pages_stay_put_while_jobs_are_claimed(http: HttpQueue) -> None:
    ids = await http.add(*({"n": n} for n in range(8)))
    first = (await http.get("/jobs", state="waiting", limit=3)).json()
    await http.queue.cancel(ids[1:5])
    second = (await http.get("/jobs", state="waiting", limit=3, cursor=first["next"])).json()
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == ids[:3] + ids[5:]
    assert second["next"] is None
    other = await http.get("/jobs", state="active", cursor=first["next"])
    assert "not valid for active jobs" in assert_refused(other, 400, "invalid-cursor")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 422),
        ({"state": "lost"}, 422),
        ({"state": "waiting", "limit": 0}, 422),
        ({"state": "waiting", "cursor": "x"}, 400),
    ],
)
async def test_an_invalid_listing_is_refused(http: HttpQueue, query: dict[str, Any], status: int) -> None:
    await http.add({})
    assert (await http.get("/jobs", **query)).status_code == status


async def test_one_job_is_shown_with_its_attempts_log_and_events(http: HttpQueue, protocol: str) -> None:
    options = {"attempts": 2, "backoff": {"type": "fixed", "delay": 1}} if http.can(Capability.RETRY) else {}

    @http.app.job(http.name, queue=http.queue.name, protocol=protocol, **options)
    async def send(job: Any) -> dict[str, int]:
        await job.log("a line")
        await job.progress(50)
        if http.can(Capability.RETRY) and job.attempt == 1:
            raise ConnectionError("not now")
        return {"n": job.data["n"] + 1}

    [job_id] = await http.add({"n": 1}, **options)
    async with working(http.app):
        await ended(http.queue, job_id)
    job = (await http.get(f"/jobs/{job_id}")).json()
    assert (job["id"], job["name"], job["state"]) == (job_id, http.name, "completed")
    assert job["result"] == {"n": 2}
    # BridgeMQ's contract drops the data of a job that succeeded
    assert job["data"] == (None if protocol == "bridgemq" else {"n": 1})
    assert job["attempts_made"] == (2 if http.can(Capability.RETRY) else 1)
    failures = [(each["number"], each["error"], each["message"]) for each in job["failed_attempts"]]
    assert failures == ([(1, "ConnectionError", "not now")] if http.can(Capability.RETRY) else [])
    assert "a line" in job["logs"][-1]
    kinds = [event["kind"] for event in job["events"]]
    assert kinds[0] in ("added", "waiting")
    assert kinds[-1] == "completed"
    assert "active" in kinds
    assert all(event["job_id"] == job_id for event in job["events"])


async def test_a_dead_job_is_among_the_dead_letters_with_its_reason(http: HttpQueue, protocol: str) -> None:
    @http.app.job(http.name, queue=http.queue.name, protocol=protocol)
    async def send(job: Any) -> None:
        raise Unrecoverable("no such street")

    [job_id] = await http.add({"n": 1})
    async with working(http.app):
        await ended(http.queue, job_id)
    [dead] = (await http.get("/dead-letters")).json()["jobs"]
    assert (dead["id"], dead["state"]) == (job_id, "dead")
    assert "no such street" in dead["reason"]


async def test_workers_are_listed_while_they_are_alive(http: HttpQueue, protocol: str) -> None:
    @http.app.job(http.name, queue=http.queue.name, protocol=protocol)
    async def send(job: Any) -> None:
        return

    [job_id] = await http.add({})
    async with working(http.app, name="postman"):
        await ended(http.queue, job_id)
        workers = (await http.get("/workers")).json()["workers"]
        assert [worker["name"] for worker in workers] == ["postman"]
    assert (await http.get("/workers")).json()["workers"] == []


async def test_schedules_are_listed_where_a_protocol_has_them(http: HttpQueue, protocol: str) -> None:
    await http.add({})
    response = await http.get("/schedules")
    if protocol == "streams":
        assert "protocol" in assert_refused(response, 409, "unsupported")
    else:
        assert response.json() == {"schedules": []}


# -- writes -------------------------------------------------------------------------------------------------


async def test_a_queue_is_paused_and_resumed_or_refused_with_a_reason(http: HttpQueue) -> None:
    await http.add({})
    response = await http.post("/pause")
    if not http.can(Capability.PAUSE):
        assert "has no pause" in assert_refused(response, 409, "unsupported")
        assert_refused(await http.post("/resume"), 409, "unsupported")
        return
    assert response.json()["is_paused"] is True
    assert await http.queue.is_paused()
    assert (await http.post("/resume")).json()["is_paused"] is False


async def test_a_delayed_job_is_promoted_or_refused_with_a_reason(http: HttpQueue) -> None:
    if not http.can(Capability.DELAY):
        [job_id] = await http.add({})
        assert_refused(await http.post(f"/jobs/{job_id}/promote"), 409, "unsupported")
        return
    [job_id] = await http.add({}, delay=60_000)
    assert (await http.post(f"/jobs/{job_id}/promote")).json() == {"done": [job_id], "not_done": []}
    await reached(http.queue, job_id, JobState.WAITING)
    assert "is waiting" in assert_refused(await http.post(f"/jobs/{job_id}/promote"), 409, "invalid-state")


async def test_dead_jobs_are_retried_and_replayed_or_refused_with_a_reason(
    http: HttpQueue, protocol: str
) -> None:
    @http.app.job(http.name, queue=http.queue.name, protocol=protocol)
    async def send(job: Any) -> None:
        raise Unrecoverable("no")

    ids = await http.add({"n": 1}, {"n": 2}, {"n": 3})
    async with working(http.app):
        for job_id in ids:
            await ended(http.queue, job_id)
    if not http.can(Capability.RETRY):
        assert_refused(await http.post(f"/jobs/{ids[0]}/retry"), 409, "unsupported")
        assert_refused(await http.post("/replay", {}), 409, "unsupported")
        return
    assert (await http.post(f"/jobs/{ids[0]}/retry")).json()["done"] == [ids[0]]
    await reached(http.queue, ids[0], JobState.WAITING)
    done = (await http.post("/replay", {"limit": 1})).json()["done"]
    assert len(done) == 1
    assert set(done) < set(ids[1:])
    assert len((await http.post("/replay", {})).json()["done"]) == 1
    counts = await http.queue.counts()
    assert (counts[JobState.WAITING], counts[JobState.DEAD]) == (3, 0)


async def test_jobs_are_removed_one_by_one_and_many_at_once(http: HttpQueue) -> None:
    ids = await http.add(*({"n": n} for n in range(4)))
    assert (await http.post(f"/jobs/{ids[0]}/remove")).json()["done"] == [ids[0]]
    assert_refused(await http.post(f"/jobs/{ids[0]}/remove"), 404, "job-not-found")
    response = (await http.post("/remove", {"ids": [*ids, "nobody", ids[1]]})).json()
    assert sorted(response["done"]) == sorted(ids[1:])
    assert sorted(response["not_done"]) == sorted([ids[0], "nobody"])


async def test_names_of_other_keys_are_not_jobs(http: HttpQueue, client: redis.Redis) -> None:
    """A queue's other keys share a prefix with its jobs."""
    [job_id] = await http.add({})
    before = keyspace(client)
    for name in ("meta", "events", "wait", f"{job_id}:lock", f"{job_id}:logs", f"{job_id}:events"):
        assert_refused(await http.get(f"/jobs/{name}"), 404, "job-not-found")
        assert_refused(await http.post(f"/jobs/{name}/remove"), 404, "job-not-found")
        assert (await http.post("/remove", {"ids": [name]})).json() == {"done": [], "not_done": [name]}
    assert keyspace(client) == before


async def test_a_waiting_job_is_cancelled(http: HttpQueue, protocol: str) -> None:
    [job_id] = await http.add({})
    assert (await http.post(f"/jobs/{job_id}/cancel")).json()["done"] == [job_id]
    job = await http.queue.job(job_id)
    # only one protocol has this state; in the others such a job is gone
    assert (job and job.state) == (JobState.CANCELLED if protocol == "streams" else None)
    assert (await http.post(f"/jobs/{job_id}/cancel")).status_code in (404, 409)


async def test_a_drain_deletes_waiting_jobs(http: HttpQueue) -> None:
    ids = await http.add(*({"n": n} for n in range(1100)))
    response = await http.post("/drain", {})
    assert response.json()["counts"]["waiting"] == 0
    assert await http.queue.job(ids[0]) is None
    assert await http.queue.job(ids[-1]) is None
    [later] = await http.add({"n": 1})
    assert (await http.get()).json()["counts"]["waiting"] == 1
    assert (await http.get(f"/jobs/{later}")).json()["state"] == "waiting"


async def test_a_drain_leaves_delayed_jobs_unless_they_are_included(http: HttpQueue) -> None:
    if not http.can(Capability.DELAY):
        # the protocol has no delayed jobs
        assert (await http.post("/drain", {"delayed": True})).json()["counts"]["waiting"] == 0
        return
    await http.add({"n": 1}, delay=60_000)
    await http.add({"n": 2})
    assert (await http.post("/drain", {})).json()["counts"]["delayed"] == 1
    assert (await http.post("/drain", {"delayed": True})).json()["counts"]["delayed"] == 0


async def test_a_drained_queue_keeps_working(http: HttpQueue, protocol: str) -> None:
    @http.app.job(http.name, queue=http.queue.name, protocol=protocol)
    async def send(job: Any) -> str:
        return "sent"

    [first] = await http.add({})
    async with working(http.app):
        await ended(http.queue, first)
    await http.add({}, {}, {})
    assert (await http.post("/drain", {})).status_code == 200
    [second] = await http.add({})
    async with working(http.app):
        assert (await ended(http.queue, second)).result == "sent"
    assert (await http.queue.job(first)) is not None


async def test_ended_jobs_are_cleaned_by_their_age(http: HttpQueue, protocol: str) -> None:
    @http.app.job(http.name, queue=http.queue.name, protocol=protocol)
    async def send(job: Any) -> None:
        if job.data["n"] == 0:
            raise Unrecoverable("no")

    ids = await http.add(*({"n": n} for n in range(4)))
    async with working(http.app):
        for job_id in ids:
            await ended(http.queue, job_id)
    young = await http.post("/clean", {"state": "completed", "older_than_s": 3600})
    assert young.json() == {"done": [], "not_done": []}
    some = (await http.post("/clean", {"state": "completed", "limit": 2})).json()["done"]
    rest = (await http.post("/clean", {"state": "completed"})).json()["done"]
    assert (len(some), len(rest)) == (2, 1)
    assert sorted(some + rest) == sorted(ids[1:])
    assert (await http.post("/clean", {"state": "dead"})).json()["done"] == [ids[0]]
    assert all([await http.queue.job(job_id) is None for job_id in ids])


@pytest.mark.parametrize(
    ("path", "document", "status"),
    [
        ("/clean", {}, 422),
        ("/clean", {"state": "active"}, 422),
        ("/drain", {"all": True}, 422),
        ("/replay", {"limit": 0}, 422),
        ("/remove", {"ids": []}, 422),
        ("/remove", {"ids": ["x" * 513]}, 422),
        ("/explode", {"ids": ["1"]}, 404),
    ],
)
async def test_an_invalid_operation_is_refused_and_changes_nothing(
    http: HttpQueue, client: redis.Redis, path: str, document: Any, status: int
) -> None:
    await http.add({})
    before = keyspace(client)
    assert (await http.post(path, document)).status_code == status
    assert keyspace(client) == before


# -- the feed of all queues ---------------------------------------------------------------------------------


async def test_the_feed_sends_the_events_of_every_queue(http: HttpQueue, protocol: str) -> None:
    await http.add({"n": 0})
    with Tail(http.gateway.url, "/v1/events") as tail:
        hello = tail.until("hello")[-1]
        assert f"{protocol}/{http.queue.name}" in hello.json["queues"]
        [job_id] = await http.add({"n": 1})
        events = await asyncio.to_thread(tail.until, "added")
    event = events[-1]
    assert (event.json["job_id"], event.json["protocol"]) == (job_id, protocol)
    assert event.id == f"{event.json['id']}@{protocol}/{http.queue.name}"


async def test_the_feed_includes_queues_that_are_created_later(
    http: HttpQueue, protocol: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("corral.gateway.sse.response.NEW_KEYS_S", 0.05)
    with Tail(http.gateway.url, f"/v1/events?protocol={protocol}") as tail:
        tail.until("hello")
        [job_id] = await http.add({"n": 1})
        events = await asyncio.to_thread(tail.until, "added")
    assert events[-1].json["job_id"] == job_id


async def test_the_feed_resumes_after_the_last_event_id(http: HttpQueue, protocol: str) -> None:
    await http.add({"n": 0})
    with Tail(http.gateway.url, f"/v1/events?protocol={protocol}&queue={http.queue.name}") as tail:
        tail.until("hello")
        await http.add({"n": 1})
        last_id = (await asyncio.to_thread(tail.until, "added"))[-1].id
    missed = await http.add({"n": 2}, {"n": 3})
    with Tail(http.gateway.url, f"/v1/events?protocol={protocol}", last_id) as tail:
        received: list[str] = []
        while len(received) < 2:
            received.append((await asyncio.to_thread(tail.until, "added"))[-1].json["job_id"])
    assert received == missed


@pytest.mark.parametrize("feed_id", ["17-1", "x@y", "1-1@/", f"{2**64}-0@bullmq/mail"])
async def test_an_invalid_feed_id_is_refused(http: HttpQueue, feed_id: str) -> None:
    with Tail(http.gateway.url, "/v1/events", feed_id) as tail:
        assert tail.status == 400
