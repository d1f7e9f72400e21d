"""What the streams contract says of a worker that takes a job, sentence by sentence."""

import asyncio

import pytest

from corral.core.job import Job, JobState
from corral.core.outcome import (
    Cancelled,
    Completed,
    Dead,
    Released,
)
from corral.core.ports import Profile, RestReason
from corral.errors import JobMissing, NotActive
from corral.protocols.base import Binding
from corral.protocols.streams.broker import StreamsBroker
from tests.protocols.streams.steps import BORN, CLAIMED, claim_born, settle_ended
from tests.support.foreign_client_streams import ForeignGateway, pending, story
from tests.support.harness import Clock
from tests.support.jobs import submit
from tests.support.polling import becomes_true


@pytest.fixture(autouse=True)
def clock(clock: Clock) -> Clock:
    clock.now = BORN
    return clock


# -- claiming -----------------------------------------------------------------------------------------------


async def test_the_group_is_made_from_the_beginning_so_nothing_queued_earlier_is_lost(broker, client) -> None:
    job_id = ForeignGateway(client).create("plan", {"goal": "x"})
    (claim,) = (await broker.turn([], 5)).claims
    assert claim.job.id == job_id
    assert client.xinfo_groups("jobs:stream")[0]["name"] == b"workers"


async def test_a_first_turn_on_an_empty_server_makes_the_group_and_rests(broker, client) -> None:
    turn = await broker.turn([], 5)
    assert (turn.claims, turn.rest.reason) == ([], RestReason.DRAINED)
    assert [group["name"] for group in client.xinfo_groups("jobs:stream")] == [b"workers"]


async def test_a_claimed_job_is_running(broker, clock, client) -> None:
    claim = await claim_born(broker, clock)
    fields = client.hgetall(f"job:{claim.job.id}")
    assert (fields[b"status"], fields[b"updated_ts"]) == (b"running", b"%d" % CLAIMED)
    assert fields[b"created_ts"] == b"%d" % BORN
    assert len(fields) == 9


async def test_a_claimed_job_tells_that_it_runs(broker, clock, client) -> None:
    claim = await claim_born(broker, clock)
    _, event = client.xrange(f"job:{claim.job.id}:events")[-1]
    assert event == {b"type": b"running", b"ts": b"%d" % CLAIMED, b"step": b"worker.start", b"data": b"{}"}


async def test_a_claim_carries_the_job(broker, clock) -> None:
    claim = await claim_born(broker, clock, {"big": 130775545883395173, "empty": []}, ttl_s=99)
    job = claim.job
    assert (job.name, job.queue, job.state, job.worker) == ("chat", "jobs", JobState.ACTIVE, "w1")
    assert job.data == {"big": 130775545883395173, "empty": []}
    assert (job.created_at, job.started_at) == (BORN, CLAIMED)
    assert (job.attempts_made, job.starts, job.stalls) == (0, 1, 0)
    assert job.options.extra == {"ttl_s": 99}


async def test_jobs_are_claimed_in_the_order_they_were_queued(broker, clock) -> None:
    ids = await submit(broker, [Job(name="tool", data={"n": n}, queue="jobs") for n in range(100)])
    turns = [await broker.turn([], 40) for _ in range(3)]
    assert [claim.job.id for turn in turns for claim in turn.claims] == ids
    assert [turn.rest.reason for turn in turns] == [
        RestReason.SATISFIED,
        RestReason.SATISFIED,
        RestReason.DRAINED,
    ]


async def test_two_workers_never_claim_the_same_job(broker, store, clock) -> None:
    other = StreamsBroker(Binding(store, "jobs", "", clock, Profile(name="w2")))
    ids = await submit(broker, [Job(name="tool", data={}, queue="jobs") for _ in range(50)])
    turns = await asyncio.gather(*(worker.turn([], 5) for _ in range(5) for worker in (broker, other)))
    taken = [claim.job.id for turn in turns for claim in turn.claims]
    assert sorted(taken) == sorted(ids)


async def test_a_claim_is_limited_by_bytes(broker, client) -> None:
    gateway = ForeignGateway(client)
    for _ in range(8):
        gateway.create("rag", {"text": "x" * 1_000_000})
    first = await broker.turn([], 100)
    assert first.rest.reason is RestReason.DRAINED
    for _ in range(64):
        gateway.create("rag", {"text": "x" * 200_000})
    second = await broker.turn([], 100)
    assert len(second.claims) == 32
    assert second.rest.reason is RestReason.SATISFIED


async def test_a_payload_that_does_not_parse_is_kept_raw(broker, client) -> None:
    ForeignGateway(client).create("chat", '{"half": ')
    (claim,) = (await broker.turn([], 1)).claims
    assert claim.job.data == {"_raw": '{"half": '}


async def test_a_payload_of_broken_bytes_is_kept_raw(broker, client) -> None:
    job_id = ForeignGateway(client).create("chat", "{}")
    (entry,) = [entry for entry, _ in client.xrange("jobs:stream")]
    client.xdel("jobs:stream", entry)
    client.xadd("jobs:stream", {"job_id": job_id, "task": "chat", "payload": b"\xff\xfe"})
    (claim,) = (await broker.turn([], 1)).claims
    assert claim.job.data == {"_raw": "\\xff\\xfe"}
    assert await settle_ended(broker, claim, Completed()) is None


async def test_an_entry_that_names_only_the_job_takes_the_rest_from_its_hash(broker, client) -> None:
    job_id = ForeignGateway(client).create("rag", {"q": 1})
    client.xtrim("jobs:stream", maxlen=0, approximate=False)
    client.xadd("jobs:stream", {"job_id": job_id})
    (claim,) = (await broker.turn([], 1)).claims
    assert (claim.job.name, claim.job.data) == ("rag", {"q": 1})


async def test_a_task_outside_the_contract_is_read_as_it_stands(broker, client) -> None:
    ForeignGateway(client).create("send-email", {})
    (claim,) = (await broker.turn([], 1)).claims
    assert claim.job.name == "send-email"


# -- time runs out ------------------------------------------------------------------------------------------


async def test_a_job_that_expired_in_the_queue_is_acknowledged_and_counted(broker, client) -> None:
    gone, there = await submit(broker, [Job(name="chat", data={}, queue="jobs") for _ in range(2)])
    client.pexpire(f"job:{gone}", 1)
    client.pexpire(f"job:{gone}:events", 1)
    assert await becomes_true(lambda: not client.exists(f"job:{gone}", f"job:{gone}:events"))
    turn = await broker.turn([], 5)
    assert [claim.job.id for claim in turn.claims] == [there]
    assert not client.exists(f"job:{gone}", f"job:{gone}:events")
    assert client.xlen("jobs:stream") == 1
    assert broker.skipped == {"expired": 1}
    assert [f[b"job_id"].decode() for _, f in client.xrange("jobs:events") if f[b"type"] == b"expired"] == [
        gone
    ]


@pytest.mark.parametrize("outcome", [Completed(b"1"), Dead("x"), Released(), Cancelled()])
async def test_a_job_that_expired_while_it_ran_is_never_made_again_in_part(
    broker, clock, client, outcome
) -> None:
    claim = await claim_born(broker, clock)
    client.delete(f"job:{claim.job.id}", f"job:{claim.job.id}:events")
    assert type(await settle_ended(broker, claim, outcome)) is JobMissing
    assert not client.exists(f"job:{claim.job.id}", f"job:{claim.job.id}:events")
    assert pending(client) == []
    assert client.xlen("jobs:stream") == 0


async def test_ten_thousand_expired_jobs_do_not_hold_the_server_up(broker, client) -> None:
    pipe = client.pipeline(transaction=False)
    for n in range(10_000):
        pipe.xadd("jobs:stream", {"job_id": f"gone-{n}", "task": "chat", "payload": "{}"})
    pipe.execute()
    last = ForeignGateway(client).create("chat", {})
    turns = 0
    while True:
        turn = await broker.turn([], 10)
        turns += 1
        if turn.claims:
            break
        assert turn.rest.reason is RestReason.SATISFIED
    assert [claim.job.id for claim in turn.claims] == [last]
    # each call looks at about 500 entries, so that no call is long
    assert 18 <= turns <= 22
    assert broker.skipped["expired"] == 10_000


@pytest.mark.parametrize("status", ["done", "error", "canceled"])
async def test_a_job_that_is_over_is_not_run_again(broker, client, status) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    client.hset(f"job:{job_id}", "status", status)
    assert (await broker.turn([], 1)).claims == []
    assert client.hget(f"job:{job_id}", "status") == status.encode()
    assert story(client, job_id) == ["queued"]
    assert client.xlen("jobs:stream") == 0
    assert broker.skipped == {"over": 1}


@pytest.mark.parametrize("status", ["done", "error", "canceled"])
async def test_an_end_that_someone_else_wrote_is_never_overwritten(broker, clock, client, status) -> None:
    claim = await claim_born(broker, clock)
    client.hset(f"job:{claim.job.id}", "status", status)
    before = client.hgetall(f"job:{claim.job.id}")
    assert type(await settle_ended(broker, claim, Completed(b"1"))) is NotActive
    assert client.hgetall(f"job:{claim.job.id}") == before
    assert pending(client) == []


@pytest.mark.parametrize(
    "entry",
    [
        {"task": "chat"},
        {"job_id": "", "task": "chat"},
        {"job_id": "a b"},
        {"job_id": b"\xff"},
        {"x": "y" * 10_000},
    ],
    ids=["no id", "empty id", "a space", "broken bytes", "something else"],
)
async def test_a_malformed_entry_is_acknowledged_and_counted(broker, client, entry) -> None:
    client.xadd("jobs:stream", entry)
    turn = await broker.turn([], 1)
    assert (turn.claims, turn.rest.reason) == ([], RestReason.DRAINED)
    assert client.xlen("jobs:stream") == 0
    assert pending(client) == []
    assert broker.skipped == {"malformed": 1}


async def test_an_entry_that_points_at_a_foreign_key_harms_neither(broker, client) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    client.xtrim("jobs:stream", maxlen=0, approximate=False)
    client.xadd("jobs:stream", {"job_id": f"{job_id}:events", "task": "chat", "payload": "{}"})
    events = client.dump(f"job:{job_id}:events")
    assert (await broker.turn([], 1)).claims == []
    assert client.dump(f"job:{job_id}:events") == events
    assert broker.skipped == {"malformed": 1}


async def test_a_job_whose_events_are_of_the_wrong_type_ends_with_an_error(broker, client) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    client.delete(f"job:{job_id}:events")
    client.set(f"job:{job_id}:events", "in the way")
    assert (await broker.turn([], 1)).claims == []
    job = ForeignGateway(client).read(job_id)
    assert (job["status"], job["error"]) == ("error", {"message": "a key of this job holds the wrong type"})
    assert pending(client) == []
