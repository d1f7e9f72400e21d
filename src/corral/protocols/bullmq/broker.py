"""The BullMQ protocol's Broker: each verb one script."""

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import Any
from uuid import uuid4

import msgpack

from corral.core.batch import Unread
from corral.core.job import Claim, Job, JobState
from corral.core.outcome import AlreadyMoved, Postponed, Settlement, WaitingChildren
from corral.core.ports import Added, Extension, Ledger, Recovery, Rest, Turn, Why
from corral.errors import Refused, SettleError
from corral.protocols.base import Binding, check_ids, encode_apart, raise_refusal, with_refusals
from corral.protocols.batches import MOST_BYTES, MOST_ROWS
from corral.protocols.bullmq import codec
from corral.protocols.bullmq.bound import SCRIPTS as SCRIPTS
from corral.protocols.bullmq.codec import pack
from corral.protocols.bullmq.codes import ERRORS as ERRORS
from corral.protocols.bullmq.iterations import Iterations, is_scheduled, put_off_ms
from corral.protocols.bullmq.keys import Keys
from corral.protocols.bullmq.submitting import encode_jobs, submit_rows
from corral.store.client import BlockingConnection

LONGEST_BLOCK_S = 5.0
SHORTEST_BLOCK_S = 0.001
GIVEN_UP_MS = 600_000
"""How long a lost trip may still be on its way."""


class BullmqBroker:
    """Jobs in and out of one BullMQ queue."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)
        self._owner = str(uuid4())
        self._turns = 0
        self._unanswered: str | None = None
        self._is_listed = False
        self._wake_up_at_risk = False
        self._iterations = Iterations(binding)
        profile = binding.profile
        limit = profile.limit
        self._tail = (
            profile.name,
            limit.count if limit else "",
            limit.duration if limit else "",
            profile.metrics_points or "",
            MOST_BYTES,
        )

    @cached_property
    def _blocking(self) -> BlockingConnection:
        """The connection workers wait on; those who only submit have none."""
        return self._store.blocking_connection(
            self._keys.connection_name(self._binding.profile.name), LONGEST_BLOCK_S
        )

    # -- in ---------------------------------------------------------------------------------------------

    async def submit(
        self, jobs: Sequence[Job], ledger: Ledger | None = None, together: bool = True
    ) -> list[Added | Refused]:
        if ledger is not None:
            check_ids(jobs)
        rows, refusals = encode_apart(jobs, encode_jobs, together)
        answers = await submit_rows(self._store, self._keys, rows, ledger)
        if together:
            raise_refusal(answers)
        return with_refusals(answers, refusals)

    async def drop_ledger(self, ledger: Ledger) -> None:
        await self._store.call("UNLINK", self._keys.ledger(ledger.name))

    # -- out --------------------------------------------------------------------------------------------

    async def turn(self, settlements: Sequence[Settlement], want: int) -> Turn:
        binding = self._binding
        now = binding.clock()
        verdicts: list[SettleError | None] = [None] * len(settlements)
        rows, positions = [], []
        for position, settlement in enumerate(settlements):
            if type(settlement.outcome) is not AlreadyMoved:
                rows.append(codec.encode_settlement(settlement, binding.profile))
                positions.append(position)
        self._turns += 1
        receipt = f"{self._owner}:{self._turns}"
        if want:
            await self._be_listed()
            self._unanswered = receipt
        refused, count, packed, why, until, has_scheduled = await self._trip(rows, now, receipt, want)
        for index, code, text in refused:
            position = positions[index - 1]
            job_id = settlements[position].claim.job.id
            verdicts[position] = ERRORS[code](job_id, text.decode("utf-8", "replace"))
        claims: Sequence[Claim] = []
        if count:
            name = binding.profile.name
            claims = Unread(count, lambda: codec.decode_claims(packed, binding.queue, receipt, now, name))
        if has_scheduled:
            claims = await self._carry_on(claims, msgpack.unpackb(packed, raw=True))
        if want:
            # only now: where a schedule could not be carried on, the claims are adopted and it is tried again
            self._unanswered = None
        return Turn(verdicts, claims, Rest(Why(why.decode()), until or None))

    async def _be_listed(self) -> None:
        """Open the blocking line: workers are counted by it, also those that have never had to wait."""
        if not self._is_listed:
            await self._blocking.call("EXISTS", self._keys.part("marker"))
            self._is_listed = True

    async def _carry_on(self, claims: Sequence[Claim], rows: Sequence[Sequence[Any]]) -> Sequence[Claim]:
        """Make the next job of each scheduler whose job is among the claims; those that may run."""
        scheduled = [place for place, claim in enumerate(claims) if is_scheduled(claim)]
        failed = await self._iterations.carry_on(
            [claims[place] for place in scheduled], [rows[place] for place in scheduled]
        )
        if not failed:
            return claims
        now, profile = self._binding.clock(), self._binding.profile
        put_off = [Settlement(claim, Postponed(put_off_ms(claim)), now) for claim in failed]
        await self._trip([codec.encode_settlement(settlement, profile) for settlement in put_off], now)
        return [claim for claim in claims if claim not in failed]

    async def _trip(self, rows: Sequence[Any], now: int, receipt: str = "", want: int = 0) -> Any:
        """What the turn script answers."""
        keys = self._keys
        return await self._store.run(
            SCRIPTS["turn"],
            (*keys.fixed, *[keys.lock(row[0]) for row in rows]),
            (now, receipt, self._binding.profile.lock_ms, want, pack(rows), *self._tail),
        )

    async def await_children(self, claim: Claim, child_key: str = "") -> bool:
        """Set a claimed job aside until its children (or that one) have ended; False where none is pending.

        Where it is True the claim is settled: a worker is told so by `AlreadyMoved`.
        """
        now = self._binding.clock()
        row = list(codec.encode_settlement(Settlement(claim, WaitingChildren(), now), self._binding.profile))
        row[5] = child_key
        refused, *_ = await self._trip([row], now)
        for _, code, text in refused:
            if code == 1:
                return False
            raise ERRORS[code](claim.job.id, text.decode("utf-8", "replace"))
        return True

    @property
    def unanswered(self) -> str | None:
        return self._unanswered

    async def wait(self, rest: Rest) -> None:
        if rest.why is Why.SATISFIED:
            return
        if rest.why is Why.LIMITED and rest.until is not None:
            # the marker is left for when the limit has passed: taking it now would wake nobody
            await asyncio.sleep(min(max(rest.until - self._binding.clock(), 1) / 1000, LONGEST_BLOCK_S))
            return
        until = rest.until
        give_up = self._binding.clock() + int(LONGEST_BLOCK_S * 1000)
        while True:
            now = self._binding.clock()
            end = give_up if until is None else min(until, give_up)
            if end <= now:
                return
            marker = await self._pop_marker(max((end - now) / 1000, SHORTEST_BLOCK_S))
            if marker is None:
                return
            member, due = marker
            if member == b"0":
                return
            # "1" tells when the earliest delayed job is due; it is ours to watch now
            until = due if until is None else min(until, due)

    async def _pop_marker(self, timeout: float) -> tuple[bytes, int] | None:
        # until the answer is here, the server may have handed the marker to a line nobody reads any more
        self._wake_up_at_risk = True
        answer = await self._blocking.call("BZPOPMIN", self._keys.part("marker"), timeout)
        self._wake_up_at_risk = False
        return None if answer is None else (answer[1], int(float(answer[2])))

    # -- upkeep -----------------------------------------------------------------------------------------

    async def extend(self, claims: Sequence[Claim]) -> Extension:
        lost: list[Claim] = []
        cancelled: list[Claim] = []
        for start in range(0, len(claims), MOST_ROWS):
            chunk = claims[start : start + MOST_ROWS]
            gone, asked = await self._store.run(
                SCRIPTS["extend"],
                (*self._keys.fixed, *[self._keys.lock(claim.job.id) for claim in chunk]),
                (self._binding.profile.lock_ms, pack([(claim.job.id, claim.receipt) for claim in chunk])),
            )
            lost += [chunk[index - 1] for index in gone]
            cancelled += [chunk[index - 1] for index in asked]
        return Extension(lost, cancelled)

    async def promote(self) -> int:
        moved: int = await self._store.run(SCRIPTS["promote"], self._keys.fixed, (self._binding.clock(),))
        return moved

    async def recover(self, owner: Any = None) -> Recovery:
        now, profile = self._binding.clock(), self._binding.profile
        if owner is None:
            requeued = await self._store.run(
                SCRIPTS["recover"], self._keys.fixed, (now, profile.max_stalls, profile.recover_ms)
            )
            return Recovery(requeued=[job_id.decode() for job_id in requeued])
        rows = await self._store.run(SCRIPTS["adopt"], self._keys.fixed, (owner, GIVEN_UP_MS))
        queue = self._binding.queue
        claims: Sequence[Claim] = [
            Claim(codec.decode_job(row[0], row[1], queue, JobState.ACTIVE), owner) for row in rows
        ]
        if any(map(is_scheduled, claims)):
            claims = await self._carry_on(claims, rows)
        if owner == self._unanswered:
            self._unanswered = None
        return Recovery(claims)

    async def close(self) -> None:
        if self._wake_up_at_risk:
            self._wake_up_at_risk = False
            await self._store.run(SCRIPTS["restore_marker"], self._keys.fixed, ())
        if "_blocking" in self.__dict__:
            await self._blocking.disconnect()
