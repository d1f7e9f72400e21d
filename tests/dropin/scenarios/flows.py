"""Scenarios of flows: parents and children, and what a failed child does."""

from typing import Any

from tests.dropin.scenarios.run import Run
from tests.support.polling import outlast

SCRIPT: dict[str, Any] = {
    "good": [[["return", {"child": "done"}]]],
    "bad": [[["fail", "no"]]],
    "parent": [[["job", "getChildrenValues"], ["return", "all"]]],
}


def flow(run: Run, *children: dict[str, Any], **opts: Any) -> dict[str, Any]:
    """A parent with these children, in the same queue."""
    return {
        "name": "parent", "queueName": run.name, "data": {"p": 1}, "opts": {"jobId": "parent", **opts},
        "children": list(children),
    }  # fmt: skip


def child(run: Run, name: str, job_id: str, *children: dict[str, Any], **opts: Any) -> dict[str, Any]:
    return {
        "name": name, "queueName": run.name, "data": {"c": job_id}, "opts": {"jobId": job_id, **opts},
        "children": list(children),
    }  # fmt: skip


async def flow_of_two_children(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(run, child(run, "good", "one"), child(run, "good", "two")))
    await run.job("parent", "getState")
    await run.job("parent", "getDependenciesCount")
    await run.works(SCRIPT)
    await run.rests(completed=3)
    await run.job("parent", "getChildrenValues")


async def flow_with_ids_of_its_own(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", {
        "name": "parent", "queueName": run.name, "data": {},
        "children": [{"name": "good", "queueName": run.name}],
    })  # fmt: skip
    await run.works(SCRIPT)
    await run.rests(completed=2)


async def flow_of_three_levels(run: Run) -> None:
    await run.open_queue()
    grandchild = child(run, "good", "grandchild")
    await run.flows("add", flow(run, child(run, "parent", "middle", grandchild), child(run, "good", "leaf")))
    await run.flows("getFlow", {"id": "parent", "queueName": run.name})
    await run.works(SCRIPT)
    await run.rests(completed=4)


async def flow_across_queues(run: Run) -> None:
    other = f"{run.name}-children"
    await run.open_queue()
    await run.open_queue(other)
    await run.flows("add", flow(run, {**child(run, "good", "far"), "queueName": other}))
    await run.works(SCRIPT, of=other)
    await run.rests(of=other, completed=1)
    await run.stops_working()
    await run.rests(wait=1)
    await run.takes()
    await run.taken("parent", "getChildrenValues")
    await run.taken("parent", "moveToCompleted", "all", "$token", False)


async def flow_with_options_of_jobs(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(
        run, child(run, "good", "late", delay=10), child(run, "good", "first", priority=2),
        child(run, "good", "kept", removeOnComplete=True), priority=5, attempts=2,
    ))  # fmt: skip
    await outlast(0.02)
    await run.works(SCRIPT)
    await run.rests(completed=3)


async def flows_in_bulk(run: Run) -> None:
    await run.open_queue()
    await run.flows("addBulk", [
        {**flow(run, child(run, "good", f"child-{n}")), "opts": {"jobId": f"parent-{n}"}} for n in range(2)
    ])  # fmt: skip
    await run.works(SCRIPT)
    await run.rests(completed=4)


async def failed_child_leaves_its_parent_waiting(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(run, child(run, "bad", "one"), child(run, "good", "two")))
    await run.works(SCRIPT)
    await run.rests(completed=1, failed=1, waiting_children=1)
    await run.job("parent", "getDependenciesCount")


async def failed_child_fails_its_parent(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(run, child(run, "bad", "one", failParentOnFailure=True)))
    await run.works(SCRIPT)
    await run.rests(failed=2)
    await run.queue("getJob", "parent")


async def failed_grandchild_fails_all_above(run: Run) -> None:
    await run.open_queue()
    grandchild = child(run, "bad", "grandchild", failParentOnFailure=True)
    await run.flows("add", flow(run, child(run, "parent", "middle", grandchild, failParentOnFailure=True)))
    await run.works(SCRIPT)
    await run.rests(failed=3)


async def failed_child_is_ignored(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(
        run, child(run, "bad", "one", ignoreDependencyOnFailure=True), child(run, "good", "two"),
    ))  # fmt: skip
    await run.works(SCRIPT)
    await run.rests(completed=2, failed=1)
    await run.job("parent", "getIgnoredChildrenFailures")
    await run.job("parent", "getDependenciesCount")


async def failed_child_is_removed_from_its_parent(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(
        run, child(run, "bad", "one", removeDependencyOnFailure=True), child(run, "good", "two"),
    ))  # fmt: skip
    await run.works(SCRIPT)
    await run.rests(completed=2, failed=1)
    await run.job("parent", "getDependenciesCount")


async def failed_child_lets_its_parent_go_on(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(
        run, child(run, "bad", "one", continueParentOnFailure=True), child(run, "good", "two", delay=60_000),
    ))  # fmt: skip
    script = {
        **SCRIPT,
        "parent": [[["job", "getFailedChildrenValues"], ["job", "removeUnprocessedChildren"]]],
    }
    await run.works(script)
    await run.rests(completed=1, failed=1)


async def failed_child_is_retried_with_its_parent(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(run, child(run, "flaky", "one", attempts=2, failParentOnFailure=True)))
    await run.works({**SCRIPT, "flaky": [[["fail", "first"]], [["return", "second"]]]})
    await run.rests(completed=2)


async def parent_waits_for_a_late_child(run: Run) -> None:
    await run.add("parent", {}, jobId="parent")
    await run.takes()
    parent = {"id": "parent", "queue": f"{run.prefix}:{run.name}"}
    await run.add("good", {}, jobId="child", parent=parent)
    await run.taken("parent", "moveToWaitingChildren", "$token")
    await run.works(SCRIPT)
    await run.rests(completed=2)


async def child_is_taken_from_its_parent(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(run, child(run, "good", "one", delay=60_000), child(run, "good", "two")))
    await run.job("one", "removeChildDependency")
    await run.works(SCRIPT)
    await run.rests(completed=2, delayed=1)


async def parent_is_removed_with_its_children(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(run, child(run, "good", "one"), child(run, "good", "two", delay=60_000)))
    await run.job("parent", "remove")
    await run.queue("getJobCounts")


async def parent_is_removed_without_its_children(run: Run) -> None:
    await run.open_queue()
    await run.flows("add", flow(run, child(run, "good", "one")))
    await run.job("parent", "remove", {"removeChildren": False})
    await run.works(SCRIPT)
    await run.rests(completed=1)


async def parent_completed_before_its_children(run: Run) -> None:
    await run.add("parent", {}, jobId="parent")
    await run.takes()
    await run.add("good", {}, jobId="child", parent={"id": "parent", "queue": f"{run.prefix}:{run.name}"})
    await run.taken("parent", "moveToCompleted", 1, "$token", False)


SCENARIOS = (
    flow_of_two_children, flow_with_ids_of_its_own, flow_of_three_levels, flow_across_queues,
    flow_with_options_of_jobs, flows_in_bulk, failed_child_leaves_its_parent_waiting,
    failed_child_fails_its_parent, failed_grandchild_fails_all_above, failed_child_is_ignored,
    failed_child_is_removed_from_its_parent, failed_child_lets_its_parent_go_on,
    failed_child_is_retried_with_its_parent, parent_waits_for_a_late_child, child_is_taken_from_its_parent,
    parent_is_removed_with_its_children, parent_is_removed_without_its_children,
    parent_completed_before_its_children,
)  # fmt: skip
