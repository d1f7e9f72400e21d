"""Every protocol leaves jobs to other workers that have a handler for them."""

from typing import Any

from corral.core.event import EventKind
from corral.core.job import Claim, Job, JobState
from corral.core.options import Capability
from corral.core.outcome import Unhandled
from corral.core.ports import Broker, RestReason, WorkerRecord
from corral.errors import SettleError
from corral.protocols.records import QueueRecords
from tests.support.harness import QueueHarness
from tests.support.jobs import submit
from tests.support.polling import outlast

START = 1_760_000_000_000
HOUR_MS = 3_600_000


def names_of(harness: QueueHarness) -> tuple[str, str]:
    """Return two names of jobs that the protocol accepts."""
    return ("embed", "rag") if harness.protocol.spec.name == "streams" else ("one", "two")


async def leave(harness: QueueHarness, broker: Broker, name: str, after: int = HOUR_MS) -> list[Claim]:
    """Do what a worker with a handler for that name does with the other jobs; return those of that name."""
    claims = (await broker.turn([], 10)).claims
    others = [claim for claim in claims if claim.job.name != name]
    turn = await broker.turn([harness.settle(claim, Unhandled("no handler", after)) for claim in others], 0)
    assert not any(turn.verdicts)
    return [claim for claim in claims if claim not in others]


def beat(harness: QueueHarness, worker: str, *names: str) -> Any:
    """Write the record of a worker with handlers for these names."""
    records = QueueRecords(harness.binding(), harness.protocol.spec.name, harness.inspector)
    record = WorkerRecord(
        name=worker,
        host="h",
        process=1,
        since=0,
        at=harness.now,
        concurrency=1,
        handlers=dict.fromkeys(names),
    )
    return records.write(record, {}, 30_000)


async def test_a_job_is_left_to_the_worker_that_knows_it_and_no_attempt_is_spent(
    harness: QueueHarness,
) -> None:
    one, two = names_of(harness)
    harness.now = START
    first, second = harness.broker("first", serves=(one,)), harness.broker("second", serves=(two,))
    ids = await submit(harness.broker("p"), [harness.job(name=name) for name in (one, two, one, two)])
    assert [claim.job.id for claim in await leave(harness, first, one)] == [ids[0], ids[2]]
    counts = await harness.inspector.counts()
    assert counts[JobState.ACTIVE] == 2
    assert counts[JobState.WAITING] + counts.get(JobState.DELAYED, 0) == 2
    harness.now += 1000  # bullmq: the postponement
    claims = (await second.turn([], 10)).claims
    assert sorted(claim.job.id for claim in claims) == sorted([ids[1], ids[3]])
    assert {(claim.job.attempts_made, claim.job.stalls) for claim in claims} == {(0, 0)}
    await second.turn([harness.settle(claim) for claim in claims], 0)
    jobs = [await harness.inspector.job(job_id) for job_id in ids]
    states = [None if job is None else job.state for job in jobs]
    assert states == [JobState.ACTIVE, JobState.COMPLETED, JobState.ACTIVE, JobState.COMPLETED]
    done = jobs[1]
    assert done is not None
    assert (done.attempts_made, done.failed_attempts) == (1, ())


async def test_a_job_that_nobody_knows_ends_dead_after_its_time_and_not_before(
    harness: QueueHarness,
) -> None:
    one, two = names_of(harness)
    broker, job_id = await one_unhandled(harness, one, two)
    for _ in range(3):
        assert await state_of(harness, broker, one, job_id) in (JobState.WAITING, JobState.DELAYED)
        await pass_time(harness, 0.4)
    assert await state_of(harness, broker, one, job_id) is JobState.DEAD
    job = await harness.inspector.job(job_id)
    assert job is not None
    assert job.reason is not None
    assert "handler" in job.reason
    assert (await harness.events.of_job(job))[-1].kind == EventKind.DEAD


async def test_a_job_stays_while_a_worker_that_knows_it_is_there_however_busy(harness: QueueHarness) -> None:
    one, two = names_of(harness)
    broker, job_id = await one_unhandled(harness, one, two)
    await state_of(harness, broker, one, job_id)
    await pass_time(harness, 1.5)
    await beat(harness, "busy", two)
    assert await state_of(harness, broker, one, job_id) in (JobState.WAITING, JobState.DELAYED)


async def test_a_worker_says_which_waiting_jobs_it_has_no_handler_for(harness: QueueHarness) -> None:
    one, two = names_of(harness)
    broker, job_id = await one_unhandled(harness, one, two)
    await leave(harness, broker, one)
    turn = await broker.turn([], 1)
    assert turn.rest.reason is RestReason.DRAINED
    # bullmq hands them out after each postponement; the others leave them where they are
    assert list(turn.unhandled) == ([] if harness.protocol.spec.name == "bullmq" else [two])
    assert [job.id for job in await waiting(harness)] == [job_id]
    [listed] = await harness.protocol.bind(harness.binding()).snapshot.locate([job_id])
    assert (listed.has_record, len(listed.places)) == (True, 1)
    assert not [worker.name for worker in await harness.inspector.workers() if "parked" in worker.name]
    await harness.operator.drain(delayed=harness.can(Capability.DELAY))
    assert await waiting(harness) == []


async def test_an_unhandled_job_that_was_lost_is_not_left_again(harness: QueueHarness) -> None:
    broker = harness.broker()
    await submit(broker, [harness.job()])
    claim = await harness.claim(broker)
    left = harness.settle(claim, Unhandled("no handler", HOUR_MS))
    assert (await broker.turn([left], 0)).verdicts == [None]
    [verdict] = (await broker.turn([left], 0)).verdicts
    assert isinstance(verdict, SettleError)


# -- helpers ------------------------------------------------------------------------------------------------

AFTER_MS = {"streams": 100}
"""How long jobs are left to others; the idle time of streams is the server's, which no test can set."""


async def one_unhandled(harness: QueueHarness, one: str, two: str) -> tuple[Broker, str]:
    """Return a worker with a handler for `one`, and a job called `two`."""
    if harness.protocol.spec.name not in AFTER_MS:
        harness.now = START
    after = AFTER_MS.get(harness.protocol.spec.name, HOUR_MS)
    broker = harness.broker(serves=(one,), unknown_ms=after)
    [job_id] = await submit(broker, [harness.job(name=two)])
    return broker, job_id


async def pass_time(harness: QueueHarness, share: float) -> None:
    """Let that share of the time pass for which jobs are left to others."""
    after = AFTER_MS.get(harness.protocol.spec.name)
    if after is None:
        harness.now += int(HOUR_MS * share)
    else:
        await outlast(after * share / 1000)


async def state_of(harness: QueueHarness, broker: Broker, name: str, job_id: str) -> JobState | None:
    """Return the state of a job after a worker with a handler for that name has looked at the queue."""
    await leave(harness, broker, name, AFTER_MS.get(harness.protocol.spec.name, HOUR_MS))
    await broker.recover()
    job = await harness.inspector.job(job_id)
    assert job is not None
    return job.state


async def waiting(harness: QueueHarness) -> list[Job]:
    """Return the jobs that wait, or are postponed."""
    return [*await harness.inspector.jobs(JobState.WAITING), *await harness.inspector.jobs(JobState.DELAYED)]
