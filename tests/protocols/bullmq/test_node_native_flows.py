"""Flows and chains of the native API, as Node sees them: ordinary flows, whose jobs its workers may run."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from corral import Corral, JobContext, JobState
from tests.support.apps import working
from tests.support.node import Node
from tests.support.polling import until

QUEUES = ("reports", "orders")


class Shop:
    """Job types; `app` has handlers of both queues, `reporting` of the reports alone."""

    def __init__(self, url: str) -> None:
        self.app, self.reporting = Corral(url), Corral(url)

        @self.app.job(queue="orders")
        async def charge(order: int) -> dict[str, int]:
            return {"order": order}

        async def report(job: JobContext, day: str) -> list[Any]:
            return [day, *await job.children_results()]

        @self.reporting.job(queue="reports")
        async def show(receipt: dict[str, Any], title: str = "") -> str:
            return f"{title}{receipt['id']}"

        self.charge, self.show = charge, show
        self.report = self.app.job(queue="reports")(report)
        self.reporting.job(queue="reports")(report)


@pytest.fixture
async def shop(url: str, node: Node) -> AsyncIterator[Shop]:
    shop = Shop(url)
    for queue in QUEUES:
        await node("openQueue", handle=queue, name=queue, prefix="bull", url=url, opts={})
    await node("openFlows", handle="flows", prefix="bull", url=url)
    yield shop
    await shop.app.close()
    await shop.reporting.close()


async def run_node(node: Node, url: str, script: dict[str, Any]) -> None:
    """Start a Node worker of the orders."""
    where = {"name": "orders", "prefix": "bull", "url": url}
    await node("runWorker", handle="worker", **where, script=script, opts={})


def shape(tree: dict[str, Any]) -> dict[str, Any]:
    """A tree as far as both sides know it."""
    job = tree["job"]
    children = sorted((shape(child) for child in tree.get("children") or ()), key=str)
    return {"name": job["name"], "data": job["data"], "children": children}


async def test_node_reads_the_tree_of_a_native_flow(shop: Shop, node: Node) -> None:
    week = shop.app.flow(
        shop.report.call("week"),
        children=[
            shop.app.flow(shop.report.call(day), children=[shop.charge.call(n) for n in range(3)])
            for day in ("monday", "tuesday")
        ],
    )
    handle = await week.add()
    tree = await node("getFlow", flows="flows", opts={"id": handle.id, "queueName": "reports"})
    orders = [{"name": "charge", "data": {"order": n}, "children": []} for n in range(3)]
    days = [{"name": "report", "data": {"day": day}, "children": orders} for day in ("monday", "tuesday")]
    assert shape(tree) == {"name": "report", "data": {"day": "week"}, "children": days}
    state = await node("queue", handle="reports", method="getJobState", args=[handle.id])
    assert state == "waiting-children"
    [first, _] = tree["children"]
    assert first["job"]["opts"]["failParentOnFailure"] is True
    assert first["job"]["parentKey"] == f"bull:reports:{handle.id}"
    async with working(shop.app):
        await handle.result(timeout=20)
    values = await node("job", queue="reports", id=handle.id, method="getChildrenValues", args=[])
    assert sorted(value[0] for value in values.values()) == ["monday", "tuesday"]


async def test_node_works_the_children_and_corral_the_parent(shop: Shop, node: Node, url: str) -> None:
    await run_node(node, url, {"echo": True})
    flow = shop.app.flow(shop.report.call("monday"), children=[shop.charge.call(n) for n in range(3)])
    async with working(shop.reporting):
        day, *receipts = await (await flow.add()).result(timeout=20)
        assert (day, [receipt["data"]["order"] for receipt in receipts]) == ("monday", [0, 1, 2])


async def test_what_node_returns_goes_on_through_a_chain(shop: Shop, node: Node, url: str) -> None:
    await run_node(node, url, {"return": {"id": 5}})

    @shop.reporting.job(queue="orders")
    async def charge(order: int) -> dict[str, Any]:
        return {}

    chain = charge.call(7).then(shop.show, title="paid: ")
    async with working(shop.reporting, queues=["reports"]):
        assert await (await chain.add()).result(timeout=20) == "paid: 5"


async def test_a_job_of_a_chain_is_one_that_node_can_run(shop: Shop, node: Node, url: str) -> None:
    handle = await shop.charge.call(7).then(shop.charge).add()
    await run_node(node, url, {"echo": True})

    async def is_completed() -> bool:
        return await handle.state() is JobState.COMPLETED

    await until(is_completed, "Node has run both")
    values = await node("job", queue="orders", id=handle.id, method="getChildrenValues", args=[])
    [before] = values.values()
    assert before["data"] == {"order": 7}
    last = await handle.queue.job(handle.id)
    assert last is not None
    assert last.result["data"] == {}, "what Corral would have filled in, Node reads by itself"


async def test_node_knows_the_job_of_a_unique_key(shop: Shop, node: Node) -> None:
    handle = await shop.charge.options(unique="order-7").add(7)
    known = await node("queue", handle="orders", method="getDeduplicationJobId", args=["order-7"])
    assert known == handle.id
    added = await node(
        "add", queue="orders", name="charge", data={"order": 8}, opts={"deduplication": {"id": "order-7"}}
    )
    assert added["id"] == handle.id
