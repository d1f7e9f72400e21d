"""Scenarios of what happens to a job while it runs, and how it ends."""

from typing import Any

from tests.dropin.scenarios.run import Run
from tests.support.polling import outlast

DONE: dict[str, Any] = {"send": [[["return", "done"]]]}


async def results_of_every_kind(run: Run) -> None:
    values: dict[str, Any] = {
        "null": None, "zero": 0, "empty": "", "text": "ü☃", "list": [], "object": {}, "deep": [1, {"a": 2.5}],
        "false": False, "large": 2**50,
    }  # fmt: skip
    for name in values:
        await run.add(name)
    await run.works({name: [[["return", value]]] for name, value in values.items()})
    await run.rests(completed=len(values))
    for number in range(1, len(values) + 1):
        await run.queue("getJob", str(number))


async def progress_and_logs(run: Run) -> None:
    await run.add("send", {}, keepLogs=3)
    steps = [["job", "updateProgress", value] for value in (5, {"half": [True]}, "text", 100)]
    lines = [["job", "log", f"line {n}"] for n in range(5)]
    await run.works({"send": [[*steps, *lines, ["read", "progress"]]]})
    await run.rests(completed=1)
    await run.queue("getJobLogs", "1", 0, -1, True)
    await run.queue("getJobLogs", "1", 0, 1, False)
    await run.job("1", "clearLogs", 1)


async def reports_of_a_producer(run: Run) -> None:
    await run.add("send", {"a": 1})
    await run.job("1", "updateProgress", 20)
    await run.job("1", "log", "from outside")
    await run.job("1", "updateData", {"b": 2})
    await run.queue("updateJobProgress", "1", {"p": 1})
    await run.queue("addJobLog", "1", "by the queue")
    await run.works({"send": [[["read", "data"], ["read", "progress"]]]})
    await run.rests(completed=1)
    await run.job("7", "updateProgress", 1)


async def data_changed_by_the_processor(run: Run) -> None:
    await run.add("send", {"step": 1}, attempts=2)
    change = [["job", "updateData", {"step": 2}], ["fail", "after the first step"]]
    await run.works({"send": [change, [["read", "data"], ["return", "both"]]]})
    await run.rests(completed=1)


async def fail_without_attempts(run: Run) -> None:
    await run.add("bad")
    await run.works({"bad": [[["fail", "größer ✗"]]]})
    await run.rests(failed=1)
    await run.queue("getFailed", 0, -1)


async def retry_at_once_until_done(run: Run) -> None:
    await run.add("flaky", {}, attempts=3)
    await run.works({"flaky": [[["fail", "first"]], [["fail", "second"]], [["return", "third"]]]})
    await run.rests(completed=1)


async def retry_until_exhausted(run: Run) -> None:
    await run.add("bad", {}, attempts=3)
    await run.works({"bad": [[["fail", "no"]]]})
    await run.rests(failed=1)


async def retry_with_fixed_backoff(run: Run) -> None:
    await run.add("flaky", {}, attempts=3, backoff={"type": "fixed", "delay": 20})
    await run.works({"flaky": [[["fail", "first"]], [["fail", "second"]], [["return", "third"]]]})
    await run.rests(completed=1)


async def retry_with_backoff_as_a_number(run: Run) -> None:
    await run.add("flaky", {}, attempts=2, backoff=15)
    await run.works({"flaky": [[["fail", "first"]], [["return", "second"]]]})
    await run.rests(completed=1)


async def retry_with_exponential_backoff(run: Run) -> None:
    await run.add("bad", {}, attempts=4, backoff={"type": "exponential", "delay": 8})
    await run.works({"bad": [[["fail", "no"]]]})
    await run.rests(failed=1)


async def retry_of_a_prioritized_job(run: Run) -> None:
    await run.add("flaky", {}, attempts=3, priority=4)
    await run.works({"flaky": [[["fail", "first"]], [["return", "second"]]]})
    await run.rests(completed=1)


async def retry_of_a_last_in_first_out_job(run: Run) -> None:
    await run.add("flaky", {}, attempts=2, lifo=True)
    await run.add("send", {})
    await run.works({**DONE, "flaky": [[["fail", "first"]], [["return", "second"]]]})
    await run.rests(completed=2)


async def backoff_by_a_strategy(run: Run) -> None:
    await run.add("flaky", {}, attempts=3, backoff={"type": "custom"})
    script = {"flaky": [[["fail", "first"]], [["fail", "second"]], [["return", "third"]]]}
    await run.works(script, strategy=10)
    await run.rests(completed=1)


async def backoff_strategy_that_gives_up(run: Run) -> None:
    await run.add("bad", {}, attempts=5, backoff={"type": "custom"})
    await run.works({"bad": [[["fail", "no"]]]}, strategy=-1)
    await run.rests(failed=1)


async def backoff_without_a_strategy(run: Run) -> None:
    await run.add("bad", {}, attempts=3, backoff={"type": "custom"})
    # or the first sweep marks the job where it comes after the claim
    run.plant("SET", "stalled-check", "1", "PX", "60000")
    await run.works({"bad": [[["fail", "no"]]]})
    await run.has("HGET", "1", "ats", value=b"1")
    await run.rests(active=1)


async def backoff_by_hand_without_a_strategy(run: Run) -> None:
    await run.add("bad", {}, attempts=3, backoff={"type": "custom"})
    await run.takes()
    await run.taken("1", "moveToFailed", {"$error": "no"}, "$token", False)


async def unrecoverable_error(run: Run) -> None:
    await run.add("bad", {}, attempts=5, backoff=1000)
    await run.works({"bad": [[["throw", "UnrecoverableError", "never"]]]})
    await run.rests(failed=1)


async def traces_are_limited(run: Run) -> None:
    await run.add("bad", {"none": True}, attempts=2, stackTraceLimit=0)
    await run.add("bad", {"two": True}, attempts=3, stackTraceLimit=2)
    await run.works({"bad": [[["fail", "no"]]]})
    await run.rests(failed=2)


async def job_delays_itself(run: Run) -> None:
    await run.add("later", {}, attempts=2)
    first = [["job", "moveToDelayed", {"$in": 40}, "$token"], ["throw", "DelayedError"]]
    await run.works({"later": [first, [["return", "then"]]]})
    await run.rests(completed=1)


async def job_puts_itself_back(run: Run) -> None:
    await run.add("back", {})
    await run.add("send", {})
    first = [["job", "moveToWait", "$token"], ["throw", "WaitingError"]]
    await run.works({**DONE, "back": [first, [["return", "then"]]]})
    await run.rests(completed=2)


async def job_waits_for_a_child_that_it_adds(run: Run) -> None:
    first = [
        ["queue", "add", "send", {}, {"jobId": "child", "parent": "$job"}],
        ["job?", "moveToWaitingChildren", "$token"],
        ["throw", "WaitingChildrenError"],
    ]
    await run.add("parent", {})
    await run.works({**DONE, "parent": [first, [["job", "getChildrenValues"], ["return", "all"]]]})
    await run.rests(completed=2)


async def job_without_children_does_not_wait(run: Run) -> None:
    await run.add("parent", {})
    await run.works(
        {"parent": [[["job?", "moveToWaitingChildren", "$token"], ["throw", "WaitingChildrenError"]]]}
    )
    await run.rests(completed=1)


async def job_is_rate_limited_by_its_processor(run: Run) -> None:
    await run.add("send", {})
    first = [["worker", "rateLimit", 60], ["throw", "RateLimitError"]]
    await run.works({"send": [first, [["return", "then"]]]}, limiter={"max": 1, "duration": 60_000})
    await run.rests(completed=1, is_limited=True)
    run.forget("marker")


async def rate_limit_of_a_worker(run: Run) -> None:
    for number in range(3):
        await run.add("send", {"n": number})
    await run.works(DONE, limiter={"max": 2, "duration": 200})
    await run.rests(completed=3)
    run.forget("limiter")


async def rate_limit_of_a_queue(run: Run) -> None:
    await run.queue("setGlobalRateLimit", 1, 60_000)
    await run.queue("getGlobalRateLimit")
    for number in range(2):
        await run.add("send", {"n": number})
    await run.works(DONE, limiter={"max": 5, "duration": 60_000})
    await run.rests(completed=1, wait=1, is_limited=True)
    await run.queue("removeGlobalRateLimit")
    await run.queue("getGlobalRateLimit")


async def global_concurrency(run: Run) -> None:
    await run.queue("setGlobalConcurrency", 1)
    await run.queue("getGlobalConcurrency")
    for number in range(3):
        await run.add("send", {"n": number})
    await run.takes()
    await run.queue("isMaxed")
    await run.takes()
    await run.taken("1", "moveToCompleted", "done", "$token", True)
    await run.queue("removeGlobalConcurrency")
    await run.queue("getGlobalConcurrency")
    await run.queue("getJobCounts")


async def global_concurrency_of_running_workers(run: Run) -> None:
    await run.queue("setGlobalConcurrency", 1)
    for number in range(4):
        await run.add("send", {"n": number})
    await run.works(DONE, concurrency=1)
    await run.rests(completed=4)


async def metrics_of_minutes(run: Run) -> None:
    # all in one minute
    if (in_minute := run.now() / 1000 % 60) > 50:
        await outlast(60.1 - in_minute)
    for _ in range(2):
        await run.add("send")
    await run.add("bad")
    await run.works({**DONE, "bad": [[["fail", "no"]]]}, metrics={"maxDataPoints": 10})
    await run.rests(completed=2, failed=1)
    await run.queue("getMetrics", "completed")
    await run.queue("getMetrics", "failed")


async def stalled_job_is_run_again(run: Run) -> None:
    await run.add("send", {}, attempts=2)
    await run.takes()
    run.forget("1:lock")
    run.plant("SADD", "stalled", "1")
    run.forget("stalled-check")
    await run.works(DONE)
    await run.rests(completed=1)
    await run.queue("getJob", "1")


async def job_that_stalls_too_often_fails(run: Run) -> None:
    await run.add("send", {}, attempts=2)
    await run.takes()
    run.forget("1:lock")
    run.plant("SADD", "stalled", "1")
    run.forget("stalled-check")
    await run.works(DONE, maxStalledCount=0)
    await run.rests(failed=1)
    await run.queue("getJob", "1")


async def events_as_they_are_told(run: Run) -> None:
    await run.listens()
    await run.add("send", {}, delay=10)
    await run.add("flaky", {}, attempts=2)
    await run.add("bad", {})
    await outlast(0.02)
    await run.works({
        "send": [[["job", "updateProgress", {"half": 1}], ["return", [1, "ü"]]]],
        "flaky": [[["fail", "first"]], [["return", None]]], "bad": [[["fail", "no"]]],
    })  # fmt: skip
    await run.rests(completed=2, failed=1)
    await run.queue("pause")
    await run.queue("resume")
    await run.job("1", "remove")


async def by_hand_completed_and_the_next_fetched(run: Run) -> None:
    for number in range(2):
        await run.add("send", {"n": number})
    await run.takes()
    await run.taken("1", "moveToCompleted", {"r": 1}, "$token", True)
    await run.queue("getJobCounts")
    await run.taken("1", "getState")


async def by_hand_completed_and_nothing_fetched(run: Run) -> None:
    await run.add("send", {})
    await run.takes()
    await run.taken("1", "extendLock", "$token", 60_000)
    await run.taken("1", "extendLock", "other", 60_000)
    await run.taken("1", "moveToCompleted", None, "$token", True)
    await run.takes()


async def by_hand_failed_and_delayed(run: Run) -> None:
    await run.add("send", {}, attempts=2, backoff=60_000)
    await run.add("send", {}, attempts=2)
    await run.takes()
    await run.taken("1", "moveToFailed", {"$error": "no"}, "$token", True)
    await run.takes()
    await run.taken("2", "moveToFailed", {"$error": "no"}, "$token", True)
    await run.queue("getJobCounts")


async def by_hand_failed_for_good(run: Run) -> None:
    await run.add("send", {}, attempts=2)
    await run.add("send", {})
    await run.takes()
    await run.taken("1", "moveToFailed", {"$unrecoverable": "never"}, "$token", True)
    await run.taken("1", "isFailed")


async def by_hand_delayed(run: Run) -> None:
    await run.add("send", {})
    await run.takes()
    await run.taken("1", "moveToDelayed", {"$in": 60_000}, "$token")
    await run.taken("1", "isDelayed")


async def by_hand_moved_to_wait(run: Run) -> None:
    await run.add("send", {}, priority=3)
    await run.takes()
    await run.taken("1", "moveToWait", "$token")
    await run.queue("getJobCounts")


async def by_hand_with_a_wrong_token(run: Run) -> None:
    await run.add("send", {})
    await run.takes()
    await run.taken("1", "moveToCompleted", 1, "other", False)
    await run.taken("1", "moveToFailed", {"$error": "no"}, "other", False)
    await run.taken("1", "moveToDelayed", {"$in": 1000}, "other")
    await run.taken("1", "moveToWait", "other")


async def by_hand_after_the_lock_is_gone(run: Run) -> None:
    await run.add("send", {})
    await run.takes()
    run.forget("1:lock")
    await run.taken("1", "extendLock", "$token", 60_000)
    await run.taken("1", "moveToCompleted", 1, "$token", False)
    await run.taken("1", "moveToFailed", {"$error": "no"}, "$token", False)


async def by_hand_from_an_empty_queue(run: Run) -> None:
    await run.takes()
    await run.takes()


SCENARIOS = (
    results_of_every_kind, progress_and_logs, reports_of_a_producer, data_changed_by_the_processor,
    fail_without_attempts, retry_at_once_until_done, retry_until_exhausted, retry_with_fixed_backoff,
    retry_with_backoff_as_a_number, retry_with_exponential_backoff, retry_of_a_prioritized_job,
    retry_of_a_last_in_first_out_job, backoff_by_a_strategy, backoff_strategy_that_gives_up,
    backoff_without_a_strategy, backoff_by_hand_without_a_strategy, unrecoverable_error, traces_are_limited,
    job_delays_itself, job_puts_itself_back, job_waits_for_a_child_that_it_adds,
    job_without_children_does_not_wait, job_is_rate_limited_by_its_processor, rate_limit_of_a_worker,
    rate_limit_of_a_queue, global_concurrency, global_concurrency_of_running_workers, metrics_of_minutes,
    stalled_job_is_run_again, job_that_stalls_too_often_fails, events_as_they_are_told,
    by_hand_completed_and_the_next_fetched, by_hand_completed_and_nothing_fetched, by_hand_failed_and_delayed,
    by_hand_failed_for_good, by_hand_delayed, by_hand_moved_to_wait, by_hand_with_a_wrong_token,
    by_hand_after_the_lock_is_gone, by_hand_from_an_empty_queue,
)  # fmt: skip
