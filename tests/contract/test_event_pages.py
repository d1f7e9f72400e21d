"""Events in bulk: pages of columns say what single events say, and marks count without sending."""

from typing import Any

import orjson

from corral.core.event import EventColumns, JobEvent
from corral.core.outcome import Completed, Dead, Retry
from tests.support.harness import QueueHarness

EVENT_KEYS = {"bullmq": "{0}:{1}:events", "streams": "{0}:jobs:events", "bridgemq": "{0}:events"}
"""By namespace and queue."""
AWKWARD = b'{"big":130775545883395173,"list":[],"object":{},"text":"\\u2028 \xc3\xbc \xf0\x9f\x90\x8e"}'


def text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def as_events(columns: EventColumns, protocol: str, queue: str) -> list[JobEvent]:
    return [
        JobEvent(
            id=text(columns.ids[n]) or "",
            protocol=protocol,
            queue=queue,
            at=columns.at[n],
            kind=text(columns.kinds[n]) or "",
            job_id=text(columns.job_ids[n]),
            name=text(columns.names[n]),
            attempt=columns.attempts[n],
            previous=text(columns.previous[n]),
            worker=text(columns.workers[n]),
            data=None if columns.data[n] is None else orjson.loads(columns.data[n]),
        )
        for n in range(len(columns))
    ]


async def live(harness: QueueHarness) -> None:
    """A few lives of jobs, with every kind of end the protocol has."""
    broker, reporter = harness.broker(), harness.reporter()
    await broker.submit([harness.job({"n": n}) for n in range(6)])
    claims = list((await broker.turn([], 6)).claims)
    await reporter.progress(claims[0], {"step": 1})
    await reporter.emit(claims[0], "half way", {"scene": [1]})
    outcomes = [Completed(AWKWARD), Completed(b"null"), Dead("boom ß"), Retry(0, "again"), Retry(5, "later")]
    await broker.turn([harness.settle(claim, how) for claim, how in zip(claims, outcomes, strict=False)], 0)
    await harness.operator.cancel([claims[5].job.id])


async def test_a_page_of_columns_says_what_the_events_say(harness: QueueHarness):
    await live(harness)
    events = await harness.events.range()
    assert len(events) > 15
    page = await harness.events.page()
    assert as_events(page.columns, harness.protocol.spec.name, harness.queue) == events
    assert page.extent == await harness.events.extent()
    assert page.size > 0


async def test_pages_of_any_size_join_without_a_seam(harness: QueueHarness):
    await live(harness)
    events = await harness.events.range()
    for count in (1, 2, 3, 7):
        after, paged = "-", []
        while (page := await harness.events.page(after, "+", count)).seen:
            assert page.seen <= count
            paged += as_events(page.columns, harness.protocol.spec.name, harness.queue)
            after = page.last
        assert paged == events


async def test_a_page_ends_at_its_last_id(harness: QueueHarness):
    await live(harness)
    events = await harness.events.range()
    page = await harness.events.page(events[2].id, events[5].id, 100)
    assert [text(event_id) for event_id in page.columns.ids] == [event.id for event in events[3:6]]


async def test_a_log_that_is_not_there_is_an_empty_page(harness: QueueHarness):
    page = await harness.events.page()
    assert len(page.columns) == 0
    assert (page.extent.first, page.extent.last, page.extent.length) == (None, None, 0)
    assert (page.seen, page.last) == (0, None)


def event_key(harness: QueueHarness) -> str:
    return EVENT_KEYS[harness.protocol.spec.name].format(harness.namespace, harness.queue).removeprefix(":")


async def test_a_strangers_entry_is_read_as_it_stands(harness: QueueHarness, server):
    await live(harness)
    key = event_key(harness)
    with server.connect() as client:
        bad = b"\xc3\x28"
        client.xadd(key, {"event": b"\xff\xfe", "type": b"\xff", "jobId": bad, "returnvalue": "{no json"})
        client.xadd(key, {"event": "completed", "returnvalue": '"\\ud800"', "data": "NaN", "type": "x"})
        client.xadd(key, {"nothing": "known", "delay": "12", "count": "x1"})
    events = await harness.events.range()
    read = as_events((await harness.events.page()).columns, harness.protocol.spec.name, harness.queue)
    assert [event.id for event in read] == [event.id for event in events]
    assert [event.kind for event in read] == [event.kind for event in events]
    assert [event.job_id for event in read] == [event.job_id for event in events]
    assert all(event.data is None or isinstance(event.data, dict) for event in read)


async def test_marks_count_a_stretch_and_name_its_places(harness: QueueHarness):
    await harness.broker().submit([harness.job() for _ in range(60)])
    events = await harness.events.range()
    marks = await harness.events.marks("-", "+", 10, 25)
    assert marks.is_whole
    assert marks.count == len(events)
    assert marks.last == events[-1].id
    assert list(marks.marks) == [(n, events[n - 1].id) for n in range(10, len(events) + 1, 25)]
    is_told = b"entries-added" in await harness.store.call("XINFO", "STREAM", event_key(harness))
    assert marks.extent.added == (len(events) if is_told else None), "servers tell from Redis 7 on"
    part = await harness.events.marks(events[4].id, events[9].id, 1, 1)
    assert [entry_id for _, entry_id in part.marks] == [event.id for event in events[5:10]]


async def test_marks_of_a_long_log_come_in_bounded_pieces(harness: QueueHarness):
    broker = harness.broker()
    for _ in range(4):
        await broker.submit([harness.job() for _ in range(1500)])
    whole = (await harness.events.extent()).length
    after, counted, calls = "-", 0, 0
    while True:
        marks = await harness.events.marks(after, "+", 1 << 52, 1 << 52)
        counted, calls, after = counted + marks.count, calls + 1, marks.last or after
        assert marks.count <= 5100
        if marks.is_whole:
            break
    assert counted == whole
    assert calls >= 2
