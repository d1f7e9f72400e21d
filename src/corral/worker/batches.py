"""Batches: several jobs of one handler that it runs in one call, each with a settlement of its own."""

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from msgspec import Struct

from corral.core.outcome import Completed, Dead
from corral.worker.attempt import Attempt, RunningAttempt
from corral.worker.handlers import Handler, HandlerKind
from corral.worker.processes.errors import RemoteError
from corral.worker.settling import Settler, completed
from corral.worker.thread_runner import ProcessAttempt, ThreadRunner


class Batch(Struct, eq=False):
    """Attempts that begin together."""

    handler: Handler
    members: list[RunningAttempt]
    task: "asyncio.Task[None] | None" = None
    is_expired: bool = False
    """Whether it was cancelled because its timeout is over."""
    is_over: bool = False
    """Whether the call of the handler has ended; its members may have been settled before."""


class BatchRunner:
    """Runs batches: on the event loop, in a thread, or in a process; `freed` reports the end of one."""

    def __init__(self, settler: Settler, threads: ThreadRunner, freed: Callable[[], None]) -> None:
        self._settler = settler
        self._threads = threads
        self._freed = freed
        self._loop = asyncio.get_running_loop()
        self._batches: dict[Attempt, Batch] = {}
        """The running batch of each attempt."""

    def start(self, batch: Batch) -> None:
        """Run these attempts in one call."""
        now = perf_counter()
        for attempt in batch.members:
            attempt.started = now
            self._batches[attempt] = batch
        batch.task = self._loop.create_task(self._run(batch))

    def batch_of(self, attempt: Attempt) -> Batch | None:
        """Return the running batch that an attempt is in."""
        return self._batches.get(attempt)

    async def _run(self, batch: Batch) -> None:
        timer: asyncio.TimerHandle | None = None
        handler, members = batch.handler, batch.members
        if handler.timeout is not None and handler.kind is not HandlerKind.PROCESS:
            timer = self._loop.call_later(handler.timeout, self._expire, batch)
        try:
            self._end(members, await self._call(batch))
        except asyncio.CancelledError as error:
            self._cancelled(batch, error)
        except BaseException as error:
            self._failed(members, error)
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            if timer is not None:
                timer.cancel()
            batch.is_over = True
            for attempt in members:
                del self._batches[attempt]
            self._freed()

    async def _call(self, batch: Batch) -> Sequence[Any]:
        """Return what the handler returned: for each job its result, its outcome or an error."""
        contexts = [attempt.context for attempt in batch.members]
        outcomes: Sequence[Any]
        match batch.handler.kind:
            case HandlerKind.ASYNC:
                outcomes = await batch.handler.fn(contexts)
            case HandlerKind.SYNC:
                # a thread cannot be cancelled: the batch goes on until it has ended
                outcomes = await asyncio.shield(self._threads.call(lambda: batch.handler.fn(contexts)))
            case HandlerKind.PROCESS:
                outcomes = await asyncio.shield(self._threads.call_in_process(batch.handler, batch.members))
        return outcomes

    def _end(self, members: Sequence[RunningAttempt], outcomes: Sequence[Any]) -> None:
        for attempt, value in zip(members, outcomes, strict=True):
            seconds = attempt.seconds()
            if isinstance(value, BaseException):
                self._settler.fail(attempt, value, seconds)
            elif isinstance(value, RemoteError):
                self._settler.fail_remotely(attempt, value, seconds)
            elif isinstance(value, Completed | Dead):
                self._settler.end(attempt, value, seconds)
            else:
                self._settler.end(attempt, completed(attempt.claim.job, value), seconds)

    def _failed(self, members: Sequence[RunningAttempt], error: BaseException) -> None:
        for attempt in members:
            if isinstance(error, KeyboardInterrupt) or attempt.is_leaving:
                self._settler.release(attempt, attempt.seconds())
            else:
                self._settler.fail(attempt, error, attempt.seconds())

    def _cancelled(self, batch: Batch, error: asyncio.CancelledError) -> None:
        for attempt in batch.members:
            if batch.is_expired:
                self._settler.expire(attempt, attempt.seconds())
            elif attempt.is_leaving:
                self._settler.release(attempt, attempt.seconds())
            else:
                self._settler.fail(attempt, error, attempt.seconds())

    def _expire(self, batch: Batch) -> None:
        """End an async batch; a thread goes on with its slot, and what it returns is dropped."""
        batch.is_expired = True
        for attempt in batch.members:
            attempt.context.cancel()
            if batch.handler.kind is HandlerKind.SYNC:
                self._settler.expire(attempt, attempt.seconds())
        if batch.handler.kind is HandlerKind.ASYNC and batch.task is not None:
            batch.task.cancel()

    def stop(self, attempt: RunningAttempt, batch: Batch) -> None:
        """End the batch of an attempt; a thread cannot be ended, so its jobs are released while it runs."""
        attempt.context.cancel()
        if isinstance(attempt, ProcessAttempt):
            attempt.context.kill()
        elif batch.handler.kind is HandlerKind.ASYNC and batch.task is not None:
            batch.task.cancel()
        else:
            self._settler.release(attempt, attempt.seconds())
