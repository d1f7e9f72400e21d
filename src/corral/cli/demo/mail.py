"""A thousand e-mails in the BullMQ protocol: some are refused at first, one for good."""

import asyncio
from random import Random
from typing import Any

from corral.app import Corral
from corral.cli.demo.stage import Report, Stage, expect, work_off
from corral.core.job import JobState
from corral.errors import Transient

JOBS = 1000
ATTEMPTS = 3
TOGETHER = 50
"""So many are added at a time, so that there is a stream of work and no heap."""
POISON = 500
"""The one that is refused whenever it is tried."""


def refusals(number: int) -> int:
    """How often the mail server refuses this one before it takes it."""
    if number == POISON:
        return ATTEMPTS
    return 2 if number % 100 == 99 else 1 if number % 40 == 13 else 0


def asked_for(number: int) -> dict[str, int]:
    """The options of this one: some are urgent, some are for later."""
    return {"priority": 1} if number % 10 == 3 else {"delay": 200} if number % 10 == 7 else {}


async def send_mail(url: str, stage: Stage) -> Report:
    """Send them all, and compare what the server has with what should be there."""
    chance = Random(1)
    async with Corral(url) as app:

        @app.job("send-email", queue="mail", attempts=ATTEMPTS, backoff={"type": "exponential", "delay": 50})
        async def send_email(job: Any) -> dict[str, str]:
            await asyncio.sleep(chance.uniform(0.002, 0.020))  # a mail server takes its time
            if job.attempt <= refusals(job.data["number"]):
                raise Transient("451 greylisted, try again later")
            return {"message_id": f"<{job.id}@mail.example>"}

        async def produce() -> None:
            for start in range(0, JOBS, TOGETHER):
                for options in ({}, {"priority": 1}, {"delay": 200}):
                    numbers = [n for n in range(start, start + TOGETHER) if asked_for(n) == options]
                    await send_email.add_many(map(letter, numbers), **options)
                await asyncio.sleep(0.01)

        tally = await work_off(app, "e-mails (protocol bullmq)", JOBS, produce, stage, concurrency=50)
        queue = send_email.queue
        counts = await queue.counts()
        left = counts[JobState.WAITING] + counts[JobState.DELAYED] + counts[JobState.ACTIVE]
        expect("e-mails left in the queue", left, 0)
        expect("e-mails that were sent", counts[JobState.COMPLETED], JOBS - 1)
        expect("e-mails that were given up", counts[JobState.DEAD], 1)
        expect("retries", tally.retries, sum(min(refusals(number), ATTEMPTS - 1) for number in range(JOBS)))
        [dead] = await queue.jobs(JobState.DEAD)
        return Report(
            title="e-mails",
            protocol="bullmq",
            jobs=JOBS,
            completed=counts[JobState.COMPLETED],
            dead=counts[JobState.DEAD],
            retries=tally.retries,
            rate=tally.rate,
            p95_ms=tally.p95_ms,
            remark="every tenth e-mail was urgent, every tenth for later; "
            f"dead after {dead.attempts_made} attempts: e-mail {dead.data['number']}, {dead.reason!r}",
        )


def letter(number: int) -> dict[str, Any]:
    """The data of one job."""
    return {"number": number, "to": f"reader-{number}@mail.example", "subject": "The herd is home"}
