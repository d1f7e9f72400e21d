"""Every protocol keeps a short record of each attempt that failed."""

from corral.core.job import FailedAttempt, JobState
from corral.core.options import Capability
from corral.core.outcome import Cancelled, Dead, Retry
from tests.support.harness import QueueHarness
from tests.support.jobs import submit


async def test_an_attempt_that_ends_a_job_is_recorded_with_its_times_its_worker_and_its_error(
    harness: QueueHarness,
) -> None:
    broker = harness.broker("worker-b")
    harness.now = 1_700_000_000_000
    [job_id] = await submit(broker, [harness.job()])
    claim = await harness.claim(broker)
    harness.now += 250
    await broker.turn([harness.settle(claim, Dead("no route ü", "Traceback …", "GatewayDown"))], 0)
    job = await harness.inspector.job(job_id)
    assert job is not None
    assert job.state is JobState.DEAD
    assert job.failed_attempts == (
        FailedAttempt(
            number=1,
            started_at=1_700_000_000_000,
            ended_at=1_700_000_000_250,
            worker="worker-b",
            error="GatewayDown",
            message="no route ü",
        ),
    )


async def test_records_of_attempts_are_bounded_and_stay_with_a_job_that_completes(
    harness: QueueHarness,
) -> None:
    broker = harness.broker()
    [job_id] = await submit(broker, [harness.job(attempts=30 if harness.can(Capability.RETRY) else 1)])
    claim = await harness.claim(broker)
    assert claim.job.failed_attempts == ()
    if harness.can(Capability.RETRY):
        for number in range(25):
            await broker.turn([harness.settle(claim, Retry(0, f"{number} " + "x" * 1000, "", "E" * 500))], 0)
            claim = await harness.claim(broker)
        assert [attempt.number for attempt in claim.job.failed_attempts] == list(range(6, 26))
        last = claim.job.failed_attempts[-1]
        assert (len(last.message), len(last.error), last.message[:3]) == (200, 100, "24 ")
    await broker.turn([harness.settle(claim)], 0)
    job = await harness.inspector.job(job_id)
    assert job is not None
    assert job.state is JobState.COMPLETED
    assert job.failed_attempts == claim.job.failed_attempts


async def test_a_job_that_was_cancelled_has_no_failed_attempt(harness: QueueHarness) -> None:
    broker = harness.broker()
    [job_id] = await submit(broker, [harness.job()])
    claim = await harness.claim(broker)
    await broker.turn([harness.settle(claim, Cancelled())], 0)
    job = await harness.inspector.job(job_id)
    assert job is not None
    assert job.failed_attempts == ()
    assert not any("attempts" in name for name in job.extra)
