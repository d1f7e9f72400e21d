"""A replay gives all attempts anew and forgets nothing; a retry keeps the attempts made."""

from contextlib import closing

import pytest

from corral.core.outcome import Dead, Retry
from corral.store.client import Store
from tests.support.harness import QueueHarness
from tests.support.servers import Server


@pytest.mark.parametrize("verb", ["retry", "replay"])
async def test_the_history_of_earlier_attempts_stays_visible(store: Store, server: Server, verb: str) -> None:
    async with QueueHarness("bullmq", store) as harness:
        broker, operator = harness.broker(), harness.operator
        await broker.submit([harness.job(attempts=2)])
        for outcome in (Retry(0, "first", "trace 1"), Dead("second", "trace 2")):
            claim = await harness.claim(broker)
            await broker.turn([harness.settle(claim, outcome)], 0)
        act = operator.replay if verb == "replay" else operator.retry
        assert await act([claim.job.id]) == [claim.job.id]
        with closing(server.connect()) as client:
            made, starts = client.hmget(f"bull:default:{claim.job.id}", "atm", "ats")
        assert (made, starts) == (None if verb == "replay" else b"2", b"2")
        again = await harness.claim(broker)
        assert again.job.attempts_made == (0 if verb == "replay" else 2)
        assert (again.job.trace, again.job.starts) == (("trace 1", "trace 2"), 3)
        kinds = [event.kind for event in await harness.events.range()]
        assert kinds.count("active") == 3
        assert kinds.count("dead") == kinds.count("retry") == 1
