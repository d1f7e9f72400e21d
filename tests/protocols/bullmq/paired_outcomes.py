"""The outcome of a claimed job, as our value and as Node's call."""

from typing import Any

import orjson
from msgspec.structs import replace

from corral.core.job import Job
from corral.core.outcome import Completed, Outcome, Postponed, Released, RetryPolicy, decide
from corral.errors import Unrecoverable
from tests.support.node import Node

AS_BULLMQ = RetryPolicy(classify=None, cap=None)
"""Everything is retried but what is unrecoverable, and no delay is capped."""


class PairedOutcome:
    """One job's outcome, as our value and as Node's call."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id

    def outcome(self, job: Job) -> Outcome:
        raise NotImplementedError

    async def in_node(self, node: Node, token: str, fetch: bool) -> dict[str, Any] | None:
        """Settle it; the next job where one was fetched with it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.job_id!r})"


class Done(PairedOutcome):
    """The handler returned a value; without one, JavaScript's undefined."""

    def __init__(self, job_id: str, *result: Any) -> None:
        super().__init__(job_id)
        self.result = result

    def outcome(self, job: Job) -> Outcome:
        return Completed(orjson.dumps(self.result[0])) if self.result else Completed()

    async def in_node(self, node: Node, token: str, fetch: bool) -> dict[str, Any] | None:
        value = {"result": self.result[0]} if self.result else {"hasResult": False}
        following: dict[str, Any] | None = await node(
            "moveToCompleted", worker="node-worker", id=self.job_id, token=token, fetchNext=fetch, **value
        )
        return following


class Failed(PairedOutcome):
    """The handler raised; each side's own policy decides what follows."""

    def __init__(self, job_id: str, reason: str = "no luck", trace: str = "Error: no luck\n    at work",
                 unrecoverable: bool = False) -> None:  # fmt: skip
        super().__init__(job_id)
        self.reason, self.trace, self.unrecoverable = reason, trace, unrecoverable

    def outcome(self, job: Job) -> Outcome:
        error = Unrecoverable(self.reason) if self.unrecoverable else RuntimeError(self.reason)
        outcome = decide(job, error, self.trace, AS_BULLMQ)
        # an empty message is named after its type by us; what is written of one is still to be compared
        return replace(outcome, reason=self.reason)

    async def in_node(self, node: Node, token: str, fetch: bool) -> dict[str, Any] | None:
        error = {"message": self.reason, "stack": self.trace, "unrecoverable": self.unrecoverable}
        following: dict[str, Any] | None = await node(
            "moveToFailed", worker="node-worker", id=self.job_id, token=token, fetchNext=fetch, error=error
        )
        return following


class Postpone(PairedOutcome):
    """The handler postponed the job; no attempt is spent."""

    def __init__(self, job_id: str, delay: int, now: int) -> None:
        super().__init__(job_id)
        self.delay, self.now = delay, now

    def outcome(self, job: Job) -> Outcome:
        return Postponed(self.delay)

    async def in_node(self, node: Node, token: str, fetch: bool) -> dict[str, Any] | None:
        await node("claimed", worker="node-worker", id=self.job_id, method="moveToDelayed",
                   args=[self.now + self.delay, token])  # fmt: skip
        return None


class Release(PairedOutcome):
    """The job was released to the queue; no attempt is spent."""

    def outcome(self, job: Job) -> Outcome:
        return Released()

    async def in_node(self, node: Node, token: str, fetch: bool) -> dict[str, Any] | None:
        await node("claimed", worker="node-worker", id=self.job_id, method="moveToWait", args=[token])
        return None
