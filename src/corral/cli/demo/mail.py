"""Step: a thousand e-mails in the bullmq protocol; some fail at first, one always."""

import asyncio
from functools import partial
from random import Random
from typing import Any

from corral.app import Corral
from corral.cli.demo.steps import DemoOutput, StepResult, expect, run_jobs
from corral.core.job import JobState
from corral.errors import Transient

JOBS = 1000
ATTEMPTS = 3
BATCH = 50
"""Jobs added at a time, so that they arrive as a stream."""
POISON = 500
"""The e-mail that fails in every attempt."""


def refusals(number: int) -> int:
    """Return how often the mail server refuses this e-mail before it accepts it."""
    if number == POISON:
        return ATTEMPTS
    return 2 if number % 100 == 99 else 1 if number % 40 == 13 else 0


def options_of(number: int) -> dict[str, int]:
    """Return the options of this e-mail: some are urgent, some are delayed."""
    return {"priority": 1} if number % 10 == 3 else {"delay": 200} if number % 10 == 7 else {}


async def send_mail(url: str, output: DemoOutput) -> StepResult:
    """Send them all, and compare the server's counts with the expected ones."""
    random = Random(1)
    async with Corral(url) as app:

        @app.job("send-email", queue="mail", attempts=ATTEMPTS, backoff={"type": "exponential", "delay": 50})
        async def send_email(job: Any) -> dict[str, str]:
            await asyncio.sleep(random.uniform(0.002, 0.020))  # a mail server takes its time
            if job.attempt <= refusals(job.data["number"]):
                raise Transient("451 greylisted, try again later")
            return {"message_id": f"<{job.id}@mail.example>"}

        async def produce() -> None:
            for start in range(0, JOBS, BATCH):
                for options in ({}, {"priority": 1}, {"delay": 200}):
                    numbers = [n for n in range(start, start + BATCH) if options_of(n) == options]
                    await send_email.options(**options).add_many(map(email, numbers))
                await asyncio.sleep(0.01)

        tally = await run_jobs(
            app, "e-mails (protocol bullmq)", JOBS, produce, output, partial(app.workers, concurrency=50)
        )
        queue = send_email.queue
        counts = await queue.counts()
        left = counts[JobState.WAITING] + counts[JobState.DELAYED] + counts[JobState.ACTIVE]
        expect("e-mails left in the queue", left, 0)
        expect("e-mails sent", counts[JobState.COMPLETED], JOBS - 1)
        expect("dead e-mails", counts[JobState.DEAD], 1)
        expect("retries", tally.retries, sum(min(refusals(number), ATTEMPTS - 1) for number in range(JOBS)))
        [dead] = await queue.jobs(JobState.DEAD)
        remark = (
            "every tenth e-mail was urgent, every tenth delayed; "
            f"dead after {dead.attempts_made} attempts: e-mail {dead.data['number']}, {dead.reason!r}"
        )
        return tally.result("e-mails", "bullmq", remark)


def email(number: int) -> dict[str, Any]:
    """Return the data of one job."""
    return {"number": number, "to": f"reader-{number}@mail.example", "subject": "The herd is home"}
