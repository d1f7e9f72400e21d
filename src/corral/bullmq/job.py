"""Job: what producers get back, and what processors are given."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Self

import orjson

from corral.bullmq.error_code import ErrorCode, code_of, raised, told
from corral.bullmq.job_fields import JobFields, parent_key
from corral.bullmq.options import core_options, encode_data, long_options
from corral.bullmq.queue_base import QueueBase
from corral.bullmq.queue_events import QueueEvents
from corral.core import job as core
from corral.core import payload
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
from corral.core.retry import BackoffRule
from corral.errors import NoPendingChildren
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.children import KINDS
from corral.worker.results import trace_of
from corral.worker.worker import wall_clock

NextJobData = list[Any]
"""[fields of the next job or None, its id, ms the queue is limited for, when a delayed job is due]"""


def policy(rule: BackoffRule | None) -> RetryPolicy:
    """5.62.0's: everything is tried again but what says otherwise, and no delay is cut short."""
    return RetryPolicy(classify=None, cap=None, backoff_rule=rule, random=random.random)


_RESETS = (("resetAttemptsMade", "atm"), ("resetAttemptsStarted", "ats"))


class Job(JobFields):
    """One unit of work.

    >>> job = await queue.add("send", {"to": "a@b.c"})               # doctest: +SKIP
    >>> await job.getState()                                         # doctest: +SKIP
    'waiting'
    """

    @classmethod
    async def fromId(cls, queue: QueueBase, jobId: str) -> Self | None:
        """The job as it stands now; None where there is none."""
        if not jobId:
            return None
        raw = await queue.read(str(jobId))
        return None if raw is None else cls.fromJSON(queue, raw, str(jobId))

    # -- words ----------------------------------------------------------------------------------------------

    async def updateData(self, data: Any) -> None:
        """Give the job other data."""
        self.data = data
        with told("updateData", job=self.key):
            await self.queue.operator.update_data(self.key, orjson.Fragment(encode_data(data)))

    async def updateProgress(self, progress: Any) -> None:
        """Say how far the job is: a number, or anything JSON carries."""
        self.progress = progress
        with told("updateProgress", job=self.key):
            encoded = orjson.Fragment(encode_data(progress, "progress"))
            await self.queue.operator.update_progress(self.key, encoded)
        self.queue.emit("progress", self, progress)

    async def log(self, logRow: str) -> int:
        """Append a line to the job's log; how many lines it has now."""
        return await self.addJobLog(self.queue, self.key, logRow, self.opts.get("keepLogs") or 0)

    @staticmethod
    async def addJobLog(queue: QueueBase, jobId: str, logRow: str, keepLogs: int = 0) -> int:
        """Append a line to the log of the job with this id; how many lines it has now."""
        with told("addLog", job=jobId):
            return await queue.operator.add_log(jobId, str(logRow), keepLogs or None)

    async def clearLogs(self, keepLogs: int = 0) -> None:
        """Delete the job's log, all but the last `keepLogs` lines."""
        await self.queue.operator.clear_log(self.key, keepLogs)

    async def remove(self, opts: Mapping[str, Any] | None = None) -> None:
        """Delete the job, with its children unless `{"removeChildren": False}`."""
        with told("removeJob", job=self.key):
            children = bool((opts or {}).get("removeChildren", True))
            removed = await self.queue.operator.remove_job(self.key, children)
        if not removed:
            raise Exception(f"Job {self.id} could not be removed because it is locked by another worker")
        self.queue.emit("removed", self)

    def discard(self) -> None:
        """No other attempt after this one, should it fail."""
        self.discarded = True

    # -- states ---------------------------------------------------------------------------------------------

    async def getState(self) -> str:
        """`waiting`, `active`, `completed`, `failed`, `delayed`, `prioritized`, `waiting-children`; `unknown`
        where the job is gone."""
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
        """Does it wait, in a queue that is paused or not?"""
        return await self.isInList("wait") or await self.isInList("paused")

    async def isInZSet(self, set: str) -> bool:
        return await self.queue.store.call("ZSCORE", self.queue.toKey(set), self.key) is not None

    async def isInList(self, list_name: str) -> bool:
        return await self.queue.store.call("LPOS", self.queue.toKey(list_name), self.key) is not None

    async def waitUntilFinished(self, queueEvents: QueueEvents, ttl: float | None = None) -> Any:
        """The job's result when it has completed; an Exception with its reason when it has failed.

        TimeoutError after `ttl` ms. What has ended before is told at once.
        """
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def completed(args: dict[str, Any], _: str) -> None:
            if not ended.done():
                ended.set_result(args.get("returnvalue"))

        def failed(args: dict[str, Any], _: str) -> None:
            if not ended.done():
                ended.set_exception(Exception(args.get("failedReason")))

        heard = {f"completed:{self.id}": completed, f"failed:{self.id}": failed}
        for event, callback in heard.items():
            queueEvents.on(event, callback)
        try:
            async with asyncio.timeout(ttl / 1000 if ttl else None):
                # from here on every event is heard, so what ended before is seen by this one look
                await queueEvents.waitUntilReady()
                await self._look_ended(ended)
                return await ended
        except TimeoutError:
            raise TimeoutError(
                f"Job wait {self.name} timed out before finishing, "
                f"no finish notification arrived after {ttl}ms (id={self.id})"
            ) from None
        finally:
            for event, callback in heard.items():
                queueEvents.off(event, callback)

    async def _look_ended(self, ended: "asyncio.Future[Any]") -> None:
        found = await self.queue.inspector.ended(self.key)
        if ended.done():
            return
        if found is None:
            ended.set_exception(Exception(f"Missing key for job {self.queue.toKey(self.key)}. isFinished"))
        elif found.state == "completed":
            ended.set_result(found.value)
        elif found.state == "failed":
            ended.set_exception(Exception(found.value))

    # -- moves ------------------------------------------------------------------------------------------

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
            attempts_made=self.attemptsMade,
            started_at=self.processedOn or None,
            trace=tuple(self.stacktrace),
            extra={"parentKey": (self.parentKey or "").encode()},
        )

    # -- children ---------------------------------------------------------------------------------------

    async def getChildrenValues(self) -> dict[str, Any]:
        """The results of the children that completed."""
        return await self.queue.inspector.children_values(self.key)

    async def getIgnoredChildrenFailures(self) -> dict[str, str]:
        """Why children failed that this job goes on without."""
        return await self.queue.inspector.ignored_failures(self.key)

    async def getFailedChildrenValues(self) -> dict[str, str]:
        """Another name of `getIgnoredChildrenFailures`."""
        return await self.getIgnoredChildrenFailures()

    async def getDependencies(self, opts: dict[str, Any] | None = None) -> dict[str, Any]:
        """The children: completed with results, unprocessed, failed, and ignored with reasons.

        With `opts` a page of each kind that is named there, as `{"processed": {"cursor": 0, "count": 20}}`,
        and where the next page begins.
        """
        given = opts or {}
        asked = {kind: given[kind] for kind in KINDS if given.get(kind) not in (None, False)}
        if not asked:
            children = await self.queue.inspector.children(self.key)
            return {kind: getattr(children, kind) for kind in KINDS}
        found: dict[str, Any] = {}
        for kind, page in asked.items():
            wanted = {"cursor": 0, "count": 20, **(page if isinstance(page, dict) else {})}
            answer = await self.queue.inspector.children_page(self.key, kind, **wanted)
            named = kind in ("processed", "ignored")
            found[kind] = answer.children if named else list(answer.children)
            found[f"next{kind.capitalize()}Cursor"] = answer.cursor
        return found

    async def getDependenciesCount(self, opts: dict[str, Any] | None = None) -> dict[str, int]:
        """How many children of each kind there are; `opts` names the kinds."""
        asked = [kind for kind in KINDS if (opts or {}).get(kind)] or list(KINDS)
        return await self.queue.inspector.children_counts(self.key, asked)

    async def removeChildDependency(self) -> bool:
        """Let the parent wait for this job no more; False where it did not."""
        if self.parentKey is None:
            return False
        with told("removeChildDependency", job=self.key, parent=self.parentKey):
            done = await self.queue.operator.unbind(self.key, self.parentKey)
        if done:
            self.parent = self.parentKey = None
        return done

    async def removeUnprocessedChildren(self) -> None:
        """Delete the children that have not started."""
        await self.queue.operator.remove_unprocessed_children(self.key)


def optsFromJSON(rawOpts: dict[str, Any]) -> dict[str, Any]:
    """Options in the names people write, from those of the wire."""
    return long_options(rawOpts)


def getReturnValue(value: Any) -> Any:
    """What the JSON says; of what is none, the text itself."""
    found = payload.decode(value) if isinstance(value, str | bytes) else value
    return value if isinstance(found, dict) and "_raw" in found else found
