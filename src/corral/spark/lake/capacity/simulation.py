"""Simulation: the waits of jobs under the rules of our own worker, as discrete events; times in ms."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf
from typing import Any

from corral.core.ports import Limit
from corral.worker.turn_loop import (
    MOST_CLAIMS,
    MOST_SETTLEMENTS,
    MOST_SLOW_CLAIMS,
    MOST_TRIPS,
    SLOW_S,
)

SLOW_MS = SLOW_S * 1000
FIRST_TRY_MS, LONGEST_TRY_MS = 100.0, 30_000.0
"""Between two tries to reach the server, doubling, as a worker's `Reconnect` has it."""


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """One attempt: how long its handler runs, and how long after it the job can be claimed again."""

    handler_ms: float
    retry_ms: float | None = None
    """None: the job is over."""


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job that can be claimed from a time on, and the attempts that it will need."""

    at: float
    runs: tuple[SimulatedRun, ...]
    priority: int = 0
    """0 is none: those come first, then the lowest number."""


@dataclass(frozen=True)
class TripCosts:
    """What a job costs beside its handler; all zero: a queue as in textbooks."""

    trip_ms: float = 0.0
    """A round trip to the server."""
    server_add_ms: float = 0.0
    server_job_ms: float = 0.0
    """The server's time for a claim and its settlement."""
    worker_job_ms: float = 0.0
    """The same, of the worker's process."""


@dataclass(frozen=True)
class Fleet:
    """Workers, and how many slots they have together."""

    workers: int
    slots: int

    @property
    def concurrencies(self) -> list[int]:
        """The slots of each worker.

        >>> Fleet(3, 8).concurrencies
        [3, 3, 2]
        """
        least, more = divmod(self.slots, self.workers)
        return [least + (number < more) for number in range(self.workers)]


@dataclass(frozen=True)
class QueueRules:
    """Limits of the queue: claims in a time, and jobs that run at once."""

    limit: Limit | None = None
    max_active: int | None = None


@dataclass(frozen=True)
class Outage:
    """A time in which the server does not reply."""

    at: float
    duration: float

    @property
    def end(self) -> float:
        return self.at + self.duration


@dataclass
class SimulationResult:
    """The waits of all attempts, from claimable to claimed."""

    claimed: list[tuple[float, float, int]] = field(default_factory=list)
    """(time, wait, priority)"""
    handler_ms: float = 0.0
    """Of all handlers together."""
    ended_at: float = 0.0

    def wait(self, share: float) -> float:
        """Return the wait that this share of attempts did not exceed.

        >>> SimulationResult([(0, wait, 0) for wait in range(100)]).wait(0.95)
        94
        """
        waits = sorted(wait for _, wait, _ in self.claimed)
        return waits[max(ceil(share * len(waits)) - 1, 0)] if waits else 0.0

    @property
    def worst(self) -> float:
        return max((wait for _, wait, _ in self.claimed), default=0.0)

    def recovered_at(self, after: float, wait_ms: float) -> float:
        """Return when the last attempt was claimed that waited longer, before one that came later did not.

        >>> SimulationResult([(9.0, 5.0, 0), (9.5, 4.8, 0), (9.8, 4.0, 0), (12, 6, 0)]).recovered_at(4.5, 4.5)
        9.5
        """
        came = (at - wait for at, wait, _ in self.claimed if at - wait > after and wait <= wait_ms)
        first = min(came, default=inf)
        late = (at for at, wait, _ in self.claimed if at > after and at - wait < first and wait > wait_ms)
        return max(late, default=after)


def simulate(
    jobs: Sequence[SimulatedJob],
    fleet: Fleet,
    costs: TripCosts | None = None,
    rules: QueueRules | None = None,
    outage: Outage | None = None,
) -> SimulationResult:
    """Return what the jobs would have waited.

    >>> twice = [SimulatedJob(0, (SimulatedRun(10),)), SimulatedJob(0, (SimulatedRun(10),))]
    >>> [wait for _, wait, _ in simulate(twice, Fleet(1, 1)).claimed]
    [0.0, 10.0]
    """
    clock = _Clock()
    server = _Server(clock, costs or TripCosts(), rules or QueueRules(), outage)
    workers = [_Worker(clock, server, concurrency) for concurrency in fleet.concurrencies]
    for worker in workers:
        worker.cycle()
    for job in jobs:
        clock.at(server.reachable(job.at), server.submit, _Entry(job))
    if outage is not None:
        clock.at(outage.at, server.fail, None)
    clock.run()
    server.result.ended_at = clock.now
    return server.result


class _Clock:
    """Calls functions in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._number = count()

    def at(self, time: float, call: Callable[[Any], None], argument: Any) -> None:
        heappush(self._events, (time, next(self._number), call, argument))

    def run(self) -> None:
        events = self._events
        while events:
            self.now, _, call, argument = heappop(events)
            call(argument)


class _Entry:
    """A job in the queue, before its next attempt."""

    __slots__ = ("attempt", "job", "queued")

    def __init__(self, job: SimulatedJob) -> None:
        self.job = job
        self.attempt = 0
        self.queued = 0.0

    @property
    def run(self) -> SimulatedRun:
        return self.job.runs[self.attempt]


class _Trip:
    """A turn: what is settled, how many are wanted, and the reply."""

    __slots__ = ("batch", "claims", "failures", "reason", "until", "want", "worker")

    def __init__(self, worker: "_Worker", batch: list[_Entry], want: int) -> None:
        self.worker = worker
        self.batch = batch
        self.want = want
        self.claims: list[_Entry] = []
        self.reason = ""
        self.until = 0.0
        self.failures = 0


class _Server:
    """One queue on a server that does one thing at a time: `turn.lua` and the marker that wakes a worker."""

    def __init__(self, clock: _Clock, costs: TripCosts, rules: QueueRules, outage: Outage | None) -> None:
        self.costs = costs
        self.half_ms = costs.trip_ms / 2
        self.result = SimulationResult()
        self._clock = clock
        self._rules = rules
        self._outage = outage
        self._waiting: list[tuple[int, int, _Entry]] = []
        self._number = count()
        self._active = 0
        self._window = (0, 0.0)
        """Of the limit: claims in it, and its end."""
        self._blocked: deque[_Worker] = deque()
        self._is_marked = False
        self._free_at = 0.0

    def reachable(self, at: float) -> float:
        """Return when a call of that time gets through."""
        outage = self._outage
        return outage.end if outage is not None and outage.at <= at < outage.end else at

    def fail(self, _: None) -> None:
        """Break the connections of the workers that wait."""
        blocked, self._blocked = self._blocked, deque()
        for worker in blocked:
            self._clock.at(self._clock.now, worker.woken, None)

    def submit(self, entry: _Entry) -> None:
        now = self._clock.now
        entry.queued = now
        heappush(self._waiting, (entry.job.priority, next(self._number), entry))
        self._free_at = max(self._free_at, now) + self.costs.server_add_ms
        if not self._is_maxed():
            self._wake()

    def wait(self, worker: "_Worker") -> None:
        """Block a worker until there may be jobs."""
        if not worker.is_waiting:
            return
        if self._is_marked:
            self._is_marked = False
            self._clock.at(self._clock.now + self.half_ms, worker.woken, None)
        else:
            self._blocked.append(worker)

    def unblock(self, worker: "_Worker") -> None:
        if worker in self._blocked:
            self._blocked.remove(worker)

    def turn(self, trip: _Trip) -> None:
        """Settle, then claim; the reply is under way when the script has ended."""
        now = self._clock.now
        if self._outage is not None and self._outage.at <= now < self._outage.end:
            delay = min(FIRST_TRY_MS * 2**trip.failures, LONGEST_TRY_MS)
            trip.failures += 1
            self._clock.at(now + delay, self.turn, trip)
            return
        if self._free_at > now:
            self._clock.at(self._free_at, self.turn, trip)
            return
        was_maxed = self._is_maxed()
        self._active -= len(trip.batch)
        for entry in trip.batch:
            self._settle(entry)
        if trip.want:
            self._claim(trip)
        elif was_maxed and self._waiting:
            self._wake()
        self._free_at = now + (len(trip.batch) + len(trip.claims)) * self.costs.server_job_ms / 2
        self._clock.at(self._free_at + self.half_ms, trip.worker.answered, trip)

    def _settle(self, entry: _Entry) -> None:
        retry_ms = entry.run.retry_ms
        if retry_ms is not None and entry.attempt + 1 < len(entry.job.runs):
            entry.attempt += 1
            self._clock.at(self.reachable(self._clock.now + retry_ms), self.submit, entry)

    def _claim(self, trip: _Trip) -> None:
        now, limit = self._clock.now, self._rules.limit
        allowed, reason = trip.want, "drained"
        if self._rules.max_active is not None and self._rules.max_active - self._active < allowed:
            allowed, reason = self._rules.max_active - self._active, "maxed"
        if limit is not None:
            used, end = self._window
            if now >= end:
                used, end = 0, now + limit.duration
            if limit.count - used < allowed:
                allowed, reason = limit.count - used, "limited"
            trip.until = end
        claims = trip.claims
        while self._waiting and len(claims) < allowed:
            entry = heappop(self._waiting)[2]
            self.result.claimed.append((now, now - entry.queued, entry.job.priority))
            claims.append(entry)
        self._active += len(claims)
        if limit is not None and claims:
            self._window = (used + len(claims), end)
        if claims:
            self._wake()
        if len(claims) == trip.want:
            trip.reason = "satisfied"
        else:
            trip.reason = reason if len(claims) == allowed else "drained"

    def _is_maxed(self) -> bool:
        return self._rules.max_active is not None and self._active >= self._rules.max_active

    def _wake(self) -> None:
        if self._blocked:
            self._clock.at(self._clock.now + self.half_ms, self._blocked.popleft().woken, None)
        else:
            self._is_marked = True


class _Worker:
    """One worker: `TurnLoop` without its faults."""

    def __init__(self, clock: _Clock, server: _Server, concurrency: int) -> None:
        self.is_waiting = False
        self._clock = clock
        self._server = server
        self._concurrency = concurrency
        self._most_claims = min(MOST_CLAIMS, max(MOST_SLOW_CLAIMS, -(-concurrency // 2)))
        self._held = 0
        self._ended: deque[_Entry] = deque()
        self._trips = 0
        self._settling = 0
        """In the batches of trips under way."""
        self._is_claim_pending = False
        self._rest: str | None = None
        self._until = 0.0
        self._mean_ms: float | None = None
        self._busy_until = 0.0

    def cycle(self) -> None:
        """Send what is due; else wait where a slot is free and there was no job."""
        if self._trips < MOST_TRIPS:
            batch = [self._ended.popleft() for _ in range(min(len(self._ended), MOST_SETTLEMENTS))]
            want = 0 if self._is_claim_pending else self._want(len(batch))
            if batch or (want and self._rest is None):
                self._send(_Trip(self, batch, want))
        if (
            self._rest is not None
            and not self.is_waiting
            and not self._is_claim_pending
            and self._concurrency > self._held
        ):
            self.is_waiting = True
            if self._rest == "limited":
                self._clock.at(max(self._until, self._clock.now), self.woken, None)
            else:
                self._clock.at(self._clock.now + self._server.half_ms, self._server.wait, self)

    def _want(self, settling: int) -> int:
        free = self._concurrency - self._held + settling + self._settling - self.is_waiting
        is_slow = self._mean_ms is None or self._mean_ms > SLOW_MS
        return max(min(free, MOST_SLOW_CLAIMS if is_slow else self._most_claims), 0)

    def _send(self, trip: _Trip) -> None:
        self._trips += 1
        self._settling += len(trip.batch)
        self._is_claim_pending |= trip.want > 0
        self._clock.at(self._clock.now + self._server.half_ms, self._server.turn, trip)

    def answered(self, trip: _Trip) -> None:
        """Start what was claimed, after the worker's own work."""
        own_ms = (len(trip.batch) + len(trip.claims)) * self._server.costs.worker_job_ms / 2
        self._busy_until = max(self._busy_until, self._clock.now) + own_ms
        if own_ms:
            self._clock.at(self._busy_until, self._take, trip)
        else:
            self._take(trip)

    def _take(self, trip: _Trip) -> None:
        self._trips -= 1
        self._settling -= len(trip.batch)
        self._held -= len(trip.batch)
        if trip.want:
            self._is_claim_pending = False
            self._held += len(trip.claims)
            self._rest = None if trip.reason == "satisfied" else trip.reason
            self._until = trip.until
            if self._rest is None and self.is_waiting:
                self.is_waiting = False
                self._server.unblock(self)
        elif self._rest in ("maxed", "limited"):
            self._rest = None
        for entry in trip.claims:
            handler_ms = entry.run.handler_ms
            before = self._mean_ms
            self._mean_ms = handler_ms if before is None else before + (handler_ms - before) / 4
            self._server.result.handler_ms += handler_ms
            self._clock.at(self._clock.now + handler_ms, self._end, entry)
        self.cycle()

    def _end(self, entry: _Entry) -> None:
        self._ended.append(entry)
        if len(self._ended) == 1:
            self.cycle()

    def woken(self, _: None) -> None:
        """Claim again."""
        if self.is_waiting:
            self.is_waiting = False
            self._rest = None
            self.cycle()
