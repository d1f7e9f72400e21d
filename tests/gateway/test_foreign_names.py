"""Queues and jobs of foreign clients, whose names have slashes, spaces and letters of any script."""

from typing import Any
from urllib.parse import quote

import pytest
import redis

from corral import Corral
from corral.core.job import Job
from corral.protocols import protocol_named
from corral.queue import Queue
from tests.support.gateway import Gateway
from tests.support.jobs import submit

NAMES = ["eu/mail", "/", "a//b/", "50%2F50", "коровы и <телята>", "why?#not&=+"]


@pytest.fixture
async def app(url: str) -> Any:
    async with Corral(url) as app:
        yield app


async def add_jobs(app: Corral, name: str, count: int) -> list[str]:
    """Add jobs to a queue whose name Corral itself refuses; return their ids."""
    queue = Queue(app, protocol_named("bullmq"), name, is_read=True)
    jobs = [Job(name="send", data={"n": n}, queue=name, created_at=app.clock()) for n in range(count)]
    return await submit(queue.ports.broker, jobs)


def path_of(name: str) -> str:
    return f"/v1/queues/bullmq/{quote(name, safe='')}"


@pytest.mark.parametrize("name", NAMES)
async def test_a_queue_of_any_name_can_be_read_and_operated(gateway: Gateway, app: Corral, name: str) -> None:
    [job_id] = await add_jobs(app, name, 1)
    client, path = gateway.client, path_of(name)
    assert client.get(path).json()["queue"] == name
    assert client.get(f"{path}/jobs/{job_id}").json()["data"] == {"n": 0}
    assert client.post(f"{path}/pause").json()["is_paused"] is True
    assert client.post(f"{path}/jobs/{job_id}/remove").json()["done"] == [job_id]
    assert client.get(f"{path_of(name + 'x')}").json()["type"].endswith("queue-not-found")


@pytest.mark.parametrize("name", NAMES)
async def test_the_link_to_the_next_page_works_for_any_name(gateway: Gateway, app: Corral, name: str) -> None:
    ids = await add_jobs(app, name, 3)
    first = gateway.client.get(f"{path_of(name)}/jobs", params={"state": "waiting", "limit": 2})
    link = first.headers["link"].partition(">")[0].removeprefix("<")
    second = gateway.client.get(link)
    assert [job["id"] for page in (first, second) for job in page.json()["jobs"]] == ids


async def test_a_job_whose_id_has_a_slash_is_found(
    gateway: Gateway, app: Corral, client: redis.Redis
) -> None:
    [job_id] = await add_jobs(app, "mail", 1)
    client.rename(f"bull:mail:{job_id}", "bull:mail:orders/17")
    client.lset("bull:mail:wait", 0, "orders/17")
    path = f"{path_of('mail')}/jobs/orders%2F17"
    assert gateway.client.get(path).json()["id"] == "orders/17"
    assert gateway.client.post(f"{path}/remove").json()["done"] == ["orders/17"]
    assert client.exists("bull:mail:orders/17") == 0


async def test_an_escaped_slash_does_not_split_a_path(gateway: Gateway) -> None:
    job_id = gateway.submit()
    assert gateway.client.get(f"/v1/jobs/{job_id}").status_code == 200
    for path in (f"/v1%2Fjobs/{job_id}", f"/v1/jobs%2f{job_id}"):
        assert gateway.client.get(path).json()["type"].endswith(":not-found")
    kinds = {gateway.client.get(path).json()["type"] for path in ("/v1/jobs/a%2Fb", "/v1/jobs/a%2Fb/events")}
    assert kinds == {"urn:corral:problem:job-not-found"}
