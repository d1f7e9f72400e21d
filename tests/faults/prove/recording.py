"""Recording: what a worker claims, runs, renews and settles, written down where it happens."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import msgspec

from corral.core.job import Claim
from corral.core.outcome import (
    Cancelled,
    Completed,
    Dead,
    Outcome,
    Postponed,
    Released,
    Retry,
    Settlement,
    WaitingChildren,
)
from corral.core.ports import Broker, Extension, Recovery, Rest, Turn
from corral.worker import Connections
from corral.worker.context import BaseJobContext
from tests.faults.checker import Writer
from tests.faults.checker.history import wall_clock_ms
from tests.faults.checker.records import End, Extended, Lost, Settled, Start

OUTCOMES: dict[type[Outcome], str] = {
    Completed: "completed", Dead: "dead", Cancelled: "cancelled", Retry: "retry", Released: "released",
    Postponed: "released", WaitingChildren: "waiting_children",
}  # fmt: skip
WHOLE_MS = 2
"""Protocols count whole milliseconds: a job may be due so much before its delay is over."""


def receipt_text(claim: Claim) -> str:
    """Return the claim's receipt as text."""
    receipt = claim.receipt
    return receipt if isinstance(receipt, str) else ":".join(map(str, msgspec.structs.astuple(receipt)))


@dataclass(slots=True)
class _Known:
    """What is known of a claim: when it was requested, until when its lock surely holds, how far it is."""

    requested_at: float
    until: float
    has_started: bool = False
    has_ended: bool = False


class AttemptLog:
    """The attempts of one worker on one queue; used by its event loop, its threads and its heartbeat."""

    def __init__(self, history: Writer, queue: str, worker: str, lock_ms: float) -> None:
        self._history, self._queue, self._worker, self._lock_ms = history, queue, worker, lock_ms
        self._known: dict[tuple[str, str], _Known] = {}
        self._lock = Lock()

    # -- by the handler -----------------------------------------------------------------------------------

    def start(self, context: BaseJobContext) -> None:
        """The handler of this job is about to work."""
        receipt = receipt_text(context.claim)
        known = self._known[context.id, receipt]
        known.has_started = True
        data = context.data
        self._history.write(
            Start(
                queue=self._queue, job=context.id, receipt=receipt, worker=self._worker,
                attempt=context.attempt, lock_until=known.until, requested_at=known.requested_at,
                group=context.name, tag=data.get("tag") if isinstance(data, dict) else None,
            )
        )  # fmt: skip

    def end(self, claim: Claim, outcome: Any, value: str | None = None, error: str | None = None) -> None:
        """The handler of this job has ended; what it says after its job was given back is left out."""
        receipt = receipt_text(claim)
        with self._lock:
            known = self._known.get((claim.job.id, receipt))
            if known is None or known.has_ended or not known.has_started:
                return
            known.has_ended = True
            self._history.write(
                End(
                    queue=self._queue, job=claim.job.id, receipt=receipt, outcome=outcome, value=value,
                    error=error,
                )
            )  # fmt: skip

    # -- by the broker ------------------------------------------------------------------------------------

    def claimed(self, claims: Iterable[Claim], requested_at: float) -> None:
        for claim in claims:
            known = _Known(requested_at, requested_at + self._lock_ms)
            self._known[claim.job.id, receipt_text(claim)] = known

    def settled(self, settlement: Settlement, verdict: Any) -> None:
        """A settlement was answered, or its answer was lost."""
        claim, outcome = settlement.claim, settlement.outcome
        key = (claim.job.id, receipt_text(claim))
        known = self._known.get(key)
        if known is None or not known.has_started:
            return  # a job that was given back before it ran, or that must not run
        delay = max(outcome.delay - WHOLE_MS, 0) if isinstance(outcome, Retry) else 0.0
        self._history.write(
            Settled(
                queue=self._queue, job=key[0], receipt=key[1], outcome=OUTCOMES[type(outcome)],
                verdict=verdict, delay=delay,
            )
        )  # fmt: skip
        if verdict != "unknown":
            del self._known[key]

    def extended(self, claims: Sequence[Claim], lost: Sequence[Claim], requested_at: float) -> None:
        gone = set(map(id, lost))
        for claim in claims:
            key = (claim.job.id, receipt_text(claim))
            known = self._known.get(key)
            if known is None:
                continue
            if id(claim) in gone:
                if not known.has_ended:
                    self._history.write(Lost(queue=self._queue, job=key[0], receipt=key[1]))
                continue
            known.until = requested_at + self._lock_ms
            if known.has_started and not known.has_ended:
                self._history.write(
                    Extended(queue=self._queue, job=key[0], receipt=key[1], until=known.until)
                )


class RecordingBroker:
    """The Broker of a worker, with a record of all that it answers."""

    def __init__(self, broker: Broker, log: AttemptLog) -> None:
        self._broker = broker
        self._log = log
        self._unanswered_at: dict[Any, float] = {}
        """When each trip without an answer was sent, by its receipt."""

    async def turn(self, settlements: Sequence[Settlement], want: int) -> Turn:
        for settlement in settlements:
            self._log.end(settlement.claim, "abandoned")  # unless the handler has said how it ended
        sent_at = wall_clock_ms()
        try:
            turn = await self._broker.turn(settlements, want)
        except BaseException:
            if want and self._broker.unanswered is not None:
                self._unanswered_at[self._broker.unanswered] = sent_at
            for settlement in settlements:
                self._log.settled(settlement, "unknown")
            raise
        for settlement, error in zip(settlements, turn.verdicts, strict=True):
            self._log.settled(settlement, "applied" if error is None else "refused")
        self._log.claimed(turn.claims, sent_at)
        return turn

    async def extend(self, claims: Sequence[Claim], receipts: Sequence[Any] = ()) -> Extension:
        sent_at = wall_clock_ms()
        extension = await self._broker.extend(claims, receipts)
        self._log.extended(claims, extension.lost, sent_at)
        return extension

    async def recover(self, owner: Any = None) -> Recovery:
        sent_at = wall_clock_ms() if owner is None else self._unanswered_at.get(owner, wall_clock_ms())
        recovery = await self._broker.recover(owner)
        self._log.claimed(recovery.claims, sent_at)
        return recovery

    async def wait(self, rest: Rest) -> None:
        await self._broker.wait(rest)

    async def promote(self) -> int:
        return await self._broker.promote()

    @property
    def unanswered(self) -> Any:
        return self._broker.unanswered


def recording(
    open_connections: Callable[[], AbstractAsyncContextManager[Connections]], log: AttemptLog
) -> Callable[[], AbstractAsyncContextManager[Connections]]:
    """Return the same connections with a broker that records."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Connections]:
        async with open_connections() as connections:
            broker: Any = RecordingBroker(connections.broker, log)
            yield connections._replace(broker=broker)

    return opened
