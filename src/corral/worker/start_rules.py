"""StartRules: when claimed jobs begin, in a worker whose handlers have batches, a concurrency or a limit."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from time import monotonic

from msgspec import Struct, field

from corral.core.outcome import Postponed
from corral.core.ports import StartLimiter
from corral.errors import RedisError
from corral.telemetry.logs import logger
from corral.worker.attempt import Attempt, LockAge, Moment, RunningAttempt, moment
from corral.worker.batches import Batch
from corral.worker.config import WorkerConfig
from corral.worker.handlers import Handler
from corral.worker.settling import Settler
from corral.worker.thread_runner import ThreadAttempt

PATIENCE_S = 1.0
"""How long a claimed job waits in the worker for its handler, without a slot, before it is postponed; at once
where the handler is known to take longer."""
SHORTEST_PACE_S = 0.010
"""Between two jobs that were postponed for the same handler."""
LONGEST_POSTPONEMENT_S = 600.0
RETRY_S = 1.0
"""Between two tries to count what begins, while Redis is unavailable."""

Unit = RunningAttempt | Batch
"""What takes a slot: a job, or a batch of them."""


class Places(Struct, eq=False):
    """The jobs of one handler: those that wait, and what runs."""

    handler: Handler
    running: list[Unit] = field(default_factory=list)
    waiting: deque[Unit] = field(default_factory=deque)
    """For a place, or a slot of the worker."""
    open: Batch | None = None
    """The batch that is being filled."""
    timer: asyncio.TimerHandle | None = None
    limited: deque[RunningAttempt] = field(default_factory=deque)
    """For the handler's limit."""
    counting: "asyncio.Task[None] | None" = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when more jobs wait for the limit."""
    mean_s: float | None = None
    """How long a call takes."""
    horizon: float = 0.0
    """Until when places are promised to jobs that were postponed, by `monotonic`."""

    @property
    def expected_s(self) -> float:
        """How long a call takes, as far as is known: what those took that ended, or run since."""
        running = [first.seconds() for unit in self.running if (first := _attempts(unit)[0]).started]
        return max([self.mean_s or 0.0, *running])

    @property
    def left(self) -> float:
        """How many more may run."""
        most = self.handler.concurrency
        return inf if most is None else most - len(self.running)

    @property
    def wanted(self) -> int:
        """How many slots those that wait will take, as far as the handler's concurrency allows."""
        return int(min(len(self.waiting) + (self.open is not None), max(self.left, 0)))

    @property
    def claimable(self) -> float:
        """How many calls of the handler may begin besides those that wait for it."""
        return 0 if self.limited else max(self.left - self.wanted, 0)


class StartRules:
    """Starts attempts when there is a slot of the worker, and a place of their handler.

    `is_held` says that an attempt is not settled yet. `begin` and `begin_batch` start attempts, `late` renews
    attempts whose locks are too old before it admits them again, `wake` is called when there may be more to
    claim.
    """

    def __init__(
        self,
        config: WorkerConfig,
        settler: Settler,
        lock_age: LockAge,
        limiter: StartLimiter | None,
        *,
        is_held: Callable[[Attempt], bool],
        begin: Callable[[Sequence[Attempt], Moment], None],
        begin_batch: Callable[[Batch], None],
        late: Callable[[Sequence[RunningAttempt]], None],
        wake: Callable[[], None],
    ) -> None:
        self._concurrency = config.concurrency
        self._has_delays = config.has_delays
        self._clock = config.clock
        self._log = logger("start_rules", queue=config.queue)
        self._settler = settler
        self._lock_age = lock_age
        self._limiter = limiter
        self._is_held = is_held
        self._begin = begin
        self._begin_batch = begin_batch
        self._late = late
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._places = {handler.name: Places(handler) for handler in config.handlers.all}
        self._is_stopping = False
        handlers = config.handlers.all
        self._only_batch = handlers[0].batch if len(handlers) == 1 else None
        """The batches of the only handler: all that is claimed belongs to them."""
        self.most_claims = max((handler.batch.most for handler in handlers if handler.batch), default=1)
        """How many jobs one trip may claim even where handlers are slow: a whole batch."""

    # -- how much to claim --------------------------------------------------------------------------------

    def claimable(self) -> int:
        """Return how many jobs may be claimed, whichever handlers they are for."""
        places = self._places.values()
        for each in places:
            self._forget_ended(each)
        slots = self._concurrency - sum([len(each.running) + each.wanted for each in places])
        # what no handler could begin is left to other workers
        slots = int(min(slots, sum([each.claimable for each in places])))
        waiting = sum([len(each.waiting) + len(each.limited) for each in places])
        if waiting >= self._concurrency:
            slots = 0
        free = sum([self._free(each) for each in places])
        if self._only_batch is not None:
            return max(slots, 0) * self._only_batch.most + free
        # another handler's job would have to wait until a slot is free: one of them at most
        return max(slots, 1 if free and not waiting else 0)

    @staticmethod
    def _free(places: Places) -> int:
        size = places.handler.batch
        return 0 if places.open is None or size is None else size.most - len(places.open.members)

    # -- what begins --------------------------------------------------------------------------------------

    def admit(self, attempts: Iterable[Attempt]) -> None:
        """Start these as soon as they may begin; those that have a place already begin now."""
        touched: dict[str, Places] = {}
        for attempt in attempts:
            if not isinstance(attempt, RunningAttempt):
                self._begin([attempt], attempt.locked_at)
                continue
            places = touched[attempt.handler.name] = self._places[attempt.handler.name]
            if self._is_stopping:
                self._settler.release(attempt)
            elif any(attempt is unit for unit in places.running):
                self._begin([attempt], attempt.locked_at)
            elif attempt.handler.limit is not None:
                places.limited.append(attempt)
                places.arrived.set()
            else:
                self._pass(places, attempt)
        for places in touched.values():
            if places.limited and places.counting is None:
                places.counting = self._loop.create_task(self._count(places))
            if places.handler.batch is not None and places.handler.batch.linger == 0:
                self._close(places)
        self.advance()

    def _pass(self, places: Places, attempt: RunningAttempt) -> None:
        """Put an attempt into the handler's open batch, or let it wait for its own place."""
        size = attempt.handler.batch
        if size is None:
            self._enqueue(places, attempt)
            return
        if places.open is None:
            places.open = Batch(attempt.handler, [])
            places.timer = self._loop.call_later(size.linger, self._linger_over, places)
        places.open.members.append(attempt)
        if len(places.open.members) == size.most:
            self._close(places)

    def _linger_over(self, places: Places) -> None:
        self._close(places)
        self.advance()
        self._wake()

    def _close(self, places: Places) -> None:
        """Let the open batch wait for its place."""
        batch, places.open = places.open, None
        if places.timer is not None:
            places.timer.cancel()
        if batch is not None:
            self._enqueue(places, batch)

    def _enqueue(self, places: Places, unit: Unit) -> None:
        places.waiting.append(unit)
        most = places.handler.concurrency
        if most is None or not self._has_delays:
            return
        self._forget_ended(places)
        position = len(places.waiting) + len(places.running) - most
        if position > 0 and position * places.expected_s / most > PATIENCE_S:
            self._give_back(places, unit)
        elif position > 0:
            self._loop.call_later(PATIENCE_S, self._give_back, places, unit)

    def _give_back(self, places: Places, unit: Unit) -> None:
        """Postpone what has waited long enough, or would have to."""
        if not any(unit is other for other in places.waiting):
            return
        places.waiting.remove(unit)
        pace_s = max(places.expected_s, SHORTEST_PACE_S) / (places.handler.concurrency or 1)
        for attempt in _attempts(unit):
            self._postpone(places, attempt, pace_s, PATIENCE_S)
        self._wake()

    def _postpone(self, places: Places, attempt: RunningAttempt, pace_s: float, first_s: float) -> None:
        """Put a job back until its turn is expected, after those that were put back before it."""
        now = monotonic()
        horizon = max(places.horizon, now + first_s) + pace_s
        places.horizon = min(horizon, now + LONGEST_POSTPONEMENT_S)
        if attempt.context.cancel_requested:
            self._settler.release(attempt)
        else:
            self._settler.end(attempt, Postponed(int((places.horizon - now) * 1000)), None)

    def advance(self) -> None:
        """Start what waits and may begin now."""
        slots = self._concurrency
        for places in self._places.values():
            self._forget_ended(places)
            slots -= len(places.running)
        for places in self._places.values():
            while places.waiting and slots > 0 and places.left > 0:
                slots -= self._start(places, places.waiting.popleft())

    def _start(self, places: Places, unit: Unit) -> bool:
        """Start a job or a batch; return whether it takes a slot."""
        late: list[RunningAttempt] = []
        ready: list[RunningAttempt] = []
        now = moment(self._clock)
        for attempt in _attempts(unit):
            if attempt.is_ended:
                continue
            if attempt.context.cancel_requested:
                self._settler.release(attempt)
            elif attempt.context.lost or now.since(attempt.locked_at) >= self._lock_age.limit_ms:
                late.append(attempt)
            else:
                ready.append(attempt)
        if isinstance(unit, Batch):
            unit.members = ready
            if ready:
                places.running.append(unit)
                self._begin_batch(unit)
        elif ready or late:
            places.running.append(unit)
            self._begin(ready, unit.locked_at)
        if late:
            self._late(late)
        return bool(ready) or (bool(late) and not isinstance(unit, Batch))

    def _forget_ended(self, places: Places) -> None:
        ended = [unit for unit in places.running if self._is_over(unit)]
        if not ended:
            return
        for unit in ended:
            first = next(iter(_attempts(unit)))
            if first.started:
                seconds, before = first.seconds(), places.mean_s
                places.mean_s = seconds if before is None else before + (seconds - before) / 4
        places.running = [unit for unit in places.running if unit not in ended]

    def _is_over(self, unit: Unit) -> bool:
        if isinstance(unit, Batch):
            return unit.is_over
        if isinstance(unit, ThreadAttempt) and unit.is_overdue:
            return False
        return unit.is_ended or not self._is_held(unit)

    # -- limits -------------------------------------------------------------------------------------------

    async def _count(self, places: Places) -> None:
        """Let jobs begin as the handler's limit allows, which all workers of the queue share."""
        limit, limiter = places.handler.limit, self._limiter
        assert limit is not None
        assert limiter is not None
        try:
            while places.limited:
                places.arrived.clear()
                try:
                    granted, wait_ms = await limiter.take(places.handler.name, limit, len(places.limited))
                except RedisError as error:
                    self._log.warning(f"what begins could not be counted: {error}")
                    await asyncio.sleep(RETRY_S)
                    continue
                for _ in range(min(granted, len(places.limited))):
                    self._pass(places, places.limited.popleft())
                self._postpone_limited(places, limit.count, limit.duration / 1000, wait_ms / 1000)
                self.advance()
                self._wake()
                if places.limited:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(places.arrived.wait(), wait_ms / 1000)
        finally:
            places.counting = None

    def _postpone_limited(self, places: Places, count: int, duration_s: float, wait_s: float) -> None:
        if not self._has_delays:
            return
        # one stays in any case: no other worker may begin it either, and it tells this one to claim no more
        patient = 1 if wait_s > PATIENCE_S else count * (1 + int((PATIENCE_S - wait_s) / duration_s))
        limited = list(places.limited)
        for attempt in limited[patient:]:
            self._postpone(places, attempt, duration_s / count, wait_s)
        places.limited = deque(limited[:patient])

    # -- the end ------------------------------------------------------------------------------------------

    def begin_stop(self) -> None:
        """Release what has not begun, and begin nothing any more."""
        self._is_stopping = True
        for places in self._places.values():
            if places.counting is not None:
                places.counting.cancel()
            if places.timer is not None:
                places.timer.cancel()
            units = [*places.waiting, *([] if places.open is None else [places.open])]
            for attempt in [*places.limited, *[each for unit in units for each in _attempts(unit)]]:
                self._settler.release(attempt)
            places.waiting, places.limited, places.open = deque(), deque(), None


def _attempts(unit: Unit) -> Sequence[RunningAttempt]:
    return unit.members if isinstance(unit, Batch) else [unit]
