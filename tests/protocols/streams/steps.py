"""What the tests of the streams protocol do again and again: submit, claim, settle."""

from corral.core.job import Claim, Job, JobOptions
from corral.core.outcome import Completed, Outcome, Settlement
from corral.core.ports import Broker
from corral.errors import SettleError
from tests.support.harness import Clock, now_ms
from tests.support.jobs import submit as submit_jobs

BORN, CLAIMED, ENDED = 1_700_000_000_000, 1_700_000_001_000, 1_700_000_002_000


async def submit(broker: Broker, count: int = 1) -> list[str]:
    return await submit_jobs(broker, [Job(name="chat", data={"n": n}, queue="jobs") for n in range(count)])


async def claim_new(broker: Broker) -> Claim:
    """Submit one job and claim it."""
    await broker.submit([Job(name="chat", data={"n": 1}, queue="jobs")])
    [claim] = (await broker.turn([], 1)).claims
    return claim


def settlement(claim: Claim, outcome: Outcome | None = None, at: int | None = None) -> Settlement:
    return Settlement(claim, outcome or Completed(b"1"), at or now_ms())


async def settle(
    broker: Broker, claim: Claim, outcome: Outcome | None = None, at: int | None = None
) -> SettleError | None:
    """Settle one claim; return its verdict."""
    [verdict] = (await broker.turn([settlement(claim, outcome, at)], 0)).verdicts
    return verdict


async def claim_born(broker: Broker, clock: Clock, data: object = None, **options: object) -> Claim:
    """Submit a job at BORN and claim it at CLAIMED."""
    clock.now = BORN
    job = Job(name="chat", data=data or {"text": "hi"}, queue="jobs", options=JobOptions(extra=options))
    await broker.submit([job])
    clock.now = CLAIMED
    [claim] = (await broker.turn([], 1)).claims
    return claim


async def settle_ended(broker: Broker, claim: Claim, outcome: Outcome) -> SettleError | None:
    """Settle one claim at ENDED; return its verdict."""
    return await settle(broker, claim, outcome, ENDED)
