"""What every protocol promises, whatever its wire looks like."""

import asyncio
import time

import pytest

from corral.core.event import EventKind
from corral.core.job import Claim, JobState
from corral.core.options import Capability
from corral.core.outcome import Cancelled, Completed, Dead, Postponed, Released, Retry
from corral.core.ports import RestReason
from corral.errors import SettleError
from corral.protocols import names_with
from tests.contract.conftest import within
from tests.support.harness import QueueHarness
from tests.support.jobs import submit
from tests.support.polling import outlast, until

AWKWARD = {
    "big": 130775545883395173,
    "empty list": [],
    "empty object": {},
    "nested": [[], {}, [{}], None, True, 1.5, -0.0],
    "text": 'ünïcödé \u2028 "quoted" \\ \n \x01 🐎',
}


async def claim_one(broker):
    turn = await broker.turn([], 1)
    assert len(turn.claims) == 1
    return turn.claims[0]


async def test_a_submitted_job_is_claimed_with_its_data_untouched(harness: QueueHarness):
    broker = harness.broker()
    [job_id] = await submit(broker, [harness.job(AWKWARD)])
    claim = await claim_one(broker)
    assert claim.job.id == job_id
    assert claim.job.name == harness.job_name
    assert claim.job.data == AWKWARD
    assert claim.job.state is JobState.ACTIVE


async def test_a_batch_of_any_size_comes_out_in_order(harness: QueueHarness):
    broker = harness.broker()
    ids = await submit(broker, [harness.job({"n": n}) for n in range(1234)])
    assert len(set(ids)) == 1234
    seen = []
    while len(seen) < 1234:
        turn = await broker.turn([], 500)
        assert turn.claims
        seen += turn.claims
    assert [claim.job.id for claim in seen] == ids
    assert [claim.job.data["n"] for claim in seen] == list(range(1234))


async def test_submitting_nothing_does_nothing(harness: QueueHarness, server):
    assert await submit(harness.broker(), []) == []
    with server.connect() as client:
        assert client.dbsize() == 0


async def test_an_empty_queue_says_it_is_drained(harness: QueueHarness):
    turn = await harness.broker().turn([], 5)
    assert turn.claims == []
    assert turn.rest.reason is RestReason.DRAINED


async def test_a_turn_that_brings_all_that_was_wanted_says_so(harness: QueueHarness):
    broker = harness.broker()
    await broker.submit([harness.job(), harness.job()])
    turn = await broker.turn([], 1)
    assert turn.rest.reason is RestReason.SATISFIED


async def test_a_claim_says_whose_it_is(harness: QueueHarness):
    broker = harness.broker("worker-b")
    await broker.submit([harness.job()])
    claim = await claim_one(broker)
    seen = await harness.inspector.job(claim.job.id)
    assert seen is not None
    assert claim.job.worker == "worker-b"
    assert seen.worker in ("worker-b", None)  # not every contract writes it down
    assert claim.job.state is seen.state is JobState.ACTIVE


async def test_a_turn_settles_and_claims_in_one_trip(harness: QueueHarness):
    broker = harness.broker()
    first, second = await submit(broker, [harness.job(), harness.job()])
    claim = await claim_one(broker)
    turn = await broker.turn([harness.settle(claim, Completed(b'{"ok":true}'))], 1)
    assert turn.verdicts == [None]
    assert [c.job.id for c in turn.claims] == [second]
    done = await harness.inspector.job(first)
    assert done is not None
    assert done.state is JobState.COMPLETED
    assert done.result == {"ok": True}
    assert done.reason is None


async def test_a_dead_job_keeps_its_reason(harness: QueueHarness):
    broker = harness.broker()
    [job_id] = await submit(broker, [harness.job()])
    claim = await claim_one(broker)
    await broker.turn([harness.settle(claim, Dead("schief gelaufen: ß", "Traceback …"))], 0)
    dead = await harness.inspector.job(job_id)
    assert dead is not None
    assert dead.state is JobState.DEAD
    assert dead.reason == "schief gelaufen: ß"
    assert (await broker.turn([], 1)).claims == []


async def test_a_second_settlement_is_refused(harness: QueueHarness):
    broker = harness.broker()
    await broker.submit([harness.job()])
    claim = await claim_one(broker)
    assert (await broker.turn([harness.settle(claim)], 0)).verdicts == [None]
    [verdict] = (await broker.turn([harness.settle(claim, Dead("late"))], 0)).verdicts
    assert isinstance(verdict, SettleError)
    assert verdict.job_id == claim.job.id
    job = await harness.inspector.job(claim.job.id)
    assert job is None or job.state is JobState.COMPLETED


async def test_one_refused_settlement_leaves_its_neighbours_alone(harness: QueueHarness):
    broker = harness.broker()
    await broker.submit([harness.job() for _ in range(3)])
    claims = list((await broker.turn([], 3)).claims)
    await broker.turn([harness.settle(claims[1])], 0)
    verdicts = (await broker.turn([harness.settle(claim) for claim in claims], 0)).verdicts
    assert verdicts[0] is None
    assert verdicts[2] is None
    assert isinstance(verdicts[1], SettleError)


async def test_competing_workers_share_the_jobs_without_overlap(harness: QueueHarness):
    brokers = [harness.broker(f"worker-{n}") for n in range(4)]
    ids = await submit(brokers[0], [harness.job({"n": n}) for n in range(400)])

    async def work(broker):
        seen, settlements = [], []
        while True:
            turn = await broker.turn(settlements, 7)
            assert all(verdict is None for verdict in turn.verdicts)
            if not turn.claims:
                return seen
            seen += [claim.job.id for claim in turn.claims]
            settlements = [harness.settle(claim) for claim in turn.claims]

    shares = await asyncio.gather(*map(work, brokers))
    assert sorted(job_id for share in shares for job_id in share) == sorted(ids)


async def test_a_waiting_worker_is_woken_by_a_new_job(harness: QueueHarness):
    waiting, producer = harness.broker(), harness.broker("producer")
    rest = (await waiting.turn([], 1)).rest
    task = asyncio.create_task(waiting.wait(rest))
    await outlast(0.2)
    assert not task.done(), "an idle worker waits"
    with within(4):  # not the end of a block, after 5 s
        await producer.submit([harness.job()])
        await task
    assert len((await waiting.turn([], 1)).claims) == 1


async def test_no_job_is_missed_between_the_turn_and_the_wait(harness: QueueHarness):
    broker = harness.broker()
    rest = (await broker.turn([], 1)).rest
    await broker.submit([harness.job()])
    with within(4):  # not the end of a block, after 5 s
        await broker.wait(rest)
    assert len((await broker.turn([], 1)).claims) == 1


async def test_a_cancelled_wait_can_be_begun_again(harness: QueueHarness):
    broker = harness.broker()
    rest = (await broker.turn([], 1)).rest
    task = asyncio.create_task(broker.wait(rest))
    await outlast(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await no_client_is_blocked(harness)
    await broker.submit([harness.job()])
    with within(4):  # not the end of a block, after 5 s
        await broker.wait(rest)
    assert (await broker.turn([], 1)).claims


async def no_client_is_blocked(harness: QueueHarness) -> None:
    """Wait until the server has ended the cancelled wait; until then it may wake a client that is gone."""

    async def is_unblocked() -> bool:
        return b"flags=b" not in await harness.store.call("CLIENT", "LIST")

    await until(is_unblocked)


async def test_a_released_job_comes_back_with_no_attempt_spent(harness: QueueHarness):
    broker, other = harness.broker(), harness.broker("worker-b")
    await broker.submit([harness.job({"n": 1})])
    claim = await claim_one(broker)
    assert (await broker.turn([harness.settle(claim, Released())], 0)).verdicts == [None]
    again = await claim_one(other)
    assert again.job.id == claim.job.id
    assert again.job.attempts_made == claim.job.attempts_made == 0
    assert again.job.data == {"n": 1}
    [late] = (await broker.turn([harness.settle(claim)], 0)).verdicts
    assert isinstance(late, SettleError), "the first receipt fences only the first attempt"
    assert (await other.turn([harness.settle(again)], 0)).verdicts == [None]


async def test_an_extended_claim_outlives_its_lock(harness: QueueHarness):
    broker, other = harness.broker(lock_ms=600), harness.broker("worker-b", lock_ms=600)
    await broker.submit([harness.job()])
    claim = await claim_one(broker)
    for _ in range(8):
        await outlast(0.1)
        extension = await broker.extend([claim])
        assert list(extension.lost) == []
        await other.recover()
        assert (await other.turn([], 1)).claims == []
    assert (await broker.turn([harness.settle(claim)], 0)).verdicts == [None]


async def lose_the_answer(harness: QueueHarness, broker, want: int) -> object:
    """Claim and lose the answer; return the trip's receipt."""
    real_run = harness.store.run

    async def run_and_lose(*args, **kwargs):
        await real_run(*args, **kwargs)
        raise ConnectionError("the answer was lost")

    harness.store.run = run_and_lose
    with pytest.raises(ConnectionError):
        await broker.turn([], want)
    harness.store.run = real_run
    return broker.unanswered


async def test_a_claim_that_is_renewed_twice_in_one_call_is_still_held(harness):
    """As where the heartbeat finds it both among the held claims and among those that were just read."""
    broker = harness.broker()
    await submit(broker, [harness.job()])
    claim = await harness.claim(broker)
    assert list((await broker.extend([claim, claim])).lost) == []


async def test_what_a_trip_claimed_is_extended_by_its_receipt(harness: QueueHarness):
    broker, other = harness.broker(lock_ms=600), harness.broker("worker-b", lock_ms=600)
    beating = harness.broker(lock_ms=600)
    await broker.submit([harness.job(), harness.job()])
    receipt = await lose_the_answer(harness, broker, 3)
    for _ in range(8):
        await outlast(0.1)
        await beating.extend([], [receipt])
        await other.recover()
        assert (await other.turn([], 1)).claims == []
    settlements = [harness.settle(claim) for claim in (await broker.recover(owner=receipt)).claims]
    assert (await broker.turn(settlements, 0)).verdicts == [None, None]


async def test_a_receipt_does_not_extend_what_another_worker_has_claimed_since(harness: QueueHarness):
    broker, other = harness.broker(lock_ms=150), harness.broker("worker-b", lock_ms=150, max_stalls=5)
    await broker.submit([harness.job()])
    receipt = await lose_the_answer(harness, broker, 1)
    again = await take_over(harness, other)
    third = harness.broker("worker-c", lock_ms=150, max_stalls=5)

    async def taken() -> list[Claim]:
        await broker.extend([], [receipt])
        await third.recover()
        return list((await third.turn([], 1)).claims)

    [claim] = await until(taken, "the abandoned job is claimed")
    assert claim.job.id == again.job.id


async def take_over(harness: QueueHarness, other) -> object:
    """Recover until another worker has claimed the abandoned job."""

    async def claimed() -> list[Claim]:
        await other.recover()
        return list((await other.turn([], 1)).claims)

    return (await until(claimed, "the abandoned job is claimed"))[0]


async def test_an_abandoned_job_goes_to_another_worker_and_the_late_settlement_is_refused(
    harness: QueueHarness,
):
    broker, other = harness.broker(lock_ms=150), harness.broker("worker-b", lock_ms=150, max_stalls=5)
    await broker.submit([harness.job({"n": 1})])
    claim = await claim_one(broker)
    again = await take_over(harness, other)
    assert again.job.id == claim.job.id
    assert again.job.data == {"n": 1}
    assert [lost.job.id for lost in (await broker.extend([claim])).lost] == [claim.job.id]
    [late] = (await broker.turn([harness.settle(claim, Completed(b'"late"'))], 0)).verdicts
    assert isinstance(late, SettleError)
    assert (await other.turn([harness.settle(again, Completed(b'"right"'))], 0)).verdicts == [None]
    job = await harness.inspector.job(claim.job.id)
    assert job is not None
    assert job.result == "right"


async def test_a_job_that_kills_every_worker_ends_dead(harness: QueueHarness):
    broker = harness.broker(lock_ms=60, max_stalls=2)
    [job_id] = await submit(broker, [harness.job()])
    await claim_one(broker)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        await broker.recover()
        for claim in (await broker.turn([], 1)).claims:
            if claim.job.doomed:
                await broker.turn([harness.settle(claim, Dead(claim.job.doomed))], 0)
        job = await harness.inspector.job(job_id)
        assert job is not None
        if job.state is JobState.DEAD:
            assert job.reason
            return
        await asyncio.sleep(0.03)
    raise AssertionError("the job was tried for ever")


async def test_what_a_lost_trip_claimed_can_be_adopted(harness: QueueHarness):
    """The answer is lost after the script ran: another broker object plays the trip that nobody saw."""
    broker = harness.broker()
    ids = await submit(broker, [harness.job({"n": n}) for n in range(3)])
    real_run, store = harness.store.run, harness.store

    async def run_and_lose(*args, **kwargs):
        await real_run(*args, **kwargs)
        raise ConnectionError("the answer was lost")

    store.run = run_and_lose
    with pytest.raises(ConnectionError):
        await broker.turn([], 2)
    store.run = real_run
    assert broker.unanswered is not None
    adopted = (await broker.recover(owner=broker.unanswered)).claims
    assert {claim.job.id for claim in adopted} == set(ids[:2])
    assert broker.unanswered is None
    assert (await broker.turn([harness.settle(claim) for claim in adopted], 0)).verdicts == [None, None]
    assert [claim.job.id for claim in (await broker.turn([], 5)).claims] == ids[2:]


async def test_settling_after_a_lost_trip_does_not_forget_what_it_may_have_claimed(harness: QueueHarness):
    broker = harness.broker()
    first, second = await submit(broker, [harness.job(), harness.job()])
    claim = await claim_one(broker)
    real_run, store = harness.store.run, harness.store

    async def run_and_lose(*args, **kwargs):
        await real_run(*args, **kwargs)
        raise ConnectionError("the answer was lost")

    store.run = run_and_lose
    with pytest.raises(ConnectionError):
        await broker.turn([], 1)
    store.run = real_run
    assert claim.job.id == first
    assert (await broker.turn([harness.settle(claim)], 0)).verdicts == [None]
    adopted = (await broker.recover(owner=broker.unanswered)).claims
    assert [found.job.id for found in adopted] == [second]


async def test_a_trip_that_only_settles_may_be_under_way_beside_one_that_claims(harness: QueueHarness):
    broker = harness.broker()
    ids = await submit(broker, [harness.job({"n": n}) for n in range(3)])
    first = await claim_one(broker)
    claiming, settling = await asyncio.gather(broker.turn([], 1), broker.turn([harness.settle(first)], 0))
    [second] = claiming.claims
    assert (second.job.id, settling.verdicts, broker.unanswered) == (ids[1], [None], None)

    real_run, store = harness.store.run, harness.store

    async def run_and_lose(*args, **kwargs):
        await real_run(*args, **kwargs)
        raise ConnectionError("the answer was lost")

    store.run = run_and_lose
    lost = await asyncio.gather(
        broker.turn([], 1), broker.turn([harness.settle(second)], 0), return_exceptions=True
    )
    store.run = real_run
    assert list(map(type, lost)) == [ConnectionError, ConnectionError]
    [verdict] = (await broker.turn([harness.settle(second)], 0)).verdicts
    assert isinstance(verdict, SettleError), "the lost trip settled it"
    [adopted] = (await broker.recover(owner=broker.unanswered)).claims
    assert (adopted.job.id, broker.unanswered) == (ids[2], None)
    assert (await broker.turn([harness.settle(adopted)], 0)).verdicts == [None]


async def test_a_lost_trip_that_claimed_nothing_leaves_nothing_to_adopt(harness: QueueHarness):
    broker = harness.broker()
    await broker.submit([harness.job()])
    claim = await claim_one(broker)
    real_run, store = harness.store.run, harness.store

    async def fail_before(*args, **kwargs):
        raise ConnectionError("never sent")

    store.run = fail_before
    with pytest.raises(ConnectionError):
        await broker.turn([], 2)
    store.run = real_run
    adopted = (await broker.recover(owner=broker.unanswered)).claims
    assert list(adopted) == [], "a claim the worker holds is not adopted a second time"
    assert (await broker.turn([harness.settle(claim)], 0)).verdicts == [None]


async def test_a_lost_trip_that_arrives_after_its_recovery_claims_nothing(harness: QueueHarness):
    broker = harness.broker()
    ids = await submit(broker, [harness.job()])
    real_run, store = harness.store.run, harness.store
    late = []

    async def hold_back(*args, **kwargs):
        late.append((args, kwargs))
        raise ConnectionError("still on its way")

    store.run = hold_back
    with pytest.raises(ConnectionError):
        await broker.turn([], 1)
    store.run = real_run
    assert list((await broker.recover(owner=broker.unanswered)).claims) == []
    [(args, kwargs)] = late
    await store.run(*args, **kwargs)
    assert [claim.job.id for claim in (await broker.turn([], 1)).claims] == ids


async def test_a_job_that_moves_while_it_is_counted_is_counted_once(harness: QueueHarness):
    broker = harness.broker()
    await broker.submit([harness.job()])

    async def move():
        while True:
            claim = await claim_one(broker)
            await broker.extend([claim])  # three steps, which are not in step with those of counting
            await broker.turn([harness.settle(claim, Released())], 0)

    moving = asyncio.create_task(move())
    for _ in range(100):
        counts = await harness.inspector.counts()
        assert counts.get(JobState.WAITING, 0) + counts.get(JobState.ACTIVE, 0) == 1
    assert not moving.done(), moving
    moving.cancel()


async def test_the_reporter_writes_only_while_the_claim_is_held(harness: QueueHarness):
    broker, reporter = harness.broker(), harness.reporter()
    await broker.submit([harness.job()])
    claim = await claim_one(broker)
    await reporter.progress(claim, 25)
    await reporter.emit(claim, "half-way", {"scene": [1]})
    await broker.turn([harness.settle(claim)], 0)
    with pytest.raises(SettleError):
        await reporter.progress(claim, 50)
    with pytest.raises(SettleError):
        await reporter.emit(claim, "too-late", None)


async def test_events_tell_the_life_of_a_job_in_order(harness: QueueHarness):
    broker = harness.broker()
    [job_id] = await submit(broker, [harness.job()])
    claim = await claim_one(broker)
    await harness.reporter().progress(claim, 50)
    await broker.turn([harness.settle(claim, Completed(b'{"ok":1}'))], 0)
    kinds = [event.kind for event in await harness.events.range() if event.job_id == job_id]
    assert kinds[-3:] == [EventKind.ACTIVE, EventKind.PROGRESS, EventKind.COMPLETED]
    assert kinds[0] in (EventKind.ADDED, EventKind.WAITING)


async def test_events_can_be_read_page_by_page_and_tailed(harness: QueueHarness):
    broker = harness.broker()
    await broker.submit([harness.job() for _ in range(5)])
    everything = await harness.events.range()
    assert everything
    assert all(
        event.protocol == harness.protocol.spec.name and event.queue == harness.queue for event in everything
    )
    paged, after = [], "-"
    while page := await harness.events.range(after, 3):
        paged += page
        after = page[-1].id
    assert [event.id for event in paged] == [event.id for event in everything]
    extent = await harness.events.extent()
    assert extent.length == len(everything)
    assert extent.last == everything[-1].id

    tail = harness.events.tail(after="$")
    following = asyncio.create_task(anext(tail))
    await outlast(0.2)
    [new_id] = await submit(broker, [harness.job()])
    assert (await asyncio.wait_for(following, 5)).job_id == new_id
    await tail.aclose()


async def test_counts_follow_the_jobs(harness: QueueHarness):
    broker, inspector = harness.broker(), harness.inspector
    await broker.submit([harness.job() for _ in range(3)])
    assert (await inspector.counts())[JobState.WAITING] == 3
    claim = await claim_one(broker)
    counts = await inspector.counts()
    assert (counts[JobState.WAITING], counts[JobState.ACTIVE]) == (2, 1)
    await broker.turn([harness.settle(claim)], 0)
    assert (await inspector.counts())[JobState.ACTIVE] == 0


async def test_waiting_and_active_jobs_can_be_listed(harness: QueueHarness):
    broker, inspector = harness.broker(), harness.inspector
    ids = await submit(broker, [harness.job({"n": n}) for n in range(5)])
    await claim_one(broker)
    waiting = await inspector.jobs(JobState.WAITING, 3)
    assert [job.id for job in waiting] == ids[1:4], "the next to run first"
    assert [job.id for job in await inspector.jobs(JobState.ACTIVE)] == ids[:1]
    assert await inspector.job("no-such-job") is None
    # other keys of the queue are not its jobs, whatever they hold
    for name in ("meta", "wait", "id", "events", "1:lock", "1:logs"):
        assert await inspector.job(name) is None


async def test_a_worker_that_waits_is_listed(harness: QueueHarness):
    broker = harness.broker("worker-x")
    rest = (await broker.turn([], 1)).rest
    task = asyncio.create_task(broker.wait(rest))

    async def is_listed() -> bool:
        return "worker-x" in [worker.name for worker in await harness.inspector.workers()]

    assert await until(is_listed)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_waiting_job_that_is_cancelled_never_runs(harness: QueueHarness):
    broker = harness.broker()
    first, second = await submit(broker, [harness.job(), harness.job()])
    assert await harness.operator.cancel([first, "no-such-job"]) == [first]
    assert [claim.job.id for claim in (await broker.turn([], 5)).claims] == [second]


async def test_the_holder_of_a_cancelled_job_is_told_and_ends_it(harness: QueueHarness):
    broker = harness.broker()
    [job_id] = await submit(broker, [harness.job()])
    claim = await claim_one(broker)
    assert list((await broker.extend([claim])).cancelled) == []
    assert await harness.operator.cancel([job_id]) == [job_id]
    assert [claim.job.id for claim in (await broker.extend([claim])).cancelled] == [job_id]
    assert (await broker.turn([harness.settle(claim, Cancelled())], 0)).verdicts == [None]
    job = await harness.inspector.job(job_id)
    assert job is not None
    assert job.state in (JobState.CANCELLED, JobState.DEAD)
    assert (await broker.turn([], 1)).claims == []


async def test_an_ended_job_cannot_be_cancelled(harness: QueueHarness):
    broker = harness.broker()
    [job_id] = await submit(broker, [harness.job()])
    await broker.turn([harness.settle(await claim_one(broker))], 0)
    assert await harness.operator.cancel([job_id]) == []


async def test_an_ended_job_can_be_removed_and_a_held_one_cannot(harness: QueueHarness):
    broker = harness.broker()
    first, second = await submit(broker, [harness.job(), harness.job()])
    await broker.turn([harness.settle(await claim_one(broker))], 1)
    assert await harness.operator.remove([first, second]) == [first]
    assert await harness.inspector.job(first) is None
    assert await harness.inspector.job(second) is not None


# -- where the contract has a word for it -----------------------------------------------------------------


def where(capability: Capability):
    """Run a test in the protocols that have the capability; refusals elsewhere have tests of their own."""
    able = names_with(capability)
    return pytest.mark.parametrize("harness", able, indirect=True)


@where(Capability.RETRY)
async def test_a_failed_attempt_is_tried_again_after_its_delay(harness: QueueHarness):
    broker = harness.broker()
    [job_id] = await submit(broker, [harness.job()])
    claim = await claim_one(broker)
    turn = await broker.turn([harness.settle(claim, Retry(250, "boom", "trace 1"))], 1)
    assert turn.claims == []
    assert turn.rest.until is not None
    job = await harness.inspector.job(job_id)
    assert job is not None
    assert job.state is JobState.DELAYED
    start = time.monotonic()
    while not (turn := await broker.turn([], 1)).claims:
        await broker.wait(turn.rest)
        assert time.monotonic() - start < 5
    assert time.monotonic() - start > 0.2
    [again] = turn.claims
    assert again.job.attempts_made == 1
    assert again.job.reason == "boom"
    assert again.job.trace == ("trace 1",)


@where(Capability.RETRY)
async def test_a_retry_without_delay_is_claimable_at_once(harness: QueueHarness):
    broker = harness.broker()
    await broker.submit([harness.job()])
    claim = await claim_one(broker)
    turn = await broker.turn([harness.settle(claim, Retry(0, "boom"))], 1)
    assert [again.job.attempts_made for again in turn.claims] == [1]


@where(Capability.DELAY)
async def test_a_postponed_job_comes_back_with_no_attempt_spent(harness: QueueHarness):
    broker = harness.broker()
    await broker.submit([harness.job()])
    turn = await broker.turn([harness.settle(await claim_one(broker), Postponed(100))], 1)
    assert turn.claims == []
    deadline = time.monotonic() + 5
    while not (turn := await broker.turn([], 1)).claims:
        await broker.wait(turn.rest)
        assert time.monotonic() < deadline
    assert turn.claims[0].job.attempts_made == 0


@where(Capability.DELAY)
async def test_a_delayed_job_wakes_a_waiting_worker_when_it_is_due(harness: QueueHarness):
    broker, producer = harness.broker(), harness.broker("producer")
    rest = (await broker.turn([], 1)).rest
    task = asyncio.create_task(broker.wait(rest))
    await outlast(0.05)
    start = time.monotonic()
    await producer.submit([harness.job(delay=300)])
    await task
    while not (turn := await broker.turn([], 1)).claims:
        await broker.wait(turn.rest)
    assert 0.25 < time.monotonic() - start < 4


@where(Capability.PAUSE)
async def test_a_paused_queue_hands_out_nothing_until_it_resumes(harness: QueueHarness):
    broker = harness.broker()
    await broker.submit([harness.job()])
    await harness.operator.pause()
    await broker.submit([harness.job()])
    assert await harness.inspector.is_paused()
    turn = await broker.turn([], 5)
    assert (turn.claims, turn.rest.reason) == ([], RestReason.PAUSED)
    task = asyncio.create_task(broker.wait(turn.rest))
    await outlast(0.1)
    assert not task.done()
    with within(4):  # not the end of a block, after 5 s
        await harness.operator.resume()
        await task
    assert len((await broker.turn([], 5)).claims) == 2


@where(Capability.CUSTOM_ID)
async def test_adding_an_id_that_exists_changes_nothing(harness: QueueHarness):
    broker = harness.broker()
    chosen = "order-17" if harness.protocol.spec.name == "bullmq" else "0b0e7e6c-6f5e-4f3b-9a53-2f4f0a9d8c11"
    assert await submit(broker, [harness.job({"n": 1}, id=chosen)]) == [chosen]
    assert await submit(broker, [harness.job({"n": 2}, id=chosen)]) == [chosen]
    turn = await broker.turn([], 5)
    assert [claim.job.data for claim in turn.claims] == [{"n": 1}]


@where(Capability.LOGS)
async def test_logs_are_kept_in_order(harness: QueueHarness):
    broker, reporter = harness.broker(), harness.reporter()
    [job_id] = await submit(broker, [harness.job(keep_logs=3)])
    claim = await claim_one(broker)
    assert [await reporter.log(claim, f"line {n}") for n in range(5)] == [1, 2, 3, 3, 3]
    assert await harness.inspector.logs(job_id) == ["line 2", "line 3", "line 4"]


@where(Capability.LOGS)
async def test_a_thousand_lines_are_kept_of_a_job_that_says_nothing_about_it(harness: QueueHarness):
    broker, reporter = harness.broker(), harness.reporter()
    [job_id] = await submit(broker, [harness.job()])
    claim = await claim_one(broker)
    counts = await asyncio.gather(*(reporter.log(claim, f"line {n}") for n in range(1003)))
    assert counts[-4:] == [1000] * 4
    lines = await harness.inspector.logs(job_id, 0, 2000)
    assert (len(lines), lines[0], lines[-1]) == (1000, "line 3", "line 1002")
