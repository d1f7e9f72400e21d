"""WaitingReporter: what handlers report waits while Redis is unavailable."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from secrets import token_hex
from typing import Any, TypeVar

from corral.core.job import Claim
from corral.core.ports import Reporter
from corral.errors import JobCancelled, LockMissing, RedisError, RedisResponseError
from corral.worker.attempt import Attempt, RunningAttempt, moment
from corral.worker.config import WorkerConfig

T = TypeVar("T")
Call = Callable[[], Awaitable[T]]

LONGEST_DELAY_S = 1.0


@dataclass
class Turnstile:
    """Lets the waiting calls of one claim through one by one, in their order."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    calls: int = 0


class WaitingReporter:
    """A Reporter that repeats what fails because Redis is unavailable, while the claim's lock may hold.

    The calls of one claim keep their order. One whose reply was lost may have been applied; it is repeated
    with the same mark, so that no line or event is lost or written twice. A handler is told, by
    `LockMissing`, only when its lock is lost.
    """

    def __init__(self, reporter: Reporter, config: WorkerConfig, held: Callable[[], list[Attempt]]) -> None:
        self._reporter = reporter
        self._lock_ms = config.profile.lock_ms
        self._clock = config.clock
        self._delays = config.delays
        self._held = held
        self._waiting: dict[int, Turnstile] = {}
        """By the identity of the claim; empty while Redis is available."""
        self._marks = map(f"{token_hex(4)}-{{}}".format, count())

    async def progress(self, claim: Claim, value: Any) -> None:
        await self._send(claim, partial(self._reporter.progress, claim, value))

    async def log(self, claim: Claim, line: str, mark: str = "") -> int:
        return await self._send(claim, partial(self._reporter.log, claim, line, mark or next(self._marks)))

    async def emit(self, claim: Claim, step: str, data: Any, mark: str = "") -> None:
        await self._send(claim, partial(self._reporter.emit, claim, step, data, mark or next(self._marks)))

    async def children_results(
        self, claim: Claim, queue: str | None = None, name: str | None = None
    ) -> list[Any]:
        return await self._send(claim, partial(self._reporter.children_results, claim, queue, name))

    async def beat(self, stopping: bool = False) -> None:
        await self._reporter.beat(stopping)

    async def _send(self, claim: Claim, call: Call[T]) -> T:
        error: RedisError | None = None
        if id(claim) not in self._waiting:
            try:
                return await self._call(claim, call)
            except RedisError as failure:
                if isinstance(failure, RedisResponseError):
                    raise  # the same call would fail again
                error = failure
        turnstile = self._waiting.setdefault(id(claim), Turnstile())
        turnstile.calls += 1
        try:
            async with turnstile.lock:
                return await self._repeat(claim, call, error)
        finally:
            turnstile.calls -= 1
            if turnstile.calls == 0:
                del self._waiting[id(claim)]

    async def _repeat(self, claim: Claim, call: Call[T], error: RedisError | None) -> T:
        tries = 0
        while True:
            if error is not None:
                await asyncio.sleep(min(self._delays(tries), self._left(claim, error), LONGEST_DELAY_S))
                tries += 1
            try:
                return await self._call(claim, call)
            except RedisError as failure:
                if isinstance(failure, RedisResponseError):
                    raise
                error = failure

    def _left(self, claim: Claim, error: RedisError) -> float:
        """Return for how many seconds the lock may hold; raise if it is lost."""
        attempt = self._attempt(claim)
        if attempt is None or attempt.context.lost:
            raise LockMissing(claim.job.id) from error
        left = self._lock_ms - moment(self._clock).since(attempt.locked_at)
        if left <= 0:
            raise LockMissing(claim.job.id, "Redis was unavailable until its lock had expired") from error
        return left / 1000

    async def _call(self, claim: Claim, call: Call[T]) -> T:
        try:
            return await call()
        except JobCancelled:
            # the server knows it before the heartbeat does
            if (attempt := self._attempt(claim)) is not None:
                attempt.context.cancel_requested = True
            raise

    def _attempt(self, claim: Claim) -> RunningAttempt | None:
        for attempt in self._held():
            if attempt.claim is claim and isinstance(attempt, RunningAttempt):
                return attempt
        return None
