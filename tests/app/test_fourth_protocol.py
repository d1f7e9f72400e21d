"""A fourth protocol is one new folder and one line in the registry."""

import pytest

from corral import Corral, JobFilter, JobState, Unsupported, protocols
from tests.support import list_protocol
from tests.support.apps import working
from tests.support.polling import becomes_true
from tests.support.servers import Server


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocols.MODULES, "list", list_protocol.__name__)


async def test_its_jobs_are_added_run_and_read(server: Server) -> None:
    async with Corral(server.url) as app:
        seen = []

        @app.job("double", protocol="list")
        async def double(job):
            seen.append(job.data)
            await job.log(f"doubling {job.data}")
            return job.data * 2

        handles = await double.add_many([1, 2, 3])
        ids = [handle.id for handle in handles]
        assert await double.queue.counts() == {
            JobState.WAITING: 3, JobState.ACTIVE: 0, JobState.COMPLETED: 0, JobState.DEAD: 0,
        }  # fmt: skip
        async with working(app):
            assert await becomes_true(lambda: len(seen) == 3)
            assert [await handle.result(5) for handle in handles] == [2, 4, 6]
        done = await double.queue.search(JobFilter(states=frozenset({JobState.COMPLETED})))
        assert sorted(job.result for job in done) == [2, 4, 6]
        assert await double.queue.logs(ids[0]) == ["doubling 1"]
        assert sorted(await double.queue.remove(JobFilter())) == sorted(ids)


async def test_what_it_lacks_is_refused_clearly(server: Server) -> None:
    async with Corral(server.url, protocol="list") as app:
        with pytest.raises(Unsupported, match="protocol 'list' has no delay, so delay=5 cannot be kept"):
            await app.queue().add("work", {}, delay=5)
        with pytest.raises(Unsupported, match="protocol 'list' has no cron"):
            app.schedule("work", cron="@daily")
        with pytest.raises(Unsupported, match="protocol 'list' has no flows"):
            _ = app.queue().flows
