"""Sentry: each failed attempt is an event, with the job it belongs to, inside a transaction of its own."""

from typing import Any

import sentry_sdk
from sentry_sdk import Scope

from corral.app import Corral
from corral.errors import JobCancelled, Postpone, Release, WaitForChildren
from corral.worker.context import BaseJobContext
from corral.worker.middleware import CallNext

_NOT_FAILED = (JobCancelled, Postpone, Release, WaitForChildren)


def instrument(app: Corral) -> None:
    """Report the errors of this app's handlers to Sentry; `sentry_sdk.init` is the program's own.

    An error is a warning while the job has attempts left, and an error when it was the last. Neither data
    nor results are sent.

    >>> app = Corral()
    >>> instrument(app)
    """
    app.middleware(report)


async def report(job: BaseJobContext[Any], call_next: CallNext) -> Any:
    """Run an attempt in a scope of its own; report what it raises."""
    with sentry_sdk.isolation_scope() as scope:
        scope.set_transaction_name(job.name, source="task")
        scope.set_tag("corral.queue", job.queue)
        scope.set_tag("corral.job", job.name)
        scope.set_context("job", {"id": job.id, "queue": job.queue, "name": job.name, "attempt": job.attempt})
        with sentry_sdk.start_transaction(op="queue.process", name=job.name, source="task"):
            try:
                return await call_next(job)
            except Exception as error:
                if not isinstance(error, _NOT_FAILED):
                    _capture(scope, job, error)
                raise


def _capture(scope: Scope, job: BaseJobContext[Any], error: Exception) -> None:
    has_more = job.attempt < job.options.attempts
    scope.set_level("warning" if has_more else "error")
    scope.capture_exception(error)
