"""Job: returned to producers and passed to processors."""

import asyncio
import random
import sys
from collections.abc import Mapping
from typing import Any, Self

import orjson
from msgspec.structs import asdict

from corral.bullmq.error_code import ErrorCode, official_error, official_errors
from corral.bullmq.job_fields import JobFields, parent_key
from corral.bullmq.job_fields import getReturnValue as getReturnValue
from corral.bullmq.options import core_options, encode_data, long_options
from corral.bullmq.queue_base import NextJobData, QueueBase
from corral.bullmq.queue_events import QueueEvents
from corral.core.job import Claim
from corral.core.job import Job as CoreJob
from corral.core.outcome import (
    Completed,
    Dead,
    Outcome,
    Postponed,
    Released,
    Retry,
    RetryPolicy,
    Settlement,
    decide,
    reason_of,
)
from corral.core.ports import Profile
from corral.core.retry import BackoffRule, UnknownBackoff
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.flows.children import KINDS
from corral.worker.settling import trace_of


def retry_policy(rule: BackoffRule | None) -> RetryPolicy:
    """Return BullMQ's policy: every error but `UnrecoverableError` is retried, and no delay is shortened."""
    return RetryPolicy(classify=None, cap=None, backoff_rule=rule, random=random.random)


class StrategyRule:
    """The `backoffStrategy` of a queue's object, for one job; an error in it leaves the job as it is."""

    def __init__(self, job: "Job") -> None:
        self._job = job
        self.failure: Exception | None = None

    def __call__(self, made: int, kind: str, error: BaseException, _: CoreJob) -> int:
        strategy = (self._job.queue.opts.get("settings") or {}).get("backoffStrategy")
        try:
            if strategy is None:
                raise Exception(
                    f"Unknown backoff strategy {kind}. "
                    f"If a custom backoff strategy is used, specify it when the queue is created."
                )
            return int(strategy(made, kind, error, self._job))
        except Exception as failure:
            self.failure = failure
            raise UnknownBackoff(str(failure)) from failure


class Job(JobFields):
    """One job.

    >>> job = await queue.add("send", {"to": "a@b.c"})               # doctest: +SKIP
    >>> await job.getState()                                         # doctest: +SKIP
    'waiting'
    """

    @classmethod
    async def fromId(cls, queue: QueueBase, jobId: str) -> Self | None:
        """Return the job as it is now; None if there is none."""
        if not jobId:
            return None
        fields = await queue.read(str(jobId))
        return None if fields is None else cls.fromJSON(queue, fields, str(jobId))

    # -- data, progress, log --------------------------------------------------------------------------------

    async def updateData(self, data: Any) -> None:
        """Replace the job's data."""
        self.data = data
        with official_errors("updateData", job=self.key):
            await self.queue.operator.update_data(self.key, orjson.Fragment(encode_data(data)))

    async def updateProgress(self, progress: Any) -> None:
        """Set the job's progress: a number, or anything JSON can represent."""
        self.progress = progress
        with official_errors("updateProgress", job=self.key):
            encoded = orjson.Fragment(encode_data(progress, "progress"))
            await self.queue.operator.update_progress(self.key, encoded)
        self.queue.emit("progress", self, progress)

    async def log(self, logRow: str) -> int:
        """Append a line to the job's log; return the number of lines."""
        return await self.addJobLog(self.queue, self.key, logRow, self.opts.get("keepLogs") or 0)

    @staticmethod
    async def addJobLog(queue: QueueBase, jobId: str, logRow: str, keepLogs: int = 0) -> int:
        """Append a line to the log of the job with this id; return the number of lines."""
        with official_errors("addLog", job=jobId):
            return await queue.operator.add_log(jobId, str(logRow), keepLogs or None)

    async def clearLogs(self, keepLogs: int = 0) -> None:
        """Delete all lines of the job's log but the last `keepLogs`."""
        await self.queue.operator.clear_log(self.key, keepLogs)

    async def remove(self, opts: Mapping[str, Any] | None = None) -> None:
        """Delete the job, with its children unless `{"removeChildren": False}`."""
        with official_errors("removeJob", job=self.key):
            children = bool((opts or {}).get("removeChildren", True))
            removed = await self.queue.operator.remove_job(self.key, children)
        if not removed:
            raise Exception(f"Job {self.id} could not be removed because it is locked by another worker")
        self.queue.emit("removed", self)

    def discard(self) -> None:
        """Allow no attempt after the one that runs."""
        self.discarded = True

    # -- states ---------------------------------------------------------------------------------------------

    async def getState(self) -> str:
        """Return `waiting`, `active`, `completed`, `failed`, `delayed`, `prioritized`, `waiting-children`, or
        `unknown` if the job is gone."""
        return await self.queue.inspector.wire_state(self.key)

    async def isCompleted(self) -> bool:
        return await self.isInZSet("completed")

    async def isFailed(self) -> bool:
        return await self.isInZSet("failed")

    async def isDelayed(self) -> bool:
        return await self.isInZSet("delayed")

    async def isPrioritized(self) -> bool:
        return await self.isInZSet("prioritized")

    async def isWaitingChildren(self) -> bool:
        return await self.isInZSet("waiting-children")

    async def isActive(self) -> bool:
        return await self.isInList("active")

    async def isWaiting(self) -> bool:
        """Return whether the job waits, in a paused queue or not."""
        return await self.isInList("wait") or await self.isInList("paused")

    async def isInZSet(self, set: str) -> bool:
        return await self.queue.store.call("ZSCORE", self.queue.toKey(set), self.key) is not None

    async def isInList(self, list_name: str) -> bool:
        return await self.queue.store.call("LPOS", self.queue.toKey(list_name), self.key) is not None

    async def waitUntilFinished(self, queueEvents: QueueEvents, ttl: float | None = None) -> Any:
        """Wait until the job has ended; return its result, or raise an Exception with its reason.

        TimeoutError after `ttl` ms. Returns at once if the job ended before the call.
        """
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def finish(state: str, value: Any) -> None:
            if ended.done():
                return
            if state == "completed":
                ended.set_result(value)
            else:
                ended.set_exception(Exception(value))

        callbacks = {
            f"completed:{self.id}": lambda args, _: finish("completed", args.get("returnvalue")),
            f"failed:{self.id}": lambda args, _: finish("failed", args.get("failedReason")),
        }
        for event, callback in callbacks.items():
            queueEvents.on(event, callback)
        try:
            async with asyncio.timeout(ttl / 1000 if ttl else None):
                # every later event is received from here on, so one read finds what ended before
                await queueEvents.waitUntilReady()
                final = await self.queue.inspector.result(self.key)
                if final is not None and final.state is not None:
                    finish(final.state, final.value)
                elif final is None and not ended.done():
                    raise Exception(f"Missing key for job {self.queue.toKey(self.key)}. isFinished")
                return await ended
        except TimeoutError:
            raise TimeoutError(
                f"Job wait {self.name} timed out before finishing, "
                f"no finish notification arrived after {ttl}ms (id={self.id})"
            ) from None
        finally:
            for event, callback in callbacks.items():
                queueEvents.off(event, callback)

    # -- settled under the token of a claim -----------------------------------------------------------------

    async def moveToCompleted(self, return_value: Any, token: str, fetchNext: bool = False) -> NextJobData:
        """End the job with this result; with `fetchNext` claim the next one under the same token."""
        self.returnvalue = return_value
        outcome = Completed(encode_data(return_value, "result"))
        self.finishedOn = await self._settle(outcome, token, "moveToFinished")
        self.attemptsMade += 1
        return await self._fetch_next(token, fetchNext)

    async def moveToFailed(
        self, err: BaseException, token: str, fetchNext: bool = False
    ) -> NextJobData | None:
        """End this attempt with an error; the job's options decide whether there is another.

        Returns None where there is: only a job that has failed makes room for the next one. Where its
        backoff needs a `backoffStrategy` and there is none, that is raised and nothing is written.
        """
        outcome = self._failure(err)
        self.failedReason = outcome.reason
        if isinstance(outcome, Retry):
            await self._settle(outcome, token, "moveToDelayed" if outcome.delay else "retryJob")
            self.delay = outcome.delay or self.delay
        else:
            self.finishedOn = await self._settle(outcome, token, "moveToFinished")
        self.attemptsMade += 1
        self.add_trace(outcome.trace)
        return None if isinstance(outcome, Retry) else await self._fetch_next(token, fetchNext)

    def _failure(self, error: BaseException) -> Retry | Dead:
        trace = trace_of(error)
        if self.discarded:
            return Dead(reason_of(error), trace, type(error).__name__)
        rule = StrategyRule(self)
        outcome = decide(self._core_job(), error, trace, retry_policy(rule))
        if rule.failure is not None:
            raise rule.failure
        return outcome if isinstance(outcome, Retry) else Dead(reason_of(error), trace, type(error).__name__)

    def add_trace(self, trace: str) -> None:
        """Append a stack trace; keep as many as the option `stackTraceLimit` allows."""
        limit = self.opts.get("stackTraceLimit")
        traces = [*self.stacktrace, trace] if trace else self.stacktrace
        self.stacktrace = traces if limit is None else traces[-limit:] if limit else []

    def updateStacktrace(self, error: BaseException | None = None) -> None:
        """Append the stack trace of an error, by default of the one that is being handled."""
        handled = error or sys.exc_info()[1]
        if handled is not None:
            self.add_trace(trace_of(handled))

    async def moveToDelayed(self, timestamp: int, token: str) -> None:
        """Delay the job until `timestamp` without spending an attempt; then raise `DelayedError`."""
        # the caller has read this machine's clock
        delay = max(int(timestamp) - self.queue.connection.clock.local(), 0)
        await self._settle(Postponed(delay), token, "moveToDelayed")
        self.delay = delay

    async def moveToWait(self, token: str) -> None:
        """Put the job back at the head of the queue without spending an attempt; then raise
        `WaitingError`."""
        await self._settle(Released(), token, "moveJobFromActiveToWait")

    async def moveToWaitingChildren(self, token: str, opts: dict[str, Any] | None = None) -> bool:
        """Let the job wait until its children (or `child` of `opts`) have ended; then raise
        `WaitingChildrenError`. False if there is none to wait for: the processor goes on."""
        child = parent_key((opts or {}).get("child")) or ""
        with official_errors("moveToWaitingChildren", job=self.key):
            return await self.queue.broker().await_children(Claim(self._core_job(), token), child)

    async def extendLock(self, token: str, duration: int) -> int:
        """Extend the lock to `duration` ms from now; return 1, or 0 if it is not held under this token."""
        binding = self.queue.binding(Profile(name="", lock_ms=duration))
        extension = await BullmqBroker(binding).extend([Claim(self._core_job(), token)])
        return 0 if extension.lost else 1

    async def _settle(self, outcome: Outcome, token: str, command: str) -> int:
        """Settle this attempt; return the time of its end."""
        now = self.queue.connection.clock()
        turn = await self.queue.broker().turn([Settlement(Claim(self._core_job(), token), outcome, now)], 0)
        verdict = turn.verdicts[0]
        if verdict is not None:
            with official_errors(command, job=self.key):
                raise verdict
        return now

    async def _fetch_next(self, token: str, fetch_next: bool) -> NextJobData:
        return await self.queue.next_job_data(token) if fetch_next else [None] * 4

    def _core_job(self) -> CoreJob:
        return CoreJob(
            id=self.key,
            name=self.name,
            data=None,
            queue=self.queue.name,
            options=core_options(self.opts),
            attempts_made=self.attemptsMade,
            started_at=self.processedOn or None,
            trace=tuple(self.stacktrace),
            worker=self.processedBy,
            extra={"parentKey": (self.parentKey or "").encode()},
        )

    # -- moved without a token ------------------------------------------------------------------------------

    async def promote(self) -> None:
        """Let a delayed job run now."""
        if not await self.queue.operator.promote([self.key]):
            raise official_error(ErrorCode.JobNotInState, "promote", job=self.key, state="delayed")
        self.delay = 0

    async def retry(self, state: str = "failed", opts: dict[str, Any] | None = None) -> None:
        """Put a `failed` (or `completed`) job back in the queue with the attempts it has made, or without
        them by `resetAttemptsMade` and `resetAttemptsStarted`."""
        reset = opts or {}
        if await self.queue.inspector.wire_state(self.key) != state:
            exists = await self.queue.store.call("EXISTS", self.queue.toKey(self.key))
            code = ErrorCode.JobNotInState if exists else ErrorCode.JobNotExist
            raise official_error(code, "reprocessJob", job=self.key, state=state)
        fields = {"resetAttemptsMade": "atm", "resetAttemptsStarted": "ats"}
        zeros = [part for option, field in fields.items() if reset.get(option) for part in (field, 0)]
        if zeros:
            await self.queue.store.call("HSET", self.queue.toKey(self.key), *zeros)
        if not await self.queue.operator.retry([self.key]):
            raise official_error(ErrorCode.JobNotInState, "reprocessJob", job=self.key, state=state)
        self.failedReason = self.finishedOn = self.processedOn = self.returnvalue = None
        self.attemptsMade = 0 if reset.get("resetAttemptsMade") else self.attemptsMade
        self.attemptsStarted = 0 if reset.get("resetAttemptsStarted") else self.attemptsStarted

    async def changeDelay(self, delay: int) -> None:
        """Make a delayed job due in `delay` ms from now."""
        await self.queue.connection.check_clock()
        with official_errors("changeDelay", job=self.key, state="delayed"):
            await self.queue.operator.change_delay(self.key, delay)
        self.delay = delay

    async def changePriority(self, opts: dict[str, Any]) -> None:
        """Set the job's `priority`; with `lifo` it runs before the jobs of the same priority."""
        priority = opts.get("priority") or 0
        with official_errors("changePriority", job=self.key):
            await self.queue.operator.change_priority(self.key, priority, bool(opts.get("lifo")))
        self.priority = priority

    # -- children, by their keys ----------------------------------------------------------------------------

    async def getChildrenValues(self) -> dict[str, Any]:
        """Return the results of the completed children."""
        return await self.queue.flows.children_values(self.key)

    async def getIgnoredChildrenFailures(self) -> dict[str, str]:
        """Return the reasons of the failed children that do not fail this job."""
        return await self.queue.flows.ignored_failures(self.key)

    getFailedChildrenValues = getIgnoredChildrenFailures  # the name of earlier versions

    async def getDependencies(self, opts: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the children: processed with results, unprocessed, failed, and ignored with reasons.

        With `opts`, one page of each kind named there, as `{"processed": {"cursor": 0, "count": 20}}`, and
        the cursor of the next.
        """
        pages = {kind: page for kind in KINDS if (page := (opts or {}).get(kind)) not in (None, False)}
        if not pages:
            return asdict(await self.queue.flows.children(self.key))
        dependencies: dict[str, Any] = {}
        for kind, page in pages.items():
            span = {"cursor": 0, "count": 20, **(page if isinstance(page, dict) else {})}
            result = await self.queue.flows.children_page(self.key, kind, **span)
            has_values = kind in ("processed", "ignored")
            dependencies[kind] = result.children if has_values else list(result.children)
            dependencies[f"next{kind.capitalize()}Cursor"] = result.cursor
        return dependencies

    async def getDependenciesCount(self, opts: dict[str, Any] | None = None) -> dict[str, int]:
        """Return the number of children of each kind; `opts` names the kinds."""
        kinds = [kind for kind in KINDS if (opts or {}).get(kind)] or list(KINDS)
        return await self.queue.flows.children_counts(self.key, kinds)

    async def removeChildDependency(self) -> bool:
        """Detach the job from its parent; False if the parent did not wait for it."""
        if self.parentKey is None:
            return False
        with official_errors("removeChildDependency", job=self.key, parent=self.parentKey):
            removed = await self.queue.flows.remove_parent(self.key, self.parentKey)
        if removed:
            self.parent = self.parentKey = None
        return removed

    async def removeUnprocessedChildren(self) -> None:
        """Delete the children that have not started."""
        await self.queue.flows.remove_unprocessed(self.key)


def optsFromJSON(rawOpts: dict[str, Any]) -> dict[str, Any]:
    """Return options of the wire in the names that users write."""
    return long_options(rawOpts)
