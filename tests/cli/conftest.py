"""Fixtures of the command line: a shell at a real server, and queues with jobs."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corral import Corral, Job, JobState, Queue, Unrecoverable
from corral.protocols import protocol_names
from tests.support.apps import ended, working
from tests.support.shell import Said, corral

Shell = Callable[..., Said]
NAMES = {"streams": "embed"}
"""The job name of a protocol that does not take any."""


@pytest.fixture
def shell(url: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """`corral …` with the address of an empty server in the environment."""
    monkeypatch.setenv("REDIS_URL", url)
    return corral


class AppQueue:
    """One queue of one protocol as a program uses it."""

    def __init__(self, app: Corral, protocol: str) -> None:
        self.app, self.protocol = app, protocol
        self.queue: Queue = app.queue(None if protocol == "streams" else "mail", protocol)
        self.name = NAMES.get(protocol, "send")
        self.words = (self.queue.name, "--protocol", protocol)
        """The words that name the queue on the command line."""

        @app.job(self.name, queue=self.queue.name, protocol=protocol)
        async def send(job: Any) -> Any:
            if "log" in job.data:
                await job.log(job.data["log"])
            if "fail" in job.data:
                raise Unrecoverable(job.data["fail"])
            return "sent"

    def can(self, capability: str) -> bool:
        return capability in self.queue.protocol.spec.capabilities

    def add(self, *data: Any, **options: Any) -> list[str]:
        """Add jobs; return their ids."""
        return [self.app.sync(self.queue.add(self.name, datum, **options)).id for datum in data]

    def work(self, *data: Any, **options: Any) -> list[str]:
        """Add jobs and run them; return their ids."""
        ids = self.add(*data, **options)

        async def until_they_have_ended() -> None:
            async with working(self.app, queues=[self.queue.name], protocol=self.protocol):
                await asyncio.gather(*(ended(self.queue, job_id) for job_id in ids))

        self.app.sync(until_they_have_ended())
        return ids

    def job(self, job_id: str) -> Job | None:
        return self.app.sync(self.queue.job(job_id))

    def state(self, job_id: str) -> JobState | None:
        job = self.job(job_id)
        return None if job is None else job.state

    def counts(self) -> dict[JobState, int]:
        return self.app.sync(self.queue.counts())


@pytest.fixture
def app_queues(url: str) -> Iterator[Callable[[str], AppQueue]]:
    """Return the queue of any protocol, on an empty server."""
    app = Corral(url)
    yield lambda protocol: AppQueue(app, protocol)
    app.sync(app.close())
    app.sync.close()


@pytest.fixture(params=protocol_names())
def app_queue(request: pytest.FixtureRequest, app_queues: Callable[[str], AppQueue]) -> AppQueue:
    """A queue of each protocol."""
    return app_queues(request.param)


def is_printable(text: str) -> bool:
    """Return whether a terminal shows the text literally."""
    return all(character.isprintable() or character == "\n" for character in text)
