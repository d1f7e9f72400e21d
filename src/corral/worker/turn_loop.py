"""TurnLoop: round trips to the broker that settle what has ended and claim what fits (group commit)."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from corral.core.job import Claim
from corral.core.outcome import Postponed, Released, Settlement
from corral.core.ports import Rest, RestReason, Turn
from corral.errors import LockMissing, RedisError
from corral.telemetry.logs import logger
from corral.worker.attempt import Attempt, EndedAttempt, Moment, moment
from corral.worker.config import Connections, WorkerConfig
from corral.worker.events import Monitor, WorkerEvent, WorkerEventKind
from corral.worker.executor import Executor
from corral.worker.isolation import Isolation, Phase
from corral.worker.late_start import LateStart
from corral.worker.records import MinuteCounts
from corral.worker.reporting import WaitingReporter
from corral.worker.settling import NO_RESULT, size_of
from corral.worker.verdicts import Verdicts
from corral.worker.waiting import JobWait, RedisWait

MOST_TRIPS = 2
MOST_SETTLEMENTS = 500
MOST_BYTES = 4 * 1024 * 1024
"""Of results and traces in one trip; the last of them may go over it."""
MOST_CLAIMS = 500
MOST_SLOW_CLAIMS = 32
"""A worker with slow handlers claims no more in one trip, so that other workers find some too."""
SLOW_S = 0.010
SLOTS_FREED = (RestReason.MAXED, RestReason.LIMITED)
"""Where no more could be claimed for one of these reasons, a settlement may have freed a slot."""

RELEASED = Released()


class RoundTrip(Struct, eq=False):
    """Settlements to send, and how many claims to ask for."""

    batch: list[EndedAttempt]
    want: int
    sent_at: Moment
    sends: int = 0


class TurnLoop:
    """Keeps trips to the server under way while there is anything to settle or to claim.

    One of them claims, and takes along what has ended. What ends while it is under way follows in another
    that only settles, so the server has the next trip when it has replied to the last; what ends while both
    are under way gathers. The first to end is settled at once. No more claims are held than there are slots.
    """

    def __init__(
        self,
        config: WorkerConfig,
        connections: Connections,
        crashed: Callable[[BaseException], None],
        resources: Any = None,
    ) -> None:
        self.held: dict[Attempt, None] = {}
        """Claims to be settled by this worker; the heartbeat's thread reads this."""
        self.executor = Executor(
            config,
            WaitingReporter(connections.reporter, config, self.held_attempts),
            is_held=self.held.__contains__,
            late=lambda attempts: self._late.renew(attempts),
            ended=self.ended,
            freed=self.freed,
            crashed=crashed,
            resources=resources,
            limiter=connections.limiter,
        )
        self._rules = self.executor.rules
        self.minutes = MinuteCounts()
        """What was done; the heartbeat's thread takes it."""
        self._broker = broker = connections.broker
        self._concurrency = config.concurrency
        self._clock = config.clock
        log = logger("worker", queue=config.queue, worker=config.profile.name)
        self._monitor = monitor = Monitor(log, config.metrics, config.listener, config.listens_to)
        self._verdicts = Verdicts(config, broker, monitor, self.held, self.ended)
        self._late = LateStart(
            config,
            broker,
            monitor,
            self.held,
            start=self.executor.start,
            release=self.executor.release,
            freed=self.freed,
        )
        self._redis_wait = RedisWait(config, monitor)
        self._job_wait = JobWait(config, broker, monitor, self._woken)
        self._wake = asyncio.Event()
        self._isolation = Isolation(self.held, self._wake.set, config.has_delays)
        self._kept: Attempt | None = None
        """A claim of a job that has stalled, held until it can start alone."""
        self._ended: deque[EndedAttempt] = deque()
        self._under_way: deque[tuple[RoundTrip, asyncio.Task[Turn]]] = deque()
        """In the order in which they were sent, and are answered."""
        self._unanswered: deque[RoundTrip] = deque()
        """Trips without a reply: their settlements are sent again before all else."""
        self._lost_receipt: Any = None
        """The receipt of the claims of a trip without a reply."""
        self._claimed_at = moment(config.clock)
        """When the last trip that claims was sent."""
        self._new_claims: Sequence[Claim] = ()
        """Claims of the last trip, which are started when the next is under way."""
        self._new_claims_at = self._claimed_at
        self._unread_claims: Sequence[Claim] = ()
        """The same, from the reply on until they are held; the heartbeat's thread reads this."""
        self._rest: Rest | None = None
        """Why the last trip claimed no more; None: claim again."""
        self._is_claiming = True
        self._is_drained = False
        self._mean_seconds: float | None = None
        # one half runs while the other is under way: the server and the handlers work side by side
        self._most_claims = min(MOST_CLAIMS, max(MOST_SLOW_CLAIMS, -(-config.concurrency // 2)))

    def held_attempts(self) -> list[Attempt]:
        """Return what is held, in another thread while this one may change it."""
        while True:
            try:
                return list(self.held)
            except RuntimeError:
                continue  # it changed while it was read

    def unread_claims(self, older_ms: float) -> tuple[list[Claim], list[Any]]:
        """Return claims that are not held yet, and the receipt of claims without a reply, where they were
        requested so long ago; in another thread, while this one may be blocked."""
        claims, receipt = self._unread_claims, self._broker.unanswered
        if not claims and receipt is None:
            return [], []
        if moment(self._clock).since(self._claimed_at) < older_ms:
            return [], []
        return list(claims), [] if receipt is None else [receipt]

    @property
    def is_connected(self) -> bool:
        """Whether Redis replied to the last trip."""
        return self._redis_wait.is_over

    @property
    def idle_rest(self) -> Rest | None:
        """Why nothing is held and nothing more was claimed; None while there is work."""
        return None if self.held or self._new_claims or self._is_claim_pending() else self._rest

    # -- called by the executor ---------------------------------------------------------------------------

    def ended(self, ended: EndedAttempt) -> None:
        """Send the settlement of an attempt."""
        self._ended.append(ended)
        if len(self._ended) == 1:
            self._wake.set()  # later ones find it awake

    def freed(self) -> None:
        """Use a slot that became free without a settlement."""
        self._wake.set()

    # -- the loop -----------------------------------------------------------------------------------------

    async def first(self) -> None:
        """Make the first trip, which must succeed."""
        trip = RoundTrip([], self._want(0), moment(self._clock))
        await self._answered(trip, await self._send(trip))
        self._start_new_claims()

    async def run(self) -> None:
        """Return when claiming has stopped and everything is settled."""
        try:
            while self._is_needed():
                try:
                    await self._cycle()
                except RedisError as error:
                    await self._collect_unanswered()
                    await self._redis_wait.failed(error)
        finally:
            await self._job_wait.stop()
            self._late.close()
            self._isolation.stop()
            for _, reply in self._under_way:
                reply.cancel()

    def _is_needed(self) -> bool:
        return bool(self._is_claiming or self.held or self._new_claims or self._is_claim_pending())

    def _is_claim_pending(self) -> bool:
        return self._lost_receipt is not None or any(trip.want for trip, _ in self._under_way)

    async def _cycle(self) -> None:
        """Take replies, send what is due, start new claims; then sleep until there is more to do."""
        self._wake.clear()
        await self._repeat_unanswered()
        await self._take_replies()
        self._advance_isolation()
        if self._rules is not None:
            self._start_new_claims()  # what they are decides how much more may be claimed
            self._rules.advance()
        if self._send_next():
            await asyncio.sleep(0)  # it is sent: the server works while the claims of the last are started
        self._start_new_claims()
        self._wait_for_jobs()
        if self._is_needed():
            await self._wake.wait()

    async def _take_replies(self) -> None:
        """Take the replies in their order: the slots one claims may be those another frees."""
        while self._under_way and self._under_way[0][1].done():
            turn = self._under_way[0][1].result()
            await self._answered(self._under_way.popleft()[0], turn)

    def _send_next(self) -> bool:
        """Send what is due; return whether anything is."""
        if len(self._under_way) == MOST_TRIPS:
            return False
        batch = self._take_ended()
        want = 0 if self._is_claim_pending() else self._want(len(batch))
        if not batch and (want == 0 or self._rest is not None):
            return False
        trip = RoundTrip(batch, want, self._claimed_at)
        reply = asyncio.create_task(self._send(trip))
        reply.add_done_callback(lambda _: self._wake.set())
        self._under_way.append((trip, reply))
        return True

    def _free(self) -> int:
        if self._rules is not None:
            return self._rules.claimable() - len(self._new_claims)
        return self._concurrency - len(self.held) - len(self._new_claims) - self.executor.overdue

    def _want(self, settling: int) -> int:
        """Return how many jobs a trip with so many settlements may claim; trips under way settle first."""
        if not self._is_claiming:
            return 0
        free = self._free()
        is_slow = self._mean_seconds is None or self._mean_seconds > SLOW_S
        most = MOST_SLOW_CLAIMS if is_slow else self._most_claims
        if self._rules is None:
            free += settling + sum([len(trip.batch) for trip, _ in self._under_way])
        else:
            most = min(max(most, self._rules.most_claims), MOST_CLAIMS)
        if self._job_wait.rest is not None:
            free -= 1  # the wake-up being waited for must find a slot, or another worker should have had it
        want = max(min(free, most), 0)
        return self._isolation.limit(want, is_answered=bool(self._new_claims))

    def _advance_isolation(self) -> None:
        if self._isolation.is_open:
            return
        others = len(self.held) - (self._kept is not None)
        is_idle = not (others or self._new_claims or self._is_claim_pending())
        if self._isolation.advance(is_idle):
            self._rest = None
            self._end_keeping(self._start)

    def _end_keeping(self, use: Callable[[Sequence[Claim], Moment], None]) -> None:
        """Start or release the claim that was kept."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            del self.held[kept]
            use([kept.claim], kept.locked_at)

    # -- one trip -----------------------------------------------------------------------------------------

    async def _send(self, trip: RoundTrip) -> Turn:
        trip.sent_at = moment(self._clock)
        if trip.batch:
            trip.batch = await self._verdicts.still_held(trip.batch, trip.sends, trip.sent_at)
        trip.sends += 1
        if trip.want:
            self._claimed_at = trip.sent_at
        turn = await self._broker.turn([ended.settlement for ended in trip.batch], trip.want)
        if trip.want:
            self._unread_claims = turn.claims
        return turn

    async def _answered(self, trip: RoundTrip, turn: Turn) -> None:
        self._redis_wait.succeeded()
        self._settled(trip, turn)
        if trip.want:
            self._new_claims, self._new_claims_at = turn.claims, trip.sent_at
            if not turn.claims:
                self._isolation.reopen()
            if turn.unhandled:
                self.executor.unhandled.note(turn.unhandled)
            await self._rested(turn.rest, len(turn.claims))
        elif self._rest is not None and self._rest.reason in SLOTS_FREED:
            self._rest = None

    def _settled(self, trip: RoundTrip, turn: Turn) -> None:
        batch = self._verdicts.applied(trip.batch, trip.sends, turn.verdicts)
        for ended in batch:
            del self.held[ended.attempt]
        seconds = [ended.seconds for ended in batch if ended.seconds is not None]
        outcomes = Counter([type(ended.settlement.outcome) for ended in batch])
        if seconds:
            mean, before = sum(seconds) / len(seconds), self._mean_seconds
            self._mean_seconds = mean if before is None else before + (mean - before) / 4
        self._monitor.metrics.turn(outcomes, seconds, len(self.held) + len(turn.claims))
        if batch:
            self.minutes.settled(int(trip.sent_at.wall), outcomes, seconds)
        if batch and self._monitor.listens_to(WorkerEventKind.SETTLED):
            for ended in batch:
                claim, outcome = ended.attempt.claim, ended.settlement.outcome
                self._monitor.emit(WorkerEvent(WorkerEventKind.SETTLED, claim, outcome))

    def _take_ended(self) -> list[EndedAttempt]:
        """Return as many as one trip may carry, by count and by bytes."""
        waiting, size = self._ended, 0
        if len(waiting) <= MOST_SETTLEMENTS:
            # the usual case first: there is room for all
            batch = list(waiting)
            outcomes = [ended.settlement.outcome for ended in batch]
            if sum([size_of(outcome) for outcome in outcomes if outcome is not NO_RESULT]) < MOST_BYTES:
                waiting.clear()
                return batch
        batch = []
        while waiting and len(batch) < MOST_SETTLEMENTS and size < MOST_BYTES:
            ended = waiting.popleft()
            batch.append(ended)
            outcome = ended.settlement.outcome
            if outcome is not NO_RESULT:
                size += size_of(outcome)
        return batch

    def _start_new_claims(self) -> None:
        claims, self._new_claims = self._new_claims, ()
        if claims:
            self._start(claims, self._new_claims_at)
            self.minutes.claimed(int(self._new_claims_at.wall), claims)
        if claims is self._unread_claims:
            self._unread_claims = ()

    def _start(self, claims: Sequence[Claim], locked_at: Moment) -> None:
        if not claims:
            return
        if not self._is_claiming:
            self._release(claims, locked_at)
            return
        admission = self._isolation.admit(claims, not self.held and not self._is_claim_pending())
        self._release(admission.apart, locked_at, admission.outcome)
        if admission.kept is not None:
            self._kept = Attempt(admission.kept, locked_at)
            self.held[self._kept] = None
        attempts = self.executor.prepare(admission.start, locked_at)
        self._isolation.started(attempts)
        # held before they start: a handler may block the loop from its first line on
        self.held.update(dict.fromkeys(attempts))
        if self._monitor.listens_to(WorkerEventKind.ACTIVE):
            for attempt in attempts:
                self._monitor.emit(WorkerEvent(WorkerEventKind.ACTIVE, attempt.claim))
        self.executor.start(attempts, locked_at)

    def _release(
        self, claims: Iterable[Claim], locked_at: Moment, outcome: Released | Postponed = RELEASED
    ) -> None:
        for claim in claims:
            attempt = Attempt(claim, locked_at)
            self.held[attempt] = None
            self.ended(EndedAttempt(attempt, Settlement(claim, outcome, self._clock()), None))

    def adopt(self, claims: Sequence[Claim]) -> None:
        """Execute claims that did not come from a turn; release those without a free slot."""
        pending = sum([trip.want for trip, _ in self._under_way])
        free = max(self._free() - pending, 0)
        now = moment(self._clock)
        self._start(claims[:free], now)
        self._release(claims[free:], now)

    # -- waiting for jobs -----------------------------------------------------------------------------------

    def _wait_for_jobs(self) -> None:
        """Wait on the blocking connection if a slot is free and there was no job."""
        if self._rest is None or self._job_wait.rest is not None or not self._is_claiming:
            return
        if self._isolation.phase is not Phase.OPEN:
            return
        if not self._is_claim_pending() and self._free() > 0:
            self._job_wait.start(self._rest)

    def _woken(self) -> None:
        self._rest = None
        self._wake.set()

    async def _rested(self, rest: Rest, claimed: int) -> None:
        self._rest = None if rest.reason is RestReason.SATISFIED and claimed else rest
        if self._job_wait.is_outdated(self._rest):
            await self._job_wait.stop()
            # the wait may have used up a wake-up; claiming again finds out, and wakes others too
            self._rest = None
        if claimed:
            self._is_drained = False
        if rest.reason is RestReason.DRAINED and not self._is_drained:
            self._is_drained = True
            self._monitor.emit(WorkerEvent(WorkerEventKind.DRAINED))

    # -- lost replies ---------------------------------------------------------------------------------------

    async def _collect_unanswered(self) -> None:
        """After an error: keep the trips without a reply."""
        while self._under_way:
            trip, reply = self._under_way[0]
            try:
                turn = await reply
            except RedisError:
                trip.want = 0
                self._unanswered.append(trip)
            else:
                await self._answered(trip, turn)
            self._under_way.popleft()
        self._lost_receipt = self._broker.unanswered or self._lost_receipt
        self._start_new_claims()

    async def _repeat_unanswered(self) -> None:
        """Settle again what had no reply, then adopt what was claimed with it."""
        while self._unanswered:
            trip = self._unanswered[0]
            if trip.batch:
                await self._answered(trip, await self._send(trip))
            self._unanswered.popleft()
        if self._lost_receipt is not None:
            await self._adopt_lost()

    async def _adopt_lost(self) -> None:
        """Adopt the claims of a trip whose reply was lost."""
        recovery = await self._broker.recover(owner=self._lost_receipt)
        self._lost_receipt = None
        self._redis_wait.succeeded()
        if recovery.claims:
            self._monitor.log.info("adopted the claims of a lost reply", count=len(recovery.claims))
        self._start(recovery.claims, self._claimed_at)

    # -- the end --------------------------------------------------------------------------------------------

    async def stop_claiming(self) -> None:
        """Claim no more; `run` returns when what is held is settled."""
        self._is_claiming = False
        self._end_keeping(self._release)
        self._late.begin_stop()
        self._redis_wait.retry_now()
        self._wake.set()
        await self._job_wait.stop()

    def give_up(self) -> None:
        """Report each claim that is still held as unknown; their locks expire."""
        trips = [*self._unanswered, *(trip for trip, _ in self._under_way)]
        unsettled = chain(self._ended, *(trip.batch for trip in trips))
        outcomes = {ended.attempt: ended.settlement.outcome for ended in unsettled}
        for attempt in list(self.held):
            error = LockMissing(attempt.claim.job.id, "not settled before the worker ended")
            self._verdicts.unknown(attempt, outcomes.get(attempt), error)
