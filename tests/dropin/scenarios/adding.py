"""Scenarios of jobs that are added with each option, and worked."""

from typing import Any

from tests.dropin.scenarios.run import Run
from tests.support.polling import outlast

DONE: dict[str, Any] = {"send": [[["return", {"ok": "☃"}]]]}


async def add_and_complete(run: Run) -> None:
    await run.add("send", {"to": "a@b.c", "n": [1, 2.5, None, True, "ü"]})
    await run.works(DONE)
    await run.rests(completed=1)
    await run.queue("getJob", "1")


async def add_many_in_bulk(run: Run) -> None:
    rows = [
        {"name": "send", "data": {"n": n}, "opts": {"priority": n % 3, "jobId": f"bulk-{n}"}}
        for n in range(6)
    ]
    await run.queue("addBulk", rows)
    await run.works(DONE)
    await run.rests(completed=6)


async def add_with_delay(run: Run) -> None:
    await run.add("send", {}, delay=30)
    await run.job("1", "getState")
    await run.works(DONE)
    await run.rests(completed=1)


async def delay_of_zero(run: Run) -> None:
    await run.add("send", {}, delay=0)
    await run.works(DONE)
    await run.rests(completed=1)


async def add_in_bulk_with_a_missing_parent(run: Run) -> None:
    parent = {"id": "7", "queue": f"{run.prefix}:{run.name}"}
    await run.queue(
        "addBulk", [{"name": "send"}, {"name": "send", "opts": {"parent": parent}}, {"name": "send"}]
    )
    await run.works(DONE)
    await run.rests(completed=2)


async def add_with_delays_in_another_order(run: Run) -> None:
    now = run.now()
    for delay in (50, 10, 30):
        await run.add("send", {"delay": delay}, delay=delay, timestamp=now)
    await run.queue("getDelayedCount")
    await outlast(0.06)
    await run.works(DONE)
    await run.rests(completed=3)


async def add_with_priorities(run: Run) -> None:
    for priority in (5, 1, 3, 1, 0, 2_097_151):
        await run.add("send", {"priority": priority}, priority=priority)
    await run.queue("getCountsPerPriority", [0, 1, 3, 5])
    await run.works(DONE)
    await run.rests(completed=6)


async def add_with_priority_and_delay(run: Run) -> None:
    now = run.now()
    for priority in (9, 2):
        await run.add("send", {}, priority=priority, delay=30, timestamp=now)
    await outlast(0.04)
    await run.works(DONE)
    await run.rests(completed=2)


async def add_last_in_first_out(run: Run) -> None:
    for number in range(4):
        await run.add("send", {"n": number}, lifo=number != 1)
    await run.works(DONE)
    await run.rests(completed=4)


async def add_with_an_id(run: Run) -> None:
    await run.add("send", {"first": True}, jobId="mine")
    await run.add("send", {"first": False}, jobId="mine")
    await run.works(DONE)
    await run.rests(completed=1)
    await run.add("send", {"after": True}, jobId="mine")
    await run.queue("getJob", "mine")


async def add_what_is_refused(run: Run) -> None:
    await run.add("send", {}, jobId="12")
    await run.add("send", {}, jobId="a:b")
    await run.add("send", {}, priority=2_097_153)
    await run.add("send", {}, priority=1.5)
    await run.add("send", {"long": "x" * 50}, sizeLimit=20)
    await run.add("send", {}, parent={"id": "7", "queue": f"{run.prefix}:{run.name}"})
    await run.add("send", {}, failParentOnFailure=True, removeDependencyOnFailure=True)


async def add_with_own_timestamp(run: Run) -> None:
    await run.add("send", {}, timestamp=1_600_000_000_000)
    await run.works(DONE)
    await run.rests(completed=1)


async def add_with_every_other_option(run: Run) -> None:
    await run.add(
        "send", {}, attempts=4, backoff={"type": "exponential", "delay": 10, "jitter": 0}, keepLogs=2,
        stackTraceLimit=1, sizeLimit=1000, removeOnComplete=False, removeOnFail={"age": 60, "count": 5},
        telemetry={"metadata": "trace", "omitContext": True},
    )  # fmt: skip
    await run.works({"send": [[["job", "log", "one"], ["job", "log", "two"], ["job", "log", "three"]]]})
    await run.rests(completed=1)
    await run.queue("getJobLogs", "1")
    await run.queue("getJob", "1")


async def default_job_options_of_a_queue(run: Run) -> None:
    await run.open_queue(
        defaultJobOptions={"attempts": 2, "backoff": {"type": "fixed", "delay": 10}, "removeOnComplete": 1}
    )
    await run.add("send", {"n": 1})
    await run.add("send", {"n": 2}, attempts=1)
    await run.add("flaky", {"n": 3})
    await run.works({**DONE, "flaky": [[["fail", "no"]], [["return", 1]]]})
    await run.rests(completed=1)


async def remove_on_complete_at_once(run: Run) -> None:
    await run.add("send", {}, removeOnComplete=True)
    await run.works(DONE)
    await run.rests()


async def remove_on_complete_all_but_two(run: Run) -> None:
    for number in range(5):
        await run.add("send", {"n": number}, removeOnComplete=2)
    await run.works(DONE)
    await run.rests(completed=2)


async def remove_on_complete_by_age_and_count(run: Run) -> None:
    await run.add("send", {"old": True}, timestamp=1_600_000_000_000)
    for number in range(4):
        await run.add("send", {"n": number}, removeOnComplete={"age": 3600, "count": 3})
    await run.works(DONE)
    await run.rests(completed=3)


async def remove_on_fail_at_once(run: Run) -> None:
    await run.add("bad", {}, removeOnFail=True)
    await run.works({"bad": [[["fail", "no"]]]})
    await run.rests()


async def remove_on_fail_all_but_one(run: Run) -> None:
    for number in range(3):
        await run.add("bad", {"n": number}, removeOnFail=1)
    await run.works({"bad": [[["fail", "no"]]]})
    await run.rests(failed=1)


async def removal_options_of_a_worker(run: Run) -> None:
    for number in range(4):
        await run.add("send", {"n": number})
        await run.add("bad", {"n": number}, removeOnFail=3)
    await run.works(
        {**DONE, "bad": [[["fail", "no"]]]}, removeOnComplete={"count": 2}, removeOnFail={"count": 1}
    )
    await run.rests(completed=2, failed=3)


async def deduplicate_while_a_job_lives(run: Run) -> None:
    for number in range(3):
        await run.add("send", {"n": number}, deduplication={"id": "one"})
    await run.queue("getDeduplicationJobId", "one")
    await run.works(DONE)
    await run.rests(completed=1)
    await run.queue("getDeduplicationJobId", "one")
    await run.add("send", {"n": 4}, deduplication={"id": "one"})
    await run.rests(completed=2)


async def deduplicate_for_a_time(run: Run) -> None:
    for number in range(3):
        await run.add("send", {"n": number}, deduplication={"id": "one", "ttl": 60_000})
    await run.works(DONE)
    await run.rests(completed=1)
    await run.add("send", {"n": 4}, deduplication={"id": "one", "ttl": 60_000})
    await run.queue("removeDeduplicationKey", "one")
    await run.queue("removeDeduplicationKey", "one")


async def deduplicate_and_extend(run: Run) -> None:
    for number in range(3):
        await run.add("send", {"n": number}, deduplication={"id": "one", "ttl": 60_000, "extend": True})
    await run.works(DONE)
    await run.rests(completed=1)


async def deduplicate_and_replace(run: Run) -> None:
    for number in range(3):
        await run.add(
            "send", {"n": number}, delay=60_000,
            deduplication={"id": "one", "ttl": 60_000, "extend": True, "replace": True},
        )  # fmt: skip
    await run.queue("getJob", "3")
    await run.queue("getDelayedCount")
    await run.job("3", "promote")
    await run.works(DONE)
    await run.rests(completed=1)


async def deduplicate_and_replace_what_runs(run: Run) -> None:
    await run.add("send", {"n": 1}, deduplication={"id": "one", "replace": True})
    await run.takes()
    await run.add("send", {"n": 2}, deduplication={"id": "one", "replace": True})
    await run.taken("1", "moveToCompleted", "done", "$token", False)
    await run.add("send", {"n": 3}, deduplication={"id": "one", "replace": True})


async def deduplicate_by_the_old_name(run: Run) -> None:
    await run.add("send", {"n": 1}, debounce={"id": "one", "ttl": 60_000})
    await run.add("send", {"n": 2}, debounce={"id": "one", "ttl": 60_000})
    await run.queue("getDebounceJobId", "one")
    await run.works(DONE)
    await run.rests(completed=1)


SCENARIOS = (
    add_and_complete, add_many_in_bulk, add_in_bulk_with_a_missing_parent, add_with_delay, delay_of_zero,
    add_with_delays_in_another_order, add_with_priorities,
    add_with_priority_and_delay, add_last_in_first_out, add_with_an_id, add_what_is_refused,
    add_with_own_timestamp, add_with_every_other_option, default_job_options_of_a_queue,
    remove_on_complete_at_once, remove_on_complete_all_but_two, remove_on_complete_by_age_and_count,
    remove_on_fail_at_once, remove_on_fail_all_but_one, removal_options_of_a_worker,
    deduplicate_while_a_job_lives, deduplicate_for_a_time, deduplicate_and_extend, deduplicate_and_replace,
    deduplicate_and_replace_what_runs, deduplicate_by_the_old_name,
)  # fmt: skip
