"""Flows leave the very state that Node BullMQ 5.62.0 leaves: added, bound, completed, read."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from corral.core.ports import Flow
from corral.errors import ParentMissing, ParentTaken
from tests.protocols.bullmq.paired_flows import POLICIES, PairedQueues, job
from tests.protocols.bullmq.paired_outcomes import Done, Failed
from tests.support.node import NodeError

MakePairs = Callable[..., Awaitable[PairedQueues]]

# -- adding -------------------------------------------------------------------------------------------------


async def test_a_flow_of_one_job(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail")
    await queues.add_flow(job("alone"))
    assert await queues["mail"].claim() == ["alone"]


async def test_three_levels_in_one_queue_are_added_level_by_level(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail")
    left, right = (job(name, "mail", job(f"{name}-1"), job(f"{name}-2")) for name in ("left", "right"))
    await queues.add_flow(job("top", "mail", left, job("leaf"), right))
    assert queues["mail"].entry("wait") == [b"right-2", b"right-1", b"left-2", b"left-1", b"leaf"]


async def test_levels_in_queues_of_their_own(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay", "ship")
    await queues.add_flow(job("top", "mail", job("a", "pay", job("b", "ship")), job("c", "ship")))
    assert queues["mail"].entry("top:dependencies") == [b"corral:pay:a", b"corral:ship:c"]


async def test_children_of_every_kind(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    kinds: list[dict[str, Any]] = [{}, {"delay": 500}, {"priority": 3}, {"lifo": True}, {"attempts": 3}]
    kinds.append({"delay": 500, "priority": 2})
    children = [job(f"child-{n}", "pay", **opts) for n, opts in enumerate(kinds)]
    await queues.add_flow(job("top", "mail", *children, priority=7, delay=900, attempts=2, keepLogs=5))
    assert [member for member, _ in queues["mail"].entry("waiting-children")] == [b"top"]


async def test_several_flows_at_once(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail")
    await queues.add_flows([job(f"top-{n}", "mail", job(f"child-{n}")) for n in range(3)] + [job("alone")])
    assert queues["mail"].entry("wait") == [b"child-2", b"child-1", b"child-0", b"alone"]


async def test_a_flow_in_a_paused_and_in_a_full_queue(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues["pay"].pause()
    await queues["mail"].set_concurrency(1)
    await queues["mail"].add("send")
    await queues["mail"].claim()
    await queues.add_flow(job("top", "mail", job("a", "pay"), job("b", "mail")))
    assert queues["pay"].entry(queues["pay"].paused_list) == [b"a"]


async def test_a_flow_under_a_job_that_is_there(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay")))
    link = {"id": "top", "queue": "node:mail"}
    await queues.add_flow(job("more", "pay", job("most", "mail"), parent=link, failParentOnFailure=True))
    assert len(queues["mail"].entry("top:dependencies")) == 2


@pytest.mark.parametrize("node", [5], indirect=True)  # Node 6 refuses deduplication in flows
async def test_deduplicated_children(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    same = {"deduplication": {"id": "x"}}
    await queues.add_flow(job("top", "mail", job("a", "pay", **same), job("b", "pay", **same)))
    assert queues["mail"].entry("top:dependencies") == [b"corral:pay:a"]


@pytest.mark.parametrize("node", [5], indirect=True)
async def test_a_deduplicated_parent_takes_its_children_with_it(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    same = {"deduplication": {"id": "x"}}
    await queues["mail"].add("send", **same)
    await queues.add_flow(job("top", "mail", job("a", "pay", job("b", "pay")), **same))
    assert queues["pay"].entry("a") is None


async def test_a_child_added_alone(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay")))
    for opts in ({}, {"delay": 50}, {"priority": 2}, {"lifo": True}, {"jobId": "named"}):
        await queues.add_child("pay", ("mail", "top"), **opts)
    assert len(queues["mail"].entry("top:dependencies")) == 6


async def test_a_child_of_nobody_is_refused(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    assert await queues.add_child("pay", ("mail", "nobody")) == -5
    assert queues["pay"].entry("id") is None
    await queues["pay"].add("send")
    assert await queues.add_child("pay", ("mail", "nobody"), jobId="x") == -5


async def test_a_flow_under_nobody_is_refused_whole(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    flow = job("top", "mail", job("a", "pay"), parent={"id": "nobody", "queue": "node:mail"})
    # Node 5 says nothing
    with suppress(NodeError):
        await queues.add_flow_to_node(flow)
    with pytest.raises(ParentMissing, match="corral:mail:nobody"):
        await queues.add_own_flow(flow)
    assert not queues.different()
    assert queues["pay"].entry("a") is None


# -- ids that are there already -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["waiting", "active", "completed", "failed", "delayed"])
async def test_a_child_that_is_there_gets_its_parent(paired_queues: MakePairs, state: str) -> None:
    queues = await paired_queues("mail", "pay")
    await queues["pay"].add("send", jobId="a", **({"delay": 5_000} if state == "delayed" else {}))
    if state in ("active", "completed", "failed"):
        await queues["pay"].claim()
    if state in ("completed", "failed"):
        await queues["pay"].turn([Done("a", {"x": [1]}) if state == "completed" else Failed("a")])
    await queues.add_flow(job("top", "mail", job("a", "pay"), job("b", "pay")))
    where = "processed" if state == "completed" else "dependencies"
    assert b"corral:pay:a" in [*map(_bytes, queues["mail"].entry(f"top:{where}"))]
    if state == "active":
        await queues["pay"].complete("a", "late")
        assert queues["mail"].entry("top:processed") == {"corral:pay:a": b'"late"'}


def _bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


async def test_a_parent_goes_on_when_all_children_so_far_have_completed_already(
    paired_queues: MakePairs,
) -> None:
    queues = await paired_queues("mail")
    await queues["mail"].add("send", jobId="a")
    await queues["mail"].claim()
    await queues["mail"].complete("a", 5)
    await queues.add_flow(job("top", "mail", job("a"), job("b", lifo=True), job("c")))
    await queues.add_flow(job("other", "mail", job("d"), job("e", lifo=True)))
    # BullMQ 6 continues a parent only when its whole flow has been added
    top = [] if queues["mail"].is_six else ["top"]
    assert await queues["mail"].claim(9) == ["e", "b", *top, "c", "d"]


async def test_a_parent_whose_children_have_all_completed_already(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    for name, parent in (("mail", "a"), ("pay", "b")):
        await queues[name].add("send", jobId=parent)
        await queues[name].claim()
        await queues[name].complete(parent, 5)
    await queues.add_flow(job("top", "mail", job("a"), job("b", "pay")))
    assert await queues["mail"].claim(9) == ["top"]
    await queues["mail"].complete("top")


async def test_a_parent_that_lacks_a_child_of_another(paired_queues: MakePairs) -> None:
    """Where a child keeps the parent that it has, the rest of a flow does not continue the other parent."""
    queues = await paired_queues("mail", "pay")
    await queues["mail"].add("send", jobId="a")
    await queues["mail"].claim()
    await queues["mail"].complete("a", 5)
    await queues.add_flow(job("top", "mail", job("b", "pay")))
    await queues.try_flow(job("other", "mail", job("a"), job("b", "pay")))
    assert queues["mail"].entry("other:processed") == {"corral:mail:a": b"5"}


async def test_a_child_of_another_parent_is_refused(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay")))
    await queues.add_flow(job("other", "mail", job("b", "pay")))
    assert await queues.add_child("pay", ("mail", "other"), jobId="a") == -7
    with pytest.raises(ParentTaken, match="'a'"):
        await queues.add_flow(job("third", "mail", job("a", "pay"), job("c", "pay")))
    assert not queues.different()
    assert queues["mail"].entry("third:dependencies") == [b"corral:pay:c"]


async def test_a_child_whose_parent_is_gone(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay")))
    queues["mail"].forget("top", "top:dependencies", "waiting-children")
    assert await queues.add_child("pay", ("mail", "nobody"), jobId="a") == -5
    await queues.add_flow(job("other", "mail", job("a", "pay")))
    await queues["pay"].claim()
    await queues["pay"].complete("a")
    adopted = {"corral:pay:a": b"null"} if queues["mail"].is_six else None
    assert queues["mail"].entry("other:processed") == adopted


async def test_the_same_flow_twice(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    flow = job("top", "mail", job("a", "pay"), job("b", "pay"))
    await queues.add_flow(flow)
    await queues.add_flow(flow)
    await queues["pay"].claim(2)
    await queues["pay"].complete("a", 1)
    await queues.add_flow(flow)
    await queues["pay"].complete("b", 2)
    assert await queues["mail"].claim() == ["top"]
    await queues["mail"].complete("top")
    await queues.add_flow(flow)


# -- completing ---------------------------------------------------------------------------------------------


async def test_a_parent_goes_on_when_its_last_child_has_completed(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", *(job(f"c{n}", "pay") for n in range(3))))
    assert await queues["pay"].claim(3) == ["c0", "c1", "c2"]
    await queues["pay"].complete("c1", {"ü": [1, 2.5, None, {}, [], 2**53 - 1]})
    await queues["pay"].complete("c0")
    assert await queues["mail"].claim() == []
    await queues["pay"].complete("c2", "three")
    assert await queues["mail"].claim() == ["top"]
    values = await queues["mail"].flows.children_values("top")
    assert values["corral:pay:c1"] == {"ü": [1, 2.5, None, {}, [], 2**53 - 1]}
    await queues["mail"].complete("top", "all")


@pytest.mark.parametrize("count", [1, 12])
async def test_children_that_end_in_one_turn(paired_queues: MakePairs, count: int) -> None:
    queues = await paired_queues("mail")
    await queues.add_flow(job("top", "mail", *(job(f"c{n}") for n in range(count))))
    ids = await queues["mail"].claim(count)
    assert await queues["mail"].turn([Done(job_id, n) for n, job_id in enumerate(ids)], 3) == ["top"]
    assert len(queues["mail"].entry("top:processed")) == count


@pytest.mark.parametrize(
    "opts", [{}, {"priority": 4}, {"delay": 700}, {"lifo": True}, {"delay": 9, "priority": 2}]
)
@pytest.mark.parametrize("mood", ["calm", "paused", "full"])
async def test_where_a_parent_goes_on(paired_queues: MakePairs, opts: dict[str, Any], mood: str) -> None:
    queues = await paired_queues("mail", "pay")
    await queues["mail"].add("before")
    await queues["mail"].add("before", delay=300)
    if mood == "paused":
        await queues["mail"].pause()
    elif mood == "full":
        await queues["mail"].set_concurrency(1)
        await queues["mail"].claim()
    await queues.add_flow(job("top", "mail", job("a", "pay"), **opts))
    await queues["pay"].claim()
    queues["mail"].forget("marker")
    await queues["pay"].complete("a")
    assert queues["mail"].entry("waiting-children") is None


async def test_a_flow_in_one_queue_runs_from_its_leaves_up(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail")
    left, right = (job(name, "mail", job(f"{name}-1"), job(f"{name}-2")) for name in ("left", "right"))
    await queues.add_flow(job("top", "mail", left, right))
    ran: list[str] = []
    claimed = await queues["mail"].claim(2)
    while claimed:
        ran += claimed
        claimed = await queues["mail"].turn([Done(job_id, job_id) for job_id in claimed], 2)
    assert ran == ["left-1", "left-2", "left", "right-1", "right-2", "right", "top"]


async def test_a_parent_and_its_child_settled_in_one_turn(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail")
    queue = queues["mail"]
    await queue.add("send", jobId="top")
    await queue.claim()
    await queues.add_child("mail", ("mail", "top"), jobId="a")
    await queue.claim()
    await queue.turn([Done("a", 1), Done("top", 2)])
    assert queue.entry("top:processed") == {"corral:mail:a": b"1"}


async def test_a_child_that_goes_at_its_end_leaves_its_result(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    kept: list[Any] = [True, 1, {"age": 1}]
    children = [job(f"c{n}", "pay", removeOnComplete=each) for n, each in enumerate(kept)]
    await queues.add_flow(job("top", "mail", *children))
    await queues["pay"].claim(3)
    for n in range(3):
        await queues["pay"].complete(f"c{n}", n)
        await queues["mail"].advance(1_500)
    assert len(queues["mail"].entry("top:processed")) == 3


async def test_a_parent_that_goes_at_its_end_takes_its_own_keys(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay"), removeOnComplete=True))
    await queues["pay"].claim()
    await queues["pay"].complete("a", 1)
    await queues["mail"].claim()
    await queues["mail"].complete("top")
    assert queues["mail"].entry("top:processed") is None


# -- reading ------------------------------------------------------------------------------------------------


async def test_a_parents_children_can_be_read(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    children = [job(f"c{n}", "pay", **policy) for n, policy in enumerate(POLICIES)]
    await queues.add_flow(job("top", "mail", *children, job("good", "pay")))
    await queues["pay"].claim(6)
    for n in (1, 2, 3, 4):
        await queues["pay"].fail(f"c{n}", f"why {n}")
    await queues["pay"].complete("good", {"x": 1})
    mail = queues["mail"]
    children = await mail.operate("top", "getDependencies", [], mail.flows.children("top"))
    assert children.processed == {"corral:pay:good": {"x": 1}}
    assert children.unprocessed == ["corral:pay:c0"]
    assert children.ignored == {"corral:pay:c2": "why 2", "corral:pay:c3": "why 3"}
    assert children.failed == ["corral:pay:c1"]
    assert await mail.flows.ignored_failures("top") == children.ignored
    counts = await mail._node("job", queue="node-queue", id="top", method="getDependenciesCount", args=[])
    assert await mail.flows.children_counts("top") == counts
    for kind, found in (("processed", 1), ("unprocessed", 1), ("ignored", 2), ("failed", 1)):
        assert len((await mail.flows.children_page("top", kind)).children) == found


async def test_a_flow_can_be_read(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    flow = job("top", "mail", job("a", "pay", job("low", "mail")), job("b", "pay"))
    await queues.add_flow(flow)
    await queues["pay"].claim()
    await queues["pay"].complete("b", 7)

    def names(found: Flow) -> Any:
        return found.job.id, sorted(map(names, found.children))

    whole = await queues.flows.tree("top")
    assert whole is not None
    assert names(whole) == ("top", [("a", [("low", [])]), ("b", [])])
    assert {child.job.id: child.job.result for child in whole.children} == {"a": None, "b": 7}
    shallow = await queues.flows.tree("top", depth=2)
    assert shallow is not None
    assert names(shallow) == ("top", [("a", []), ("b", [])])
    assert await queues.flows.tree("nobody") is None
    theirs = await queues._node("getFlow", flows="flows", opts={"queueName": "mail", "id": "top"})
    assert sorted(child["job"]["id"] for child in theirs["children"]) == ["a", "b"]


async def test_ids_are_made_where_none_are_given(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail")
    child = {"name": "work", "queueName": "mail"}
    flow = {"name": "work", "queueName": "mail", "opts": {}, "children": [child]}
    added = await queues.flows.add(queues._flow(flow))
    assert added.children[0].job.id
    assert queues["mail"].entry(f"{added.job.id}:dependencies") == [
        f"corral:mail:{added.children[0].job.id}".encode()
    ]
    assert b"jobId" not in queues["mail"].entry(added.job.id)["opts"]
