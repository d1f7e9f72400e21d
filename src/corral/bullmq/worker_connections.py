"""The engine's connections to one queue, with ears: what a broker finds out is told as a worker's events."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from corral.bullmq.error_code import ErrorCode
from corral.bullmq.errors import words
from corral.core.job import Claim
from corral.core.outcome import Settlement
from corral.core.ports import Extension, Profile, Recovery, Turn
from corral.errors import FailedChildren, PendingChildren, SettleError, Unrecoverable
from corral.protocols.binding import Binding
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.reporter import BullmqReporter
from corral.store.client import Store, first_contact
from corral.worker import Connections, OpenConnections
from corral.worker.worker import wall_clock

Tell = Callable[..., None]
"""(event, *arguments): from whichever thread."""


class _ChildrenPending(PendingChildren):
    """A job that cannot be completed yet, in the contract's words; it fails, and may be tried again."""

    def __init__(self, job_id: str) -> None:
        Exception.__init__(self, words(ErrorCode.JobPendingDependencies, "moveToFinished", job=job_id))
        self.job_id, self.detail = job_id, ""


class _ChildFailed(FailedChildren, Unrecoverable):
    """A job that can never be completed, in the contract's words; it fails for good."""

    def __init__(self, job_id: str) -> None:
        Exception.__init__(self, words(ErrorCode.JobHasFailedChildren, "moveToFinished", job=job_id))
        self.job_id, self.detail = job_id, ""


class TellingBroker(BullmqBroker):
    """A broker that says what it finds."""

    def __init__(self, binding: Binding, tell: Tell) -> None:
        super().__init__(binding)
        self._tell = tell

    async def turn(self, settlements: Sequence[Settlement], want: int) -> Turn:
        turn = await super().turn(settlements, want)
        if not any(turn.verdicts):
            return turn
        return Turn([_in_words(verdict) for verdict in turn.verdicts], turn.claims, turn.rest)

    async def recover(self, owner: Any = None) -> Recovery:
        recovery = await super().recover(owner)
        for job_id in recovery.requeued:
            self._tell("stalled", job_id, "active")
        return recovery

    async def extend(self, claims: Sequence[Claim]) -> Extension:
        extension = await super().extend(claims)
        lost = [claim.job.id for claim in extension.lost]
        kept = [claim.job.id for claim in claims if claim.job.id not in lost]
        if lost:
            self._tell("lockRenewalFailed", lost)
        if kept:
            self._tell("locksRenewed", {"count": len(kept), "jobIds": kept})
        return extension


def _in_words(verdict: SettleError | None) -> SettleError | None:
    match verdict:
        case PendingChildren():
            return _ChildrenPending(verdict.job_id)
        case FailedChildren():
            return _ChildFailed(verdict.job_id)
    return verdict


def connections(url: str, queue: str, prefix: str, profile: Profile, tell: Tell) -> OpenConnections:
    """What the engine enters, once in its own event loop and once in the heartbeat's."""

    @asynccontextmanager
    async def open_connections() -> AsyncIterator[Connections]:
        store = Store(url)
        binding = Binding(store, queue, prefix, wall_clock, profile)
        broker = TellingBroker(binding, tell)
        try:
            await first_contact(store)
            yield Connections(broker, BullmqReporter(binding))
        finally:
            with suppress(ConnectionError):
                await broker.close()
            await store.close()

    return open_connections
