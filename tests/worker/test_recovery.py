"""Searches for abandoned jobs: as often as the profile says, by one worker of a queue at a time."""

from corral.core.ports import Profile
from corral.protocols.bullmq.scripts import SCRIPTS
from tests.support.logs import capture_logs
from tests.support.polling import becomes_true
from tests.support.proxy import Proxy, runs_script
from tests.support.worker_harness import WorkerHarness

OFTEN = Profile(name="w", recover_ms=50)
RECOVER = runs_script(SCRIPTS["recover"].sha)


def sweeps(server) -> int:
    """Return how many searches the server has made: each of them trims the event stream."""
    with server.connect() as client:
        return int(client.info("commandstats").get("cmdstat_xtrim", {}).get("calls", 0))


async def test_a_lone_worker_never_skips_its_own_search(server):
    with Proxy(server.port) as proxy:
        harness = WorkerHarness(server.url, proxy.url)
        before = sweeps(server)
        async with harness.worker(profile=OFTEN):
            assert await becomes_true(lambda: proxy.count(RECOVER) >= 20)
        assert sweeps(server) - before == proxy.count(RECOVER)
        assert harness.metric("corral_recoveries_left_out_total") == 0
        await harness.close()


async def test_a_search_that_another_worker_has_just_made_is_left_out_counted_and_logged(harness, server):
    before = sweeps(server)
    with capture_logs() as lines:
        async with harness.worker(profile=OFTEN), harness.worker(profile=OFTEN):
            assert await becomes_true(lambda: harness.metric("corral_recoveries_left_out_total") >= 5)
            assert await becomes_true(lambda: sweeps(server) - before >= 5)
    left_out = [line for line in lines if line["event"].startswith("recovery left out")]
    assert left_out
    assert {line["log_level"] for line in left_out} == {"debug"}
    assert harness.metric("corral_recoveries_skipped_total") == 0
