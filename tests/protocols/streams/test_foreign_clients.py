"""Corral and strangers on one wire, in both directions: they know the contract, and nothing of each other."""

import json
from typing import Any

import pytest

from corral.core.job import Job, JobState
from corral.core.outcome import Completed, Dead, Released, Settlement
from corral.core.ports import Profile
from corral.errors import LockMissing
from corral.protocols.base import Binding
from corral.protocols.streams.broker import StreamsBroker
from corral.protocols.streams.events import StreamsEventLog
from corral.protocols.streams.inspector import StreamsInspector
from corral.protocols.streams.operator import StreamsOperator
from corral.store.client import Store
from tests.support.foreign_client_streams import (
    ForeignGateway,
    ForeignWorker,
    make_old,
    now_ms,
    pending,
    story,
)
from tests.support.jobs import submit


@pytest.fixture
def binding(store: Store) -> Binding:
    return Binding(store, "jobs", "", now_ms, Profile(name="corral-1", extra={"stranger_idle_ms": 60_000}))


@pytest.fixture
def broker(binding: Binding) -> StreamsBroker:
    return StreamsBroker(binding)


def jobs(count: int) -> list[Job]:
    return [Job(name="tool", data={"n": n}, queue="jobs") for n in range(count)]


async def work(broker: StreamsBroker, want: int) -> list[str]:
    """One round of a worker that doubles numbers."""
    claims = (await broker.turn([], want)).claims
    endings = []
    for claim in claims:
        result = json.dumps({"twice": claim.job.data["n"] * 2}).encode()
        endings.append(Settlement(claim, Completed(result), now_ms()))
    assert (await broker.turn(endings, 0)).verdicts == [None] * len(claims)
    return [claim.job.id for claim in claims]


def double(task: str, payload: Any) -> Any:
    return {"twice": payload["n"] * 2}


async def test_a_strangers_job_is_worked_by_us_and_read_by_the_stranger(broker, client) -> None:
    gateway = ForeignGateway(client)
    job_id = gateway.create("tool", {"n": 21}, ttl_s=120)
    assert await work(broker, 1) == [job_id]
    assert [event["type"] for event in gateway.tail(job_id)] == ["queued", "running", "done"]
    job = gateway.read(job_id)
    assert (job["status"], job["result"], job["error"]) == ("done", {"twice": 42}, None)
    assert job["created_ts"] <= job["updated_ts"]
    assert 115 <= client.ttl(f"job:{job_id}") <= 120
    assert 115 <= client.ttl(f"job:{job_id}:events") <= 120


async def test_every_event_we_write_has_the_four_fields_as_texts(broker, client) -> None:
    gateway = ForeignGateway(client)
    job_id = gateway.create("tool", {"n": 1})
    await work(broker, 1)
    for event in gateway.tail(job_id):
        assert list(event) == ["type", "ts", "step", "data"]
        assert event["ts"].isdigit()
        assert isinstance(json.loads(event["data"]), dict)


async def test_our_failure_is_an_error_to_the_stranger(broker, client) -> None:
    gateway = ForeignGateway(client)
    job_id = gateway.create("chat", {})
    (claim,) = (await broker.turn([], 1)).claims
    await broker.turn([Settlement(claim, Dead("model not loaded", "Traceback …"), now_ms())], 0)
    *_, last = gateway.tail(job_id)
    assert (last["type"], json.loads(last["data"])) == ("error", {"message": "model not loaded"})
    assert gateway.read(job_id)["error"]["message"] == "model not loaded"


async def test_our_job_is_worked_by_the_stranger_and_read_by_us(broker, binding, client) -> None:
    (job_id,) = await submit(broker, jobs(1))
    assert ForeignWorker(client).work(double) == [job_id]
    job = await StreamsInspector(binding).job(job_id)
    assert job is not None
    assert (job.state, job.result, job.reason) == (JobState.COMPLETED, {"twice": 0}, None)
    kinds = [event.kind for event in await StreamsEventLog(binding).of_job(job)]
    assert kinds == ["added", "active", "completed"]
    assert [event["type"] for event in ForeignGateway(client).tail(job_id)] == ["queued", "running", "done"]


async def test_both_work_one_queue_and_each_job_ends_once(broker, client) -> None:
    gateway, stranger = ForeignGateway(client), ForeignWorker(client)
    ids = await submit(broker, jobs(100)) + [gateway.create("tool", {"n": n}) for n in range(100)]
    ours: list[str] = []
    theirs: list[str] = []
    while len(ours) + len(theirs) < 200:
        ours += await work(broker, 7)
        theirs += stranger.work(double, 5)
    assert sorted(ours + theirs) == sorted(ids)
    assert min(len(ours), len(theirs)) > 50
    for job_id in ids:
        assert story(client, job_id) == ["queued", "running", "done"]
    assert pending(client) == []


async def test_the_backlog_does_not_count_what_strangers_only_acknowledged(broker, binding, client) -> None:
    await broker.submit(jobs(10))
    stranger = ForeignWorker(client)
    stranger.work(double, 4)
    stranger.take(1)
    assert client.xlen("jobs:stream") == 10
    counts = await StreamsInspector(binding).counts()
    assert counts == {JobState.WAITING: 5, JobState.ACTIVE: 1}


async def test_the_backlog_is_counted_where_the_server_cannot_tell_it(broker, binding, client) -> None:
    ids = await submit(broker, jobs(5000))
    await broker.turn([], 10)
    (undelivered,) = client.xrevrange("jobs:stream", count=1)
    client.xdel("jobs:stream", undelivered[0])
    assert client.xinfo_groups("jobs:stream")[0]["lag"] is None
    assert await StreamsInspector(binding).counts() == {JobState.WAITING: 4989, JobState.ACTIVE: 10}
    assert [job.id for job in await StreamsInspector(binding).jobs(JobState.WAITING, 3)] == ids[10:13]


async def test_a_dead_strangers_job_is_worked_by_us(broker, client) -> None:
    job_id = ForeignGateway(client).create("tool", {"n": 3})
    stranger = ForeignWorker(client)
    ((entry, _),) = stranger.take()
    stranger.start(job_id)
    make_old(client, entry)
    assert (await broker.recover()).requeued == [job_id]
    assert await work(broker, 1) == [job_id]
    assert story(client, job_id) == ["queued", "running", "queued", "running", "done"]


async def test_what_we_abandon_is_worked_by_a_stranger_that_reads_only_new_entries(broker, client) -> None:
    (job_id,) = await submit(broker, jobs(1))
    (claim,) = (await broker.turn([], 1)).claims
    make_old(client, claim.receipt.entry)
    await broker.recover()
    assert ForeignWorker(client).work(double) == [job_id]
    (late,) = (await broker.turn([Settlement(claim, Completed(b"0"), now_ms())], 0)).verdicts
    assert type(late) is LockMissing
    assert ForeignGateway(client).read(job_id)["result"] == {"twice": 0}


async def test_what_we_give_back_is_worked_by_the_stranger(broker, client) -> None:
    (job_id,) = await submit(broker, jobs(1))
    (claim,) = (await broker.turn([], 1)).claims
    await broker.turn([Settlement(claim, Released(), now_ms())], 0)
    assert ForeignWorker(client).work(double) == [job_id]


async def test_a_stranger_that_takes_idle_entries_over_finds_the_true_delivery_count(broker, client) -> None:
    (job_id,) = await submit(broker, jobs(1))
    (claim,) = (await broker.turn([], 1)).claims
    for _ in range(3):
        await broker.extend([claim])
    make_old(client, claim.receipt.entry)
    ForeignWorker(client)
    client.xautoclaim("jobs:stream", "workers", "stranger", 60_000)
    assert pending(client) == [(claim.receipt.entry, "stranger", 2)]
    assert ForeignWorker(client).finish(claim.receipt.entry.encode(), job_id, 1) == 1
    assert [lost.job.id for lost in (await broker.extend([claim])).lost] == [job_id]


async def test_a_slow_stranger_that_finishes_after_we_took_its_job_back_ends_it(broker, client) -> None:
    job_id = ForeignGateway(client).create("tool", {"n": 3})
    stranger = ForeignWorker(client)
    ((entry, _),) = stranger.take()
    stranger.start(job_id)
    make_old(client, entry)
    await broker.recover()
    stranger.finish(entry, job_id, "late, but first")
    assert (await broker.turn([], 1)).claims == []
    assert ForeignGateway(client).read(job_id)["result"] == "late, but first"


async def test_a_job_we_cancel_ends_the_strangers_tail(broker, binding, client) -> None:
    gateway = ForeignGateway(client)
    job_id = gateway.create("tool", {"n": 1})
    assert await StreamsOperator(binding).cancel([job_id]) == [job_id]
    assert [event["type"] for event in gateway.tail(job_id)] == ["queued", "canceled"]
    assert gateway.read(job_id)["status"] == "canceled"
    assert (await broker.turn([], 1)).claims == []
