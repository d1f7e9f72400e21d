"""Searches for abandoned jobs: as often as the profile says, by one worker of a queue at a time."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from corral.core.ports import Profile
from corral.protocols.bullmq.scripts import SCRIPTS
from corral.telemetry import logs
from tests.support.polling import becomes_true
from tests.support.proxy import Proxy, runs_script
from tests.support.worker_harness import WorkerHarness

OFTEN = Profile(name="w", recover_ms=50)
RECOVER = runs_script(SCRIPTS["recover"].sha)


@pytest.fixture
def debug_log() -> Iterator[io.StringIO]:
    """Every line of the log, as JSON."""
    stream = io.StringIO()
    logs.configure(level="debug", json=True, stream=stream, cache=False)
    yield stream
    structlog.reset_defaults()


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


async def test_a_search_that_another_worker_has_just_made_is_left_out_counted_and_logged(
    harness, server, debug_log
):
    before = sweeps(server)
    async with harness.worker(profile=OFTEN), harness.worker(profile=OFTEN):
        assert await becomes_true(lambda: harness.metric("corral_recoveries_left_out_total") >= 5)
        assert await becomes_true(lambda: sweeps(server) - before >= 5)
    lines = [json.loads(line) for line in debug_log.getvalue().splitlines()]
    left_out = [line for line in lines if line["event"].startswith("recovery left out")]
    assert left_out
    assert {line["level"] for line in left_out} == {"debug"}
    assert harness.metric("corral_recoveries_skipped_total") == 0
