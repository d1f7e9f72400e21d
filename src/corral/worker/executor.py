"""One attempt becomes one outcome: on the loop, in a thread, or in a spawned process."""

from collections.abc import Callable, Iterable

from corral.core.outcome import Dead, RetryPolicy
from corral.core.ports import Reporter
from corral.worker.attempt import Attempt
from corral.worker.endings import Endings
from corral.worker.offloop import OffLoop
from corral.worker.registry import Kind, Registry
from corral.worker.stepping import Stepper


class Executor:
    """Runs claimed jobs and says how each ended, once, by `ended(attempt)`.

    `freed()` says that a thread ended whose job was settled before; `crashed(error)` that the executor
    itself is at fault.
    """

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
        self._registry = registry
        self._endings = Endings(policy, queue=queue, clock=clock, ended=ended, logs_payloads=logs_payloads)
        self._stepper = Stepper(self._endings, reporter, crashed)
        self._off_loop = OffLoop(self._endings, reporter, concurrency=concurrency, freed=freed)

    @property
    def overdue(self) -> int:
        """Slots that are taken although their jobs are settled."""
        return self._off_loop.overdue

    def start(self, attempts: Iterable[Attempt]) -> None:
        """Run these; each is heard of again by `ended`."""
        find, step = self._registry.find, self._stepper.start
        for attempt in attempts:
            job = attempt.claim.job
            handler = find(job.name)
            if job.doomed is not None:
                self._endings.end(attempt, Dead(job.doomed))
            elif handler is None:
                self._endings.end(attempt, Dead(self._no_handler(job.name)))
            elif handler.kind is Kind.ASYNC:
                step(attempt, handler)
            else:
                self._off_loop.start(attempt, handler)

    def _no_handler(self, name: str) -> str:
        known = ", ".join(map(repr, self._registry.names)) or "none at all"
        return f"no handler for job name {name!r}; this worker knows {known}"

    def give_back(self) -> None:
        """Release what has not started."""
        self._stepper.give_back()

    def leave(self, attempts: Iterable[Attempt]) -> None:
        """End what can be ended, to be released; what cannot be is told, and released as it runs."""
        for attempt in attempts:
            if attempt.settlement is not None or attempt.leaving:
                continue
            attempt.leaving = True
            if attempt.stopper is not None:
                attempt.cancel()
                attempt.stopper()
            elif attempt.handler is not None and attempt.handler.kind is Kind.SYNC:
                self._off_loop.abandon(attempt)
                self._endings.release(attempt)

    def insist(self, attempts: Iterable[Attempt]) -> None:
        """Release even what went on after it was told to end."""
        for attempt in attempts:
            self._endings.release(attempt)

    def close(self) -> None:
        """Let go of threads and processes."""
        self._off_loop.close()
