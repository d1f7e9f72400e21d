"""Ids in the queue whose jobs are gone."""

from contextlib import closing

import pytest

from corral.core.ports import RestReason
from corral.errors import ParentMissing, ParentTaken
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
        assert (list(turn.claims), turn.rest.reason) == ([], RestReason.SATISFIED)
        await broker.wait(turn.rest)
        assert [claim.job.id for claim in (await broker.turn([], 1)).claims] == [second]
        assert not client.exists(f"bull:default:{first}"), "half a job was made"
    await harness.close()


async def test_a_list_with_one_missing_parent_is_refused_whole(store: Store, server: Server):
    async with QueueHarness("bullmq", store) as harness:
        broker = harness.broker()
        missing = {"parent": {"id": "nobody", "queue": "bull:default"}}
        with closing(server.connect()) as client:
            with pytest.raises(ParentMissing) as refusal:
                await broker.submit([harness.job(), harness.job(**missing), harness.job()])
            assert refusal.value.position == 1
            assert client.dbsize() == 0
        child = {"parent": {"id": "top", "queue": "bull:default"}}
        added = await broker.submit([harness.job(id="top"), harness.job(**child)])
        assert len(added) == 2, "a parent may be in the same list, before its child"


async def test_a_list_with_a_job_of_another_parent_is_refused_whole(store: Store, server: Server):
    async with QueueHarness("bullmq", store) as harness:
        broker = harness.broker()
        first, second = ({"parent": {"id": name, "queue": "bull:default"}} for name in ("first", "second"))
        await broker.submit([harness.job(id="first"), harness.job(id="second"), harness.job(id="x", **first)])
        with closing(server.connect()) as client:
            before = client.dbsize(), client.llen("bull:default:wait"), client.xlen("bull:default:events")
            with pytest.raises(ParentTaken, match="job 'x' has another parent") as refusal:
                await broker.submit([harness.job(), harness.job(), harness.job(id="x", **second)])
            assert refusal.value.position == 2
            after = client.dbsize(), client.llen("bull:default:wait"), client.xlen("bull:default:events")
            assert after == before
            client.delete("bull:default:first")
        added = await broker.submit([harness.job(), harness.job(id="x", **second)])
        assert len(added) == 2, "the parent it had is gone"
