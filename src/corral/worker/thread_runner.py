"""Handlers off the event loop: sync ones in threads, heavy ones in processes that a thread waits for."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Lock, Thread
from time import perf_counter
from typing import Any, TypeVar

from corral.core.job import Claim
from corral.core.outcome import Completed, Dead, Outcome
from corral.core.ports import Reporter
from corral.errors import ProcessDied
from corral.telemetry.logs import current_job
from corral.worker.attempt import RunningAttempt
from corral.worker.context import SyncJobContext
from corral.worker.handlers import Handler
from corral.worker.middleware import fail_future, set_result
from corral.worker.processes.errors import RemoteError
from corral.worker.processes.pool import HandlerProcess, ProcessJobContext, ProcessPool, ProcessResult
from corral.worker.settling import Settler, completed

T = TypeVar("T")
Call = Callable[[], None]
Result = Outcome | BaseException | RemoteError

MOST_PROCESSES = 3
"""How many processes a job may take whose process dies before its handler begins."""


class ThreadAttempt(RunningAttempt, eq=False):
    """Runs in a thread."""

    context: SyncJobContext
    is_overdue: bool = False
    """Whether it was settled although its thread still runs; not any more when that has ended."""


class ProcessAttempt(RunningAttempt, eq=False):
    """Runs in a spawned process."""

    context: ProcessJobContext


class ThreadPool:
    """At most `most` threads, started when they are needed.

    They are daemons: a handler that never returns must not keep a stopped process alive, which is
    why this is not a ThreadPoolExecutor.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._queue: SimpleQueue[tuple[Context, Call] | None] = SimpleQueue()
        self._lock = Lock()
        self._idle = 0
        self._started = 0

    def submit(self, call: Call) -> None:
        """Run `call`, which must not raise, in a thread, with the caller's context variables."""
        self._queue.put((copy_context(), call))
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
                return
            if self._started == self._most:
                return
            self._started += 1
            number = self._started
        Thread(target=self._serve, name=f"{self._name}-{number}", daemon=True).start()

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            context, call = work
            context.run(call)
            del work, context, call
            with self._lock:
                self._idle += 1

    def close(self) -> None:
        """Let each thread end when its call has ended."""
        with self._lock:
            for _ in range(self._started):
                self._queue.put(None)


class LoopReporter:
    """A Reporter for one claim, called from other threads than the event loop's."""

    def __init__(self, reporter: Reporter, claim: Claim, loop: asyncio.AbstractEventLoop) -> None:
        self._reporter = reporter
        self._claim = claim
        self._loop = loop

    def progress(self, value: Any) -> "Future[None]":
        return self._submit(self._reporter.progress(self._claim, value))

    def log(self, line: str) -> "Future[int]":
        return self._submit(self._reporter.log(self._claim, line))

    def emit(self, step: str, data: Any) -> "Future[None]":
        return self._submit(self._reporter.emit(self._claim, step, data))

    def children_results(self, queue: str | None, name: str | None) -> "Future[list[Any]]":
        return self._submit(self._reporter.children_results(self._claim, queue, name))

    def _submit(self, coro: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coro, self._loop)


class ThreadRunner:
    """Runs handlers in threads and passes their results to the loop; `freed` reports a late free slot."""

    def __init__(
        self,
        settler: Settler,
        reporter: Reporter,
        concurrency: int,
        freed: Callable[[], None],
        processes: ProcessPool,
    ) -> None:
        self.overdue = 0
        """Threads whose job has been settled although they still run; each keeps its slot."""
        self._settler = settler
        self._reporter = reporter
        self._freed = freed
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPool(concurrency, "corral-handler")
        self._processes = processes
        self._returned: deque[tuple[ThreadAttempt | ProcessAttempt, Result]] = deque()
        self._is_collecting = False

    def reporter(self, claim: Claim) -> LoopReporter:
        """Return the reporter of a claim for use in its thread."""
        return LoopReporter(self._reporter, claim, self._loop)

    def start(self, attempt: ThreadAttempt | ProcessAttempt) -> None:
        """Run this in a thread, or in a process."""
        attempt.started = perf_counter()
        if isinstance(attempt, ProcessAttempt):
            process_attempt = attempt
            self._threads.submit(lambda: self._run_in_process(process_attempt))
            return
        thread_attempt, timeout = attempt, attempt.handler.timeout
        if timeout is not None:
            attempt.timer = self._loop.call_later(timeout, self._expire, attempt)
        self._threads.submit(lambda: self._run_in_thread(thread_attempt))

    # -- in the threads -----------------------------------------------------------------------------------

    def _run_in_thread(self, attempt: ThreadAttempt) -> None:
        current_job.set(attempt.claim.job)
        try:
            outcome = completed(attempt.claim.job, attempt.handler.fn(attempt.context))
        except BaseException as error:
            self._return(attempt, error)
        else:
            self._return(attempt, outcome)

    def _run_in_process(self, attempt: ProcessAttempt) -> None:
        result = self._call_process(attempt.handler, [attempt])
        self._return(attempt, result[0] if isinstance(result, list) else result)

    def _call_process(
        self, handler: Handler, attempts: Sequence[ProcessAttempt]
    ) -> ProcessResult | BaseException:
        """Return what one call of a handler in a process gave: an outcome for each attempt, or an error."""
        result: ProcessResult | BaseException = ProcessDied("no process was started")
        jobs = [attempt.claim.job for attempt in attempts]
        reporters = [self.reporter(attempt.claim) for attempt in attempts]
        for _ in range(MOST_PROCESSES):
            process: HandlerProcess | None = None
            try:
                process = self._processes.take()
                ticket = process.ticket()
                for position, attempt in enumerate(attempts):
                    attempt.context.attach(process, ticket, position)
                result = process.run(ticket, handler, jobs, reporters)
            except BaseException as error:
                result = error
            finally:
                for attempt in attempts:
                    attempt.context.detach()
                if process is not None:
                    self._processes.put_back(process)
            is_killed = any(attempt.context.is_killed for attempt in attempts)
            if is_killed or process is None or process.has_begun or not isinstance(result, ProcessDied):
                break  # else it died before the handler began: the job takes another
        return result

    def call(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a function in a thread; its result is a future of the event loop."""
        future: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = fn()
            except BaseException as error:
                self._resolve(fail_future, future, error)
            else:
                self._resolve(set_result, future, result)

        self._threads.submit(run)
        return future

    def call_in_process(self, handler: Handler, attempts: Sequence[RunningAttempt]) -> "asyncio.Future[Any]":
        """Call a handler of batches in a process; the result has an outcome or error for each attempt."""
        members = [attempt for attempt in attempts if isinstance(attempt, ProcessAttempt)]

        def run() -> list[Completed | Dead | RemoteError]:
            result = self._call_process(handler, members)
            if isinstance(result, BaseException):
                raise result
            return [result] * len(members) if isinstance(result, RemoteError) else result

        return self.call(run)

    def _resolve(self, resolve: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(resolve, *arguments)
        except RuntimeError:
            return  # the loop has closed: the worker ended without this thread

    def _return(self, attempt: ThreadAttempt | ProcessAttempt, result: Result) -> None:
        """Pass an ended attempt to the loop; many at once wake it once."""
        self._returned.append((attempt, result))
        if self._is_collecting:
            return
        self._is_collecting = True
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:
            return  # the loop has closed: the worker ended without this thread

    # -- on the loop ----------------------------------------------------------------------------------------

    def _collect(self) -> None:
        self._is_collecting = False  # before the loop: what is returned from here on is collected again
        while self._returned:
            attempt, result = self._returned.popleft()
            if attempt.timer is not None:
                attempt.timer.cancel()
            if not attempt.is_ended:
                self._end(attempt, result, attempt.seconds())
            elif isinstance(attempt, ThreadAttempt) and attempt.is_overdue:
                attempt.is_overdue = False
                self.overdue -= 1
                self._freed()

    def _end(self, attempt: ThreadAttempt | ProcessAttempt, result: Result, seconds: float) -> None:
        if isinstance(result, RemoteError):
            self._settler.fail_remotely(attempt, result, seconds)
        elif not isinstance(result, BaseException):
            self._settler.end(attempt, result, seconds)
        elif attempt.is_leaving:
            self._settler.release(attempt, seconds)
        else:
            self._settler.fail(attempt, result, seconds)

    def begin_stop(self) -> None:
        """Tell the processes that the worker stops."""
        self._processes.begin_stop()

    def stop(self, attempt: ThreadAttempt | ProcessAttempt) -> None:
        """Kill a process; a thread cannot be ended, so its job is released while it runs."""
        if isinstance(attempt, ProcessAttempt):
            attempt.context.cancel()
            attempt.context.kill()
        else:
            self._abandon(attempt)
            self._settler.release(attempt, attempt.seconds())

    def _expire(self, attempt: ThreadAttempt) -> None:
        """Settle the job; the late result is dropped, and the slot stays taken until the thread ends."""
        if not attempt.is_ended:
            self._abandon(attempt)
            self._settler.expire(attempt, attempt.seconds())

    def _abandon(self, attempt: ThreadAttempt) -> None:
        attempt.is_overdue = True
        self.overdue += 1
        attempt.context.cancel()

    def close(self) -> None:
        """End the processes, and let each thread end with its handler."""
        self._processes.leave()
        self._threads.close()
