"""Schedules by HTTP: run now, paused, resumed, or refused with a reason."""

import asyncio
from typing import Any

import pytest
import redis

from corral import Corral, Job, JobState
from corral.protocols.bullmq.schedulers.job_schedulers import JobSchedulers
from tests.gateway.conftest import OpenGateway
from tests.support.gateway import KEYS, KEYS_JSON, Gateway, bearer, keyspace, problem_of

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
    response = await post(gateway, f"{PATH}/yearly/run")
    assert (response.status_code, response.json()["schedule"]) == (202, "yearly")
    queue = app.queue("reports", "bridgemq")
    job = await queue.job(response.json()["job_id"])
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
async def test_an_unknown_schedule_is_not_found(
    gateway: Gateway, app: Corral, client: redis.Redis, verb: str
) -> None:
    before = keyspace(client)
    response = await post(gateway, f"{PATH}/nobody/{verb}")
    assert problem_of(response) == (404, "schedule-not-found")
    assert keyspace(client) == before


async def test_job_schedulers_of_bullmq_are_run_now_and_cannot_be_paused(gateway: Gateway, url: str) -> None:
    path = "/v1/queues/bullmq/mail/schedules/often"
    async with Corral(url) as app:
        queue = app.queue("mail")
        schedulers = JobSchedulers(app.binding(queue))
        await schedulers.upsert("often", {"every": 60_000}, name="send", data={"n": 1})
        fired = await post(gateway, f"{path}/run")
        assert fired.status_code == 202
        job = await queue.job(fired.json()["job_id"])
        assert job is not None
        assert (job.name, job.data, job.state) == ("send", {"n": 1}, JobState.WAITING)
        for verb in ("pause", "resume"):
            response = await post(gateway, f"{path}/{verb}")
            assert problem_of(response) == (409, "unsupported")
            assert "pause the whole queue" in response.json()["detail"]


async def test_a_protocol_without_schedules_is_unsupported(gateway: Gateway) -> None:
    gateway.submit()
    response = await post(gateway, "/v1/queues/streams/jobs/schedules/nightly/run")
    assert problem_of(response) == (409, "unsupported")


async def test_running_or_pausing_a_schedule_needs_the_role_operate(
    open_gateway: OpenGateway, app: Corral
) -> None:
    gateway = open_gateway(keys=KEYS_JSON)
    for verb in ("run", "pause", "resume"):
        for role in KEYS:
            response = await post(gateway, f"{PATH}/yearly/{verb}", headers=bearer(role))
            assert (response.status_code == 403) == (role in ("submit", "read")), (verb, role)


async def test_past_firings_are_told_with_the_states_of_their_jobs(gateway: Gateway, app: Corral) -> None:
    queue = app.queue("reports", "bridgemq")
    now = app.clock()
    midnight = now - now % 86_400_000
    await app.schedule("report", {}, queue="reports", cron="0 0 * * *", id="daily").start()
    fired = queue.schedules.firing_id("daily", midnight)
    job = Job(name="report", data={}, queue="reports", id=fired, options=queue.options({}), created_at=now)
    await queue.ports.broker.submit([job])
    response = await asyncio.to_thread(gateway.client.get, "/v1/schedules?past=3")
    views = {view["id"]: view for view in response.json()["schedules"]}
    days = [midnight - 2 * 86_400_000, midnight - 86_400_000, midnight]
    assert [(one["at"], one["state"]) for one in views["daily"]["past"]] == [
        *((day, None) for day in days[:2]),
        (midnight, "waiting"),
    ]
    assert views["daily"]["past"][-1]["job_id"] == f"daily@{midnight}"
    assert len(views["yearly"]["past"]) <= 3
    response = await asyncio.to_thread(gateway.client.get, "/v1/schedules?past=51")
    assert problem_of(response) == (422, "invalid-request")
