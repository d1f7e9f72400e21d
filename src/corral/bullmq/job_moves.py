"""Where a job can be moved by whoever holds it, or holds nothing at all."""

import random
from typing import Any

from corral.bullmq.error_code import ErrorCode
from corral.bullmq.errors import code_of, raised, told
from corral.bullmq.job_fields import JobFields, parent_key
from corral.bullmq.options import core_options, encode_data
from corral.core import job as core
from corral.core.backoff import BackoffRule
from corral.core.job import Claim
from corral.core.outcome import (
    Completed,
    Dead,
    Outcome,
    Postponed,
    Released,
    Retry,
    RetryPolicy,
    Settlement,
    WaitingChildren,
    decide,
    reason_of,
)
from corral.core.ports import Profile
from corral.errors import NoPendingChildren
from corral.protocols.bullmq.broker import BullmqBroker
from corral.worker.results import trace_of
from corral.worker.worker import wall_clock

NextJobData = list[Any]
"""[fields of the next job or None, its id, ms the queue is limited for, when a delayed job is due]"""


def policy(rule: BackoffRule | None) -> RetryPolicy:
    """5.62.0's: everything is tried again but what says otherwise, and no delay is cut short."""
    return RetryPolicy(classify=None, cap=None, backoff_rule=rule, random=random.random)


class Moves(JobFields):
    """A job on its way. A token is the lock a worker holds the job under: what a processor is given."""

    async def moveToCompleted(self, return_value: Any, token: str, fetchNext: bool = False) -> NextJobData:
        """End the job with this result; with `fetchNext` the next one is claimed under the same token."""
        self.returnvalue = return_value
        at = await self._settle(Completed(encode_data(return_value, "result")), token, "moveToFinished")
        self.finishedOn = at
        self.attemptsMade += 1
        return await self._fetch(token, fetchNext)

    async def moveToFailed(self, err: BaseException, token: str, fetchNext: bool = False) -> NextJobData:
        """End this attempt with an error: the job's options say whether there is another."""
        outcome = self._failure(err)
        self.failedReason = outcome.reason
        command = "moveToFinished"
        if isinstance(outcome, Retry):
            command = "moveToDelayed" if outcome.delay else "retryJob"
        at = await self._settle(outcome, token, command)
        if isinstance(outcome, Retry):
            self.delay = outcome.delay or self.delay
        else:
            self.finishedOn = at
        self.attemptsMade += 1
        self.remember(outcome.trace)
        return await self._fetch(token, fetchNext)

    def _failure(self, error: BaseException) -> Retry | Dead:
        settings = self.queue.opts.get("settings") or {}
        strategy = settings.get("backoffStrategy")
        rule = None if strategy is None else lambda made, kind, err, _: int(strategy(made, kind, err, self))
        outcome = decide(self._as_core(), error, trace_of(error), policy(rule))
        if isinstance(outcome, Retry) and not self.discarded:
            return outcome
        return Dead(reason_of(error), trace_of(error))

    def remember(self, trace: str) -> None:
        """One more stack trace, of as many as the job wants kept."""
        limit = self.opts.get("stackTraceLimit")
        traces = [*self.stacktrace, trace] if trace else self.stacktrace
        self.stacktrace = traces if limit is None else traces[-limit:] if limit else []

    async def moveToDelayed(self, timestamp: int, token: str) -> None:
        """Put the job off until `timestamp`, no attempt spent; then raise `DelayedError`."""
        delay = max(int(timestamp) - wall_clock(), 0)
        await self._settle(Postponed(delay), token, "moveToDelayed")
        self.delay = delay

    async def moveToWait(self, token: str) -> None:
        """Give the job back to the head of the queue, no attempt spent; then raise `WaitingError`."""
        await self._settle(Released(), token, "moveJobFromActiveToWait")

    async def moveToWaitingChildren(self, token: str, opts: dict[str, Any] | None = None) -> bool:
        """Set the job aside until its children (or the one in `opts`) have ended; then raise
        `WaitingChildrenError`. False where there is none to wait for: the processor goes on."""
        child = parent_key((opts or {}).get("child"))
        if child is not None and not await self._is_pending(child):
            return False
        try:
            await self._settle(WaitingChildren(), token, "moveToWaitingChildren")
        except NoPendingChildren:
            return False
        return True

    async def _is_pending(self, child: str) -> bool:
        pending = self.queue.toKey(f"{self.key}:dependencies")
        return bool(await self.queue.store.call("SISMEMBER", pending, child))

    async def extendLock(self, token: str, duration: int) -> int:
        """Hold the job for `duration` ms from now; 1, or 0 where it is not held under this token."""
        binding = self.queue.binding(Profile(name="", lock_ms=duration))
        extension = await BullmqBroker(binding).extend([Claim(self._as_core(), token)])
        return 0 if extension.lost else 1

    async def promote(self) -> None:
        """Let a delayed job run now."""
        if not await self.queue.operator.promote([self.key]):
            raise raised(ErrorCode.JobNotInState, "promote", job=self.key, state="delayed")
        self.delay = 0

    async def retry(self, state: str = "failed", opts: dict[str, Any] | None = None) -> None:
        """Put a job that has failed (or `completed`) back in the queue."""
        reset = opts or {}
        found = await self.queue.inspector.wire_state(self.key)
        if found != state:
            is_there = await self.queue.store.call("EXISTS", self.queue.toKey(self.key))
            code = ErrorCode.JobNotInState if is_there else ErrorCode.JobNotExist
            raise raised(code, "reprocessJob", job=self.key, state=state)
        fields = [field for option, field in _RESETS if reset.get(option)]
        if fields:
            flat = [word for field in fields for word in (field, 0)]
            await self.queue.store.call("HSET", self.queue.toKey(self.key), *flat)
        if not await self.queue.operator.retry([self.key]):
            raise raised(ErrorCode.JobNotInState, "reprocessJob", job=self.key, state=state)
        self.failedReason = self.finishedOn = self.processedOn = self.returnvalue = None
        self.attemptsMade = 0 if reset.get("resetAttemptsMade") else self.attemptsMade
        self.attemptsStarted = 0 if reset.get("resetAttemptsStarted") else self.attemptsStarted

    async def changeDelay(self, delay: int) -> None:
        """Let a delayed job be due in `delay` ms from now."""
        with told("changeDelay", job=self.key, state="delayed"):
            await self.queue.operator.change_delay(self.key, delay)
        self.delay = delay

    async def changePriority(self, opts: dict[str, Any]) -> None:
        """Give the job another `priority`, and where it waits another place; `lifo`: before its equals."""
        priority = opts.get("priority") or 0
        with told("changePriority", job=self.key):
            await self.queue.operator.change_priority(self.key, priority, bool(opts.get("lifo")))
        self.priority = priority

    # -- by the engine --------------------------------------------------------------------------------------

    async def _settle(self, outcome: Outcome, token: str, command: str) -> int:
        """Write down how this attempt ended; when that was."""
        at = wall_clock()
        settlement = Settlement(Claim(self._as_core(), token), outcome, at)
        turn = await self.queue.broker().turn([settlement], 0)
        verdict = turn.verdicts[0]
        if verdict is not None:
            code = code_of(verdict)
            raise verdict if code is None else raised(code, command, job=self.key) from verdict
        return at

    async def _fetch(self, token: str, wanted: bool) -> NextJobData:
        if not wanted:
            return [None, None, None, None]
        return await self.queue.next_job_data(token)

    def _as_core(self) -> core.Job:
        return core.Job(
            id=self.key,
            name=self.name,
            data=None,
            queue=self.queue.name,
            options=core_options(self.opts),
            attempt=self.attemptsMade,
            started_at=self.processedOn or None,
            trace=tuple(self.stacktrace),
            extra={"parentKey": (self.parentKey or "").encode()},
        )


_RESETS = (("resetAttemptsMade", "atm"), ("resetAttemptsStarted", "ats"))
