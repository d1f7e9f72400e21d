"""The drop-in on machines whose clocks are wrong: due times follow the server's clock."""

import asyncio
import time

import pytest

import corral.bullmq.connection
from corral.worker import wall_clock
from tests.dropin.factory import Factory
from tests.support.logs import capture_logs

MINUTES_10 = 600_000
DELAY_MS = 700
SLACK_MS = 300
"""How far off the comparison may be on a busy machine."""


@pytest.fixture(params=[MINUTES_10, -MINUTES_10], ids=["ahead", "behind"])
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects made while it is used run on a machine whose clock is wrong."""
    monkeypatch.setattr(corral.bullmq.connection, "wall_clock", lambda: wall_clock() + request.param)


class FailingOnce:
    """A processor that notes when it begins, and fails the first time."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.is_done = asyncio.Event()

    async def __call__(self, job, token):
        self.begun.append(time.monotonic())
        if len(self.begun) == 1:
            raise ValueError("once more")
        self.is_done.set()

    async def check_on_time(self, start: float, delay_ms: int = DELAY_MS) -> None:
        """The delay and the backoff took as long as they should; a busy machine may be late."""
        await asyncio.wait_for(self.is_done.wait(), 20)
        waits = [self.begun[0] - start, self.begun[1] - self.begun[0]]
        assert all(delay_ms / 1000 - 0.05 <= wait <= delay_ms / 1000 + 3 for wait in waits), waits


def options(delay_ms: int = DELAY_MS) -> dict:
    return {"delay": delay_ms, "attempts": 2, "backoff": {"type": "fixed", "delay": delay_ms}}


@pytest.mark.usefixtures("wrong_clock")
async def test_delays_and_backoffs_are_right_beside_a_worker_whose_clock_is_wrong(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
):
    processor = FailingOnce()
    with capture_logs() as logs:
        worker = factory.worker(processor)
        monkeypatch.undo()
        await worker.waitUntilReady()
        start = time.monotonic()
        await factory.queue().add("work", {}, options())
        await processor.check_on_time(start)
    [warning] = [log for log in logs if "clock" in log["event"]]
    assert "600.0 s" in warning["event"]


@pytest.mark.usefixtures("wrong_clock")
@pytest.mark.parametrize("how", ["add", "addBulk", "flow"])
async def test_the_first_delay_of_a_producer_whose_clock_is_wrong_is_right(
    factory: Factory, monkeypatch: pytest.MonkeyPatch, how: str
):
    queue, flows = factory.queue(), factory.flows()
    monkeypatch.undo()
    before = wall_clock()
    if how == "add":
        job = await queue.add("work", {}, options())
    elif how == "addBulk":
        [job] = await queue.addBulk([{"name": "work", "data": {}, "opts": options()}])
    else:
        job = (await flows.add({"name": "work", "queueName": queue.name, "opts": options()}))["job"]
    due = int(await queue.client.zscore(queue.toKey("delayed"), job.id)) // 4096
    assert before - SLACK_MS <= due - DELAY_MS <= wall_clock() + SLACK_MS
    assert before - SLACK_MS <= job.timestamp <= wall_clock() + SLACK_MS


@pytest.mark.faults
async def test_a_delay_of_6_s_takes_6_s_beside_a_worker_10_minutes_ahead(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
):
    processor = FailingOnce()
    monkeypatch.setattr(corral.bullmq.connection, "wall_clock", lambda: wall_clock() + MINUTES_10)
    worker = factory.worker(processor)
    monkeypatch.undo()
    await worker.waitUntilReady()
    start = time.monotonic()
    await factory.queue().add("work", {}, options(6000))
    await processor.check_on_time(start, 6000)
