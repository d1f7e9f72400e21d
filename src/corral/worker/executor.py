"""One attempt becomes one outcome: on the loop, in a thread, or in a spawned process.

Async handlers get no asyncio.Task each, for that costs 3 µs where a whole job has 20. A runner (one
Task) steps each handler's coroutine inside that handler's own copy of the context variables. One that
ends without sleeping costs 1 µs, and the runner takes the next. The first that sleeps keeps the Task
for good, and a fresh runner takes over the rest. So `asyncio.current_task()` is right throughout,
timeouts, task groups and cancel scopes work, and no attempt ever wakes up in a Task that another has
slept in. Everything here is public asyncio, the same on every Python version, unlike eager tasks.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future
from contextvars import copy_context
from time import perf_counter
from types import coroutine
from typing import Any

from msgspec.structs import replace

from corral.core import failure
from corral.core.failure import Verdict
from corral.core.job import Claim
from corral.core.outcome import Dead, Outcome, Released, Retry, RetryPolicy, Settlement, decide
from corral.core.ports import Reporter
from corral.errors import JobTimeout, ProcessDied
from corral.observe.logs import logger
from corral.worker.attempt import Attempt
from corral.worker.context import BlockingJobContext, JobContext, JobView
from corral.worker.process import Child, Children
from corral.worker.registry import Handler, Kind, Registry
from corral.worker.remote import RemoteError, rebuild
from corral.worker.results import completed, trace_of
from corral.worker.threads import Threads

BREATH_S = 0.002
"""How long handlers may follow each other before the loop gets a turn, so that what ended is settled."""

BLOCKED_S = 0.010
LONGEST_BREATH_S = 0.1

MOST_REASON = 500
"""How much of a reason goes into the log."""

Step = Callable[..., Any]
_FAILED = (Retry, Dead)


class Executor:
    """Runs claimed jobs and says how each ended, once, by `ended(attempt)`."""

    def __init__(
        self,
        registry: Registry,
        policy: RetryPolicy,
        reporter: Reporter,
        *,
        queue: str,
        concurrency: int,
        clock: Callable[[], int],
        ended: Callable[[Attempt], None],
        freed: Callable[[], None],
        crashed: Callable[[BaseException], None],
        logs_payloads: bool = False,
    ) -> None:
        self.overdue = 0
        """Threads whose job has been settled although they still run; each keeps its slot."""
        self._registry = registry
        self._policy = policy
        self._reporter = reporter
        self._clock = clock
        self._ended = ended
        self._freed = freed
        self._crashed = crashed
        self._log = logger("executor", queue=queue)
        self._logs_payloads = logs_payloads
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Attempt] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._threads = Threads(concurrency, "corral-handler")
        self._children = Children()
        self._returned: deque[tuple[Attempt, Outcome | BaseException | RemoteError]] = deque()
        self._collecting = False

    # -- in ---------------------------------------------------------------------------------------------

    def start(self, attempts: Iterable[Attempt]) -> None:
        """Run these; each is heard of again by `ended`."""
        for attempt in attempts:
            job = attempt.claim.job
            handler = self._registry.find(job.name)
            if job.doomed is not None:
                self._end(attempt, Dead(job.doomed))
            elif handler is None:
                self._end(attempt, Dead(self._no_handler(job.name)))
            elif handler.kind is Kind.ASYNC:
                attempt.handler = handler
                self._ready.append(attempt)
            else:
                self._start_in_thread(attempt, handler)
        if self._ready and self._runner is None:
            self._send_runner()

    def _no_handler(self, name: str) -> str:
        known = ", ".join(map(repr, self._registry.names)) or "none at all"
        return f"no handler for job name {name!r}; this worker knows {known}"

    # -- out --------------------------------------------------------------------------------------------

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.settlement is None:
            attempt.settlement = Settlement(attempt.claim, outcome, self._clock())
            self._ended(attempt)
            if isinstance(outcome, _FAILED):
                self._say_failed(attempt, outcome)

    def _say_failed(self, attempt: Attempt, outcome: Retry | Dead) -> None:
        job = attempt.claim.job
        fields = {"data": job.data} if self._logs_payloads else {}
        say = self._log.error if isinstance(outcome, Dead) else self._log.warning
        say(
            "an attempt failed",
            job=job.id,
            name=job.name,
            attempt=job.attempt + 1,
            outcome=type(outcome).__name__.lower(),
            reason=outcome.reason[:MOST_REASON],
            **fields,
        )

    def _fail(
        self,
        attempt: Attempt,
        error: BaseException,
        trace: str | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        if trace is None:
            trace = trace_of(error)
        try:
            outcome = decide(attempt.claim.job, error, trace, policy or self._policy)
        except Exception as broken:
            # a user's rule raised: the job must not vanish with it
            outcome = Dead(f"{error} (and the rule that should judge it failed: {broken!r})", trace)
        self._end(attempt, outcome)

    def _raised(self, attempt: Attempt, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._end(attempt, Released())
            raise error
        if isinstance(error, asyncio.CancelledError):
            if attempt.leaving:
                return self._end(attempt, Released())
            if attempt.expired:
                error = self._too_long(attempt)
        return self._fail(attempt, error)

    def _too_long(self, attempt: Attempt) -> JobTimeout:
        handler = attempt.handler
        assert handler is not None
        return JobTimeout(f"{handler.name!r} took longer than {handler.timeout} s")

    # -- on the loop ------------------------------------------------------------------------------------

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
        ready, reporter = self._ready, self._reporter
        cancelling = asyncio.current_task().cancelling  # type: ignore[union-attr]
        breath = now = perf_counter()
        while ready:
            attempt = ready.popleft()
            attempt.began = now
            claim = attempt.claim
            context = attempt.context = JobContext(claim, reporter)
            step = copy_context().run
            try:
                handler_coroutine = attempt.handler.fn(context)  # type: ignore[union-attr]
                awaited = step(handler_coroutine.send, None)
            except StopIteration as stop:
                now = perf_counter()
                attempt.seconds = now - attempt.began
                self._end(attempt, completed(claim.job, stop.value))
            except BaseException as error:
                now = perf_counter()
                attempt.seconds = now - attempt.began
                self._raised(attempt, error)
            else:
                yield from self._see_out(attempt, handler_coroutine, step, awaited)
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
        attempt.timer = self._set_timer(attempt, self._expire_task)
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
            self._end(attempt, completed(attempt.claim.job, stop.value))
        except GeneratorExit:
            raise
        except BaseException as error:
            attempt.seconds = perf_counter() - attempt.began
            self._raised(attempt, error)
        finally:
            attempt.stopper = None
            if attempt.timer is not None:
                attempt.timer.cancel()

    def _set_timer(
        self, attempt: Attempt, expire: Callable[[Attempt], None]
    ) -> asyncio.TimerHandle | None:
        timeout = attempt.handler.timeout if attempt.handler is not None else None
        if timeout is None:
            return None
        left = timeout - (perf_counter() - attempt.began)
        return self._loop.call_later(max(left, 0), expire, attempt)

    def _expire_task(self, attempt: Attempt) -> None:
        attempt.expired = True
        attempt.cancel()
        if attempt.stopper is not None:
            attempt.stopper()

    # -- in threads ---------------------------------------------------------------------------------------

    def _start_in_thread(self, attempt: Attempt, handler: Handler) -> None:
        attempt.handler = handler
        attempt.began = perf_counter()
        if handler.kind is Kind.PROCESS:
            context = ProcessView(attempt.claim)
            attempt.context = context
            attempt.stopper = context.kill
            self._threads.submit(lambda: self._in_process(attempt, handler, context))
            return
        attempt.context = BlockingJobContext(attempt.claim, self._asker(attempt.claim))
        attempt.timer = self._set_timer(attempt, self._expire_thread)
        self._threads.submit(lambda: self._in_thread(attempt, handler))

    def _in_thread(self, attempt: Attempt, handler: Handler) -> None:
        try:
            outcome = completed(attempt.claim.job, handler.fn(attempt.context))
        except BaseException as error:
            self._hand_over(attempt, error)
        else:
            self._hand_over(attempt, outcome)

    def _hand_over(self, attempt: Attempt, end: Outcome | BaseException | RemoteError) -> None:
        """Give an ended attempt to the loop; many at once wake it once."""
        self._returned.append((attempt, end))
        if self._collecting:
            return
        self._collecting = True
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:
            return  # the loop has closed: the worker went away without this thread

    def _collect(self) -> None:
        self._collecting = False  # before the look: who hands over from here on calls again
        now = perf_counter()
        while self._returned:
            attempt, end = self._returned.popleft()
            attempt.stopper = None
            if attempt.timer is not None:
                attempt.timer.cancel()
            if attempt.settlement is not None:
                self.overdue -= 1
                self._freed()
                continue
            attempt.seconds = now - attempt.began
            if isinstance(end, RemoteError):
                self._failed_remotely(attempt, end)
            elif not isinstance(end, BaseException):
                self._end(attempt, end)
            elif attempt.leaving:
                self._end(attempt, Released())
            else:
                self._fail(attempt, end)

    def _expire_thread(self, attempt: Attempt) -> None:
        """A thread cannot be ended: the job is settled, the late result dropped, the slot stays taken."""
        if attempt.settlement is None:
            attempt.expired = True
            self._abandon(attempt)
            self._fail(attempt, self._too_long(attempt))

    def _abandon(self, attempt: Attempt) -> None:
        attempt.seconds = perf_counter() - attempt.began
        attempt.cancel()
        self.overdue += 1

    def _asker(self, claim: Claim) -> Callable[..., Any]:
        def ask(verb: str, *words: Any) -> Any:
            saying = getattr(self._reporter, verb)(claim, *words)
            return asyncio.run_coroutine_threadsafe(saying, self._loop).result()

        return ask

    # -- in processes -------------------------------------------------------------------------------------

    def _in_process(self, attempt: Attempt, handler: Handler, context: "ProcessView") -> None:
        try:
            child = self._children.take()
            try:
                context.attach(child)
                end = child.run(handler, attempt.claim.job, self._ask_for(attempt.claim))
            finally:
                context.detach()
                self._children.give_back(child)
        except BaseException as error:
            self._hand_over(attempt, error)
        else:
            self._hand_over(attempt, end)

    def _ask_for(self, claim: Claim) -> Callable[..., None]:
        def ask(verb: str, words: list[Any], answered: Callable[[Any, BaseException | None], None]) -> None:
            saying = getattr(self._reporter, verb)(claim, *words)
            future = asyncio.run_coroutine_threadsafe(saying, self._loop)
            future.add_done_callback(lambda told: answered(*_answer(told)))

        return ask

    def _failed_remotely(self, attempt: Attempt, told: RemoteError) -> None:
        policy = self._policy
        if policy.classify is failure.classify and told.verdict is not None:
            # the child has the error itself, with all it carries: its verdict by the same table counts
            verdict = Verdict(told.verdict)
            policy = replace(policy, classify=lambda _: verdict)
        self._fail(attempt, rebuild(told), told.trace, policy)

    # -- the end --------------------------------------------------------------------------------------------

    def give_back(self) -> None:
        """Release what has not started."""
        while self._ready:
            self._end(self._ready.popleft(), Released())

    def leave(self, attempts: Iterable[Attempt]) -> None:
        """End what can be ended, to be released; what cannot be is told, and released as it runs."""
        for attempt in attempts:
            if attempt.settlement is not None or attempt.leaving:
                continue
            attempt.leaving = True
            if attempt.stopper is not None:
                attempt.cancel()
                attempt.stopper()
            elif attempt.context is not None:
                self._abandon(attempt)
                self._end(attempt, Released())

    def insist(self, attempts: Iterable[Attempt]) -> None:
        """Release even what went on after it was told to end."""
        for attempt in attempts:
            self._end(attempt, Released())

    def close(self) -> None:
        """End the children, and let the threads end with what they run."""
        self._children.close()
        self._threads.close()


def _answer(told: Future[Any]) -> tuple[Any, BaseException | None]:
    if told.cancelled():
        return None, ProcessDied("the worker is stopping")
    error = told.exception()
    return (told.result(), None) if error is None else (None, error)


class ProcessView(JobView):
    """The parent's side of a job that runs in a child."""

    __slots__ = ("_child", "_is_killed")

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim)
        self._child: Child | None = None
        self._is_killed = False

    def attach(self, child: Child) -> None:
        self._child = child
        if self._is_killed:
            child.kill()
        elif self.cancelled:
            child.cancel()

    def detach(self) -> None:
        self._child = None

    def cancel(self) -> None:
        self.cancelled = True
        if (child := self._child) is not None:
            child.cancel()

    def kill(self) -> None:
        self._is_killed = True
        if (child := self._child) is not None:
            child.kill()
