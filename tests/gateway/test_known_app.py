"""A gateway that knows an app: jobs added by name have the options of its handlers, and data that fit."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from corral import Corral
from corral.gateway import GatewaySettings, create_app
from tests.support.gateway import Gateway, problem_of
from tests.support.gateway_process import GatewayProcess
from tests.support.servers import Server
from tests.support.shell import corral as run

SHOP = """
from dataclasses import dataclass
from corral import Corral

app = Corral(namespaces={"bullmq": "shop"})

@dataclass
class Order:
    id: int

@app.job(queue="orders", attempts=7, priority=3)
async def charge(order: Order) -> None: ...

@app.job("embed", protocol="streams", ttl_s=77)
async def embed(text: str) -> None: ...
"""


@pytest.fixture
def known(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    (tmp_path / "http_shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    gateway = Gateway(server.url, app=create_app(GatewaySettings(redis_url=server.url, app="http_shop:app")))
    yield gateway
    gateway.stop()


def test_a_job_has_the_options_of_its_handler_and_its_own_before_them(known: Gateway, server: Server) -> None:
    jobs = "/v1/queues/bullmq/orders/jobs"
    for number, options in enumerate(({}, {"attempts": 2}), start=1):
        body = {"name": "charge", "data": {"order": {"id": number}}, "options": options}
        assert known.client.post(jobs, json=body).status_code == 201
    read = [known.client.get(f"{jobs}/{number}").json()["options"] for number in (1, 2)]
    assert [(options["attempts"], options["priority"]) for options in read] == [(7, 3), (2, 3)]
    with server.connect() as client:
        assert client.exists("shop:orders:1"), "the app's namespace is the gateway's"
    other = known.client.post(jobs, json={"name": "other", "data": {"order": "any"}})
    assert known.client.get(f"{jobs}/{other.json()['id']}").json()["options"]["attempts"] == 3


def test_data_that_does_not_fit_the_handler_is_refused_by_its_field(known: Gateway, server: Server) -> None:
    body = {"name": "charge", "data": {"order": {"id": "seventeen"}}}
    for response in (
        known.client.post("/v1/queues/bullmq/orders/jobs", json=body),
        known.create({"text": 5}),
    ):
        assert problem_of(response) == (422, "invalid-request")
        assert "does not fit" in response.json()["detail"]
    with server.connect() as client:
        assert not client.keys("shop:orders:*")
        assert not client.keys("job:*")


def test_a_job_of_the_contract_has_the_ttl_of_its_handler(known: Gateway) -> None:
    assert known.create({"text": "home"}).json()["ttl_s"] == 77
    assert known.create({"text": "home"}, ttl_s=5).json()["ttl_s"] == 5
    assert known.create({}, task="chat").json()["ttl_s"] == 3600


def test_an_app_may_be_passed_and_its_address_is_used(server: Server) -> None:
    app = Corral(server.url)

    @app.job(queue="orders", attempts=9)
    async def charge() -> None: ...

    gateway = Gateway(server.url, app=create_app(GatewaySettings(redis_url=None), app))
    try:
        gateway.client.post("/v1/queues/bullmq/orders/jobs", json={"name": "charge"})
        job = gateway.client.get("/v1/queues/bullmq/orders/jobs/1").json()
        assert job["options"]["attempts"] == 9
    finally:
        gateway.stop()


def test_the_command_takes_an_app(tmp_path: Path, server: Server) -> None:
    (tmp_path / "http_shop.py").write_text(SHOP)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    gateway = GatewayProcess(server.url, app="http_shop:app", PYTHONPATH=path)
    try:
        gateway.ready()
        body = {"task": "embed", "payload": {"text": "home"}}
        assert httpx2.post(f"{gateway.url}/v1/jobs", json=body).json()["ttl_s"] == 77
    finally:
        gateway.kill()


def test_the_command_refuses_an_app_that_is_none_or_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    assert "there is no module 'nowhere'" in run("gateway", "nowhere:app").err
    (tmp_path / "distant_shop.py").write_text("from corral import Corral\napp = Corral('redis://far:1')")
    refused = run("gateway", "distant_shop:app", "--url", "redis://127.0.0.1:1")
    assert refused.code == 2
    assert "has an address of its own, redis://far:1" in refused.err
