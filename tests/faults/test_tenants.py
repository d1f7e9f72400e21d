"""One tenant with a hundred thousand jobs and 99 with ten each: the 99 are done first."""

import asyncio

import pytest

from corral import Corral
from tests.support.polling import becomes_true
from tests.support.worker_processes import scaled

pytestmark = pytest.mark.faults

LARGE, SMALL_TENANTS, EACH = 100_000, 99, 10


@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["bullmq", "bridgemq"])
async def test_many_small_tenants_are_done_before_one_with_a_hundred_thousand_jobs(url: str, protocol: str):
    order: list[str] = []
    async with Corral(url, protocol=protocol) as app:

        @app.job("tool")
        async def tool(tenant: str, n: int) -> None:
            order.append(tenant)

        await tool.options(group="large").add_many([tool.call("large", n) for n in range(scaled(LARGE))])
        for tenant in range(SMALL_TENANTS):
            name = f"tenant-{tenant}"
            await tool.options(group=name).add_many([tool.call(name, n) for n in range(EACH)])
        small = SMALL_TENANTS * EACH
        working = asyncio.create_task(app.run(concurrency=10))
        is_done = await becomes_true(lambda: len(order) - order.count("large") == small, 300)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert is_done, f"{len(order)} jobs have run"
    last = max(position for position, tenant in enumerate(order, 1) if tenant != "large")
    print(f"{protocol}: the last of {small} small ones ran as number {last} of {scaled(LARGE) + small}")
    assert last <= small + 10 * EACH
