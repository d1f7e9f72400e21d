"""Long lists in batches: bounded, in order, the next on its way while the last is worked on."""

import asyncio

import pytest

from corral.protocols.batches import MOST_BYTES, MOST_ROWS, SingleCalls, cuts, overlapped


def test_rows_stay_in_order_and_no_batch_has_too_many() -> None:
    rows = list(range(2 * MOST_ROWS + 1))
    batches = [rows[cut] for cut in cuts([1] * len(rows))]
    assert [len(batch) for batch in batches] == [MOST_ROWS, MOST_ROWS, 1]
    assert [row for batch in batches for row in batch] == rows


def test_a_batch_ends_before_it_gets_too_large_and_a_large_row_travels_alone() -> None:
    sizes = [MOST_BYTES - 1, 1, 1, MOST_BYTES * 2, 5]
    assert [sizes[cut] for cut in cuts(sizes)] == [[MOST_BYTES - 1, 1], [1], [MOST_BYTES * 2], [5]]
    assert list(cuts([])) == []


async def test_the_next_batch_is_sent_before_the_last_is_answered_and_no_further() -> None:
    sent: list[int] = []
    answer = asyncio.Event()

    async def send(batch: list[int]) -> int:
        sent.append(batch[0])
        await answer.wait()
        return batch[0] * 10

    under_way = asyncio.create_task(overlapped([[1], [2], [3], [4]], send))
    for _ in range(20):
        await asyncio.sleep(0)
    assert sent == [1, 2]
    answer.set()
    assert await under_way == [10, 20, 30, 40]
    assert sent == [1, 2, 3, 4]


async def test_after_a_failure_nothing_more_is_sent_and_what_is_under_way_is_waited_for() -> None:
    ended: list[int] = []

    async def send(batch: list[int]) -> None:
        if batch == [1]:
            raise ValueError("the first was refused")
        for _ in range(10):
            await asyncio.sleep(0)
        ended.append(batch[0])

    with pytest.raises(ValueError, match="the first was refused"):
        await overlapped([[1], [2], [3]], send)
    assert ended == [2]


async def test_a_caller_who_gives_up_leaves_nothing_under_way() -> None:
    given_up: list[int] = []

    async def send(batch: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up.append(batch[0])
            raise

    under_way = asyncio.create_task(overlapped([[1], [2], [3]], send))
    for _ in range(10):
        await asyncio.sleep(0)
    under_way.cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    assert given_up == [1, 2]


async def test_no_batches_are_no_answers() -> None:
    async def send(batch: list[int]) -> int:
        return batch[0]

    assert await overlapped([], send) == []


class Trips:
    """Rows as they were sent, and replies when they are let go."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.may_reply = asyncio.Event()
        self.error: Exception | None = None

    async def send(self, rows: list[int]) -> list[int]:
        self.sent.append(rows)
        await self.may_reply.wait()
        if self.error is not None and len(rows) > 1:
            raise self.error
        return [row * 10 for row in rows]


async def started(calls: SingleCalls[int, int], rows: range) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(calls.call(row)) for row in rows]
    await asyncio.sleep(0)
    return tasks


async def test_a_single_call_is_sent_at_once_and_those_that_come_meanwhile_together() -> None:
    trips = Trips()
    calls = SingleCalls(trips.send, lambda row: 1)
    tasks = await started(calls, range(5))
    assert trips.sent == [[0]]
    trips.may_reply.set()
    assert await asyncio.gather(*tasks) == [0, 10, 20, 30, 40]
    assert trips.sent == [[0], [1, 2, 3, 4]]
    assert await calls.call(7) == 70
    assert trips.sent[2:] == [[7]]


async def test_a_cancelled_call_does_not_touch_the_others() -> None:
    trips = Trips()
    calls = SingleCalls(trips.send, lambda row: 1)
    tasks = await started(calls, range(4))
    tasks[0].cancel()  # it is on its way: the others do not wait for its reply
    tasks[2].cancel()  # it has not been sent
    trips.may_reply.set()
    assert await asyncio.gather(tasks[1], tasks[3]) == [10, 30]
    assert trips.sent == [[0], [1, 3]]
    assert await calls.call(9) == 90


async def test_an_error_of_a_trip_is_that_of_each_of_its_calls_and_of_no_other() -> None:
    trips = Trips()
    trips.error = ConnectionError("no reply")
    calls = SingleCalls(trips.send, lambda row: MOST_BYTES if row == 3 else 1)
    tasks = await started(calls, range(6))
    trips.may_reply.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results == [0, trips.error, trips.error, trips.error, trips.error, trips.error]
    assert trips.sent == [[0], [1, 2, 3], [4, 5]], "bounded by bytes too"
    trips.error = None
    assert await calls.call(8) == 80


def test_single_calls_of_several_event_loops_do_not_meet() -> None:
    trips = Trips()
    trips.may_reply.set()
    calls = SingleCalls(trips.send, lambda row: 1)
    assert [asyncio.run(calls.call(row)) for row in (1, 2)] == [10, 20]
