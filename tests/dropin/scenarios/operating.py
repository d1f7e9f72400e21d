"""Scenarios of schedulers, and of what is done to a queue and to jobs that do not run."""

from typing import Any

from tests.dropin.scenarios.run import Run
from tests.support.polling import outlast

DONE: dict[str, Any] = {"send": [[["return", "done"]]], "bad": [[["fail", "no"]]]}
HOUR = 3_600_000


async def scheduler_of_an_interval(run: Run) -> None:
    template = {"name": "send", "data": {"s": 1}, "opts": {"attempts": 2, "removeOnComplete": 5}}
    await run.queue("upsertJobScheduler", "tick", {"every": HOUR}, template)
    await run.queue("getJobSchedulersCount")
    await run.works(DONE)
    await run.rests(completed=1, delayed=1)
    await run.queue("getJobScheduler", "tick")


async def scheduler_of_a_pattern(run: Run) -> None:
    await run.queue(
        "upsertJobScheduler", "daily", {"pattern": "0 0 9 * * *", "tz": "Europe/Berlin"}, {"name": "send"}
    )
    await run.queue("getJobSchedulers", 0, -1, True)
    await run.works(DONE)
    await run.rests(delayed=1)


async def scheduler_that_is_limited(run: Run) -> None:
    await run.queue("upsertJobScheduler", "twice", {"every": HOUR, "limit": 2}, {"name": "send", "data": 1})
    await run.works(DONE)
    await run.rests(completed=1, delayed=1)
    [second] = await run.queue("getDelayed", 0, -1)
    await run.job(second["id"], "promote")
    await run.rests(completed=2)
    await run.queue("getJobScheduler", "twice")


async def scheduler_that_is_changed(run: Run) -> None:
    await run.queue("upsertJobScheduler", "tick", {"every": HOUR}, {"name": "send", "data": 1})
    await run.queue("upsertJobScheduler", "tick", {"every": 2 * HOUR}, {"name": "send", "data": 2})
    await run.queue("upsertJobScheduler", "tick", {"pattern": "0 0 1 1 *", "tz": "UTC"}, {"name": "send"})
    await run.queue("getJobSchedulersCount")


async def scheduler_that_is_removed(run: Run) -> None:
    await run.queue("upsertJobScheduler", "tick", {"every": HOUR}, {"name": "send"})
    await run.queue("removeJobScheduler", "tick")
    await run.queue("removeJobScheduler", "tick")
    await run.queue("getJobScheduler", "tick")
    await run.queue("getJobCounts")


async def scheduler_that_begins_later(run: Run) -> None:
    await run.queue(
        "upsertJobScheduler", "later", {"every": HOUR, "startDate": {"$in": 2 * HOUR}}, {"name": "send"}
    )
    await run.works(DONE)
    await run.rests(delayed=1)


async def scheduler_whose_job_fails(run: Run) -> None:
    template = {"name": "bad", "opts": {"attempts": 2, "backoff": 10}}
    await run.queue("upsertJobScheduler", "tick", {"every": HOUR}, template)
    await run.works(DONE)
    await run.rests(failed=1, delayed=1)


async def scheduler_that_is_refused(run: Run) -> None:
    await run.queue("upsertJobScheduler", "both", {"every": 1000, "pattern": "* * * * *"}, {"name": "send"})
    await run.queue("upsertJobScheduler", "none", {}, {"name": "send"})


async def pause_and_resume_of_a_queue(run: Run) -> None:
    await run.add("send", {"n": 1})
    await run.queue("pause")
    await run.queue("isPaused")
    await run.add("send", {"n": 2})
    await run.add("send", {"n": 3}, priority=2)
    await run.queue("getJobCounts")
    await run.takes()
    await run.queue("resume")
    await run.works(DONE)
    await run.rests(completed=3)


async def retry_in_a_paused_queue(run: Run) -> None:
    await run.add("bad", {}, attempts=2)
    await run.takes()
    await run.queue("pause")
    await run.taken("1", "moveToFailed", {"$error": "no"}, "$token", False)
    await run.queue("getJobCounts")


async def drain_of_waiting_jobs(run: Run) -> None:
    await run.add("send")
    await run.add("send", {}, priority=2)
    await run.add("send", {}, delay=60_000)
    await run.queue("drain")
    await run.queue("getJobCounts")
    await run.queue("drain", True)
    await run.queue("getJobCounts")


async def drain_with_a_flow(run: Run) -> None:
    await run.open_queue()
    children = [{"name": "send", "queueName": run.name, "opts": {"jobId": f"child-{n}"}} for n in range(2)]
    await run.flows(
        "add", {"name": "parent", "queueName": run.name, "opts": {"jobId": "parent"}, "children": children}
    )
    await run.queue("drain")
    await run.queue("getJobCounts")


async def clean_of_every_state(run: Run) -> None:
    for name in ("send", "send", "bad", "bad"):
        await run.add(name)
    await run.works(DONE)
    await run.rests(completed=2, failed=2)
    await run.stops_working()
    await run.add("send", {}, delay=60_000)
    await run.add("send", {}, priority=3)
    await run.add("send", {})
    await run.queue("clean", 60_000, 10, "completed")
    await run.queue("clean", 0, 1, "completed")
    await run.queue("clean", 0, 10, "failed")
    await run.queue("clean", 0, 10, "delayed")
    await run.queue("clean", 0, 10, "prioritized")
    await run.queue("clean", 0, 10, "wait")
    await run.queue("getJobCounts")


async def obliterate_of_a_queue(run: Run) -> None:
    for priority in (0, 2):
        await run.add("send", {}, priority=priority)
    await run.add("bad")
    await run.queue("obliterate")
    await run.queue("pause")
    await run.queue("obliterate")
    await run.queue("getJobCounts")


async def obliterate_with_active_jobs(run: Run) -> None:
    await run.add("send")
    await run.takes()
    await run.queue("obliterate")
    await run.queue("obliterate", {"force": True})
    await run.queue("isPaused")


async def retry_of_a_failed_job(run: Run) -> None:
    await run.add("bad", {}, attempts=2)
    await run.works({"bad": [[["fail", "no"]], [["fail", "no"]], [["return", "at last"]]]})
    await run.rests(failed=1)
    await run.job("1", "retry")
    await run.rests(completed=1)
    await run.job("1", "retry", "failed")
    await run.job("1", "retry", "completed")
    await run.rests(completed=1)
    await run.has("HGET", "1", "ats", value=b"4")
    await run.rests(completed=1)


async def retry_of_all_failed_jobs(run: Run) -> None:
    for _ in range(3):
        await run.add("bad")
    await run.works({"bad": [[["fail", "no"]]]})
    await run.rests(failed=3)
    await run.stops_working()
    await run.queue("retryJobs", {"state": "failed", "count": 2})
    await run.queue("getJobCounts")
    await run.queue("retryJobs", {"state": "completed"})


async def promote_of_jobs(run: Run) -> None:
    for number in range(3):
        await run.add("send", {"n": number}, delay=60_000, priority=number)
    await run.job("2", "promote")
    await run.job("2", "promote")
    await run.queue("promoteJobs")
    await run.works(DONE)
    await run.rests(completed=3)


async def change_of_priority(run: Run) -> None:
    for priority in (3, 4, 0):
        await run.add("send", {}, priority=priority)
    await run.job("1", "changePriority", {"priority": 9})
    await run.job("2", "changePriority", {"priority": 0})
    await run.job("3", "changePriority", {"priority": 1, "lifo": True})
    await run.works(DONE)
    await run.rests(completed=3)


async def change_of_delay(run: Run) -> None:
    await run.add("send", {}, delay=60_000)
    await run.add("send", {})
    await run.job("1", "changeDelay", 20)
    await run.job("2", "changeDelay", 20)
    await outlast(0.03)
    await run.works(DONE)
    await run.rests(completed=2)


async def remove_of_jobs(run: Run) -> None:
    await run.add("send")
    await run.add("send", {}, delay=60_000)
    await run.add("send", {}, priority=2)
    await run.takes()
    for job_id in ("1", "2", "3", "missing"):
        await run.queue("remove", job_id)
    await run.job("1", "remove")
    await run.queue("getJobCounts")


async def reads_of_a_queue(run: Run) -> None:
    for number in range(4):
        await run.add(
            "send", {"n": number}, priority=number % 2, **({"delay": 60_000} if number == 3 else {})
        )
    for method in ("getWaiting", "getDelayed", "getPrioritized", "getActive", "getCompleted", "getFailed"):
        await run.queue(method, 0, -1)
    await run.queue("getJobs", ["wait", "prioritized", "delayed"], 0, 1, True)
    for method in ("count", "getWaitingCount", "getDelayedCount", "getPrioritizedCount", "getActiveCount"):
        await run.queue(method)
    await run.queue("getJobCountByTypes", "wait", "delayed")
    await run.queue("getJobState", "1")
    await run.queue("getJobState", "none")
    await run.queue("getJob", "none")
    for method in ("getState", "isWaiting", "isDelayed", "isActive", "isCompleted", "isFailed"):
        await run.job("4", method)


async def trim_of_events(run: Run) -> None:
    for number in range(5):
        await run.add("send", {"n": number})
    await run.queue("trimEvents", 0)
    await run.works(DONE)
    await run.rests(completed=5)


async def rate_limit_by_hand(run: Run) -> None:
    await run.queue("setGlobalRateLimit", 2, 60_000)
    await run.add("send")
    await run.queue("rateLimit", 60_000)
    await run.takes()
    await run.queue("removeRateLimitKey")
    await run.queue("removeRateLimitKey")


SCENARIOS = (
    scheduler_of_an_interval, scheduler_of_a_pattern, scheduler_that_is_limited, scheduler_that_is_changed,
    scheduler_that_is_removed, scheduler_that_begins_later, scheduler_whose_job_fails,
    scheduler_that_is_refused, pause_and_resume_of_a_queue, retry_in_a_paused_queue, drain_of_waiting_jobs,
    drain_with_a_flow,
    clean_of_every_state, obliterate_of_a_queue, obliterate_with_active_jobs, retry_of_a_failed_job,
    retry_of_all_failed_jobs, promote_of_jobs, change_of_priority, change_of_delay, remove_of_jobs,
    reads_of_a_queue, trim_of_events, rate_limit_by_hand,
)  # fmt: skip
