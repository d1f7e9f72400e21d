"""The streams protocol's Inspector and EventLog, and the same under a namespace and in a cluster."""

import asyncio
from uuid import uuid4

import pytest
from msgspec.structs import replace

from corral.core.event import EventKind
from corral.core.job import Job, JobOptions, JobState
from corral.core.outcome import Cancelled, Completed, Dead, Released
from corral.core.ports import Profile
from corral.errors import (
    RedisError,
)
from corral.protocols import streams
from corral.protocols.base import Binding
from corral.protocols.streams import inspector as inspector_module
from corral.protocols.streams.broker import StreamsBroker
from corral.protocols.streams.events import StreamsEventLog
from corral.protocols.streams.inspector import StreamsInspector
from corral.protocols.streams.operator import StreamsOperator
from corral.protocols.streams.reporter import StreamsReporter
from corral.store.client import Store
from tests.protocols.streams.steps import claim_new, settlement, submit
from tests.support.foreign_client_streams import ForeignGateway, make_old, now_ms, story
from tests.support.jobs import submit as submit_jobs
from tests.support.polling import becomes_true, until
from tests.support.servers import start_valkey

# -- reading ------------------------------------------------------------------------------------------------


async def test_a_job_is_read_with_its_state_progress_and_end(broker, reporter, inspector) -> None:
    options = JobOptions(extra={"ttl_s": 900})
    (job_id,) = await submit_jobs(broker, [Job(name="plan", data={"goal": 1}, queue="jobs", options=options)])
    waiting = await inspector.job(job_id)
    assert (waiting.state, waiting.name, waiting.data, waiting.started_at) == (
        JobState.WAITING,
        "plan",
        {"goal": 1},
        None,
    )
    assert waiting.options.extra == {"ttl_s": 900}
    (claim,) = (await broker.turn([], 1)).claims
    await reporter.progress(claim, 10)
    await reporter.progress(claim, {"percent": 60})
    running = await inspector.job(job_id)
    assert (running.state, running.progress, running.finished_at) == (JobState.ACTIVE, {"percent": 60}, None)
    assert running.started_at >= running.created_at > 0
    await broker.turn([settlement(claim, Dead("broken", "Traceback …"))], 0)
    dead = await inspector.job(job_id)
    assert (dead.state, dead.reason, dead.trace, dead.result) == (
        JobState.DEAD,
        "broken",
        ("Traceback …",),
        None,
    )
    assert dead.finished_at >= dead.started_at
    assert await inspector.job(str(uuid4())) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ('{"message":"m","type":"T"}', "m"),
        ('"text"', "text"),
        ("no json", None),
        ('{"code":7}', '{"code":7}'),
    ],
)
async def test_an_error_that_a_stranger_wrote_is_shown_as_well_as_can_be(
    inspector, client, error, reason
) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    client.hset(f"job:{job_id}", mapping={"status": "error", "error": error})
    job = await inspector.job(job_id)
    assert job.state is JobState.DEAD
    assert job.reason == reason if reason else "no json" in job.reason


async def test_a_hash_of_nonsense_can_still_be_read(inspector, client) -> None:
    client.hset("job:x", mapping={"payload": "{", "created_ts": "soon", "status": "paused", "own": "kept"})
    job = await inspector.job("x")
    assert (job.state, job.data, job.created_at) == (None, {"_raw": "{"}, 0)
    assert job.extra["status"] == "paused"
    assert job.extra["own"] == "kept"


async def test_jobs_are_listed_by_state(broker, operator, inspector) -> None:
    ids = await submit(broker, 8)
    claims = (await broker.turn([], 4)).claims
    await broker.turn([settlement(claims[0]), settlement(claims[1]), settlement(claims[2], Dead("x"))], 0)
    await operator.cancel([ids[7]])

    async def listed(state: JobState, count: int = 100) -> list[str]:
        return [job.id for job in await inspector.jobs(state, count)]

    assert await listed(JobState.WAITING) == ids[4:7]
    assert await listed(JobState.WAITING, 1) == ids[4:5]
    assert await listed(JobState.ACTIVE) == [ids[3]]
    assert await listed(JobState.COMPLETED) == [ids[1], ids[0]], "the last to end first"
    assert await listed(JobState.COMPLETED, 1) == [ids[1]]
    assert await listed(JobState.DEAD) == [ids[2]]
    assert await listed(JobState.CANCELLED) == [ids[7]]
    assert await listed(JobState.DELAYED) == []


async def test_an_empty_server_is_read_as_empty(inspector, events, client) -> None:
    assert await inspector.counts() == {JobState.WAITING: 0, JobState.ACTIVE: 0}
    for state in JobState:
        assert await inspector.jobs(state) == []
    assert await inspector.workers() == []
    assert await inspector.logs("x") == []
    assert not await inspector.is_paused()
    assert await events.range() == []
    assert (await events.extent()).length == 0
    assert client.keys() == []


async def test_what_was_queued_before_any_worker_came_is_counted(inspector, client) -> None:
    for _ in range(3):
        ForeignGateway(client).create("chat", {})
    assert await inspector.counts() == {JobState.WAITING: 3, JobState.ACTIVE: 0}
    assert len(await inspector.jobs(JobState.WAITING)) == 3


async def test_workers_are_listed_ours_and_strangers(broker, inspector, client) -> None:
    await claim_new(broker)
    client.xgroup_createconsumer("jobs:stream", "workers", "theirs")
    found = {worker.name: worker for worker in await inspector.workers()}
    assert set(found) == {"w1", "theirs"}
    assert found["w1"].extra == {"active": 1, "is_ours": True}
    assert found["theirs"].extra == {"active": 0, "is_ours": False}
    assert abs(found["w1"].seen_at - now_ms()) < 10_000


async def test_a_worker_without_a_heartbeat_is_not_listed(store, inspector, monkeypatch) -> None:
    monkeypatch.setattr(inspector_module, "ALIVE_MS", 100)
    await StreamsBroker(Binding(store, "jobs", "", now_ms, Profile(name="gone", lock_ms=100))).turn([], 1)
    assert [worker.name for worker in await inspector.workers()] == ["gone"]

    async def is_gone() -> bool:
        return not await inspector.workers()

    assert await until(is_gone)


async def test_the_protocol_has_one_queue(store) -> None:
    assert await streams.PROTOCOL.queues(store, "") == ["jobs"]


# -- the story ----------------------------------------------------------------------------------------------


async def test_the_shared_log_tells_a_jobs_life_in_the_words_of_the_house(
    broker, reporter, events, client
) -> None:
    (job_id,) = await submit(broker)
    (claim,) = (await broker.turn([], 1)).claims
    await broker.turn([settlement(claim, Released())], 0)
    (claim,) = (await broker.turn([], 1)).claims
    make_old(client, claim.receipt.entry)
    await broker.recover()
    (claim,) = (await broker.turn([], 1)).claims
    await reporter.emit(claim, "token", {"t": 1})
    await broker.turn([settlement(claim, Completed(b'{"ok":true}'))], 0)
    read = await events.range()
    assert [event.kind for event in read] == [
        EventKind.ADDED, EventKind.ACTIVE, EventKind.WAITING, EventKind.ACTIVE, EventKind.STALLED,
        EventKind.ACTIVE, "event", EventKind.COMPLETED,
    ]  # fmt: skip
    assert {event.job_id for event in read} == {job_id}
    assert {event.name for event in read} == {"chat"}
    assert [event.worker for event in read] == [None] + ["w1"] * 7
    assert read[4].data == {"step": "worker.recover", "data": {"deliveries": 1}}
    assert read[6].data == {"step": "token", "data": {"t": 1}}
    assert read[7].data == {"step": "worker.finish", "data": {"result": {"ok": True}}}
    own = await events.of_job(Job(name="chat", data={}, queue="jobs", id=job_id))
    assert [event.kind for event in own] == [event.kind for event in read]
    assert {event.job_id for event in own} == {job_id}


async def test_the_shared_log_is_read_in_pages_and_says_how_far_it_reaches(broker, events, client) -> None:
    ids = await submit(broker, 7)
    first = await events.range(count=3)
    rest = await events.range(first[-1].id)
    assert [event.job_id for event in first + rest] == ids
    client.xtrim("jobs:events", maxlen=2, approximate=False)
    extent = await events.extent()
    assert (extent.length, extent.added) == (2, 7)
    assert (extent.first, extent.last) == (rest[-2].id, rest[-1].id)


async def test_a_jobs_own_stream_is_read_from_where_one_left_off(broker, reporter, events) -> None:
    claim = await claim_new(broker)
    seen = await events.of_job(claim.job)
    await reporter.progress(claim, 1)
    more = await events.of_job(claim.job, seen[-1].id)
    assert [event.kind for event in more] == [EventKind.PROGRESS]
    assert await events.of_job(replace(claim.job, id=str(uuid4()))) == []


async def test_the_shared_log_can_be_tailed(broker, events) -> None:
    await submit(broker)
    tail = events.tail("-")
    assert (await asyncio.wait_for(anext(tail), 5)).kind == EventKind.ADDED
    await broker.turn([], 1)
    assert (await asyncio.wait_for(anext(tail), 5)).kind == EventKind.ACTIVE
    await tail.aclose()


async def test_a_shared_log_of_the_wrong_type_does_not_keep_a_job_from_its_end(broker, client) -> None:
    claim = await claim_new(broker)
    client.delete("jobs:events")
    client.set("jobs:events", "in the way")
    assert (await broker.turn([settlement(claim)], 0)).verdicts == [None]
    assert story(client, claim.job.id) == ["queued", "running", "done"]


async def test_a_namespace_keeps_two_houses_apart(store, client) -> None:
    shop = Binding(store, "jobs", "{shop}", now_ms, Profile(name="w1"))
    broker, reporter = StreamsBroker(shop), StreamsReporter(shop)
    (job_id,) = await submit(broker)
    assert (
        await StreamsBroker(Binding(store, "jobs", "", now_ms, Profile(name="w2"))).turn([], 1)
    ).claims == []
    (claim,) = (await broker.turn([], 1)).claims
    await reporter.progress(claim, 1)
    assert not (await broker.extend([claim])).lost
    assert (await StreamsInspector(shop).counts())[JobState.ACTIVE] == 1
    await broker.turn([settlement(claim, Released())], 0)
    (claim,) = (await broker.turn([], 1)).claims
    await broker.turn([settlement(claim)], 0)
    assert (await StreamsInspector(shop).job(job_id)).state is JobState.COMPLETED
    assert len(await StreamsEventLog(shop).range()) == 6
    assert await StreamsOperator(shop).remove([job_id]) == [job_id]
    await broker.close()
    assert sorted(key for key in client.scan_iter() if not key.startswith(b"jobs:")) == [
        b"{shop}:jobs:events", b"{shop}:jobs:stream",
    ]  # fmt: skip


# -- in a cluster -------------------------------------------------------------------------------------------


async def test_in_a_cluster_a_hash_tag_keeps_every_verb_in_one_slot() -> None:
    cluster = start_valkey("--cluster-enabled", "yes")
    store = Store(cluster.url)
    try:
        with cluster.connect() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            assert await becomes_true(
                lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", 15
            )
        binding = Binding(store, "jobs", "{shop}", now_ms, Profile(name="w1"))
        broker, reporter, operator = (
            StreamsBroker(binding),
            StreamsReporter(binding),
            StreamsOperator(binding),
        )
        options = JobOptions(extra={"idempotency_key": "{other}"})
        ids = await submit_jobs(broker, [Job(name="chat", data={}, queue="jobs", options=options)])
        ids += await submit(broker, 3)
        done, back, cancelled = (await broker.turn([], 3)).claims
        await reporter.progress(done, 1)
        await reporter.beat()
        assert not (await broker.extend([done, back])).lost
        assert await operator.cancel([cancelled.job.id]) == [ids[2]]
        turn = await broker.turn(
            [settlement(done), settlement(back, Released()), settlement(cancelled, Cancelled())], 2
        )
        assert turn.verdicts == [None, None, None]
        assert [claim.job.id for claim in turn.claims] == [ids[3], ids[1]]
        assert [claim.job.id for claim in (await broker.recover(turn.claims[0].receipt)).claims] == [ids[3]]
        assert (await broker.recover()).requeued == []
        assert await operator.remove([ids[0]]) == [ids[0]]
        assert (await StreamsInspector(binding).counts())[JobState.ACTIVE] == 2
        await broker.close()
        with pytest.raises(RedisError, match="CROSSSLOT"):
            await submit(StreamsBroker(Binding(store, "jobs", "", now_ms, Profile(name="w1"))))
    finally:
        await store.close()
        cluster.stop()
