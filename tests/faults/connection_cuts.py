"""Jobs worked through a proxy that cuts the connection, and what must be true of them then."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from corral import JobContext, Transient
from tests.faults.trips import CUTS, ENDLESS, PLACES
from tests.support.fault_harness import FaultHarness
from tests.support.proxy import Proxy

ANSWER_S = 1.0
"""How long an answer is waited for: short, because some never come."""
END_S = 60.0
ODDS = 0.1
"""In a storm one command in ten is cut."""
BURSTS = 20
"""Between two of them the worker waits for work, and that may be cut as well."""


def through(proxy: Proxy) -> str:
    """The server's address by way of the proxy."""
    return f"{proxy.url}?socket_timeout={ANSWER_S}"


async def work(job: JobContext) -> Any:
    """Every third job fails at first, where its protocol has retries; the rest end at once or after a nap."""
    number = job.data["number"]
    if job.attempt < _attempts(number) and job.options.attempts > 1:
        raise Transient("again")
    if number % 2:
        await asyncio.sleep(0.001)
    return number


def _attempts(number: int) -> int:
    return 2 if number % 3 == 0 else 1


def expected(harness: FaultHarness) -> Callable[[int], int]:
    """How many attempts the job of a number must have had."""
    return (lambda number: 1) if harness.protocol == "streams" else _attempts


async def add_work(harness: FaultHarness, count: int) -> None:
    """Add jobs whose retries go both ways: through the delayed, and straight back to the waiting."""
    if harness.protocol == "streams":
        await harness.add(count)
        return
    await harness.add(count // 2, {"attempts": 3, "backoff": {"type": "fixed", "delay": 1}})
    await harness.add(count - count // 2, {"attempts": 3, "backoff": "custom"})


async def finish(harness: FaultHarness) -> None:
    """Wait until every job has ended."""
    assert await harness.falls_to(0, END_S), f"{await harness.left()} jobs never ended"


async def storm(harness: FaultHarness, proxy: Proxy, *, jobs: int, random: Random) -> int:
    """Work the jobs while any command on any connection may be cut anywhere; how many were."""
    async with harness.worker(work, through(proxy), lock_ms=5000):
        # the first contact is over: from here on a worker bears everything
        rules = [
            proxy.rule(lambda _: random.random() < ODDS / len(CUTS), fault, ENDLESS, PLACES) for fault in CUTS
        ]
        for _ in range(BURSTS):
            await add_work(harness, jobs // BURSTS)
            await finish(harness)
    return sum(rule.met for rule in rules)
