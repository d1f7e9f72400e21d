"""One browser and one gateway for all tests of the dashboard, and jobs in every protocol."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from corral import Corral, Job, Unrecoverable
from corral.core.ports import Flow
from tests.gateway.conftest import client, gateway, open_gateway, shared_gateway
from tests.support.apps import ended, working
from tests.support.chromium import CHROMIUM, Chromium
from tests.support.servers import Server

__all__ = ["client", "gateway", "open_gateway", "shared_gateway"]

QUEUES = (("bullmq", "mail", "send"), ("streams", "jobs", "embed"), ("bridgemq", "reports", "render"))


def _options(protocol: str, data: Any) -> dict[str, Any]:
    """Options of a job that is tried again at once, where the protocol has such."""
    return {"backoff": 1, "attempts": 2} if "flaky" in data and protocol != "streams" else {}


class Samples:
    """Jobs in every protocol."""

    def __init__(self, url: str) -> None:
        self.app = Corral(url)
        for protocol, queue, name in QUEUES:

            @self.app.job(name, queue=queue, protocol=protocol)
            async def work(job: Any) -> Any:
                if "fail" in job.data:
                    raise Unrecoverable(job.data["fail"])
                if "flaky" in job.data and job.attempt == 1:
                    raise ConnectionError(job.data["flaky"])
                if "class" in job.data:
                    raise type(job.data["class"], (Unrecoverable,), {})("no")
                if "log" in job.data:
                    await job.log(job.data["log"])
                    await job.progress(50)
                return job.data.get("result")

    def add(self, protocol: str, queue: str, name: str, data: Any, **options: Any) -> str:
        """Add a job; return its id."""
        return str(self.app.sync(self.app.queue(queue, protocol).add(name, data, **options)).id)

    def work(self, *jobs: tuple[str, str, str, Any]) -> list[str]:
        """Add (protocol, queue, name, data) and have them done; return their ids."""

        async def until_all_have_ended() -> list[str]:
            ids = []
            async with working(self.app, name="mailer-1"):
                for protocol, queue, name, data in jobs:
                    target = self.app.queue(queue, protocol)
                    ids.append((await target.add(name, data, **_options(protocol, data))).id)
                    await ended(target, ids[-1])
            return ids

        return self.app.sync(until_all_have_ended())

    def while_working(self, look: Any) -> None:
        """Call `look` in a thread while a worker is alive."""

        async def run() -> None:
            async with working(self.app, queues=["mail"], protocol="bullmq", name="mailer-1"):
                await asyncio.to_thread(look)

        self.app.sync(run())

    def add_flow(self, name: str = "report") -> str:
        """Add a parent with three children; return its id."""
        mail, files = self.app.queue("mail"), self.app.queue("files")

        def job(queue: Any, title: str) -> Job:
            return Job(name=title, data={}, queue=queue.name, options=queue.options({}))

        children = tuple(Flow(job(files, f"part-{number}")) for number in range(3))
        return str(self.app.sync(mail.flows.add(Flow(job(mail, name), children))).job.id)

    def close(self) -> None:
        self.app.sync(self.app.close())
        self.app.sync.close()


@pytest.fixture
def samples(server: Server) -> Iterator[Samples]:
    samples = Samples(server.url)
    yield samples
    samples.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """The browser of this pytest process."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with Chromium() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Chromium) -> Iterator[Chromium]:
    """The browser on an empty page, without what it remembers of the test before."""
    chromium.go("about:blank")
    chromium.reset()
    yield chromium
    chromium.go("about:blank")
