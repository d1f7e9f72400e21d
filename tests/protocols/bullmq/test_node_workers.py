"""Workers are seen across the two: Node's getWorkers() lists ours, and we list Node's."""

import asyncio
from base64 import b64encode
from typing import Any

import pytest

from tests.protocols.bullmq.shared_queue import SharedQueue
from tests.support.polling import TIMEOUT_S, until


def install(shared: SharedQueue) -> None:
    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None: ...


async def node_sees(shared: SharedQueue) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await shared.node_queue("getWorkers")
    return found


async def test_node_lists_our_workers_by_name_until_they_stop(shared: SharedQueue) -> None:
    install(shared)
    async with shared.corral_works(name="anna"), shared.corral_works(name="host-7-abc123"):
        await shared.idle(2)
        listed = await node_sees(shared)
        assert await shared.node_queue("getWorkersCount") == 2
    prefix = f"bull:{b64encode(b'mail').decode()}:w:"
    assert sorted(each["rawname"] for each in listed) == [prefix + "anna", prefix + "host-7-abc123"]
    # Node shows the queue's own name instead of the connection's
    assert {each["name"] for each in listed} == {"mail"}

    async def gone() -> bool:
        return await node_sees(shared) == []

    await until(gone, "stopped workers are not listed")


@pytest.mark.parametrize("has_waited", [True, False], ids=["since it waited", "since it started"])
async def test_a_busy_worker_is_listed_too(shared: SharedQueue, has_waited: bool) -> None:
    going, end = asyncio.Event(), asyncio.Event()

    @shared.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        going.set()
        await end.wait()

    if not has_waited:
        await shared.node_adds()
    async with shared.corral_works(name="anna", concurrency=1):
        if has_waited:
            await shared.idle()
            await shared.node_adds()
        await asyncio.wait_for(going.wait(), TIMEOUT_S)
        listed = await node_sees(shared)
        end.set()
        await shared.ended(1)
    assert [each["rawname"].rpartition(":")[2] for each in listed] == ["anna"]


async def test_we_list_workers_of_both_kinds(shared: SharedQueue) -> None:
    install(shared)
    async with (
        shared.corral_works(name="anna"),
        shared.node_works(name="nora"),
        shared.node_works(handle="nameless"),
    ):
        await shared.idle(3)
        names = sorted(worker.name for worker in await shared.inspector.workers())
        raw = sorted(each["rawname"].partition(":w:")[2] for each in await node_sees(shared))
    assert names == raw == ["", "anna", "nora"]


async def test_workers_of_another_queue_are_not_listed(shared: SharedQueue) -> None:
    install(shared)

    @shared.app.job("send", queue="mailbox")
    async def other(job: Any) -> None: ...

    workers = shared.app.workers(name="anna")
    for worker in workers:
        await worker.start()
    await shared.idle(2)
    assert len(await node_sees(shared)) == 1
    for worker in workers:
        await worker.stop()
