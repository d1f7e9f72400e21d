"""Children that fail, wait, go or come again leave the state that Node BullMQ 5.62.0 leaves."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.protocols.bullmq.paired_flows import POLICIES, PairedQueues, job, policy_name
from tests.protocols.bullmq.paired_outcomes import Failed

MakePairs = Callable[..., Awaitable[PairedQueues]]


# -- failing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
@pytest.mark.parametrize("parent", [{}, {"priority": 3}, {"delay": 400}], ids=str)
async def test_a_failed_child(
    paired_queues: MakePairs, policy: dict[str, Any], parent: dict[str, Any]
) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("bad", "pay", **policy), job("good", "pay"), **parent))
    await queues["pay"].claim(2)
    await queues["pay"].fail("bad", "no ünlück")
    await queues["pay"].complete("good", 1)
    await queues["mail"].advance(1_000)
    await queues["mail"].claim()
    if "failParentOnFailure" in policy:
        assert queues["mail"].claimed("top").doomed == "child corral:pay:bad failed"
    elif policy:
        assert queues["mail"].held() == ["top"]
    else:
        assert queues["mail"].held() == []


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
async def test_an_only_child_fails(paired_queues: MakePairs, policy: dict[str, Any]) -> None:
    queues = await paired_queues("mail")
    await queues.add_flow(job("top", "mail", job("bad", "mail", **policy)))
    await queues["mail"].claim()
    expected = ["top"] if policy else []
    assert await queues["mail"].fail("bad", want=2) == expected


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
@pytest.mark.parametrize("kept", [True, 1, {"age": 1}, {"age": 1, "count": 1}], ids=str)
async def test_a_failed_child_that_goes(paired_queues: MakePairs, policy: dict[str, Any], kept: Any) -> None:
    queues = await paired_queues("mail", "pay")
    opts = {**policy, "removeOnFail": kept}
    await queues.add_flow(job("top", "mail", job("b1", "pay", **opts), job("b2", "pay", **opts)))
    await queues["pay"].claim(2)
    await queues["pay"].fail("b1")
    await queues["mail"].advance(1_500)
    await queues["pay"].fail("b2")
    await queues["pay"].add("send", removeOnFail=kept)
    await queues["pay"].claim()
    await queues["mail"].advance(1_500)
    await queues["pay"].fail("3")
    assert not queues.different()


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
async def test_a_failure_goes_up_three_levels(paired_queues: MakePairs, policy: dict[str, Any]) -> None:
    queues = await paired_queues("mail", "pay", "ship")
    await queues.add_flow(job("top", "mail", job("mid", "pay", job("low", "ship", **policy), **policy)))
    await queues["ship"].claim()
    await queues["ship"].fail("low", "too low")
    if await queues["pay"].claim():
        doomed = queues["pay"].claimed("mid").doomed
        await queues["pay"].fail("mid", "too far", unrecoverable=doomed is not None)
    if await queues["mail"].claim():
        doomed = queues["mail"].claimed("top").doomed
        assert doomed == ("child corral:pay:mid failed" if "failParentOnFailure" in policy else None)
        if doomed is None:
            await queues["mail"].complete("top", "in spite of all")
        else:
            await queues["mail"].fail("top", "a child failed", unrecoverable=True)


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
async def test_a_child_is_tried_again_before_its_parent_hears_of_it(
    paired_queues: MakePairs, policy: dict[str, Any]
) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("bad", "pay", attempts=2, **policy)))
    for _ in range(2):
        await queues["pay"].claim()
        assert queues["mail"].entry("top:dependencies") == [b"corral:pay:bad"]
        await queues["pay"].fail("bad")


async def test_two_children_fail_their_parent(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    fatal = {"failParentOnFailure": True}
    await queues.add_flow(job("top", "mail", *(job(f"c{n}", "pay", **fatal) for n in range(3))))
    await queues["pay"].claim(3)
    await queues["pay"].fail("c0")
    await queues["pay"].fail("c1")
    await queues["mail"].claim()
    await queues["mail"].fail("top", "a child failed", unrecoverable=True)
    await queues["pay"].fail("c2")
    assert len(queues["mail"].entry("top:unsuccessful")) == 3


async def test_a_child_fails_while_its_parent_runs(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues["mail"].add("send", jobId="top")
    await queues["mail"].claim()
    await queues.add_child("pay", ("mail", "top"), jobId="a", failParentOnFailure=True)
    await queues["pay"].claim()
    await queues["pay"].fail("a")
    assert queues["mail"].entry("top")["defa"] == b"child corral:pay:a failed"


async def test_a_parent_that_failed_and_its_child_that_fails_then_in_one_turn(
    paired_queues: MakePairs,
) -> None:
    queues = await paired_queues("mail")
    queue = queues["mail"]
    await queue.add("send", jobId="top")
    await queue.claim()
    await queues.add_child("mail", ("mail", "top"), jobId="a", failParentOnFailure=True)
    await queue.claim()
    await queue.turn([Failed("top", "first"), Failed("a", "second")])
    assert "defa" not in queue.entry("top")


async def test_a_delayed_parent_fails_at_once(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    fatal = {"failParentOnFailure": True}
    await queues.add_flow(job("top", "mail", job("a", "pay"), delay=60_000))
    await queues["pay"].claim()
    await queues["pay"].complete("a")
    await queues.add_child("pay", ("mail", "top"), jobId="b", **fatal)
    await queues["pay"].claim()
    await queues["pay"].fail("b")
    assert queues["mail"].entry("delayed") is None


# -- a parent that is not done ------------------------------------------------------------------------------


async def test_a_parent_cannot_complete_before_its_children(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues["mail"].add("send", jobId="top")
    await queues["mail"].claim()
    await queues.add_child("pay", ("mail", "top"), jobId="a", failParentOnFailure=True)
    await queues["mail"].complete("top")
    queues["mail"].hold_again("top")
    await queues["pay"].claim()
    await queues["pay"].fail("a")
    await queues["mail"].complete("top")
    queues["mail"].hold_again("top")
    await queues["mail"].fail("top", "children failed", unrecoverable=True)
    assert [member for member, _ in queues["mail"].entry("failed")] == [b"top"]


async def test_a_job_waits_for_children_it_made_itself(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues["mail"].add("send", jobId="top")
    await queues["mail"].claim()
    assert await queues["mail"].await_children("top") is False
    await queues.add_child("pay", ("mail", "top"), jobId="a")
    assert await queues["mail"].await_children("top") is True
    await queues["pay"].claim()
    await queues["pay"].complete("a", 1)
    assert await queues["mail"].claim() == ["top"]
    assert await queues["mail"].await_children("top") is False
    await queues["mail"].complete("top")


async def test_a_job_waits_for_one_of_its_children(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues["mail"].add("send", jobId="top")
    await queues["mail"].claim()
    await queues.add_child("pay", ("mail", "top"), jobId="a")
    await queues.add_child("pay", ("mail", "top"), jobId="b")
    assert await queues["mail"].await_children("top", ("pay", "other")) is False
    assert await queues["mail"].await_children("top", ("pay", "b")) is True


async def test_a_job_does_not_wait_for_children_that_failed_it(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues["mail"].add("send", jobId="top")
    await queues["mail"].claim()
    await queues.add_child("pay", ("mail", "top"), jobId="a", failParentOnFailure=True)
    await queues["pay"].claim()
    await queues["pay"].fail("a")
    assert await queues["mail"].await_children("top") == -9


async def test_a_job_that_is_not_ours_any_more_does_not_wait(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail")
    await queues["mail"].add("send", jobId="top")
    await queues["mail"].claim()
    await queues.add_child("mail", ("mail", "top"), jobId="a")
    queues["mail"].expire_locks("top")
    assert await queues["mail"].await_children("top") == -2
    queues["mail"].forget("top")
    assert await queues["mail"].await_children("top") == -1


# -- removing -----------------------------------------------------------------------------------------------


async def test_removing_a_parent_removes_its_children(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay", job("b", "mail")), job("c", "pay", delay=50)))
    assert await queues["mail"].remove("top")
    assert queues["pay"].entry("a") is None


async def test_removing_a_parent_whose_children_have_ended(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    children = [job(f"c{n}", "pay", **policy) for n, policy in enumerate(POLICIES)]
    await queues.add_flow(job("top", "mail", *children, job("good", "pay")))
    await queues["pay"].claim(6)
    for n in (1, 2, 3, 4):
        await queues["pay"].fail(f"c{n}")
    await queues["pay"].complete("good", 1)
    assert not await queues["mail"].remove("top")
    await queues["pay"].fail("c0")
    assert await queues["mail"].remove("top")


async def test_removing_a_parent_alone(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay")))
    mail = queues["mail"]
    await mail.operate("top", "remove", [{"removeChildren": False}], mail.operator.remove_job("top", False))
    assert queues["pay"].entry("a")["parentKey"] == b"corral:mail:top"
    await queues["pay"].claim()
    await queues["pay"].complete("a", 1)


async def test_a_parent_goes_on_when_its_last_child_is_removed(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay"), job("b", "pay", delay=50), priority=5))
    assert await queues["pay"].remove("a")
    assert await queues["mail"].claim() == []
    assert await queues["pay"].remove("b")
    assert await queues["mail"].claim() == ["top"]


async def test_a_held_child_keeps_its_parent(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("mid", "mail", job("a", "pay"))))
    await queues["pay"].claim()
    assert not await queues["mail"].remove("top")
    assert not await queues["pay"].remove("a")


async def test_children_that_have_not_started_can_be_removed(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    names = ("done", "bad", "runs", "waits", "later")
    children = [job(name, "pay", **({"delay": 900} if name == "later" else {})) for name in names]
    await queues.add_flow(job("top", "mail", *children, job("mid", "mail", job("low", "pay"))))
    await queues["pay"].claim(3)
    await queues["pay"].complete("done")
    await queues["pay"].fail("bad")
    mail = queues["mail"]
    await mail.operate("top", "removeUnprocessedChildren", [], mail.flows.remove_unprocessed("top"))
    assert sorted(mail.entry("top:dependencies")) == [b"corral:pay:bad", b"corral:pay:runs"]


async def test_a_child_can_be_taken_from_its_parent(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay"), job("b", "pay")))
    pay = queues["pay"]
    for job_id in ("a", "b"):
        ours = pay.flows.remove_parent(job_id, "corral:mail:top")
        assert await pay.operate(job_id, "removeChildDependency", [], ours) is True
    assert await queues["mail"].claim() == ["top"]
    assert "parentKey" not in pay.entry("a")


# -- trying again -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES[:2], ids=policy_name)
async def test_a_parent_waits_for_a_failed_child_that_is_tried_again(
    paired_queues: MakePairs, policy: dict[str, Any]
) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay", **policy)))
    await queues["pay"].claim()
    await queues["pay"].fail("a")
    assert await queues["pay"].retry("a")
    assert queues["mail"].entry("top:dependencies") == [b"corral:pay:a"]
    await queues["pay"].claim()
    await queues["pay"].complete("a", 2)


async def test_a_parent_waits_for_a_completed_child_that_runs_again(paired_queues: MakePairs) -> None:
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay"), job("b", "pay")))
    await queues["pay"].claim()
    await queues["pay"].complete("a", 1)
    assert await queues["pay"].retry("a")
    assert len(queues["mail"].entry("top:dependencies")) == 2


@pytest.mark.parametrize("node", [5], indirect=True)
async def test_an_ignored_child_is_tried_again_where_node_stops_half_way(paired_queues: MakePairs) -> None:
    """Node 5 takes the hash of ignored failures for a sorted set there: it throws, having moved the job."""
    queues = await paired_queues("mail", "pay")
    await queues.add_flow(job("top", "mail", job("a", "pay", ignoreDependencyOnFailure=True)))
    pay = queues["pay"]
    await pay.claim()
    await pay.fail("a")
    assert await pay.operator.retry(["a"]) == ["a"]
    assert pay.entry("wait") == [b"a"]
    assert pay.events()[-1] == "waiting"
    assert queues["mail"].entry("top:failed") == {"corral:pay:a": b"no luck"}
