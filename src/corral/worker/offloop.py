"""Handlers off the loop: sync ones in threads, heavy ones in spawned processes that a thread looks after."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from corral.core.job import Claim
from corral.core.outcome import Outcome
from corral.core.ports import Reporter
from corral.worker.attempt import Attempt
from corral.worker.context import BlockingJobContext
from corral.worker.endings import Endings
from corral.worker.process import Children, ProcessView, answer_of
from corral.worker.registry import Handler, Kind
from corral.worker.remote import RemoteError
from corral.worker.results import completed
from corral.worker.threads import Threads


class OffLoop:
    """Runs handlers in threads and hands their ends to the loop."""

    def __init__(
        self, endings: Endings, reporter: Reporter, *, concurrency: int, freed: Callable[[], None]
    ) -> None:
        self.overdue = 0
        """Threads whose job has been settled although they still run; each keeps its slot."""
        self._endings = endings
        self._reporter = reporter
        self._freed = freed
        self._loop = asyncio.get_running_loop()
        self._threads = Threads(concurrency, "corral-handler")
        self._children = Children()
        self._returned: deque[tuple[Attempt, Outcome | BaseException | RemoteError]] = deque()
        self._collecting = False

    def start(self, attempt: Attempt, handler: Handler) -> None:
        """Run this in a thread, or in a process."""
        attempt.handler = handler
        attempt.began = perf_counter()
        if handler.kind is Kind.PROCESS:
            view = ProcessView(attempt.claim)
            attempt.context = view
            attempt.stopper = view.kill
            self._threads.submit(lambda: self._in_process(attempt, handler, view))
            return
        attempt.context = BlockingJobContext(attempt.claim, self._ask_and_wait(attempt.claim))
        if handler.timeout is not None:
            attempt.timer = self._loop.call_later(handler.timeout, self._expire, attempt)
        self._threads.submit(lambda: self._in_thread(attempt, handler))

    # -- in the threads -----------------------------------------------------------------------------------

    def _in_thread(self, attempt: Attempt, handler: Handler) -> None:
        try:
            outcome = completed(attempt.claim.job, handler.fn(attempt.context))
        except BaseException as error:
            self._hand_over(attempt, error)
        else:
            self._hand_over(attempt, outcome)

    def _in_process(self, attempt: Attempt, handler: Handler, view: ProcessView) -> None:
        try:
            child = self._children.take()
            try:
                ticket = view.attach(child)
                end = child.run(ticket, handler, attempt.claim.job, self._ask(attempt.claim))
            finally:
                view.detach()
                self._children.give_back(child)
        except BaseException as error:
            self._hand_over(attempt, error)
        else:
            self._hand_over(attempt, end)

    def _ask_and_wait(self, claim: Claim) -> Callable[..., Any]:
        def ask(verb: str, *words: Any) -> Any:
            saying = getattr(self._reporter, verb)(claim, *words)
            return asyncio.run_coroutine_threadsafe(saying, self._loop).result()

        return ask

    def _ask(self, claim: Claim) -> Callable[..., None]:
        def ask(verb: str, words: list[Any], answered: Callable[..., None]) -> None:
            saying = getattr(self._reporter, verb)(claim, *words)
            said = asyncio.run_coroutine_threadsafe(saying, self._loop)
            said.add_done_callback(lambda told: answered(*answer_of(told)))

        return ask

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

    # -- on the loop ----------------------------------------------------------------------------------------

    def _collect(self) -> None:
        self._collecting = False  # before the look: who hands over from here on calls again
        now = perf_counter()
        while self._returned:
            attempt, end = self._returned.popleft()
            attempt.stopper = None
            if attempt.timer is not None:
                attempt.timer.cancel()
            if attempt.settlement is None:
                attempt.seconds = now - attempt.began
                self._end(attempt, end)
            elif attempt.is_overdue:
                self.overdue -= 1
                self._freed()

    def _end(self, attempt: Attempt, end: Outcome | BaseException | RemoteError) -> None:
        if isinstance(end, RemoteError):
            self._endings.fail_remotely(attempt, end)
        elif not isinstance(end, BaseException):
            self._endings.end(attempt, end)
        elif attempt.leaving:
            self._endings.release(attempt)
        else:
            self._endings.fail(attempt, end)

    def _expire(self, attempt: Attempt) -> None:
        """A thread cannot be ended: the job is settled, the late result dropped, the slot stays taken."""
        if attempt.settlement is None:
            attempt.expired = True
            self.abandon(attempt)
            self._endings.expire(attempt)

    def abandon(self, attempt: Attempt) -> None:
        """Tell a thread that it should end, and wait for it no longer."""
        attempt.seconds = perf_counter() - attempt.began
        attempt.is_overdue = True
        self.overdue += 1
        attempt.cancel()

    def close(self) -> None:
        """End the children, and let the threads end with what they run."""
        self._children.close()
        self._threads.close()
