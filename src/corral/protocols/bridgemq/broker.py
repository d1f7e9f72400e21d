"""The BridgeMQ protocol's Broker: each verb one script."""

from collections.abc import Sequence
from itertools import chain
from typing import Any
from uuid import uuid4

from corral.core.batch import encode_all
from corral.core.job import Claim, Job
from corral.core.outcome import Settlement
from corral.core.ports import Added, Extension, Ledger, Recovery, Rest, Turn, Why
from corral.errors import (
    JobMissing,
    LockMissing,
    LockStolen,
    NotActive,
    Refused,
    SettleError,
    SettlementFailed,
)
from corral.protocols.base import Binding, check_ids, encode_apart, with_refusals
from corral.protocols.batches import MOST_ROWS, cuts, overlapped
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.codec import Receipt, Row, Trip, pack
from corral.protocols.bridgemq.endings import Ending, encode_settlement
from corral.protocols.bridgemq.idling import Idling, Mark
from corral.protocols.bridgemq.keys import Keys
from corral.protocols.bridgemq.metadata import metadata
from corral.protocols.bridgemq.options import Settings
from corral.protocols.bridgemq.scheduling import Scheduler
from corral.store.scripts import Scripts

ERRORS: dict[int, tuple[type[SettleError], str]] = {
    1: (JobMissing, "its data was deleted while it ran"),
    2: (LockMissing, "its lock has expired, or was released"),
    3: (LockStolen, "it was claimed again since"),
    4: (NotActive, "it is not active any more"),
}
CANCELLING = -1
RECOVER_ROWS = 200
"""Active jobs looked at in one call."""
FORGET_WORKER_MS = 86_400_000
"""A dead worker stays in the registry for so long, to be seen."""

SCRIPTS = Scripts("corral.protocols.bridgemq")
"""Our verbs, and the document's own four: claim_job, process_delayed, process_cron, release_lock."""


def head(binding: Binding, settings: Settings, speaker: str = "") -> tuple[Any, ...]:
    """The arguments every script of ours begins with (lua/parts/names.lua)."""
    return (binding.clock(), speaker, settings.max_events)


class BridgemqBroker:
    """Jobs in and out of one queue of one namespace."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)
        identity = self._settings.identity
        self._server = identity.server
        """Our name in locks and in the registry."""
        self._skills = pack([sorted(identity.stack), sorted(identity.capabilities), sorted(identity.region)])
        self._id = uuid4().hex
        self._trips = 0
        self._unanswered: Trip | None = None
        self._cursor: bytes = b""
        """How far the waiting jobs were looked at; only the server reads it (lua/parts/scanning.lua)."""
        self._beaten_at: int | None = None
        self._swept_at: int | None = None
        self._scheduler = Scheduler(binding, self._keys, self._settings)
        self._idling = Idling(binding, self._keys, self._scheduler.once)

    def _head(self) -> tuple[Any, ...]:
        return head(self._binding, self._settings, self._server)

    # -- in ---------------------------------------------------------------------------------------------

    async def submit(
        self, jobs: Sequence[Job], ledger: Ledger | None = None, together: bool = True
    ) -> list[Added | Refused]:
        if ledger is not None:
            check_ids(jobs)
        rows, refusals = encode_apart(jobs, self._encode, together)
        batches = [rows[cut] for cut in cuts([len(row.raw) for row in rows])]
        answers = await overlapped(batches, lambda batch: self._add(batch, ledger))
        return with_refusals(list(chain.from_iterable(answers)), refusals)

    async def drop_ledger(self, ledger: Ledger) -> None:
        await self._store.call("UNLINK", self._keys.ledger(ledger.name))

    def _encode(self, jobs: Sequence[Job]) -> list[Row]:
        now = self._binding.clock()
        return encode_all(jobs, lambda job: codec.encode_job(job, now))

    async def _add(self, rows: Sequence[Row], ledger: Ledger | None) -> list[Added]:
        keys = self._keys
        names = [*keys.fixed, *(name(row.id) for row in rows for name in (keys.data, keys.status))]
        if ledger is not None:
            names.append(keys.ledger(ledger.name))
        existing = await self._store.run(
            SCRIPTS["submit"],
            names,
            (*head(self._binding, self._settings), self._binding.queue, pack(rows),
             "" if ledger is None else ledger.seconds),
        )  # fmt: skip
        added = [Added(row.id) for row in rows]
        for position in existing:
            added[position] = Added(rows[position].id, existed=True)
        return added

    # -- out --------------------------------------------------------------------------------------------

    async def turn(self, settlements: Sequence[Settlement], want: int) -> Turn:
        verdicts: list[SettleError | None] = [None] * len(settlements)
        rows = [
            (position, row)
            for position, settlement in enumerate(settlements)
            if (row := encode_settlement(settlement)) is not None
        ]
        sizes = [len(row.value) + len(row.told) for _, row in rows]
        *earlier, last = [rows[cut] for cut in cuts(sizes)] or [[]]
        for batch in earlier:
            await self._trip(batch, 0, verdicts)
        return await self._trip(last, want, verdicts)

    async def _trip(
        self, batch: Sequence[tuple[int, Ending]], want: int, verdicts: list[SettleError | None]
    ) -> Turn:
        if not batch and want <= 0:
            return Turn(verdicts, (), Rest(Why.SATISFIED))
        rows = [row for _, row in batch]
        self._trips += 1
        if want > 0:
            self._unanswered = Trip(self._id, self._trips)
        start = self._head()
        now = start[0]
        is_beating = want > 0 and self._is_beat_due(now)
        codes, claimed, why, until, cursor, mark = await self._store.run(
            SCRIPTS["turn"],
            [*self._keys.fixed, *self._keys.fences(row.id for row in rows), self._keys.trip(self._id)],
            (*start, self._binding.queue, pack(rows), want, self._trips, self._binding.profile.lock_ms,
             self._settings.heartbeat_ms, self._metadata(now) if is_beating else "", self._skills,
             self._cursor, self._settings.result_s, self._settings.scan),
        )  # fmt: skip
        if want > 0:
            self._unanswered = None
            self._cursor = cursor
        if is_beating:
            self._beaten_at = now
        for (position, row), code in zip(batch, codes, strict=True):
            verdicts[position] = _verdict(row.id, code)
        claims = [codec.decode_claim(row, self._server, now) for row in claimed]
        if claims:
            self._idling.reset()
        return Turn(verdicts, claims, Rest(Why(why.decode()), int(until) or None, Mark(mark.decode())))

    @property
    def unanswered(self) -> Trip | None:
        return self._unanswered

    async def wait(self, rest: Rest) -> None:
        await self._idling.wait(rest)

    # -- upkeep -----------------------------------------------------------------------------------------

    async def extend(self, claims: Sequence[Claim]) -> Extension:
        lost: list[Claim] = []
        cancelled: list[Claim] = []
        for start in range(0, len(claims), MOST_ROWS):
            chunk = claims[start : start + MOST_ROWS]
            codes = await self._store.run(
                SCRIPTS["extend"],
                [*self._keys.fixed, *self._keys.fences(claim.job.id for claim in chunk)],
                (*self._head(), self._binding.profile.lock_ms, self._settings.heartbeat_ms,
                 pack([(claim.job.id, claim.receipt.fence) for claim in chunk])),
            )  # fmt: skip
            for claim, code in zip(chunk, codes, strict=True):
                if code == CANCELLING:
                    cancelled.append(claim)
                elif code != 0:
                    lost.append(claim)
        return Extension(lost, cancelled)

    async def promote(self) -> int:
        """Due jobs become claimable; the leader among the schedulers fires what is due, and mends."""
        moved: int = await self._store.run(SCRIPTS["promote"], self._keys.fixed, self._head())
        fired = await self._scheduler.once()
        if fired is None:
            return moved
        # the leader looks for dead workers more often than the others do
        now = self._binding.clock()
        if self._swept_at is None or abs(now - self._swept_at) >= self._settings.sweep_every_ms:
            self._swept_at = now
            await self._sweep()
        await self._scheduler.audit()
        return moved + fired

    async def recover(self, owner: Any = None) -> Recovery:
        return await self._sweep() if owner is None else await self._adopt(owner)

    async def _sweep(self) -> Recovery:
        requeued: list[str] = []
        ended: list[str] = []
        page = b"0"
        while True:
            back, over, page = await self._store.run(
                SCRIPTS["recover"],
                self._keys.fixed,
                (*head(self._binding, self._settings), page, RECOVER_ROWS, self._settings.heartbeat_ms,
                 self._settings.result_s, FORGET_WORKER_MS),
            )  # fmt: skip
            requeued += [job_id.decode() for job_id in back]
            ended += [job_id.decode() for job_id in over]
            if page == b"0":
                return Recovery((), requeued, ended)

    async def _adopt(self, owner: Trip | Receipt) -> Recovery:
        """What one trip claimed, or (by the receipt of one claim) that claim, where it is still ours."""
        asked: tuple[Any, ...]
        if isinstance(owner, Trip):
            broker, asked = owner.broker, (owner.number, "", "")
        else:
            broker, asked = self._id, ("", owner.job_id, owner.fence)
        start = self._head()
        rows = await self._store.run(
            SCRIPTS["adopt"], [*self._keys.fixed, self._keys.trip(broker)], (*start, *asked)
        )
        if owner == self._unanswered:
            self._unanswered = None
        return Recovery([codec.decode_claim(row, self._server, start[0]) for row in rows])

    async def close(self) -> None:
        await self._idling.close()
        await self._scheduler.close()

    def _is_beat_due(self, now: int) -> bool:
        return self._beaten_at is None or abs(now - self._beaten_at) >= self._settings.beat_every_ms

    def _metadata(self, now: int) -> bytes:
        return metadata(self._settings.identity, now)


def _verdict(job_id: str, code: int | bytes) -> SettleError | None:
    if isinstance(code, bytes):
        return SettlementFailed(job_id, code.decode("utf-8", "replace"))
    if code == 0:
        return None
    error, detail = ERRORS[code]
    return error(job_id, detail)
