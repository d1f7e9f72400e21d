"""What the streams contract says of a worker that ends a job, sentence by sentence."""

import json

import pytest

from corral.core.job import Job, JobOptions
from corral.core.outcome import (
    AlreadyMoved,
    Cancelled,
    Completed,
    Dead,
    Postponed,
    Released,
    Retry,
    RetryPolicy,
    Settlement,
    WaitingChildren,
    decide,
)
from corral.errors import JobMissing, LockMissing, Transient
from tests.protocols.streams.steps import BORN, ENDED, claim_born, settle_ended
from tests.support.foreign_client_streams import ForeignGateway, pending, story
from tests.support.harness import Clock
from tests.support.jobs import submit


@pytest.fixture(autouse=True)
def clock(clock: Clock) -> Clock:
    clock.now = BORN
    return clock


# -- settling -----------------------------------------------------------------------------------------------


async def test_a_completed_job_is_done_with_its_result(broker, clock, client) -> None:
    claim = await claim_born(broker, clock)
    assert await settle_ended(broker, claim, Completed(b'{"answer":130775545883395173,"none":[]}')) is None
    fields = client.hgetall(f"job:{claim.job.id}")
    assert (fields[b"status"], fields[b"updated_ts"]) == (b"done", b"%d" % ENDED)
    assert fields[b"result"] == b'{"answer":130775545883395173,"none":[]}'
    assert fields[b"error"] == b""
    assert len(fields) == 9


async def test_a_completed_job_tells_its_end(broker, clock, client) -> None:
    claim = await claim_born(broker, clock)
    await settle_ended(broker, claim, Completed(b"42"))
    assert story(client, claim.job.id) == ["queued", "running", "done"]
    _, event = client.xrange(f"job:{claim.job.id}:events")[-1]
    assert (event[b"ts"], event[b"data"]) == (b"%d" % ENDED, b'{"result":42}')


async def test_a_failed_job_ends_with_its_error(broker, clock, client) -> None:
    claim = await claim_born(broker, clock)
    assert await settle_ended(broker, claim, Dead("no such file \ud800", "Traceback …")) is None
    job = ForeignGateway(client).read(claim.job.id)
    assert (job["status"], job["result"]) == ("error", None)
    assert job["error"] == {"message": "no such file ?", "trace": "Traceback …"}
    _, event = client.xrange(f"job:{claim.job.id}:events")[-1]
    assert (event[b"type"], json.loads(event[b"data"])) == (b"error", {"message": "no such file ?"})


async def test_a_failure_is_final_even_where_it_looks_passing(broker, clock, client) -> None:
    claim = await claim_born(broker, clock)
    outcome = decide(claim.job, Transient("again, please"), "", RetryPolicy())
    assert outcome == Dead("again, please", "", "Transient")
    assert await settle_ended(broker, claim, Retry(10, "again, please")) is None
    assert client.hget(f"job:{claim.job.id}", "status") == b"error"
    assert client.xlen("jobs:stream") == 0


async def test_a_cancelled_job_ends_as_canceled(broker, clock, client) -> None:
    claim = await claim_born(broker, clock)
    assert await settle_ended(broker, claim, Cancelled("stop")) is None
    assert client.hget(f"job:{claim.job.id}", "status") == b"canceled"
    assert story(client, claim.job.id)[-1] == "canceled"


@pytest.mark.parametrize(
    ("outcome", "said"), [(Postponed(500), "no delay"), (WaitingChildren(), "waits for children")]
)
async def test_an_ending_the_contract_has_not_ends_with_a_clear_error(
    broker, clock, client, outcome, said
) -> None:
    claim = await claim_born(broker, clock)
    assert await settle_ended(broker, claim, outcome) is None
    job = ForeignGateway(client).read(claim.job.id)
    assert job["status"] == "error"
    assert said in job["error"]["message"]


async def test_what_a_handler_has_moved_itself_is_not_touched(broker, clock, client) -> None:
    claim = await claim_born(broker, clock)
    assert await settle_ended(broker, claim, AlreadyMoved()) is None
    assert client.hget(f"job:{claim.job.id}", "status") == b"running"


@pytest.mark.parametrize("outcome", [Completed(b"1"), Dead("x"), Cancelled()])
async def test_a_settled_entry_is_acknowledged_and_deleted(broker, clock, client, outcome) -> None:
    claim = await claim_born(broker, clock)
    await settle_ended(broker, claim, outcome)
    assert pending(client) == []
    assert client.xlen("jobs:stream") == 0


async def test_lifetimes_are_refreshed_by_every_step(broker, clock, client) -> None:
    await broker.submit([Job(name="chat", data={}, queue="jobs", options=JobOptions(extra={"ttl_s": 500}))])
    (job_id,) = [fields[b"job_id"].decode() for _, fields in client.xrange("jobs:stream")]
    keys = (f"job:{job_id}", f"job:{job_id}:events")

    def shorten() -> None:
        for key in keys:
            client.expire(key, 20)

    def lifetimes() -> bool:
        return all(498 <= client.ttl(key) <= 500 for key in keys)

    shorten()
    (claim,) = (await broker.turn([], 1)).claims
    assert lifetimes()
    shorten()
    await broker.extend([claim])
    assert lifetimes()
    shorten()
    await settle_ended(broker, claim, Completed())
    assert lifetimes()


@pytest.mark.parametrize("written", ["", "soon", "-5", "0", "nan", "1e99"])
async def test_a_lifetime_that_makes_no_sense_becomes_the_default(broker, client, written) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    client.hset(f"job:{job_id}", "ttl_s", written)
    (claim,) = (await broker.turn([], 1)).claims
    assert 3598 <= client.ttl(f"job:{job_id}") <= 3600
    assert await settle_ended(broker, claim, Completed()) is None


async def test_a_batch_gets_a_verdict_for_each(broker, clock, client) -> None:
    await broker.submit([Job(name="chat", data={"n": n}, queue="jobs") for n in range(4)])
    one, two, three, four = (await broker.turn([], 4)).claims
    client.delete(f"job:{two.job.id}")
    client.xack("jobs:stream", "workers", three.receipt.entry)
    turn = await broker.turn([Settlement(c, Completed(b"1"), ENDED) for c in (one, two, three, four)], 0)
    assert [type(verdict) for verdict in turn.verdicts] == [type(None), JobMissing, LockMissing, type(None)]
    assert client.hget(f"job:{four.job.id}", "status") == b"done"
    assert client.hget(f"job:{three.job.id}", "status") == b"running"


async def test_one_job_of_broken_keys_does_not_touch_its_neighbours(broker, client) -> None:
    ids = await submit(broker, [Job(name="chat", data={}, queue="jobs") for _ in range(3)])
    claims = (await broker.turn([], 3)).claims
    client.delete(f"job:{ids[1]}:events")
    client.set(f"job:{ids[1]}:events", "in the way")
    before = client.hgetall(f"job:{ids[1]}")
    turn = await broker.turn([Settlement(claim, Completed(b"1"), ENDED) for claim in claims], 0)
    assert turn.verdicts[0] is None
    assert turn.verdicts[2] is None
    assert "WRONGTYPE" in str(turn.verdicts[1])
    assert client.hgetall(f"job:{ids[1]}") == before
    assert [entry for entry, _, _ in pending(client)] == [claims[1].receipt.entry]


async def test_a_turn_settles_and_claims_in_one_trip(broker, clock, client) -> None:
    claim = await claim_born(broker, clock)
    (next_id,) = await submit(broker, [Job(name="chat", data={}, queue="jobs")])
    calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    turn = await broker.turn([Settlement(claim, Completed(), ENDED)], 1)
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == calls + 1
    assert turn.verdicts == [None]
    assert [claim.job.id for claim in turn.claims] == [next_id]


async def test_a_large_batch_of_large_results_is_settled_whole(broker, client) -> None:
    await broker.submit([Job(name="chat", data={}, queue="jobs") for _ in range(30)])
    claims = (await broker.turn([], 30)).claims
    result = b'"' + b"x" * 400_000 + b'"'
    turn = await broker.turn([Settlement(claim, Completed(result), ENDED) for claim in claims], 0)
    assert turn.verdicts == [None] * 30
    assert all(client.hget(f"job:{claim.job.id}", "result") == result for claim in claims)
    shared = [fields[b"data"] for _, fields in client.xrange("jobs:events") if fields[b"type"] == b"done"]
    assert shared == [b'{"omitted":400013}'] * 30


# -- giving back --------------------------------------------------------------------------------------------


async def test_a_job_given_back_is_queued_again_and_spends_nothing(broker, clock, client) -> None:
    claim = await claim_born(broker, clock)
    assert await settle_ended(broker, claim, Released()) is None
    assert client.hget(f"job:{claim.job.id}", "status") == b"queued"
    assert story(client, claim.job.id) == ["queued", "running", "queued"]
    assert pending(client) == []
    ((_, fields),) = client.xrange("jobs:stream")
    assert list(fields) == [b"job_id", b"task", b"payload"]
    (again,) = (await broker.turn([], 1)).claims
    assert again.job.id == claim.job.id
    assert (again.job.starts, again.job.stalls, again.receipt.deliveries) == (1, 0, 1)
    assert not client.exists(f"job:{claim.job.id}:deliveries")


async def test_a_job_given_back_keeps_fields_we_do_not_know(broker, client) -> None:
    job_id = ForeignGateway(client).create("chat", {})
    client.xtrim("jobs:stream", maxlen=0, approximate=False)
    client.xadd("jobs:stream", {"job_id": job_id, "task": "chat", "payload": "{}", "trace_id": "7"})
    (claim,) = (await broker.turn([], 1)).claims
    await settle_ended(broker, claim, Released())
    ((_, fields),) = client.xrange("jobs:stream")
    assert fields[b"trace_id"] == b"7"


async def test_a_job_given_back_after_its_entry_was_trimmed_away_is_rebuilt(broker, clock, client) -> None:
    claim = await claim_born(broker, clock, {"n": 7})
    client.xtrim("jobs:stream", maxlen=0, approximate=False)
    assert await settle_ended(broker, claim, Released()) is None
    (again,) = (await broker.turn([], 1)).claims
    assert (again.job.id, again.job.name, again.job.data) == (claim.job.id, "chat", {"n": 7})
