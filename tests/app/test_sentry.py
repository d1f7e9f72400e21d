"""Errors of handlers in Sentry: with their jobs, without their data."""

from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from corral import Corral, JobContext, Release, Transient
from corral.contrib.sentry import instrument
from tests.support.apps import ended, working


class KeptEvents(Transport):
    """A transport that keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(dict(event))


@pytest.fixture
def transport() -> Iterator[KeptEvents]:
    transport = KeptEvents()
    sentry_sdk.init(
        "http://key@localhost/1",
        transport=transport,
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    yield transport
    # without integrations: they patch web frameworks, for every later test of this process
    sentry_sdk.init(default_integrations=False, auto_enabling_integrations=False)


@pytest.mark.parametrize("is_async", [True, False])
async def test_each_failed_attempt_is_an_event_with_its_job(
    url: str, transport: KeptEvents, is_async: bool
) -> None:
    app = Corral(url)
    instrument(app)

    async def charge(job: JobContext, order: str) -> None:
        raise Transient("busy")

    def charge_in_thread(job: Any, order: str) -> None:
        raise Transient("busy")

    charged = app.job("charge", queue="orders", attempts=2, backoff=1)(
        charge if is_async else charge_in_thread
    )
    async with app:
        handle = await charged.add("secret milk")
        async with working(app):
            await ended(charged.queue, handle.id)
    assert [event["level"] for event in transport.events] == ["warning", "error"]
    for attempt, event in enumerate(transport.events, 1):
        assert event["contexts"]["job"] == {
            "id": handle.id, "queue": "orders", "name": "charge", "attempt": attempt,
        }  # fmt: skip
        assert (event["transaction"], event["tags"]["corral.queue"]) == ("charge", "orders")
        assert event["exception"]["values"][0]["type"] == "Transient"


async def test_what_is_no_failure_is_not_reported(url: str, transport: KeptEvents) -> None:
    app, runs = Corral(url), 0
    instrument(app)

    @app.job(queue="orders")
    async def charge(job: JobContext) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise Release

    async with app:
        handle = await charge.add({})
        async with working(app):
            await ended(charge.queue, handle.id)
    assert (runs, transport.events) == (2, [])
