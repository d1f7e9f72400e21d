"""The streams protocol's Broker: each verb one script."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any
from uuid import uuid4

import msgpack

from corral.core.batch import encode_all
from corral.core.job import Claim, Job
from corral.core.outcome import Settlement
from corral.core.ports import Added, Extension, Ledger, Recovery, Rest, Turn, Why
from corral.errors import (
    IdempotencyConflict,
    JobMissing,
    LockMissing,
    LockStolen,
    NotActive,
    RedisError,
    Refused,
    SettleError,
    SettlementFailed,
)
from corral.protocols.base import Binding, check_ids, encode_apart, with_refusals
from corral.protocols.batches import MOST_BYTES, MOST_ROWS, cuts, overlapped
from corral.protocols.streams import codec
from corral.protocols.streams.codec import Receipt, Settings, Trip
from corral.protocols.streams.keys import Keys
from corral.store.client import BlockingConnection
from corral.store.scripts import Scripts

ERRORS: dict[int, tuple[type[SettleError], str]] = {
    1: (LockMissing, "its queue entry is not pending any more: it was settled, or taken back as abandoned"),
    2: (LockStolen, "its queue entry was delivered again since"),
    3: (JobMissing, "its time to live has run out, or it was removed"),
    4: (NotActive, "it is over already: someone else ended or cancelled it"),
}
CANCELED = 5
LONGEST_BLOCK_S = 5.0
RECOVER_ROWS = 100
"""Abandoned entries looked at in one call: putting one back takes a dozen commands."""
FORGET_WORKER_MS = 600_000
"""A worker of ours that was silent for so long, and holds nothing, is taken out of the group."""

SCRIPTS = Scripts("corral.protocols.streams")
SKIPPED = ("expired", "over", "malformed")


def head(binding: Binding, keys: Keys, settings: Settings, speaker: str = "") -> tuple[Any, ...]:
    """The arguments every script begins with (lua/parts/story.lua)."""
    return (binding.clock(), speaker, settings.ttl_s, settings.max_events, keys.job_prefix)


class StreamsBroker:
    """Jobs in and out of `jobs:stream`."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)
        self._consumer = binding.profile.name
        """Our name in the group `workers`."""
        self._id = uuid4().hex
        self._trips = 0
        self._unanswered: Trip | None = None
        self.skipped: Counter[str] = Counter()
        """Queue entries this broker acknowledged unrun: expired, over (cancelled, finished), malformed."""

    def _head(self, speaker: str) -> tuple[Any, ...]:
        return head(self._binding, self._keys, self._settings, speaker)

    def _own_keys(self) -> list[str]:
        keys = self._keys
        return [keys.stream, keys.events, keys.workers, keys.trip(self._id)]

    @cached_property
    def _blocking(self) -> BlockingConnection:
        """The connection workers wait on; those who only submit have none."""
        return self._store.blocking_connection(self._keys.connection_name(self._consumer), LONGEST_BLOCK_S)

    # -- in ---------------------------------------------------------------------------------------------

    async def submit(
        self, jobs: Sequence[Job], ledger: Ledger | None = None, together: bool = True
    ) -> list[Added | Refused]:
        if ledger is not None:
            check_ids(jobs)
        rows, refusals = encode_apart(jobs, self._encode, together)
        batches = [rows[cut] for cut in cuts([len(row.payload) for row in rows])]
        if together and len(batches) > 1:
            await self._check_idempotency([row._replace(payload=b"") for row in rows if row.idempotency_key])
        send = self._create if together else self._create_apart
        answers = await overlapped(batches, lambda batch: send(batch, ledger))
        return with_refusals(list(chain.from_iterable(answers)), refusals)

    async def drop_ledger(self, ledger: Ledger) -> None:
        await self._store.call("UNLINK", self._keys.ledger(ledger.name))

    def _encode(self, jobs: Sequence[Job]) -> list[codec.Row]:
        now, keys, ttl_s = self._binding.clock(), self._keys, self._settings.ttl_s
        return encode_all(jobs, lambda job: codec.encode_job(job, str(uuid4()), keys, ttl_s, now))

    async def _check_idempotency(self, keyed: Sequence[codec.Row]) -> None:
        """Refuse a list before the first of its batches is written, not after some of them are."""
        planned: dict[str, codec.Row] = {}
        for start in range(0, len(keyed), MOST_ROWS):
            batch = keyed[start : start + MOST_ROWS]
            for row, added in zip(batch, await self._create(batch, verb="check_idempotency"), strict=True):
                if isinstance(added, Added) and added.id == row.id:
                    # its key is free until an earlier batch of this very list takes it
                    earlier = planned.setdefault(row.idempotency_key, row)
                    if earlier.fingerprint != row.fingerprint:
                        raise _refused(b"conflict", row, earlier.id)

    async def _create(
        self, rows: Sequence[codec.Row], ledger: Ledger | None = None, verb: str = "submit"
    ) -> list[Added | Refused]:
        keys = self._keys
        names = [keys.stream, keys.events, *keys.of_jobs(row.id for row in rows)]
        for row in rows:
            if row.idempotency_key:
                names += [row.idempotency_key, row.fingerprint_key]
        note = ("", "") if ledger is None else (keys.ledger(ledger.name), ledger.seconds)
        if ledger is not None:
            names.append(note[0])
        word, *rest = await self._store.run(SCRIPTS[verb], names, (*self._head(""), _pack(rows), *note))
        if word != b"added":
            error = _refused(word, rows[rest[0]], rest[1].decode())
            error.position = rest[0]
            raise error
        ids, existing = rest
        added: list[Added | Refused] = [Added(job_id.decode()) for job_id in ids]
        for place in existing:
            added[place] = Added(ids[place].decode(), existed=True)
        return added

    async def _create_apart(
        self, rows: Sequence[codec.Row], ledger: Ledger | None = None
    ) -> list[Added | Refused]:
        """Create what can be created; a row that is refused leaves the others alone."""
        places = list(range(len(rows)))
        refusals: dict[int, Refused] = {}
        while True:
            try:
                added = await self._create([rows[place] for place in places], ledger)
                return with_refusals(added, refusals)
            except Refused as error:
                # nothing of the batch was written
                refusals[places.pop(error.position or 0)] = error

    # -- out --------------------------------------------------------------------------------------------

    async def turn(self, settlements: Sequence[Settlement], want: int) -> Turn:
        verdicts: list[SettleError | None] = [None] * len(settlements)
        rows = [
            (position, row)
            for position, settlement in enumerate(settlements)
            if (row := codec.encode_settlement(settlement)) is not None
        ]
        sizes = [len(row[6]) + len(row[7]) for _, row in rows]
        *earlier, last = [rows[cut] for cut in cuts(sizes)] or [[]]
        for batch in earlier:
            await self._trip(batch, 0, verdicts)
        return await self._trip(last, want, verdicts)

    async def _trip(
        self, batch: Sequence[tuple[int, tuple[Any, ...]]], want: int, verdicts: list[SettleError | None]
    ) -> Turn:
        if not batch and want <= 0:
            return Turn(verdicts, (), Rest(Why.SATISFIED))
        keys, rows = self._keys, [row for _, row in batch]
        self._trips += 1
        if want > 0:
            self._unanswered = Trip(self._id, self._trips)
        start = self._head(self._consumer)
        codes, claimed, why, seen, skipped = await self._store.run(
            SCRIPTS["turn"],
            [*self._own_keys(), *keys.of_jobs(row[3] for row in rows)],
            (*start, _pack(rows), want, self._trips, self._binding.profile.lock_ms, MOST_BYTES),
        )
        if want > 0:
            self._unanswered = None
        self._count(skipped)
        for (position, row), code in zip(batch, codes, strict=True):
            verdicts[position] = _verdict(row[3], code)
        claims = [codec.decode_claim(row, self._consumer, start[0]) for row in claimed]
        return Turn(verdicts, claims, Rest(Why(why.decode()), cursor=seen.decode() or None))

    @property
    def unanswered(self) -> Trip | None:
        return self._unanswered

    async def wait(self, rest: Rest) -> None:
        if rest.why is Why.SATISFIED:
            return
        block_ms = int(LONGEST_BLOCK_S * 1000)
        await self._blocking.call(
            "XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", self._keys.stream, rest.cursor or "$"
        )

    # -- upkeep -----------------------------------------------------------------------------------------

    async def extend(self, claims: Sequence[Claim]) -> Extension:
        lost: list[Claim] = []
        cancelled: list[Claim] = []
        keys = self._keys
        for start in range(0, len(claims), MOST_ROWS):
            chunk = claims[start : start + MOST_ROWS]
            rows = [(*_fence(claim.receipt), claim.job.id) for claim in chunk]
            names = [keys.stream, keys.events, *keys.of_jobs(claim.job.id for claim in chunk)]
            codes = await self._store.run(
                SCRIPTS["extend"], names, (*self._head(self._consumer), _pack(rows))
            )
            for claim, code in zip(chunk, codes, strict=True):
                if code == CANCELED:
                    cancelled.append(claim)
                elif code != 0:
                    lost.append(claim)
        return Extension(lost, cancelled)

    async def promote(self) -> int:
        """Nothing is ever delayed here."""
        return 0

    async def recover(self, owner: Any = None) -> Recovery:
        return await self._sweep() if owner is None else await self._adopt(owner)

    async def _sweep(self) -> Recovery:
        settings = self._settings
        requeued: list[str] = []
        ended: list[str] = []
        page = "-"
        while page:
            back, over, following, skipped = await self._store.run(
                SCRIPTS["recover"],
                [self._keys.stream, self._keys.events, self._keys.workers],
                (*self._head(self._consumer), settings.max_deliveries, settings.stranger_idle_ms,
                 page, RECOVER_ROWS, FORGET_WORKER_MS),
            )  # fmt: skip
            requeued += [job_id.decode() for job_id in back]
            ended += [job_id.decode() for job_id in over]
            self._count(skipped)
            page = following.decode()
        return Recovery((), requeued, ended)

    async def _adopt(self, owner: Trip | Receipt) -> Recovery:
        """What one trip claimed, or (by the receipt of one claim) that claim, where it is still ours."""
        broker, number, entry = (
            (owner.broker, owner.number, "") if isinstance(owner, Trip) else (self._id, "", owner.entry)
        )
        start = self._head(self._consumer)
        rows = await self._store.run(
            SCRIPTS["adopt"],
            [self._keys.stream, self._keys.events, self._keys.trip(broker)],
            (*start, number, entry),
        )
        if owner == self._unanswered:
            self._unanswered = None
        return Recovery([codec.decode_claim(row, self._consumer, start[0]) for row in rows])

    async def close(self) -> None:
        if "_blocking" in self.__dict__:
            await self._blocking.disconnect()
        if not self._trips:
            return
        try:
            await self._store.run(SCRIPTS["leave"], self._own_keys(), self._head(self._consumer))
        except RedisError:
            # nothing of ours is lost by it: a later recovery takes the silent consumer out
            return

    def _count(self, skipped: Sequence[int]) -> None:
        self.skipped.update({why: count for why, count in zip(SKIPPED, skipped, strict=True) if count})


def _refused(word: bytes, row: codec.Row, job_id: str) -> IdempotencyConflict:
    return codec.conflict(word, row.idempotency_key.partition("idempotency:")[2], job_id)


def _verdict(job_id: str, code: int | bytes) -> SettleError | None:
    if isinstance(code, bytes):
        return SettlementFailed(job_id, code.decode("utf-8", "replace"))
    if code == 0:
        return None
    error, detail = ERRORS[code]
    return error(job_id, detail)


def _fence(receipt: Receipt) -> tuple[str, str, int]:
    return receipt.entry, receipt.consumer, receipt.deliveries


def _pack(rows: Sequence[Any]) -> bytes:
    packed: bytes = msgpack.packb(rows, use_bin_type=False)
    return packed
