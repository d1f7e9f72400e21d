"""The bridgemq protocol's Broker: each verb one script."""

import asyncio
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from corral.core.batch import encode_all
from corral.core.job import Claim, Job
from corral.core.outcome import Settlement
from corral.core.ports import GROUP_CONCURRENCY, MOST_ACTIVE, Added, Ledger, Recovery, Rest, RestReason
from corral.errors import Refused
from corral.protocols.base import Binding
from corral.protocols.batches import cuts
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.codec import BridgemqJobRow, BridgemqSettlementRow, ClaimReceipt
from corral.protocols.bridgemq.schedules.leader import ScheduleLeader
from corral.protocols.bridgemq.scripts import CANCELLING, ERRORS, SCRIPTS, BridgemqPort
from corral.protocols.broker import (
    LONGEST_BLOCK_S,
    BaseBroker,
    TripAnswer,
    TripReceipt,
    added_jobs,
    served_names,
    settle_errors,
)
from corral.protocols.wire import pack, text

RECOVER_ROWS = 100
"""Active jobs looked at in one call."""
FORGET_WORKER_MS = 86_400_000
"""How long a dead worker stays in the registry."""
LOOK_EVERY_S = 1.0
"""A delayed job or a schedule that is added meanwhile is seen by waiting workers within this time."""
FIRST_POLL_S = 0.01
LONGEST_POLL_S = 1.0
LONGEST_LIMITED_POLL_S = 0.25
"""A slot that others free is seen within this time."""
FIRST_REFUSAL_MS = 50
LONGEST_REFUSAL_MS = 1000
"""Between two tries to fire a due schedule while another worker leads."""

BridgemqReceipt = ClaimReceipt | TripReceipt
Rows = Sequence[BridgemqJobRow]


class Remaining(StrEnum):
    """What a turn left in the waiting list."""

    EMPTY = "empty"
    MORE = "more"
    """Jobs it has not looked at yet: claim again at once."""
    OTHERS = "others"
    """Only jobs that this worker cannot claim now."""
    GROUPS = "groups"
    """None, in a queue that has groups: a job that enters one cannot be blocked on."""


class BridgemqBroker(BridgemqPort, BaseBroker[Rows, BridgemqSettlementRow, BridgemqReceipt]):
    """Jobs in and out of one queue of one namespace."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        identity = self._settings.identity
        self._server = identity.server
        """Our name in locks and in the registry."""
        self._skills = pack([sorted(identity.stack), sorted(identity.capabilities), sorted(identity.region)])
        self._serves = served_names(binding.profile)
        self._cursor: bytes = b""
        """How far the waiting jobs were looked at; opaque here (lua/parts/scan.lua)."""
        self._beat_at: int | None = None
        self._leader = ScheduleLeader(binding)
        limits = binding.profile.whole_numbers({GROUP_CONCURRENCY: MOST_ACTIVE})
        self._group_limit: int | str = limits.get(GROUP_CONCURRENCY, "")
        self._polls = 0
        """Polls in a row without a claim."""
        self._refusals = 0
        """Tries in a row to fire a due schedule that another worker must fire."""
        self._refused_until = 0

    # -- submitting -------------------------------------------------------------------------------------

    def _ledger_key(self, name: str) -> str:
        return self._keys.ledger(name)

    def _encode_jobs(self, jobs: Sequence[Job]) -> list[Rows]:
        now = self._binding.clock()
        rows = encode_all(jobs, lambda job: codec.encode_job(job, now))
        return [rows[cut] for cut in cuts([len(row.raw) for row in rows])]

    async def _submit_batch(
        self, batch: Rows, ledger: Ledger | None, together: bool
    ) -> Sequence[Added | Refused]:
        keys = self._keys
        names = [*keys.fixed, *(name(row.id) for row in batch for name in (keys.data, keys.status))]
        seconds: int | str = ""
        if ledger is not None:
            seconds = ledger.seconds
            names.append(keys.ledger(ledger.name))
        existing, others = await self._store.run(
            SCRIPTS["submit"], names, (*self._head(), self._binding.queue, pack(batch), seconds)
        )
        ids = [row.id for row in batch]
        for position, job_id in others:
            ids[position] = job_id.decode()
        return added_jobs(ids, existing)

    # -- turns ------------------------------------------------------------------------------------------

    def _receipt(self, trip: int) -> BridgemqReceipt:
        return TripReceipt(self._id, trip)

    def _encode_settlements(
        self, settlements: Sequence[Settlement[Any]]
    ) -> tuple[list[BridgemqSettlementRow], list[int]]:
        rows = [codec.encode_settlement(settlement) for settlement in settlements]
        return rows, [len(row.value) + len(row.data) for row in rows]

    async def _trip(
        self, rows: Sequence[BridgemqSettlementRow], want: int, receipt: BridgemqReceipt
    ) -> TripAnswer[BridgemqReceipt]:
        settings = self._settings
        head = self._head(self._server)
        now = head[0]
        is_beating = want > 0 and self._is_due(self._beat_at, settings.beat_every_ms, now)
        codes, claimed, reason, until, cursor, remaining, unhandled = await self._store.run(
            SCRIPTS["turn"],
            [*self._keys.fixed, *self._keys.fences(row.id for row in rows), self._keys.trip(self._id)],
            (*head, self._binding.queue, pack(rows), want, self._trips, self._binding.profile.lock_ms,
             settings.heartbeat_ms, codec.encode_worker(settings.identity, now) if is_beating else "",
             self._skills, self._cursor, settings.result_s, settings.scan,
             self._serves, self._binding.profile.unknown_ms, self._group_limit),
        )  # fmt: skip
        if want > 0:
            self._cursor = cursor
        if is_beating:
            self._beat_at = now
        if claimed:
            self._polls = 0
        return TripAnswer(
            settle_errors(ERRORS, [row.id for row in rows], codes),
            [codec.decode_claim(row, self._server, now) for row in claimed],
            Rest(RestReason(reason.decode()), int(until) or None, Remaining(remaining.decode())),
            [text(kind) for kind in unhandled],
        )

    @staticmethod
    def _is_due(last: int | None, every_ms: int, now: int) -> bool:
        return last is None or abs(now - last) >= every_ms

    # -- waiting ----------------------------------------------------------------------------------------

    async def wait(self, rest: Rest) -> None:
        if rest.reason is RestReason.SATISFIED or rest.cursor is Remaining.MORE:
            return
        if rest.reason is RestReason.PAUSED:
            await self._wait_for_resume()
        elif rest.reason is RestReason.LIMITED or rest.cursor is Remaining.GROUPS:
            await self._poll(rest, LONGEST_LIMITED_POLL_S)
        elif rest.cursor is Remaining.OTHERS:
            await self._poll(rest, LONGEST_POLL_S)
        else:
            await self._wait_for_push(rest)

    async def _wait_for_push(self, rest: Rest) -> None:
        """Block on the empty list; any client's push ends it."""
        deadline, due = self._binding.clock() + int(LONGEST_BLOCK_S * 1000), rest.until
        waiting = self._keys.waiting
        while True:
            now = self._binding.clock()
            if due is not None and due <= now:
                if await self._fire_if_due():
                    return
                due = await self._next_due()
                if due is not None and due <= now:
                    return
            if now >= deadline:
                return
            end = deadline if due is None else min(due, deadline)
            seconds = min(max((end - now) / 1000, 0.001), LOOK_EVERY_S)
            # moved from the left end to the left end: it stays where it is
            if await self._blocking.call("BLMOVE", waiting, waiting, "LEFT", "LEFT", seconds) is not None:
                return
            due = await self._next_due()

    async def _poll(self, rest: Rest, longest: float) -> None:
        """Sleep longer each time: with others' jobs in the list, nothing can be blocked on."""
        seconds = min(FIRST_POLL_S * 2 ** min(self._polls, 16), longest)
        self._polls += 1
        due, now = rest.until, self._binding.clock()
        if due is not None and due <= now and self._refusals:
            due = await self._next_due()
        if due is not None and due - now <= seconds * 1000:
            left = max((due - now) / 1000, 0.001)
            await asyncio.sleep(left)
            if await self._fire_if_due():
                return
            seconds -= left
        await asyncio.sleep(max(seconds, 0))

    async def _wait_for_resume(self) -> None:
        deadline = self._binding.clock() + int(LONGEST_BLOCK_S * 1000)
        seconds = 0.02
        while self._binding.clock() < deadline:
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, 0.2)
            if not await self._store.call("SISMEMBER", self._keys.paused, self._binding.queue):
                return

    async def _next_due(self) -> int | None:
        """Return when a delayed job or a schedule is due; a schedule that others must fire, not at once."""
        keys = self._keys
        delayed, cron, grouped = await self._store.pipe(
            [("ZRANGE", key, 0, 0, "WITHSCORES") for key in (keys.delayed, keys.cron, keys.grouped)]
        )
        scores = [float(delayed[1])] if delayed else []
        if grouped:
            return self._binding.clock()
        if cron:
            scores.append(max(float(cron[1]), self._refused_until))
        soon = [score for score in scores if score < 1e15]
        return int(min(soon)) if soon else None

    async def _fire_if_due(self) -> bool:
        """Fire due schedules; return False where others must do so, after which to wait longer each time.

        The turn that follows promotes delayed jobs.
        """
        first = await self._store.call("ZRANGE", self._keys.cron, 0, 0, "WITHSCORES")
        now = self._binding.clock()
        if not first or float(first[1]) > now:
            return True
        if now >= self._refused_until:
            # not cancelled half-way: a schedule taken and not fired would wait for its lease to expire
            fired = await asyncio.shield(asyncio.ensure_future(self._leader.fire_due()))
            if fired is not None:
                self._refusals = 0
                return True
            self._refused_until = now + min(FIRST_REFUSAL_MS << min(self._refusals, 16), LONGEST_REFUSAL_MS)
            self._refusals += 1
        return False

    # -- maintenance ------------------------------------------------------------------------------------

    async def _renew(self, claims: Sequence[Claim[Any]]) -> tuple[Iterable[int], Iterable[int]]:
        codes = await self._store.run(
            SCRIPTS["extend"],
            [*self._keys.fixed, *self._keys.fences(claim.job.id for claim in claims)],
            (*self._head(self._server), self._binding.profile.lock_ms, self._settings.heartbeat_ms,
             pack([(claim.job.id, claim.receipt.fence) for claim in claims])),
        )  # fmt: skip
        lost = [index for index, code in enumerate(codes) if code not in (0, CANCELLING)]
        return lost, [index for index, code in enumerate(codes) if code == CANCELLING]

    async def _renew_trip(self, receipt: BridgemqReceipt) -> None:
        if isinstance(receipt, TripReceipt):
            names = [*self._keys.fixed, self._keys.trip(receipt.broker)]
            arguments = (*self._head(self._server), receipt.number, self._binding.profile.lock_ms)
            await self._store.run(SCRIPTS["extend_trip"], names, arguments)

    async def promote(self) -> int:
        """Make due jobs claimable; the leader also fires due schedules, and corrects counters."""
        moved: int = await self._store.run(SCRIPTS["promote"], self._keys.fixed, self._head(self._server))
        fired = await self._leader.fire_due()
        if fired is None:
            return moved
        await self._leader.audit_if_due()
        return moved + fired

    async def _sweep(self) -> Recovery[BridgemqReceipt]:
        settings = self._settings
        requeued: list[str] = []
        ended: list[str] = []
        page = b"0"
        while True:
            back, over, page = await self._run(
                "recover", page, RECOVER_ROWS, settings.heartbeat_ms, settings.result_s, FORGET_WORKER_MS
            )
            requeued += [job_id.decode() for job_id in back]
            ended += [job_id.decode() for job_id in over]
            if page == b"0":
                # the leader looks for dead workers more often than the others
                is_leading = self._leader.is_leader is not False
                often = min(settings.sweep_every_ms, self._binding.profile.recover_ms)
                next_ms = often if is_leading else None
                return Recovery((), requeued, ended, next_ms=next_ms)

    async def _adopt(self, owner: BridgemqReceipt) -> Sequence[Claim[BridgemqReceipt]]:
        """Return what a trip claimed or, by the receipt of one claim, that claim."""
        arguments: tuple[Any, ...]
        if isinstance(owner, TripReceipt):
            broker, arguments = owner.broker, (owner.number, "", "")
        else:
            broker, arguments = self._id, ("", owner.job_id, owner.fence)
        head = self._head(self._server)
        rows = await self._store.run(
            SCRIPTS["adopt"], [*self._keys.fixed, self._keys.trip(broker)], (*head, *arguments)
        )
        return [codec.decode_claim(row, self._server, head[0]) for row in rows]

    def _connection_name(self) -> str:
        return self._keys.connection_name(self._binding.profile.name)

    async def close(self) -> None:
        await super().close()
        await self._leader.release()
