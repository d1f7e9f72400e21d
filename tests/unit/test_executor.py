"""One attempt becomes one outcome, wherever its handler runs."""

import asyncio
import threading
import time
from contextvars import ContextVar
from functools import partial

import anyio
import pytest

from corral.core.job import Claim, Job, JobOptions
from corral.core.known_errors import FailureKind
from corral.core.outcome import Cancelled, Completed, Dead, Postponed, Released, Retry, RetryPolicy
from corral.core.ports import Profile
from corral.errors import JobCancelled, JobTimeout, Postpone, Release, Transient, Unrecoverable
from corral.worker.attempt import moment
from corral.worker.config import WorkerConfig
from corral.worker.executor import Executor
from corral.worker.handlers import HandlerRegistry
from tests.support.logs import capture_logs
from tests.support.polling import becomes_true

THRICE = JobOptions(attempts=3, backoff=None)


class Bench:
    """An executor and what it has ended."""

    def __init__(self, policy=None, concurrency=20, logs_payloads=False):
        self.handlers = HandlerRegistry()
        self.ended = []
        self.freed = 0
        self.crashes = []
        config = WorkerConfig(
            queue="q",
            handlers=self.handlers,
            open_connections=None,
            profile=Profile(name="w"),
            delays=lambda tries: 0.0,
            policy=policy or RetryPolicy(),
            concurrency=concurrency,
            clock=lambda: 1000,
            logs_payloads=logs_payloads,
        )
        self.executor = Executor(
            config,
            None,
            is_held=lambda attempt: attempt not in [ended.attempt for ended in self.ended],
            late=lambda attempts: None,
            ended=self.ended.append,
            freed=self._free,
            crashed=self.crashes.append,
        )

    def _free(self):
        self.freed += 1

    def claim(self, name="work", data=None, **fields):
        job = Job(name=name, data=data, queue="q", id=str(data), options=THRICE, **fields)
        return Claim(job, "receipt")

    def start(self, *claims):
        locked_at = moment(lambda: 1000)
        attempts = self.executor.prepare(claims, locked_at)
        self.executor.start(attempts, locked_at)
        return attempts

    async def outcomes(self, *claims):
        attempts = self.start(*claims)
        assert await becomes_true(lambda: len(self.ended) >= len(claims))
        return self.outcomes_of(attempts)

    def outcomes_of(self, attempts):
        outcomes = {ended.attempt: ended.settlement.outcome for ended in self.ended}
        return [outcomes[attempt] for attempt in attempts]

    async def outcome(self, fn, timeout=None, **fields):
        """How one attempt by `fn` ends."""
        self.handlers.add("work", fn, timeout=timeout)
        [outcome] = await self.outcomes(self.claim(**fields))
        return outcome


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    bench.executor.close()
    assert bench.crashes == []


async def test_a_value_becomes_completed_with_json(bench):
    async def fn(job):
        return {"a": [1, "ü"]}

    assert await bench.outcome(fn) == Completed('{"a":[1,"ü"]}'.encode())


async def test_a_callable_object_and_a_partial_are_handlers_too(bench):
    class Adder:
        async def __call__(self, job):
            return job.data + 1

    async def add(amount, job):
        return job.data + amount

    bench.handlers.add("object", Adder())
    bench.handlers.add("partial", partial(add, 10))
    outcomes = await bench.outcomes(bench.claim("object", 1), bench.claim("partial", 1))
    assert outcomes == [Completed(b"2"), Completed(b"11")]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Transient("again"), Retry),
        (ConnectionResetError("gone"), Retry),
        (Unrecoverable("never"), Dead),
        (ValueError("bad"), Dead),
        (JobCancelled(), Cancelled),
        (Postpone(50), Postponed),
        (Release(), Released),
        (SystemExit(1), Dead),
        (asyncio.CancelledError(), Retry),
    ],
)
@pytest.mark.parametrize("kind", ["at once", "after a sleep", "in a thread"])
async def test_an_error_is_judged_by_the_policy_wherever_it_is_raised(bench, error, expected, kind):
    async def at_once(job):
        raise error

    async def after_a_sleep(job):
        await asyncio.sleep(0)
        raise error

    def in_a_thread(job):
        raise error

    fn = {"at once": at_once, "after a sleep": after_a_sleep, "in a thread": in_a_thread}[kind]
    outcome = await bench.outcome(fn)
    assert isinstance(outcome, expected)
    if isinstance(outcome, Dead | Retry):
        assert f"in {fn.__name__}" in outcome.trace


async def test_a_handler_with_the_wrong_shape_dies_with_its_own_error(bench):
    async def fn():
        pass

    outcome = await bench.outcome(fn)
    assert isinstance(outcome, Dead)
    assert "positional argument" in outcome.reason


async def test_a_rule_that_raises_does_not_swallow_the_job():
    def rule(error):
        raise KeyError("rule")

    bench = Bench(RetryPolicy(classify=rule))

    async def fn(job):
        raise OSError("disk")

    outcome = await bench.outcome(fn)
    assert isinstance(outcome, Dead)
    assert outcome.reason == "disk"
    assert "KeyError: 'rule'" in outcome.trace


async def test_a_rule_of_the_users_own_decides():
    bench = Bench(RetryPolicy(classify=lambda error: FailureKind.TRANSIENT))

    async def fn(job):
        raise ValueError("bad")

    assert isinstance(await bench.outcome(fn), Retry)


async def test_very_long_traces_keep_their_end(bench):
    async def fn(job):
        raise ValueError("x" * 100_000 + "the end")

    outcome = await bench.outcome(fn)
    assert len(outcome.trace) < 20_000
    assert outcome.trace.rstrip().endswith("the end")


# -- handlers do not feel each other --------------------------------------------------------------------


async def test_context_variables_of_one_handler_are_not_seen_by_the_next(bench):
    seen, variable = [], ContextVar("variable", default="unset")

    async def fn(job):
        seen.append(variable.get())
        variable.set(job.data)
        if job.data % 2:
            await asyncio.sleep(0)
            assert variable.get() == job.data

    bench.handlers.add("work", fn)
    outcomes = await bench.outcomes(*(bench.claim(data=number) for number in range(10)))
    assert seen == ["unset"] * 10
    assert outcomes == [Completed()] * 10


async def test_no_handler_wakes_up_in_a_task_that_another_has_slept_in(bench):
    sleepers = []

    async def fn(job):
        if job.data % 3 == 0:
            await asyncio.sleep(0.001)
            sleepers.append(asyncio.current_task())
        else:
            assert asyncio.current_task() not in sleepers

    bench.handlers.add("work", fn)
    assert await bench.outcomes(*(bench.claim(data=n) for n in range(30))) == [Completed()] * 30
    assert len(set(sleepers)) == 10


async def test_the_current_task_stays_the_same_from_the_first_line_to_the_last(bench):
    async def fn(job):
        mine = asyncio.current_task()
        await asyncio.sleep(0)
        return mine is asyncio.current_task()

    assert await bench.outcome(fn) == Completed(b"true")


async def test_timeouts_groups_and_scopes_work_inside_handlers(bench):
    async def fn(job):
        steps = []
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            steps.append("timeout")
        with anyio.move_on_after(0.01):
            await anyio.sleep(10)
        steps.append("moved on")
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0)).add_done_callback(lambda _: steps.append("group"))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(10))
                group.create_task(boom())
        except* ValueError:
            steps.append("caught")
        try:
            await asyncio.wait_for(asyncio.sleep(10), 0.01)
        except TimeoutError:
            steps.append("waited")
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        return steps

    async def boom():
        raise ValueError("boom")

    bench.handlers.add("work", fn)
    outcomes = await bench.outcomes(*(bench.claim(data=n) for n in range(5)))
    assert outcomes == [Completed(b'["timeout","moved on","group","caught","waited"]')] * 5


async def test_a_handler_that_cancels_its_own_task_and_returns_harms_nobody(bench):
    async def fn(job):
        if job.data == 0:
            asyncio.current_task().cancel()
            return "odd"
        await asyncio.sleep(0)
        return "fine"

    bench.handlers.add("work", fn)
    outcomes = await bench.outcomes(*(bench.claim(data=n) for n in range(4)))
    assert outcomes == [Completed(b'"odd"')] + [Completed(b'"fine"')] * 3


async def test_a_blocked_handler_does_not_keep_the_loop_from_the_next_for_long(bench):
    ticks = []

    async def tick():
        while True:
            ticks.append(time.perf_counter())
            await asyncio.sleep(0)

    async def fn(job):
        time.sleep(0.005)

    ticking = asyncio.create_task(tick())
    bench.handlers.add("work", fn)
    await bench.outcomes(*(bench.claim(data=n) for n in range(20)))
    ticking.cancel()
    assert len(ticks) >= 20


# -- time ----------------------------------------------------------------------------


async def test_an_async_handler_that_takes_too_long_is_cancelled(bench):
    views = []

    async def fn(job):
        views.append(job)
        await asyncio.sleep(60)

    outcome = await bench.outcome(fn, timeout=0.05)
    assert isinstance(outcome, Retry)
    assert outcome.reason == "'work' took longer than 0.05 s"
    assert views[0].cancelled


async def test_a_handler_within_its_time_is_left_alone(bench):
    async def fn(job):
        await asyncio.sleep(0.01)
        return "in time"

    assert await bench.outcome(fn, timeout=5) == Completed(b'"in time"')


async def test_a_thread_that_takes_too_long_is_told_its_result_dropped_and_its_slot_kept(bench):
    release, cancelled = threading.Event(), []

    def fn(job):
        cancelled.append(job.wait_cancelled(5))
        release.wait(5)
        return "too late"

    outcome = await bench.outcome(fn, timeout=0.05)
    assert isinstance(outcome, Retry)
    assert "took longer than 0.05 s" in outcome.reason
    assert bench.executor.overdue == 1
    release.set()
    assert await becomes_true(lambda: bench.freed)
    assert (bench.executor.overdue, len(bench.ended), cancelled) == (0, 1, [True])


async def test_a_timeout_can_be_told_from_other_errors():
    seen = []
    bench = Bench(RetryPolicy(classify=lambda error: seen.append(error) or FailureKind.TRANSIENT))

    async def fn(job):
        await asyncio.sleep(60)

    await bench.outcome(fn, timeout=0.02)
    assert isinstance(seen[0], JobTimeout)


# -- the end ----------------------------------------------------------------------------


async def test_leaving_cancels_what_sleeps_and_releases_it(bench):
    async def fn(job):
        await asyncio.sleep(60)

    bench.handlers.add("work", fn)
    attempts = bench.start(*(bench.claim(data=n) for n in range(3)))
    assert await becomes_true(lambda: all(attempt.task for attempt in attempts))
    bench.executor.stop(attempts)
    assert await becomes_true(lambda: len(bench.ended) == 3)
    assert set(bench.outcomes_of(attempts)) == {Released()}


async def test_a_handler_that_finishes_its_work_on_the_way_out_has_completed(bench):
    async def fn(job):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "saved"

    bench.handlers.add("work", fn)
    [attempt] = bench.start(bench.claim())
    assert await becomes_true(lambda: attempt.task)
    bench.executor.stop([attempt])
    assert await becomes_true(lambda: bench.ended)
    assert bench.outcomes_of([attempt]) == [Completed(b'"saved"')]


async def test_a_failure_is_logged_without_the_jobs_data_unless_asked_for():
    async def fn(job):
        raise ValueError("bad")

    for logs_payloads, expected in [(False, False), (True, True)]:
        bench = Bench(logs_payloads=logs_payloads)
        with capture_logs() as logs:
            await bench.outcome(fn, data="secret")
        [line] = logs
        assert (line["job"], line["reason"], line["outcome"]) == ("secret", "bad", "dead")
        assert ("data" in line) is expected
