"""Async handlers on the event loop, without a Task for each.

A Task costs 3 µs where a whole job has 20, so a runner (one Task) steps each handler's coroutine inside
that handler's own copy of the context variables. One that ends without being suspended costs 1 µs, and the
runner takes the next. The first that is suspended keeps the Task for good, and a new runner takes over the
rest. So `asyncio.current_task()` is right throughout; timeouts, task groups and cancel scopes work; and
no attempt ever wakes up in a Task that another was suspended in. Everything here is public asyncio, the same
on every version of Python, unlike eager tasks, which 3.11 does not have.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import copy_context
from time import perf_counter
from types import coroutine
from typing import Any

from corral.telemetry.logs import current_job
from corral.worker.attempt import Attempt, LockAge, Moment, RunningAttempt, moment
from corral.worker.context import JobContext
from corral.worker.settling import NO_RESULT, Settler, completed

SLICE_S = 0.002
"""How long handlers may follow each other before the loop gets a turn, so that ended jobs are settled."""
BLOCKED_S = 0.010
"""A handler that held the loop for longer has its settlement sent before the next one starts."""
LONGEST_PAUSE_S = 0.1

Step = Callable[..., Any]


class AsyncAttempt(RunningAttempt, eq=False):
    """Runs on the event loop."""

    context: JobContext
    task: "asyncio.Task[Any] | None" = None
    """The task of a handler that has been suspended; None before."""
    is_expired: bool = False
    """Whether it was cancelled because its timeout is over."""


class AsyncRunner:
    """Runs the coroutines of async handlers; `is_held` says that an attempt is not settled yet.

    Attempts whose locks are too old when their turn comes are passed to `late` instead.
    """

    def __init__(
        self,
        settler: Settler,
        lock_age: LockAge,
        *,
        is_held: Callable[[Attempt], bool],
        late: Callable[[Sequence[RunningAttempt]], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._settler = settler
        self._lock_age = lock_age
        self._is_held = is_held
        self._late = late
        self._crashed = crashed
        self._oldest_lock: Moment | None = None
        """A time before which none of the ready attempts was locked; None: unknown."""
        self._check_at = 0.0
        self._check_at_wall = 0.0
        """When the first of them may be too old, by `perf_counter` (s) and by the wall clock (ms)."""
        self._loop = asyncio.get_running_loop()
        self._ready: deque[AsyncAttempt] = deque()
        self._runner: asyncio.Task[None] | None = None

    def expect(self, locked_at: Moment, now: Moment) -> None:
        """Note how old the locks are of those that are started next."""
        oldest = self._oldest_lock if self._ready else locked_at
        if oldest is None:
            return
        if locked_at.steady < oldest.steady or locked_at.wall < oldest.wall:
            oldest = Moment(min(oldest.wall, locked_at.wall), min(oldest.steady, locked_at.steady))
        self._set_oldest(oldest, now)

    def _set_oldest(self, oldest: Moment, now: Moment) -> None:
        limit_ms = self._lock_age.limit_ms
        self._oldest_lock = oldest
        self._check_at = perf_counter() + (limit_ms - now.steady + oldest.steady) / 1000
        self._check_at_wall = oldest.wall + limit_ms

    def check_soon(self) -> None:
        """Look for lost attempts among those that are ready before another begins."""
        self._oldest_lock, self._check_at = None, 0.0

    def _check_locks(self) -> None:
        """Set aside the ready attempts whose locks are too old, or lost."""
        now, limit_ms = moment(self._lock_age.clock), self._lock_age.limit_ms
        late: list[AsyncAttempt] = []
        ready: list[AsyncAttempt] = []
        for attempt in self._ready:
            is_late = attempt.context.lost or now.since(attempt.locked_at) >= limit_ms
            (late if is_late else ready).append(attempt)
        self._ready.clear()
        self._ready.extend(ready)
        oldest = [attempt.locked_at for attempt in ready] or [now]
        self._set_oldest(Moment(min(o.wall for o in oldest), min(o.steady for o in oldest)), now)
        if late:
            self._late(late)

    def start(self, attempts: Sequence[AsyncAttempt]) -> None:
        """Run these after those that are ready."""
        self._ready.extend(attempts)
        if self._runner is None:
            self._start_runner()

    def release_ready(self) -> None:
        """Release what has not started."""
        while self._ready:
            self._settler.release(self._ready.popleft())

    def stop(self, attempt: AsyncAttempt) -> None:
        """Cancel a handler that has started."""
        if attempt.task is not None:
            attempt.context.cancel()
            attempt.task.cancel()

    def _start_runner(self) -> None:
        self._runner = self._loop.create_task(self._run())
        self._runner.add_done_callback(self._runner_ended)

    def _runner_ended(self, runner: "asyncio.Task[None]") -> None:
        if self._runner is runner:
            self._runner = None
            if self._ready:
                self._start_runner()
        if not runner.cancelled() and (error := runner.exception()) is not None:
            self._crashed(error)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        await self._run_ready(task)

    @coroutine
    def _run_ready(self, task: "asyncio.Task[Any]") -> Generator[Any, Any, None]:
        """Step one ready coroutine after the other, until one is suspended."""
        ready, end, cancelling = self._ready, self._settler.end, task.cancelling
        slice_start, slice_at = 0.0, 0
        now = perf_counter()
        while ready:
            if slice_start == 0.0:
                slice_start, slice_at = now, self._lock_age.clock()
                if now >= self._check_at or slice_at >= self._check_at_wall:
                    self._check_locks()
                    continue
            attempt = ready.popleft()
            attempt.started = started = now
            current_job.set(attempt.claim.job)
            step = copy_context().run
            try:
                coro = attempt.handler.fn(attempt.context)
                awaited = step(coro.send, None)
            except StopIteration as stop:
                now = perf_counter()
                value = stop.value
                outcome = NO_RESULT if value is None else completed(attempt.claim.job, value)
                # a clock that was read once for the slice, and what has passed since
                end(attempt, outcome, now - started, slice_at + int((now - slice_start) * 1000))
            except BaseException as error:
                now = perf_counter()
                self._raised(attempt, error, now - started)
            else:
                yield from self._finish(attempt, coro, step, awaited, task)
                return
            if cancelling():
                return  # the handler cancelled its own Task and returned: no other may feel that
            if now - slice_start > SLICE_S:
                yield from self._pause(attempt, now - slice_start)
                slice_start, now = 0.0, perf_counter()

    def _pause(self, attempt: AsyncAttempt, blocked: float) -> Generator[Any, Any, None]:
        """Give the loop a turn; after a handler that blocked it, enough of them to settle that attempt
        before the next handler may block it again."""
        yield
        if blocked > BLOCKED_S:
            end = perf_counter() + LONGEST_PAUSE_S
            while self._is_held(attempt) and perf_counter() < end:
                yield from asyncio.sleep(0.001).__await__()

    def _finish(
        self,
        attempt: AsyncAttempt,
        coro: Coroutine[Any, Any, Any],
        step: Step,
        awaited: Any,
        task: "asyncio.Task[Any]",
    ) -> Generator[Any, Any, None]:
        """Drive a suspended coroutine to its end; this Task is its own from now on."""
        self._runner = None
        if self._ready:
            self._start_runner()
        attempt.task = task
        timeout = attempt.handler.timeout
        if timeout is not None:
            attempt.timer = self._loop.call_later(max(timeout - attempt.seconds(), 0), self._expire, attempt)
        try:
            while True:
                try:
                    value = yield awaited
                except GeneratorExit:
                    coro.close()
                    raise
                except BaseException as thrown:
                    awaited = step(coro.throw, thrown)
                else:
                    awaited = step(coro.send, value)
        except StopIteration as stop:
            self._settler.end(attempt, completed(attempt.claim.job, stop.value), attempt.seconds())
        except GeneratorExit:
            raise
        except BaseException as error:
            self._raised(attempt, error, attempt.seconds())
        finally:
            if attempt.timer is not None:
                attempt.timer.cancel()

    def _raised(self, attempt: AsyncAttempt, error: BaseException, seconds: float) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._settler.release(attempt, seconds)
            raise error
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if is_cancelled and attempt.is_leaving:
            self._settler.release(attempt, seconds)
        elif attempt.is_expired and (is_cancelled or self._settler.is_unrequested_cancel(attempt, error)):
            self._settler.expire(attempt, seconds)
        else:
            self._settler.fail(attempt, error, seconds)

    def _expire(self, attempt: AsyncAttempt) -> None:
        attempt.is_expired = True
        self.stop(attempt)
