"""Queues of every protocol: looked at and operated by HTTP."""

import asyncio
from typing import Any

import pytest
import redis

from corral import Corral, JobState, Queue, Unrecoverable
from corral.core.options import Capability
from corral.protocols import protocol_names
from tests.support.apps import ended, reached, working
from tests.support.gateway import Gateway, keyspace
from tests.support.sse import Tail

NAMES = {"streams": "embed"}
pytestmark = pytest.mark.parametrize("protocol", protocol_names())


class Shop:
    """One queue of one protocol, and its address at the gateway."""

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
async def shop(gateway: Gateway, server: Any, protocol: str) -> Any:
    async with Corral(server.url) as app:
        yield Shop(app, protocol, gateway)


async def refused(answer: Any, status: int, kind: str) -> str:
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:corral:problem:{kind}"), answer.text
    return str(answer.json()["detail"])


# -- reads --------------------------------------------------------------------------------------------------


async def test_queues_are_listed_with_their_counts(shop: Shop, protocol: str) -> None:
    await shop.add({"n": 1}, {"n": 2})
    answer = await asyncio.to_thread(shop.gateway.client.get, "/v1/queues", params={"protocol": protocol})
    [found] = answer.json()["queues"]
    assert (found["protocol"], found["queue"], found["is_paused"]) == (protocol, shop.queue.name, False)
    assert found["counts"]["waiting"] == 2
    assert set(found["capabilities"]) == {one.value for one in shop.queue.protocol.spec.capabilities}
    assert (await shop.get()).json() == found
    everywhere = await asyncio.to_thread(shop.gateway.client.get, "/v1/queues")
    assert found in everywhere.json()["queues"]


async def test_what_is_not_there_is_not_found(shop: Shop, protocol: str) -> None:
    get = shop.gateway.client.get
    await refused(await asyncio.to_thread(get, "/v1/queues/nowhere/x"), 404, "protocol-not-found")
    await refused(await asyncio.to_thread(get, "/v1/queues?protocol=nowhere"), 404, "protocol-not-found")
    await refused(await asyncio.to_thread(get, f"/v1/queues/{protocol}/nothing"), 404, "queue-not-found")
    await shop.add({})
    await refused(await shop.get("/jobs/nobody"), 404, "job-not-found")


async def test_jobs_are_listed_by_state_page_by_page(shop: Shop) -> None:
    ids = await shop.add(*({"n": n} for n in range(7)))
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = await shop.get("/jobs", state="waiting", limit=3, cursor=cursor)
        page = answer.json()
        assert len(page["jobs"]) <= 3
        assert ("link" in answer.headers) == (page["next"] is not None)
        found += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
    assert found == ids
    assert (await shop.get("/jobs", state="completed")).json() == {"jobs": [], "next": None}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 422),
        ({"state": "lost"}, 422),
        ({"state": "waiting", "limit": 0}, 422),
        ({"state": "waiting", "cursor": "x"}, 400),
    ],
)
async def test_a_listing_that_does_not_fit_is_refused(shop: Shop, query: dict[str, Any], status: int) -> None:
    await shop.add({})
    assert (await shop.get("/jobs", **query)).status_code == status


async def test_one_job_is_shown_with_its_attempts_log_and_events(shop: Shop, protocol: str) -> None:
    options = {"attempts": 2, "backoff": {"type": "fixed", "delay": 1}} if shop.can(Capability.RETRY) else {}

    @shop.app.job(shop.name, queue=shop.queue.name, protocol=protocol, **options)
    async def send(job: Any) -> dict[str, int]:
        await job.log("a line")
        await job.progress(50)
        if shop.can(Capability.RETRY) and job.attempt == 1:
            raise ConnectionError("not now")
        return {"n": job.data["n"] + 1}

    [job_id] = await shop.add({"n": 1}, **options)
    async with working(shop.app):
        await ended(shop.queue, job_id)
    job = (await shop.get(f"/jobs/{job_id}")).json()
    assert (job["id"], job["name"], job["state"]) == (job_id, shop.name, "completed")
    assert job["result"] == {"n": 2}
    # BridgeMQ's contract drops the data of a job that succeeded
    assert job["data"] == (None if protocol == "bridgemq" else {"n": 1})
    assert job["attempts_made"] == (2 if shop.can(Capability.RETRY) else 1)
    assert "a line" in job["logs"][-1]
    kinds = [event["kind"] for event in job["events"]]
    assert kinds[0] in ("added", "waiting")
    assert kinds[-1] == "completed"
    assert "active" in kinds
    assert all(event["job_id"] == job_id for event in job["events"])


async def test_a_dead_job_is_among_the_dead_letters_with_its_reason(shop: Shop, protocol: str) -> None:
    @shop.app.job(shop.name, queue=shop.queue.name, protocol=protocol)
    async def send(job: Any) -> None:
        raise Unrecoverable("no such street")

    [job_id] = await shop.add({"n": 1})
    async with working(shop.app):
        await ended(shop.queue, job_id)
    [dead] = (await shop.get("/dead-letters")).json()["jobs"]
    assert (dead["id"], dead["state"]) == (job_id, "dead")
    assert "no such street" in dead["reason"]


async def test_workers_are_listed_while_they_are_there(shop: Shop, protocol: str) -> None:
    @shop.app.job(shop.name, queue=shop.queue.name, protocol=protocol)
    async def send(job: Any) -> None:
        return

    [job_id] = await shop.add({})
    async with working(shop.app, name="postman"):
        await ended(shop.queue, job_id)
        workers = (await shop.get("/workers")).json()["workers"]
        assert [worker["name"] for worker in workers] == ["postman"]
    assert (await shop.get("/workers")).json()["workers"] == []


async def test_schedules_are_listed_where_a_protocol_has_them(shop: Shop, protocol: str) -> None:
    await shop.add({})
    answer = await shop.get("/schedules")
    if protocol == "streams":
        assert "protocol" in await refused(answer, 409, "unsupported")
    else:
        assert answer.json() == {"schedules": []}


# -- writes -------------------------------------------------------------------------------------------------


async def test_a_queue_is_paused_and_resumed_or_the_reason_is_given(shop: Shop) -> None:
    await shop.add({})
    answer = await shop.post("/pause")
    if not shop.can(Capability.PAUSE):
        assert "has no pause" in await refused(answer, 409, "unsupported")
        await refused(await shop.post("/resume"), 409, "unsupported")
        return
    assert answer.json()["is_paused"] is True
    assert await shop.queue.is_paused()
    assert (await shop.post("/resume")).json()["is_paused"] is False


async def test_a_delayed_job_is_promoted_or_the_reason_is_given(shop: Shop) -> None:
    if not shop.can(Capability.DELAY):
        [job_id] = await shop.add({})
        await refused(await shop.post(f"/jobs/{job_id}/promote"), 409, "unsupported")
        return
    [job_id] = await shop.add({}, delay=60_000)
    assert (await shop.post(f"/jobs/{job_id}/promote")).json() == {"done": [job_id], "not_done": []}
    await reached(shop.queue, job_id, JobState.WAITING)
    assert "is waiting" in await refused(await shop.post(f"/jobs/{job_id}/promote"), 409, "not-possible-now")


async def test_dead_jobs_are_retried_and_replayed_or_the_reason_is_given(shop: Shop, protocol: str) -> None:
    @shop.app.job(shop.name, queue=shop.queue.name, protocol=protocol)
    async def send(job: Any) -> None:
        raise Unrecoverable("no")

    ids = await shop.add({"n": 1}, {"n": 2}, {"n": 3})
    async with working(shop.app):
        for job_id in ids:
            await ended(shop.queue, job_id)
    if not shop.can(Capability.RETRY):
        await refused(await shop.post(f"/jobs/{ids[0]}/retry"), 409, "unsupported")
        await refused(await shop.post("/replay", {}), 409, "unsupported")
        return
    assert (await shop.post(f"/jobs/{ids[0]}/retry")).json()["done"] == [ids[0]]
    await reached(shop.queue, ids[0], JobState.WAITING)
    done = (await shop.post("/replay", {"limit": 1})).json()["done"]
    assert len(done) == 1
    assert set(done) < set(ids[1:])
    assert len((await shop.post("/replay", {})).json()["done"]) == 1
    counts = await shop.queue.counts()
    assert (counts[JobState.WAITING], counts[JobState.DEAD]) == (3, 0)


async def test_jobs_are_removed_one_by_one_and_many_at_once(shop: Shop) -> None:
    ids = await shop.add(*({"n": n} for n in range(4)))
    assert (await shop.post(f"/jobs/{ids[0]}/remove")).json()["done"] == [ids[0]]
    await refused(await shop.post(f"/jobs/{ids[0]}/remove"), 404, "job-not-found")
    answer = (await shop.post("/remove", {"ids": [*ids, "nobody", ids[1]]})).json()
    assert sorted(answer["done"]) == sorted(ids[1:])
    assert sorted(answer["not_done"]) == sorted([ids[0], "nobody"])


async def test_names_of_other_keys_are_no_jobs(shop: Shop, client: redis.Redis) -> None:
    """In the wire's keyspace a queue's own keys stand beside its jobs."""
    [job_id] = await shop.add({})
    before = keyspace(client)
    for name in ("meta", "events", "wait", f"{job_id}:lock", f"{job_id}:logs", f"{job_id}:events"):
        await refused(await shop.get(f"/jobs/{name}"), 404, "job-not-found")
        await refused(await shop.post(f"/jobs/{name}/remove"), 404, "job-not-found")
        assert (await shop.post("/remove", {"ids": [name]})).json() == {"done": [], "not_done": [name]}
    assert keyspace(client) == before


async def test_a_waiting_job_is_cancelled(shop: Shop, protocol: str) -> None:
    [job_id] = await shop.add({})
    assert (await shop.post(f"/jobs/{job_id}/cancel")).json()["done"] == [job_id]
    kept = await shop.queue.job(job_id)
    # only one contract has a word for it; in the others such a job is gone
    assert (kept and kept.state) == (JobState.CANCELLED if protocol == "streams" else None)
    assert (await shop.post(f"/jobs/{job_id}/cancel")).status_code in (404, 409)


async def test_a_queue_is_drained_of_what_waits(shop: Shop) -> None:
    ids = await shop.add(*({"n": n} for n in range(1100)))
    answer = await shop.post("/drain", {})
    assert answer.json()["counts"]["waiting"] == 0
    assert await shop.queue.job(ids[0]) is None
    assert await shop.queue.job(ids[-1]) is None
    [later] = await shop.add({"n": 1})
    assert (await shop.get()).json()["counts"]["waiting"] == 1
    assert (await shop.get(f"/jobs/{later}")).json()["state"] == "waiting"


async def test_draining_leaves_the_delayed_unless_they_are_meant(shop: Shop) -> None:
    if not shop.can(Capability.DELAY):
        # nothing is ever delayed there
        assert (await shop.post("/drain", {"delayed": True})).json()["counts"]["waiting"] == 0
        return
    await shop.add({"n": 1}, delay=60_000)
    await shop.add({"n": 2})
    assert (await shop.post("/drain", {})).json()["counts"]["delayed"] == 1
    assert (await shop.post("/drain", {"delayed": True})).json()["counts"]["delayed"] == 0


async def test_a_drained_queue_goes_on(shop: Shop, protocol: str) -> None:
    @shop.app.job(shop.name, queue=shop.queue.name, protocol=protocol)
    async def send(job: Any) -> str:
        return "sent"

    [first] = await shop.add({})
    async with working(shop.app):
        await ended(shop.queue, first)
    await shop.add({}, {}, {})
    assert (await shop.post("/drain", {})).status_code == 200
    [second] = await shop.add({})
    async with working(shop.app):
        assert (await ended(shop.queue, second)).result == "sent"
    assert (await shop.queue.job(first)) is not None


async def test_ended_jobs_are_cleaned_by_their_age(shop: Shop, protocol: str) -> None:
    @shop.app.job(shop.name, queue=shop.queue.name, protocol=protocol)
    async def send(job: Any) -> None:
        if job.data["n"] == 0:
            raise Unrecoverable("no")

    ids = await shop.add(*({"n": n} for n in range(4)))
    async with working(shop.app):
        for job_id in ids:
            await ended(shop.queue, job_id)
    young = await shop.post("/clean", {"state": "completed", "older_than_s": 3600})
    assert young.json() == {"done": [], "not_done": []}
    some = (await shop.post("/clean", {"state": "completed", "limit": 2})).json()["done"]
    rest = (await shop.post("/clean", {"state": "completed"})).json()["done"]
    assert (len(some), len(rest)) == (2, 1)
    assert sorted(some + rest) == sorted(ids[1:])
    assert (await shop.post("/clean", {"state": "dead"})).json()["done"] == [ids[0]]
    assert all([await shop.queue.job(job_id) is None for job_id in ids])


@pytest.mark.parametrize(
    ("path", "document", "status"),
    [
        ("/clean", {}, 422),
        ("/clean", {"state": "active"}, 422),
        ("/drain", {"all": True}, 422),
        ("/replay", {"limit": 0}, 422),
        ("/remove", {"ids": []}, 422),
        ("/remove", {"ids": ["x" * 513]}, 422),
        ("/explode", {"ids": ["1"]}, 422),
    ],
)
async def test_what_does_not_fit_is_refused_and_changes_nothing(
    shop: Shop, client: redis.Redis, path: str, document: Any, status: int
) -> None:
    await shop.add({})
    before = keyspace(client)
    assert (await shop.post(path, document)).status_code == status
    assert keyspace(client) == before


# -- one feed of everything ---------------------------------------------------------------------------------


async def test_the_feed_tells_what_happens_in_every_queue(shop: Shop, protocol: str) -> None:
    await shop.add({"n": 0})
    with Tail(shop.gateway.url, "/v1/events") as tail:
        hello = tail.until("hello")[-1]
        assert f"{protocol}/{shop.queue.name}" in hello.json["queues"]
        [job_id] = await shop.add({"n": 1})
        events = await asyncio.to_thread(tail.until, "added")
    told = events[-1]
    assert (told.json["job_id"], told.json["protocol"]) == (job_id, protocol)
    assert told.id == f"{told.json['id']}@{protocol}/{shop.queue.name}"


async def test_the_feed_finds_queues_that_come_later(shop: Shop, protocol: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("corral.gateway.feed.NEW_QUEUES_S", 0.05)
    with Tail(shop.gateway.url, f"/v1/events?protocol={protocol}") as tail:
        tail.until("hello")
        [job_id] = await shop.add({"n": 1})
        events = await asyncio.to_thread(tail.until, "added")
    assert events[-1].json["job_id"] == job_id


async def test_the_feed_resumes_after_the_event_that_is_named(shop: Shop, protocol: str) -> None:
    await shop.add({"n": 0})
    with Tail(shop.gateway.url, f"/v1/events?protocol={protocol}&queue={shop.queue.name}") as tail:
        tail.until("hello")
        await shop.add({"n": 1})
        seen = (await asyncio.to_thread(tail.until, "added"))[-1].id
    missed = await shop.add({"n": 2}, {"n": 3})
    with Tail(shop.gateway.url, f"/v1/events?protocol={protocol}", seen) as tail:
        found: list[str] = []
        while len(found) < 2:
            found.append((await asyncio.to_thread(tail.until, "added"))[-1].json["job_id"])
    assert found == missed


@pytest.mark.parametrize("given", ["17-1", "x@y", "1-1@/", f"{2**64}-0@bullmq/mail"])
async def test_a_resume_point_that_is_none_is_refused(shop: Shop, given: str) -> None:
    with Tail(shop.gateway.url, "/v1/events", given) as tail:
        assert tail.status == 400
