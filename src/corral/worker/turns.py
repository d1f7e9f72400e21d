"""Group commit: one round trip settles what has ended and claims what fits."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from corral.core.job import Claim
from corral.core.outcome import Released, RetryPolicy, Settlement
from corral.core.ports import Broker, Rest, Turn, Why
from corral.errors import LockMissing, RedisError
from corral.worker.attempt import Attempt, Moment, moment
from corral.worker.events import Happening, WorkerEvent
from corral.worker.executor import Executor
from corral.worker.outage import Outage
from corral.worker.reports import Reports
from corral.worker.results import NOTHING, weight
from corral.worker.verdicts import Verdicts
from corral.worker.waiting import Waiter

MOST_TRIPS = 2
MOST_SETTLEMENTS = 500
MOST_BYTES = 4 * 1024 * 1024
"""Of results and traces in one trip; the last of them may go over it."""
MOST_CLAIMS = 500
MOST_SLOW_CLAIMS = 32
"""A worker with slow handlers takes no more in one trip, so that its neighbours find some too."""
SLOW_S = 0.010
SLOTS_FREED = (Why.MAXED, Why.LIMITED)
"""Where no more could be claimed for one of these, a settlement may have freed a slot."""


class Trip:
    """Settlements on their way, and the claims that are to come back."""

    __slots__ = ("answer", "asked", "batch", "want")

    def __init__(self, batch: list[Attempt], want: int) -> None:
        self.batch = batch
        self.want = want
        self.asked: Moment
        """When it set out."""
        self.answer: asyncio.Task[Turn]


class Turns:
    """Keeps trips to the server under way while there is anything to settle or to claim.

    One of them claims, and takes along what has ended. What ends while it is under way follows in another
    that only settles, so the server has the next trip when it has answered the last; what ends while both
    are under way gathers. The first to end is settled at once. No more claims are held than there are slots.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        concurrency: int,
        lock_ms: int,
        policy: RetryPolicy,
        clock: Callable[[], int],
        delays: Callable[[int], float],
        max_tries: int | None,
        reports: Reports,
    ) -> None:
        self.held: dict[Attempt, None] = {}
        """Claims that are ours to settle; the heartbeat's thread reads this."""
        self._executor: Executor
        self._broker = broker
        self._concurrency = concurrency
        self._clock = clock
        self._reports = reports
        self._verdicts = Verdicts(
            self.held,
            broker=broker,
            lock_ms=lock_ms,
            policy=policy,
            clock=clock,
            reports=reports,
            ended=self.ended,
        )
        self._outage = Outage(delays, max_tries, reports)
        self._waiter = Waiter(broker, self._woken, delays, reports.log)
        self._wake = asyncio.Event()
        self._finished: deque[Attempt] = deque()
        self._under_way: deque[Trip] = deque()
        """In the order in which they set out, and are answered."""
        self._again: deque[Trip] = deque()
        """Trips that were not answered: their settlements are sent again before all else."""
        self._orphans: Any = None
        """The receipt of claims whose trip was not answered."""
        self._asked = moment(clock)
        """When the last trip that claims set out."""
        self._brought: Sequence[Claim] = ()
        """Claims of the last trip, which are begun when the next is on its way."""
        self._brought_asked = self._asked
        self._rest: Rest | None = None
        """Why the last claim brought no more; None: ask again."""
        self._is_claiming = True
        self._is_drained = False
        self._pace: float | None = None
        # one half runs while the other is on its way: the server and the handlers work side by side
        self._most_claims = min(MOST_CLAIMS, max(MOST_SLOW_CLAIMS, -(-concurrency // 2)))

    def bind(self, executor: Executor) -> None:
        """Execute by this."""
        self._executor = executor

    def listed(self) -> list[Attempt]:
        """What is held, for another thread to read while this one writes."""
        while True:
            try:
                return list(self.held)
            except RuntimeError:
                continue  # it changed on the way, which the next look will not see

    # -- told by the executor -----------------------------------------------------------------------------

    def ended(self, attempt: Attempt) -> None:
        """An attempt has its settlement: send it."""
        self._finished.append(attempt)
        if len(self._finished) == 1:
            self._wake.set()  # later ones find it awake

    def freed(self) -> None:
        """A slot is free that no settlement frees."""
        self._wake.set()

    # -- the loop -----------------------------------------------------------------------------------------

    async def first(self) -> None:
        """The first trip, which must succeed."""
        trip = Trip([], self._want(0))
        await self._answered(trip, await self._travel(trip))
        self._begin_brought()

    async def run(self) -> None:
        """Turn until claiming has stopped and everything is settled."""
        try:
            while self._is_needed():
                try:
                    await self._cycle()
                except RedisError as fault:
                    await self._break_off()
                    await self._outage.stand_back(fault)
        finally:
            await self._waiter.stop()
            for trip in self._under_way:
                trip.answer.cancel()

    def _is_needed(self) -> bool:
        return bool(self._is_claiming or self.held or self._brought or self._is_claim_coming())

    def _is_claim_coming(self) -> bool:
        return self._orphans is not None or any(trip.want for trip in self._under_way)

    async def _cycle(self) -> None:
        """Hear what came back, send what is due, begin what came; then sleep until there is more to do."""
        self._wake.clear()
        await self._make_good()
        await self._hear()
        if self._set_out():
            await asyncio.sleep(0)  # it is sent: the server works while we begin what the last one brought
        self._begin_brought()
        self._watch_out()
        if self._is_needed():
            await self._wake.wait()

    async def _hear(self) -> None:
        """Take the answers that are here, in their order: what one claims may be in slots another frees."""
        while self._under_way and self._under_way[0].answer.done():
            turn = self._under_way[0].answer.result()
            await self._answered(self._under_way.popleft(), turn)

    def _set_out(self) -> bool:
        """Send what is due; False where nothing is."""
        if len(self._under_way) == MOST_TRIPS:
            return False
        batch = self._take_finished()
        want = 0 if self._is_claim_coming() else self._want(len(batch))
        if not batch and (want == 0 or self._rest is not None):
            return False
        self._under_way.append(self._sent(Trip(batch, want)))
        return True

    def _sent(self, trip: Trip) -> Trip:
        trip.answer = asyncio.create_task(self._travel(trip))
        trip.answer.add_done_callback(lambda _: self._wake.set())
        return trip

    def _free(self) -> int:
        return self._concurrency - len(self.held) - len(self._brought) - self._executor.overdue

    def _want(self, settling: int) -> int:
        """How many a trip with so many settlements may claim; those on their way are settled before it."""
        if not self._is_claiming:
            return 0
        free = self._free() + settling + sum([len(trip.batch) for trip in self._under_way])
        if self._waiter.rest is not None:
            free -= 1  # the wake-up being waited for must find a slot, or another worker should have had it
        slow = self._pace is None or self._pace > SLOW_S
        return max(min(free, MOST_SLOW_CLAIMS if slow else self._most_claims), 0)

    # -- one trip -----------------------------------------------------------------------------------------

    async def _travel(self, trip: Trip) -> Turn:
        trip.asked = moment(self._clock)
        if trip.batch:
            trip.batch = await self._verdicts.still_ours(trip.batch, trip.asked)
        for attempt in trip.batch:
            attempt.sends += 1
        if trip.want:
            self._asked = trip.asked
        return await self._broker.turn([attempt.settlement for attempt in trip.batch], trip.want)  # type: ignore[misc]

    async def _answered(self, trip: Trip, turn: Turn) -> None:
        self._outage.answered()
        self._settled(trip, turn)
        if trip.want:
            self._brought, self._brought_asked = turn.claims, trip.asked
            await self._rested(turn.rest, len(turn.claims))
        elif self._rest is not None and self._rest.why in SLOTS_FREED:
            self._rest = None

    def _settled(self, trip: Trip, turn: Turn) -> None:
        batch = self._verdicts.applied(trip.batch, turn.verdicts)
        for attempt in batch:
            del self.held[attempt]
            attempt.settled = True
        seconds = [attempt.seconds for attempt in batch if attempt.context is not None]
        outcomes = Counter([type(attempt.settlement.outcome) for attempt in batch])  # type: ignore[union-attr]
        if seconds:
            mean = sum(seconds) / len(seconds)
            self._pace = mean if self._pace is None else self._pace + (mean - self._pace) / 4
        self._reports.metrics.turn(outcomes, seconds, len(self.held) + len(turn.claims))
        if self._reports.listens:
            for attempt in batch:
                self._reports.tell(WorkerEvent(Happening.SETTLED, attempt.claim, attempt.settlement.outcome))  # type: ignore[union-attr]

    def _begin_brought(self) -> None:
        brought, self._brought = self._brought, ()
        self._begin(brought, self._brought_asked)

    def _take_finished(self) -> list[Attempt]:
        """As many as one trip may carry, by count and by bytes."""
        finished, size = self._finished, 0
        batch: list[Attempt] = []
        while finished and len(batch) < MOST_SETTLEMENTS and size < MOST_BYTES:
            attempt = finished.popleft()
            batch.append(attempt)
            outcome = attempt.settlement.outcome  # type: ignore[union-attr]
            if outcome is not NOTHING:
                size += weight(outcome)
        return batch

    def _begin(self, claims: Sequence[Claim], asked: Moment) -> None:
        if not claims:
            return
        attempts = [Attempt(claim, asked) for claim in claims]
        # listed before they start: a handler may block the loop from its first line on
        self.held.update(dict.fromkeys(attempts))
        if self._reports.listens:
            for attempt in attempts:
                self._reports.tell(WorkerEvent(Happening.ACTIVE, attempt.claim))
        if self._is_claiming:
            self._executor.start(attempts)
        else:
            self._release(attempts)

    def _release(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            attempt.settlement = Settlement(attempt.claim, Released(), self._clock())
            self.ended(attempt)

    def adopt(self, claims: Sequence[Claim]) -> None:
        """Execute claims that came by another way than a turn; what finds no slot is given back."""
        coming = sum([trip.want for trip in self._under_way])
        fitting = max(self._free() - coming, 0)
        now = moment(self._clock)
        self._begin(claims[:fitting], now)
        surplus = [Attempt(claim, now) for claim in claims[fitting:]]
        self.held.update(dict.fromkeys(surplus))
        self._release(surplus)

    # -- waiting ------------------------------------------------------------------------------------------

    def _watch_out(self) -> None:
        """Wait for work where a slot is free and no job was found."""
        if self._rest is None or self._waiter.rest is not None or not self._is_claiming:
            return
        if not self._is_claim_coming() and self._free() > 0:
            self._waiter.start(self._rest)

    def _woken(self) -> None:
        self._rest = None
        self._wake.set()

    async def _rested(self, rest: Rest, brought: int) -> None:
        self._rest = None if rest.why is Why.SATISFIED and brought else rest
        if self._waiter.is_outdated(self._rest):
            await self._waiter.stop()
            # the wait may have taken a wake-up with it; asking again finds out, and wakes others too
            self._rest = None
        if brought:
            self._is_drained = False
        if rest.why is Why.DRAINED and not self._is_drained:
            self._is_drained = True
            self._reports.tell(WorkerEvent(Happening.DRAINED))

    # -- a lost answer --------------------------------------------------------------------------------------

    async def _break_off(self) -> None:
        """After a fault: note what was not answered."""
        while self._under_way:
            trip = self._under_way[0]
            try:
                turn = await trip.answer
            except RedisError:
                trip.want = 0
                self._again.append(trip)
            else:
                await self._answered(trip, turn)
            self._under_way.popleft()
        self._orphans = self._broker.unanswered or self._orphans
        self._begin_brought()

    async def _make_good(self) -> None:
        """Settle anew what was not answered, then take over what was claimed with it."""
        while self._again:
            trip = self._again[0]
            if trip.batch:
                await self._answered(trip, await self._travel(trip))
            self._again.popleft()
        if self._orphans is not None:
            await self._take_over()

    async def _take_over(self) -> None:
        """Adopt what a trip claimed whose answer was lost."""
        recovery = await self._broker.recover(owner=self._orphans)
        self._orphans = None
        self._outage.answered()
        if recovery.claims:
            self._reports.log.info("took over claims of a lost answer", count=len(recovery.claims))
        self._begin(recovery.claims, self._asked)

    # -- the end --------------------------------------------------------------------------------------------

    async def stop_claiming(self) -> None:
        """Claim no more; `run` returns when what is held is settled."""
        self._is_claiming = False
        self._outage.hurry()
        self._wake.set()
        await self._waiter.stop()

    def give_up(self) -> None:
        """Nothing more can be settled: say so for each claim that is left; their locks run out."""
        for attempt in list(self.held):
            why = LockMissing(attempt.claim.job.id, "not settled before the worker ended")
            self._verdicts.unknown(attempt, why)
