"""The meaning of BullMQ's events: what is a retry, and what only looks like one."""

from typing import Any

import pytest

from corral.core.event import EventKind, JobEvent
from corral.core.outcome import Dead, Outcome, Postponed, Released, Retry
from corral.protocols.bullmq.events import decode_columns
from corral.store.client import Store
from tests.support.harness import QueueHarness


@pytest.fixture
async def harness(store: Store) -> Any:
    async with QueueHarness("bullmq", store) as harness:
        yield harness


async def events_after(harness: QueueHarness, outcome: Outcome, **options: Any) -> list[JobEvent]:
    """Return the events of a job that was claimed and then settled so."""
    broker = harness.broker()
    await broker.submit([harness.job(**options)])
    claim = await harness.claim(broker)
    assert (await broker.turn([harness.settle(claim, outcome)], 0)).verdicts == [None]
    events = await harness.events.range()
    while events[0].kind != EventKind.ACTIVE:
        events.pop(0)
    return events[1:]


async def test_a_job_that_is_given_back_is_not_retried(harness: QueueHarness) -> None:
    [event] = await events_after(harness, Released())
    assert (event.kind, event.previous, event.data) == ("waiting", "active", None)


async def test_a_job_that_is_postponed_is_not_retried(harness: QueueHarness) -> None:
    [event] = await events_after(harness, Postponed(60_000))
    assert event.kind == "delayed"
    assert 50_000 < event.data["delay"] <= 60_000


async def test_a_retry_has_its_backoff_as_its_delay(harness: QueueHarness) -> None:
    [event] = await events_after(harness, Retry(60_000, "no"), attempts=2)
    assert event.kind == "retry"
    assert 50_000 < event.data["delay"] <= 60_000


async def test_a_retry_at_once_has_no_delay(harness: QueueHarness) -> None:
    [event] = await events_after(harness, Retry(0, "no"), attempts=2)
    assert (event.kind, event.data) == ("retry", {"delay": 0})


@pytest.mark.parametrize(("attempts", "attempt"), [(1, 1), (3, None)])
async def test_a_dead_job_has_the_number_of_its_last_attempt(
    harness: QueueHarness, attempts: int, attempt: int | None
) -> None:
    """The wire has it where all attempts are used up."""
    event = (await events_after(harness, Dead("no"), attempts=attempts))[0]
    assert (event.kind, event.attempt, event.data) == ("dead", attempt, {"failedReason": "no"})


async def test_a_stall_is_told_once_and_is_no_retry(harness: QueueHarness) -> None:
    broker = harness.broker(lock_ms=1, recover_ms=1)
    await broker.submit([harness.job()])
    await harness.claim(broker)
    requeued: list[str] = []
    while not requeued:
        requeued += (await broker.recover()).requeued
    kinds = [event.kind for event in await harness.events.range()]
    assert kinds == ["added", "waiting", "active", "waiting", "stalled"]


async def test_a_changed_delay_is_no_retry(harness: QueueHarness) -> None:
    [added] = await harness.broker().submit([harness.job(delay=60_000)])
    await harness.operator.update(added.id, delay=90_000)  # type: ignore[union-attr]
    kinds = [event.kind for event in await harness.events.range()]
    assert kinds == ["added", "delayed", "delayed"]


def entry(number: int, *fields: str) -> tuple[bytes, list[bytes]]:
    return b"1000-%d" % number, [field.encode() for field in fields]


def test_a_stall_that_node_wrote_is_known_by_the_entry_behind_it() -> None:
    waiting = entry(1, "event", "waiting", "jobId", "7", "prev", "active")
    stalled = entry(2, "event", "stalled", "jobId", "7")
    other = entry(2, "event", "stalled", "jobId", "8")
    assert decode_columns([waiting, stalled]).kinds == [b"waiting", b"stalled"]
    assert decode_columns([waiting, other]).kinds == [b"retry", b"stalled"]
    assert decode_columns([waiting], following=stalled[1]).kinds == [b"waiting"]
    assert decode_columns([waiting]).kinds == [b"retry"]


async def test_a_stall_is_known_at_the_end_of_a_page_too(harness: QueueHarness, store: Store) -> None:
    for fields in (("waiting", "jobId", "7", "prev", "active"), ("stalled", "jobId", "7")):
        await store.call("XADD", "bull:default:events", "*", "event", *fields)
    page = await harness.events.page(count=1)
    [event] = await harness.events.range(count=1)
    assert (page.columns.kinds, event.kind) == ([b"waiting"], "waiting")
