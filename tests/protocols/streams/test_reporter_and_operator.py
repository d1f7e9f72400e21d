"""The streams protocol's Reporter and Operator: a handler's own words, and an operator's."""

import json
from uuid import uuid4

import pytest

from corral.core.event import EventKind
from corral.core.outcome import Cancelled, Completed, Dead, Released
from corral.errors import (
    InvalidOptions,
    InvalidPayload,
    JobCancelled,
    JobMissing,
    LockMissing,
    LockStolen,
    NotActive,
    Unsupported,
)
from tests.protocols.streams.steps import claim_new, settlement, submit
from tests.support.foreign_client_streams import ForeignGateway, make_old, pending, story

# -- a handler's own words ----------------------------------------------------------------------------------


async def test_progress_is_an_event_with_the_value_as_json(broker, reporter, client) -> None:
    claim = await claim_new(broker)
    await reporter.progress(claim, {"percent": 25, "note": "half a scene"})
    _, event = client.xrange(f"job:{claim.job.id}:events")[-1]
    assert (event[b"type"], event[b"step"]) == (b"progress", b"worker.progress")
    assert json.loads(event[b"data"]) == {"percent": 25, "note": "half a scene"}
    added = {b"progress", b"progress_message"}
    assert len(client.hgetall(f"job:{claim.job.id}").keys() - added) == 9


async def test_a_handlers_own_event_carries_its_step_and_data(broker, reporter, client) -> None:
    claim = await claim_new(broker)
    await reporter.emit(claim, "token", {"text": "Hel"})
    await reporter.emit(claim, "done", None)
    written = [fields for _, fields in client.xrange(f"job:{claim.job.id}:events")][-2:]
    assert [(event[b"type"], event[b"step"], event[b"data"]) for event in written] == [
        (b"event", b"token", b'{"text":"Hel"}'),
        (b"event", b"done", b"{}"),
    ]


async def test_no_word_of_a_handler_ends_a_readers_tail(broker, reporter, client) -> None:
    claim = await claim_new(broker)
    for step in ("done", "error", "canceled"):
        await reporter.emit(claim, step, {"type": step})
    await broker.turn([settlement(claim)], 0)
    assert [event["type"] for event in ForeignGateway(client).tail(claim.job.id)][-4:] == ["event"] * 3 + [
        "done"
    ]


async def test_log_lines_are_events_and_can_be_read_back(broker, reporter, inspector, client) -> None:
    claim = await claim_new(broker)
    for n in range(5):
        assert await reporter.log(claim, f"line {n} \ud800") == 0
        await reporter.progress(claim, n)
    assert await inspector.logs(claim.job.id) == [f"line {n} ?" for n in range(5)]
    assert await inspector.logs(claim.job.id, 1, 2) == ["line 1 ?", "line 2 ?"]
    assert story(client, claim.job.id).count("log") == 5


async def test_a_handlers_words_refresh_the_lifetimes_and_reach_the_shared_log(
    broker, reporter, events, client
) -> None:
    claim = await claim_new(broker)
    for key in (f"job:{claim.job.id}", f"job:{claim.job.id}:events"):
        client.expire(key, 10)
    await reporter.progress(claim, 50)
    assert client.ttl(f"job:{claim.job.id}") > 3500
    assert client.ttl(f"job:{claim.job.id}:events") > 3500
    last = (await events.range())[-1]
    assert (last.kind, last.job_id, last.name, last.worker) == (
        EventKind.PROGRESS,
        claim.job.id,
        "chat",
        "w1",
    )
    assert last.data == {"step": "worker.progress", "data": 50}


async def test_a_handlers_words_are_refused_once_its_claim_is_not_held(broker, reporter, client) -> None:
    await submit(broker, 4)
    settled, stolen, expired, finished = (await broker.turn([], 4)).claims
    await broker.turn([settlement(settled)], 0)
    client.xclaim("jobs:stream", "workers", "w2", 0, [stolen.receipt.entry])
    client.delete(f"job:{expired.job.id}", f"job:{expired.job.id}:events")
    client.hset(f"job:{finished.job.id}", "status", "done")
    before = {key: client.dump(key) for key in client.scan_iter()}
    cases = ((settled, LockMissing), (stolen, LockStolen), (expired, JobMissing), (finished, NotActive))
    for claim, error in cases:
        for say in (reporter.progress(claim, 1), reporter.log(claim, "x"), reporter.emit(claim, "s", {})):
            with pytest.raises(error, match=claim.job.id):
                await say
    assert {key: client.dump(key) for key in client.scan_iter()} == before


async def test_what_json_cannot_carry_is_refused(broker, reporter, client) -> None:
    claim = await claim_new(broker)
    with pytest.raises(InvalidPayload, match="progress"):
        await reporter.progress(claim, float("nan"))
    with pytest.raises(InvalidPayload, match="data"):
        await reporter.emit(claim, "step", {1: 2})
    for step in ("", "s" * 256, 7):
        with pytest.raises(InvalidOptions, match="step"):
            await reporter.emit(claim, step, {})
    assert story(client, claim.job.id) == ["queued", "running"]


# -- cancelling ---------------------------------------------------------------------------------------------


async def test_a_waiting_job_that_is_cancelled_ends_and_its_entry_is_passed_over(
    broker, operator, client
) -> None:
    first, second = await submit(broker, 2)
    client.expire(f"job:{first}", 10)
    assert await operator.cancel([first]) == [first]
    assert client.hget(f"job:{first}", "status") == b"canceled"
    assert client.ttl(f"job:{first}") > 3500
    assert story(client, first) == ["queued", "canceled"]
    assert [claim.job.id for claim in (await broker.turn([], 2)).claims] == [second]
    assert story(client, first) == ["queued", "canceled"]
    assert broker.skipped == {"over": 1}


async def test_a_running_job_that_is_cancelled_ends_at_once_and_its_handler_is_told(
    broker, reporter, operator, client
) -> None:
    claim = await claim_new(broker)
    assert await operator.cancel([claim.job.id]) == [claim.job.id]
    assert client.hget(f"job:{claim.job.id}", "status") == b"canceled"
    extension = await broker.extend([claim])
    assert (list(extension.lost), list(extension.cancelled)) == ([], [claim])
    with pytest.raises(JobCancelled, match=claim.job.id):
        await reporter.progress(claim, 50)
    assert (await broker.turn([settlement(claim, Cancelled())], 0)).verdicts == [None]
    assert story(client, claim.job.id) == ["queued", "running", "canceled"]
    assert pending(client) == []
    assert client.xlen("jobs:stream") == 0


@pytest.mark.parametrize("outcome", [Completed(b"1"), Dead("x"), Released()])
async def test_a_cancelled_job_stays_cancelled_however_its_handler_ended(
    broker, operator, client, outcome
) -> None:
    claim = await claim_new(broker)
    await operator.cancel([claim.job.id])
    (verdict,) = (await broker.turn([settlement(claim, outcome)], 0)).verdicts
    assert type(verdict) is NotActive
    assert client.hget(f"job:{claim.job.id}", "status") == b"canceled"
    assert client.hget(f"job:{claim.job.id}", "result") == b""
    assert story(client, claim.job.id)[-1] == "canceled"
    assert pending(client) == []
    assert (await broker.turn([], 1)).claims == []


async def test_a_cancelled_job_of_a_dead_worker_does_not_come_back(broker, operator, client) -> None:
    claim = await claim_new(broker)
    await operator.cancel([claim.job.id])
    make_old(client, claim.receipt.entry)
    assert (await broker.recover()).requeued == []
    assert pending(client) == []


async def test_what_is_over_or_unknown_cannot_be_cancelled(broker, operator, client) -> None:
    claim = await claim_new(broker)
    await broker.turn([settlement(claim)], 0)
    before = client.dump(f"job:{claim.job.id}")
    nobody = str(uuid4())
    assert await operator.cancel([claim.job.id, nobody, claim.job.id]) == []
    assert client.dump(f"job:{claim.job.id}") == before
    assert not client.exists(f"job:{nobody}")


async def test_many_jobs_can_be_cancelled_at_once(broker, operator) -> None:
    ids = await submit(broker, 1234)
    assert await operator.cancel(ids) == ids


async def test_removing_deletes_ended_and_waiting_jobs_but_no_running_one(
    broker, operator, inspector, client
) -> None:
    done, running, waiting = await submit(broker, 3)
    (claim,) = (await broker.turn([], 1)).claims
    await broker.turn([settlement(claim)], 1)
    assert await operator.remove([done, running, waiting, "nobody"]) == [done, waiting]
    assert client.keys(f"job:{done}*") == client.keys(f"job:{waiting}*") == []
    assert await inspector.job(running) is not None
    assert (await broker.turn([], 1)).claims == []


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (lambda operator: operator.pause(), "no pause; stop its workers"),
        (lambda operator: operator.resume(), "nothing to resume"),
        (lambda operator: operator.retry(["x"]), "no retry: .* submit its payload as a new job"),
        (lambda operator: operator.promote(["x"]), "no delay, so there is nothing to promote"),
    ],
    ids=["pause", "resume", "retry", "promote"],
)
async def test_what_the_contract_has_no_word_for_is_refused(operator, client, verb, said) -> None:
    with pytest.raises(Unsupported, match=said):
        await verb(operator)
    assert client.keys() == []
