"""Workers are seen across the two: Node's getWorkers() lists ours, and we list Node's."""

import asyncio
from base64 import b64encode
from typing import Any

import pytest

from tests.protocols.meeting import PATIENCE_S, Meeting, until


def install(meeting: Meeting) -> None:
    @meeting.app.job("send", queue="mail")
    async def send(job: Any) -> None: ...


async def node_sees(meeting: Meeting) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await meeting.node_queue("getWorkers")
    return found


async def test_node_lists_our_workers_by_name_until_they_stop(meeting: Meeting) -> None:
    install(meeting)
    async with meeting.corral_works(name="anna"), meeting.corral_works(name="host-7-abc123"):
        await meeting.idle(2)
        listed = await node_sees(meeting)
        assert await meeting.node_queue("getWorkersCount") == 2
    prefix = f"bull:{b64encode(b'mail').decode()}:w:"
    assert sorted(each["rawname"] for each in listed) == [prefix + "anna", prefix + "host-7-abc123"]
    # Node shows the queue's own name instead of the connection's
    assert {each["name"] for each in listed} == {"mail"}

    async def gone() -> bool:
        return await node_sees(meeting) == []

    await until(gone, "stopped workers are not listed")


@pytest.mark.parametrize("has_waited", [True, False], ids=["since it waited", "since it started"])
async def test_a_busy_worker_is_listed_too(meeting: Meeting, has_waited: bool) -> None:
    going, end = asyncio.Event(), asyncio.Event()

    @meeting.app.job("send", queue="mail")
    async def send(job: Any) -> None:
        going.set()
        await end.wait()

    if not has_waited:
        await meeting.node_adds()
    async with meeting.corral_works(name="anna", concurrency=1):
        if has_waited:
            await meeting.idle()
            await meeting.node_adds()
        await asyncio.wait_for(going.wait(), PATIENCE_S)
        listed = await node_sees(meeting)
        end.set()
        await meeting.ended(1)
    assert [each["rawname"].rpartition(":")[2] for each in listed] == ["anna"]


async def test_we_list_workers_of_both_kinds(meeting: Meeting) -> None:
    install(meeting)
    async with (
        meeting.corral_works(name="anna"),
        meeting.node_works(name="nora"),
        meeting.node_works(handle="nameless"),
    ):
        await meeting.idle(3)
        names = sorted(worker.name for worker in await meeting.inspector.workers())
        raw = sorted(each["rawname"].partition(":w:")[2] for each in await node_sees(meeting))
    assert names == raw == ["", "anna", "nora"]


async def test_workers_of_another_queue_are_not_listed(meeting: Meeting) -> None:
    install(meeting)

    @meeting.app.job("send", queue="mailbox")
    async def other(job: Any) -> None: ...

    workers = meeting.app.workers(name="anna")
    for worker in workers:
        await worker.start()
    await meeting.idle(2)
    assert len(await node_sees(meeting)) == 1
    for worker in workers:
        await worker.stop()
