"""Each alert of the documentation fires when its trouble is there, and is silent without it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from corral.core.ports import Profile
from corral.protocols.bullmq.scripts import SCRIPTS
from corral.worker import WorkerEventKind
from tests.support.alerts import Alerts, alert_rules
from tests.support.polling import becomes_true, until
from tests.support.proxy import Proxy, ProxyFault, runs_script
from tests.support.servers import Server
from tests.support.worker_harness import WorkerHarness

PROFILE = Profile(name="w", lock_ms=800, recover_ms=100)


class Troubled:
    """One busy worker behind a proxy, whose only job runs until it is released."""

    def __init__(self, server: Server, proxy: Proxy) -> None:
        self.server = server
        self.proxy = proxy
        self.harness = WorkerHarness(server.url, proxy.url)
        self.alerts = Alerts(self.harness.metrics.registry)
        self.release = asyncio.Event()
        self.job_id = ""

        @self.harness.handle("work")
        async def work(job):
            await self.release.wait()

    async def reaches(self, metric: str, value: float = 1) -> None:
        """Wait until a metric has at least this value."""
        assert await becomes_true(lambda: self.harness.metric(metric) >= value), metric


@pytest.fixture
async def troubled(server: Server, proxy: Proxy) -> AsyncIterator[Troubled]:
    troubled = Troubled(server, proxy)
    async with troubled.harness as harness, harness.worker(profile=PROFILE, concurrency=1):
        [troubled.job_id] = await harness.submit("work", {})
        assert await becomes_true(lambda: harness.reported(WorkerEventKind.ACTIVE))
        await troubled.reaches("corral_lock_renewals_total", 2)
        troubled.alerts.sample()
        yield troubled
        proxy.come_back()
        troubled.release.set()


async def the_server_is_away(troubled: Troubled) -> None:
    troubled.proxy.go_away()
    await troubled.reaches("corral_lock_renewal_failures_total")


async def a_worker_died(troubled: Troubled) -> None:
    harness = troubled.harness
    dead = harness.broker("dead", lock_ms=100)
    await harness.submit("work", {})
    await harness.claim(dead)
    await troubled.reaches("corral_jobs_stalled_total")


async def the_server_is_slow(troubled: Troubled) -> None:
    before = troubled.harness.metric("corral_lock_renewal_duration_seconds_count")

    async def is_renewed() -> bool:
        client.execute_command("CLIENT", "PAUSE", 50, "ALL")
        return troubled.harness.metric("corral_lock_renewal_duration_seconds_count") >= before + 3

    with troubled.server.connect() as client:
        await until(is_renewed)


async def the_lock_was_taken(troubled: Troubled) -> None:
    with troubled.server.connect() as client:
        client.set(f"bull:work:{troubled.job_id}:lock", "another-worker")
    troubled.release.set()
    await troubled.reaches("corral_outcomes_lost_total")


async def a_reply_was_lost_for_longer_than_the_lock(troubled: Troubled) -> None:
    rule = troubled.proxy.rule(runs_script(SCRIPTS["turn"].sha), ProxyFault.SWALLOW)
    troubled.release.set()
    assert await becomes_true(lambda: rule.met)
    troubled.harness.clock.offset_ms += 60_000
    await troubled.reaches("corral_outcomes_unknown_total")


async def recovery_takes_longer_than_its_interval(troubled: Troubled) -> None:
    troubled.proxy.rule(runs_script(SCRIPTS["recover"].sha), ProxyFault.HELD)
    await troubled.reaches("corral_recoveries_skipped_total", 3)
    troubled.proxy.let_go()


TROUBLES: dict[str, Callable[[Troubled], Awaitable[None]]] = {
    "CorralHeartbeatsFail": the_server_is_away,
    "CorralJobsStall": a_worker_died,
    "CorralLockRenewalSlow": the_server_is_slow,
    "CorralWorkLost": the_lock_was_taken,
    "CorralOutcomesUnknown": a_reply_was_lost_for_longer_than_the_lock,
    "CorralRecoverySkipped": recovery_takes_longer_than_its_interval,
    "CorralRedisUnavailable": the_server_is_away,
}


@pytest.mark.parametrize("alert", TROUBLES)
async def test_an_alert_fires_when_its_trouble_is_there(troubled: Troubled, alert: str) -> None:
    troubled.alerts.sample()
    # on a busy machine a healthy server may take longer than 10 ms for a renewal
    assert troubled.alerts.firing() <= {"CorralLockRenewalSlow"}
    await TROUBLES[alert](troubled)
    troubled.alerts.sample()
    assert alert in troubled.alerts.firing()


def test_every_alert_has_its_trouble() -> None:
    assert alert_rules().keys() == TROUBLES.keys()
