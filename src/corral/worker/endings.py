"""How attempts end: each gets its settlement once, and a failure its line in the log."""

from collections.abc import Callable

from msgspec.structs import replace

from corral.core import retry
from corral.core.known_errors import FailureKind
from corral.core.outcome import Dead, Outcome, Released, Retry, RetryPolicy, Settlement, decide
from corral.errors import JobTimeout
from corral.telemetry.logs import logger
from corral.worker.attempt import Attempt
from corral.worker.remote import RemoteError, rebuild
from corral.worker.results import trace_of

MOST_REASON = 500
"""How much of a reason goes into the log."""
_FAILED = (Retry, Dead)


class Endings:
    """Turns what became of a handler into a settlement, and hands the attempt to `ended`."""

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        queue: str,
        clock: Callable[[], int],
        ended: Callable[[Attempt], None],
        logs_payloads: bool = False,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._ended = ended
        self._log = logger("executor", queue=queue)
        self._logs_payloads = logs_payloads

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        """The attempt ended like this; what comes after is dropped."""
        if attempt.settlement is None:
            attempt.settlement = Settlement(attempt.claim, outcome, self._clock())
            self._ended(attempt)
            if isinstance(outcome, _FAILED):
                self._say_failed(attempt, outcome)

    def fail(
        self,
        attempt: Attempt,
        error: BaseException,
        trace: str | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        """The attempt raised this: the policy says what becomes of the job."""
        if trace is None:
            trace = trace_of(error)
        self.end(attempt, decide(attempt.claim.job, error, trace, policy or self._policy))

    def fail_remotely(self, attempt: Attempt, told: RemoteError) -> None:
        """The attempt raised this in another process."""
        policy = self._policy
        if policy.classify is retry.classify and told.verdict is not None:
            # the child has the error itself, with all it carries: its verdict by the same table counts
            verdict = FailureKind(told.verdict)
            policy = replace(policy, classify=lambda _: verdict)
        self.fail(attempt, rebuild(told), told.trace, policy)

    def expire(self, attempt: Attempt) -> None:
        """The attempt took longer than its handler allows."""
        handler = attempt.handler
        assert handler is not None
        self.fail(attempt, JobTimeout(f"{handler.name!r} took longer than {handler.timeout} s"))

    def release(self, attempt: Attempt) -> None:
        """The attempt is given back."""
        self.end(attempt, Released())

    def _say_failed(self, attempt: Attempt, outcome: Retry | Dead) -> None:
        job = attempt.claim.job
        fields = {"data": job.data} if self._logs_payloads else {}
        say = self._log.error if isinstance(outcome, Dead) else self._log.warning
        say(
            "an attempt failed",
            job=job.id,
            name=job.name,
            attempt=job.attempts_made + 1,
            outcome=type(outcome).__name__.lower(),
            reason=outcome.reason[:MOST_REASON],
            **fields,
        )
