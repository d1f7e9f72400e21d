"""Async handlers on the loop, without a Task for each.

A Task costs 3 µs where a whole job has 20, so a runner (one Task) steps each handler's coroutine inside
that handler's own copy of the context variables. One that ends without sleeping costs 1 µs, and the
runner takes the next. The first that sleeps keeps the Task for good, and a fresh runner takes over the
rest. So `asyncio.current_task()` is right throughout; timeouts, task groups and cancel scopes work; and
no attempt ever wakes up in a Task that another has slept in. Everything here is public asyncio, the same
on every version of Python, unlike eager tasks, which 3.11 does not have.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from time import perf_counter
from types import coroutine
from typing import Any

from corral.core.ports import Reporter
from corral.worker.attempt import Attempt
from corral.worker.context import JobContext
from corral.worker.endings import Endings
from corral.worker.registry import Handler
from corral.worker.results import completed

BREATH_S = 0.002
"""How long handlers may follow each other before the loop gets a turn, so that what ended is settled."""
BLOCKED_S = 0.010
"""A handler that held the loop for longer has its settlement sent before the next one starts."""
LONGEST_BREATH_S = 0.1

Step = Callable[..., Any]


class Stepper:
    """Runs coroutines one step after the other."""

    def __init__(
        self, endings: Endings, reporter: Reporter, crashed: Callable[[BaseException], None]
    ) -> None:
        self._endings = endings
        self._reporter = reporter
        self._crashed = crashed
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Attempt] = deque()
        self._runner: asyncio.Task[None] | None = None

    def start(self, attempt: Attempt, handler: Handler) -> None:
        """Run this after those that are ready."""
        attempt.handler = handler
        self._ready.append(attempt)
        if self._runner is None:
            self._send_runner()

    def give_back(self) -> None:
        """Release what has not started."""
        while self._ready:
            self._endings.release(self._ready.popleft())

    def _send_runner(self) -> None:
        self._runner = self._loop.create_task(self._run())
        self._runner.add_done_callback(self._runner_ended)

    def _runner_ended(self, runner: "asyncio.Task[None]") -> None:
        if self._runner is runner:
            self._runner = None
            if self._ready:
                self._send_runner()
        if not runner.cancelled() and (error := runner.exception()) is not None:
            self._crashed(error)

    async def _run(self) -> None:
        await self._work_off()

    @coroutine
    def _work_off(self) -> Generator[Any, Any, None]:
        """Step one ready coroutine after the other, until one sleeps."""
        ready, reporter, end = self._ready, self._reporter, self._endings.end
        cancelling = asyncio.current_task().cancelling  # type: ignore[union-attr]
        breath = now = perf_counter()
        while ready:
            attempt = ready.popleft()
            attempt.began = now
            context = attempt.context = JobContext(attempt.claim, reporter)
            step = copy_context().run
            try:
                sleeper = attempt.handler.fn(context)  # type: ignore[union-attr]
                awaited = step(sleeper.send, None)
            except StopIteration as stop:
                now = perf_counter()
                attempt.seconds = now - attempt.began
                end(attempt, completed(attempt.claim.job, stop.value))
            except BaseException as error:
                now = perf_counter()
                attempt.seconds = now - attempt.began
                self._raised(attempt, error)
            else:
                yield from self._see_out(attempt, sleeper, step, awaited)
                return
            if cancelling():
                return  # the handler cancelled its own Task and left: nobody else may feel that
            if now - breath > BREATH_S:
                yield from self._breathe(attempt, now - breath)
                breath = now = perf_counter()

    def _breathe(self, attempt: Attempt, held_up: float) -> Generator[Any, Any, None]:
        """Give the loop a turn; after a handler that blocked it, enough of them to settle that attempt
        before the next handler may block it again."""
        yield
        if held_up > BLOCKED_S:
            end = perf_counter() + LONGEST_BREATH_S
            while not attempt.settled and perf_counter() < end:
                yield from asyncio.sleep(0.001).__await__()

    def _see_out(
        self, attempt: Attempt, sleeper: Coroutine[Any, Any, Any], step: Step, awaited: Any
    ) -> Generator[Any, Any, None]:
        """Drive a coroutine that sleeps to its end; this Task is its own from now on."""
        mine = asyncio.current_task()
        assert mine is not None
        self._runner = None
        if self._ready:
            self._send_runner()
        attempt.stopper = mine.cancel
        self._set_timer(attempt)
        try:
            while True:
                try:
                    answer = yield awaited
                except GeneratorExit:
                    sleeper.close()
                    raise
                except BaseException as thrown:
                    awaited = step(sleeper.throw, thrown)
                else:
                    awaited = step(sleeper.send, answer)
        except StopIteration as stop:
            attempt.seconds = perf_counter() - attempt.began
            self._endings.end(attempt, completed(attempt.claim.job, stop.value))
        except GeneratorExit:
            raise
        except BaseException as error:
            attempt.seconds = perf_counter() - attempt.began
            self._raised(attempt, error)
        finally:
            attempt.stopper = None
            if attempt.timer is not None:
                attempt.timer.cancel()

    def _raised(self, attempt: Attempt, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._endings.release(attempt)
            raise error
        if not isinstance(error, asyncio.CancelledError):
            self._endings.fail(attempt, error)
        elif attempt.leaving:
            self._endings.release(attempt)
        elif attempt.expired:
            self._endings.expire(attempt)
        else:
            self._endings.fail(attempt, error)

    def _set_timer(self, attempt: Attempt) -> None:
        timeout = attempt.handler.timeout  # type: ignore[union-attr]
        if timeout is not None:
            left = max(timeout - (perf_counter() - attempt.began), 0)
            attempt.timer = self._loop.call_later(left, self._expire, attempt)

    def _expire(self, attempt: Attempt) -> None:
        attempt.expired = True
        attempt.cancel()
        if attempt.stopper is not None:
            attempt.stopper()
