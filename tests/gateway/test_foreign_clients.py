"""Our gateway and worker beside foreign ones, which implement the contract without Corral."""

from typing import Any

import redis

from corral import Corral, Unrecoverable
from tests.support.apps import ended, working
from tests.support.foreign_client_streams import ForeignGateway, ForeignWorker, pending, story
from tests.support.gateway import Gateway


async def test_a_foreign_gateway_and_our_worker(gateway: Gateway, client: redis.Redis, server: Any) -> None:
    """The foreign gateway creates, tails and reads; our worker works; our gateway shows the same."""
    theirs = ForeignGateway(client)
    app = Corral(server.url, protocol="streams")

    @app.job("embed")
    async def embed(job: Any) -> dict[str, int]:
        await job.emit("half", {"way": 1})
        if job.data["n"] < 0:
            raise Unrecoverable("below zero")
        return {"n": job.data["n"] + 1}

    good, bad = theirs.create("embed", {"n": 1}), theirs.create("embed", {"n": -1})
    async with app, working(app):
        await ended(app.queue(), good)
        await ended(app.queue(), bad)
    assert [event["type"] for event in theirs.tail(good)] == ["queued", "running", "event", "done"]
    assert theirs.read(good)["result"] == {"n": 2}
    assert theirs.read(bad)["error"]["message"] == "below zero"
    shown = gateway.client.get(f"/v1/jobs/{good}").json()
    assert shown == theirs.read(good)
    with gateway.tail(bad) as tail:
        assert [event.kind for event in tail] == ["hello", "queued", "running", "event", "error"]
    assert pending(client) == []


def test_our_gateway_and_a_foreign_worker(gateway: Gateway, client: redis.Redis) -> None:
    """Our gateway creates, tails and reads; the foreign worker works."""
    job_id = gateway.submit({"n": 41})
    with gateway.tail(job_id) as tail:
        tail.until("queued")
        worker = ForeignWorker(client)
        [(entry, fields)] = worker.take()
        assert fields[b"job_id"].decode() == job_id
        worker.start(job_id)
        assert [event.kind for event in tail.until("running")] == ["running"]
        assert gateway.client.get(f"/v1/jobs/{job_id}").json()["status"] == "running"
        worker.finish(entry, job_id, {"n": 42})
        assert [event.kind for event in tail] == ["done"]
    assert gateway.client.get(f"/v1/jobs/{job_id}").json()["result"] == {"n": 42}
    assert story(client, job_id) == ["queued", "running", "done"]


def test_a_foreign_gateway_reads_what_ours_shows(gateway: Gateway, client: redis.Redis) -> None:
    job_id = gateway.submit({"text": "hé 🐎", "deep": [[{}]]}, ttl_s=99)
    assert ForeignGateway(client).read(job_id) == gateway.client.get(f"/v1/jobs/{job_id}").json()


def test_a_drain_leaves_the_jobs_that_a_foreign_worker_holds(gateway: Gateway, client: redis.Redis) -> None:
    held, *_ = [gateway.submit({"n": n}) for n in range(3)]
    worker = ForeignWorker(client)
    [(entry, _)] = worker.take(1)
    path = "/v1/queues/streams/jobs"
    counts = gateway.client.post(f"{path}/drain", json={}).json()["counts"]
    assert (counts["waiting"], counts["active"]) == (0, 1)
    worker.start(held)
    assert worker.finish(entry, held, {}) == 1
    assert gateway.client.get(path).json()["counts"] == {"waiting": 0, "active": 0}
