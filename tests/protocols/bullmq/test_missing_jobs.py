"""Ids in the queue whose jobs are gone."""

from contextlib import closing

from corral.core.ports import Why
from corral.store.client import Store
from tests.support.harness import QueueHarness
from tests.support.jobs import submit
from tests.support.servers import Server


async def test_an_id_without_a_job_hides_no_job_behind_it(store: Store, server: Server):
    harness = QueueHarness("bullmq", store)
    broker = harness.broker()
    first, second = await submit(broker, [harness.job(), harness.job()])
    with closing(server.connect()) as client:
        client.delete(f"bull:default:{first}")
        turn = await broker.turn([], 1)
        assert (list(turn.claims), turn.rest.why) == ([], Why.SATISFIED)
        await broker.wait(turn.rest)
        assert [claim.job.id for claim in (await broker.turn([], 1)).claims] == [second]
        assert not client.exists(f"bull:default:{first}"), "half a job was made"
    await harness.close()
