"""FlowProducer: trees of jobs that Node reads and works, and that we work for Node."""

from typing import Any

import pytest

from corral.bullmq import FlowProducer, Job, WaitingChildrenError
from tests.dropin.factory import EventRecorder, Factory
from tests.dropin.node_queue import NodeQueue
from tests.support.polling import until


def album(**opts: Any) -> dict[str, Any]:
    """Return a parent in one queue with two children in another."""
    return {
        "name": "album",
        "queueName": "mail",
        "data": {"title": "ü"},
        "opts": {"jobId": "album"},
        "children": [
            {"name": "photo", "queueName": "photos", "data": {"number": number}, "opts": opts}
            for number in (1, 2)
        ],
    }


async def photos(job: Job, token: str) -> Any:
    if job.data.get("number") == 2 and job.data.get("broken"):
        raise ValueError("blurred")
    return f"photo {job.data['number']}"


async def test_a_flow_is_added_as_a_whole_and_node_reads_it(factory: Factory, node_queue: NodeQueue) -> None:
    tree = await factory.flows().add(album())
    assert tree is not None
    assert (tree["job"].id, tree["job"].name) == ("album", "album")
    assert [child["job"].data for child in tree["children"]] == [{"number": 1}, {"number": 2}]
    assert {child["job"].parentKey for child in tree["children"]} == {"bull:mail:album"}
    await node_queue.node("openFlows", handle="flows", prefix="bull", url=factory.url)
    seen = await node_queue.node("getFlow", flows="flows", opts={"id": "album", "queueName": "mail"})
    assert seen["job"]["data"] == {"title": "ü"}
    assert sorted(child["job"]["id"] for child in seen["children"]) == sorted(
        child["job"].id for child in tree["children"]
    )
    assert seen["children"][0]["job"]["parentKey"] == "bull:mail:album"
    assert await node_queue("getJobState", "album") == "waiting-children"


async def test_a_parent_runs_after_its_children_and_gets_their_results(
    factory: Factory, node_queue: NodeQueue
) -> None:
    async def bind(job: Job, token: str) -> Any:
        counts = {"processed": 2, "unprocessed": 0, "ignored": 0, "failed": 0}
        assert await job.getDependenciesCount() == counts
        return sorted((await job.getChildrenValues()).values())

    events = await factory.events()
    tree = await factory.flows().add(album())
    assert tree is not None
    factory.worker(bind)
    factory.worker(photos, "photos", concurrency=2)
    assert await tree["job"].waitUntilFinished(events, 10_000) == ["photo 1", "photo 2"]
    dependencies = await tree["job"].getDependencies()
    assert sorted(dependencies["processed"].values()) == ["photo 1", "photo 2"]
    assert (dependencies["unprocessed"], dependencies["failed"], dependencies["ignored"]) == ([], [], {})


async def test_children_are_read_by_kind_and_by_page(factory: Factory, node_queue: NodeQueue) -> None:
    flow = album()
    flow["children"][1]["data"]["broken"] = True
    flow["children"][1]["opts"] = {"ignoreDependencyOnFailure": True}
    late = {"delay": 60_000, "jobId": "late"}
    flow["children"].append({"name": "photo", "queueName": "photos", "opts": late})
    tree = await factory.flows().add(flow)
    assert tree is not None
    parent = tree["job"]
    factory.worker(photos, "photos")

    async def two_ended() -> bool:
        counts: dict[str, int] = await parent.getDependenciesCount()
        return counts["processed"] == counts["ignored"] == 1

    await until(two_ended)
    assert await parent.getDependenciesCount({"unprocessed": True, "failed": True}) == {
        "unprocessed": 1, "failed": 0,
    }  # fmt: skip
    assert list((await parent.getIgnoredChildrenFailures()).values()) == ["blurred"]
    assert await parent.getFailedChildrenValues() == await parent.getIgnoredChildrenFailures()
    pages: dict[str, Any] = {"processed": {"count": 5}, "unprocessed": {"cursor": 0}, "ignored": {}}
    paged = await parent.getDependencies(pages)
    assert list(paged["processed"].values()) == ["photo 1"]
    assert (paged["unprocessed"], paged["nextUnprocessedCursor"]) == (["bull:photos:late"], 0)
    assert paged == await node_queue.job("album", "getDependencies", pages)
    await parent.removeUnprocessedChildren()
    assert await factory.queue("photos").getJob("late") is None


async def test_a_child_is_detached_from_its_parent(factory: Factory) -> None:
    tree = await factory.flows().add(album())
    assert tree is not None
    first, second = (child["job"] for child in tree["children"])
    assert await first.removeChildDependency() is True
    assert (first.parent, first.parentKey) == (None, None)
    assert await first.removeChildDependency() is False
    assert await tree["job"].getState() == "waiting-children"
    assert await second.removeChildDependency() is True
    assert await tree["job"].getState() == "waiting"


async def test_a_failed_child_fails_its_parent_with_nodes_reason(
    factory: Factory, node_queue: NodeQueue
) -> None:
    flow = album(failParentOnFailure=True)
    flow["children"][1]["data"]["broken"] = True
    events = await factory.events()
    tree = await factory.flows().add(flow)
    assert tree is not None
    ran: list[Any] = []

    async def bind(job: Job, token: str) -> Any:
        ran.append(job.id)

    worker = factory.worker(bind)
    recorded = EventRecorder(worker, "failed")
    factory.worker(photos, "photos")
    child = tree["children"][1]["job"]
    with pytest.raises(Exception, match=f"^child bull:photos:{child.id} failed$"):
        await tree["job"].waitUntilFinished(events, 10_000)
    assert ran == []
    await recorded.wait_for("failed")
    [[job, error]] = recorded.of("failed")
    assert (job.id, str(error)) == ("album", f"child bull:photos:{child.id} failed")
    assert (await node_queue.read("album"))["failedReason"] == str(error)


async def test_a_processor_adds_children_and_waits_for_them(factory: Factory, node_queue: NodeQueue) -> None:
    queue, children = factory.queue(), factory.queue("photos")
    steps: list[Any] = []

    async def process(job: Job, token: str) -> Any:
        steps.append(job.data.get("step"))
        if job.data.get("step") is None:
            parent = {"parent": {"id": job.id, "queue": job.queueQualifiedName}}
            await children.addBulk([{"name": "photo", "data": {"number": n}, "opts": parent} for n in (1, 2)])
            await job.updateData({"step": "second"})
            only = {"child": {"id": "none such", "queue": "bull:photos"}}
            assert await job.moveToWaitingChildren(token, only) is False
            if await job.moveToWaitingChildren(token):
                raise WaitingChildrenError
        assert await job.moveToWaitingChildren(token, {}) is False
        return sorted((await job.getChildrenValues()).values())

    events = await factory.events()
    job = await queue.add("album", {})
    worker = factory.worker(process)
    recorded = EventRecorder(worker, "error", "failed")
    await until(job.isWaitingChildren)
    factory.worker(photos, "photos")
    assert await job.waitUntilFinished(events, 10_000) == ["photo 1", "photo 2"]
    assert (steps, recorded.events) == ([None, "second"], [])
    assert (await node_queue.read(job.id))["attemptsMade"] == 1


async def test_a_job_is_not_completed_before_its_children(factory: Factory, node_queue: NodeQueue) -> None:
    queue = factory.queue()

    async def process(job: Job, token: str) -> Any:
        parent = {"parent": {"id": job.id, "queue": job.queueQualifiedName}}
        await factory.queue("photos").add("photo", {}, parent)
        return "too early"

    events = await factory.events()
    job = await queue.add("album", {})
    factory.worker(process)
    message = r"^Job 1 has pending dependencies\. moveToFinished$"
    with pytest.raises(Exception, match=message):
        await job.waitUntilFinished(events, 10_000)
    again = await factory.queue("albums").add("album", {})
    album = await factory.worker(None, "albums").getNextJob("token")
    assert album is not None
    await factory.queue("photos").add("photo", {}, {"parent": {"id": again.id, "queue": "bull:albums"}})
    with pytest.raises(TypeError, match=message):
        await album.moveToCompleted("too early", "token")


async def test_many_flows_are_added_at_once_in_queues_of_many_prefixes(factory: Factory) -> None:
    flows = factory.flows(prefix="shop")
    first, second = album(), {"name": "lone", "queueName": "mail", "prefix": "else", "data": [1]}
    trees = await flows.addBulk([first, second])
    assert trees is not None
    assert trees[0]["job"].queueQualifiedName == "shop:mail"
    assert "children" not in trees[1]
    lone = await Job.fromId(trees[1]["job"].queue, trees[1]["job"].id)
    assert lone is not None
    assert (lone.data, lone.queueQualifiedName) == ([1], "else:mail")
    assert await factory.queue("photos", prefix="shop").getWaitingCount() == 2


async def test_options_by_queue_are_defaults_for_the_jobs_of_a_flow(factory: Factory) -> None:
    defaults = {"queuesOptions": {"photos": {"defaultJobOptions": {"attempts": 7, "priority": 3}}}}
    tree = await factory.flows().add(album(priority=5), defaults)
    assert tree is not None
    child = tree["children"][0]["job"]
    assert (child.opts["attempts"], child.opts["priority"]) == (7, 5)
    assert tree["job"].opts["attempts"] == 0


async def test_a_flow_is_read_with_its_levels(factory: Factory) -> None:
    flow = album()
    flow["children"][0]["children"] = [{"name": "pixel", "queueName": "pixels", "opts": {"jobId": "pixel"}}]
    await factory.flows().add(flow)
    tree = await factory.flows().getFlow({"id": "album", "queueName": "mail"})
    assert tree is not None
    assert tree["job"].data == {"title": "ü"}
    deep = [child for child in tree["children"] if "children" in child]
    assert [each["job"].id for each in deep[0]["children"]] == ["pixel"]
    shallow = await factory.flows().getFlow({"id": "album", "queueName": "mail", "depth": 2})
    assert shallow is not None
    assert all("children" not in child for child in shallow["children"])
    assert await factory.flows().getFlow({"id": "none", "queueName": "mail"}) is None


async def test_a_refused_flow_writes_nothing(factory: Factory) -> None:
    flows, queue = factory.flows(), factory.queue()
    missing = {**album(), "opts": {"parent": {"id": "gone", "queue": "bull:mail"}}}
    with pytest.raises(TypeError, match=r"^Missing key for parent job bull:mail:gone\. addJob$"):
        await flows.add({**missing, "children": []})
    bad = album()
    bad["children"][1]["opts"] = {"priority": -1}
    with pytest.raises(ValueError, match="Priority should be between"):
        await flows.add(bad)
    assert await queue.store.call("DBSIZE") == 0


async def test_one_refused_flow_of_many_leaves_the_others_with_their_ids(factory: Factory) -> None:
    missing = {**album(), "opts": {"parent": {"id": "gone", "queue": "bull:mail"}}}
    good = album()
    trees = await factory.flows().addBulk([missing, good])
    assert trees is not None
    refused, added = trees
    assert [refused["job"].id, *(child["job"].id for child in refused["children"])] == [-5, -5, -5]
    assert added["job"].id == "album"
    assert {child["job"].parentKey for child in added["children"]} == {"bull:mail:album"}
    assert await factory.queue("photos").getJobCountByTypes() == 2


async def test_a_child_with_another_parent_leaves_the_rest_of_its_flow(factory: Factory) -> None:
    await factory.flows().add(
        {**album(), "children": [{"name": "photo", "queueName": "photos", "opts": {"jobId": "one"}}]}
    )
    second = {"name": "book", "queueName": "mail", "opts": {"jobId": "book"}}
    second["children"] = [
        {"name": "photo", "queueName": "photos", "opts": {"jobId": name}} for name in ("one", "two")
    ]
    tree = await factory.flows().add(second)
    assert tree is not None
    assert [child["job"].id for child in tree["children"]] == [-7, "two"]


async def test_a_closed_producer_adds_nothing(factory: Factory) -> None:
    flows = FlowProducer(factory.url)
    await flows.close()
    assert await flows.add(album()) is None
    assert await flows.addBulk([album()]) is None
    assert await flows.getFlow({"id": "album", "queueName": "mail"}) is None
    assert await factory.queue().store.call("DBSIZE") == 0
