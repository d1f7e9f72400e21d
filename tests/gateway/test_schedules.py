"""Schedules by HTTP: run now, paused and resumed; or the reason why not."""

import asyncio
from typing import Any

import pytest
import redis

from corral import Corral, JobState
from corral.protocols.bullmq.schedulers import BullmqSchedulers
from tests.dashboard.test_dashboard import RING
from tests.gateway.conftest import Open
from tests.support.gateway import KEYS, Gateway, bearer, keyspace

PATH = "/v1/queues/bridgemq/reports/schedules"


@pytest.fixture
async def app(url: str) -> Any:
    async with Corral(url) as app:

        @app.job("report", queue="reports", protocol="bridgemq")
        async def report(job: Any) -> None:
            return

        await app.schedule("report", {"shop": "berlin"}, cron="0 6 1 1 *", id="yearly").start()
        yield app


async def post(gateway: Gateway, path: str, **options: Any) -> Any:
    return await asyncio.to_thread(gateway.client.post, path, **options)


async def test_a_schedule_is_run_now_besides_its_times(gateway: Gateway, app: Corral) -> None:
    [before] = gateway.client.get(PATH).json()["schedules"]
    answer = await post(gateway, f"{PATH}/yearly/run")
    assert (answer.status_code, answer.json()["schedule"]) == (202, "yearly")
    queue = app.queue("reports", "bridgemq")
    job = await queue.job(answer.json()["job_id"])
    assert job is not None
    assert (job.name, job.data, job.state) == ("report", {"shop": "berlin"}, JobState.WAITING)
    assert gateway.client.get(PATH).json()["schedules"] == [before]


async def test_a_schedule_is_paused_and_resumed(gateway: Gateway, app: Corral) -> None:
    [before] = gateway.client.get(PATH).json()["schedules"]
    paused = await post(gateway, f"{PATH}/yearly/pause")
    assert (paused.json()["id"], paused.json()["next_at"]) == ("yearly", None)
    assert gateway.client.get(PATH).json()["schedules"] == [paused.json()]
    assert (await post(gateway, f"{PATH}/yearly/resume")).json()["next_at"] == before["next_at"]


@pytest.mark.parametrize("verb", ["run", "pause", "resume"])
async def test_a_schedule_that_is_not_there_is_not_found(
    gateway: Gateway, app: Corral, client: redis.Redis, verb: str
) -> None:
    before = keyspace(client)
    answer = await post(gateway, f"{PATH}/nobody/{verb}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:corral:problem:schedule-not-found")
    assert keyspace(client) == before


async def test_job_schedulers_of_bullmq_are_run_now_and_cannot_be_paused(gateway: Gateway, url: str) -> None:
    path = "/v1/queues/bullmq/mail/schedules/often"
    async with Corral(url) as app:
        queue = app.queue("mail")
        schedulers = BullmqSchedulers(app.binding(queue))
        await schedulers.upsert("often", {"every": 60_000}, name="send", data={"n": 1})
        fired = await post(gateway, f"{path}/run")
        assert fired.status_code == 202
        job = await queue.job(fired.json()["job_id"])
        assert job is not None
        assert (job.name, job.data, job.state) == ("send", {"n": 1}, JobState.WAITING)
        for verb in ("pause", "resume"):
            answer = await post(gateway, f"{path}/{verb}")
            assert (answer.status_code, answer.json()["type"]) == (409, "urn:corral:problem:unsupported")
            assert "pause the whole queue" in answer.json()["detail"]


async def test_a_protocol_without_schedules_says_so(gateway: Gateway) -> None:
    gateway.submit()
    answer = await post(gateway, "/v1/queues/streams/jobs/schedules/nightly/run")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:corral:problem:unsupported")


async def test_who_may_only_read_cannot_run_or_pause_one(opened: Open, app: Corral) -> None:
    gateway = opened(keys=RING)
    for verb in ("run", "pause", "resume"):
        for role in KEYS:
            answer = await post(gateway, f"{PATH}/yearly/{verb}", headers=bearer(role))
            assert (answer.status_code == 403) == (role in ("submit", "read")), (verb, role)
