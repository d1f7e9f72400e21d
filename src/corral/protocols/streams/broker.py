"""The streams protocol's Broker: each verb one script."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any
from uuid import uuid4

from corral.core.batch import encode_all
from corral.core.job import Claim, Job
from corral.core.outcome import Settlement
from corral.core.ports import Added, Ledger, Recovery, Rest, RestReason
from corral.errors import IdempotencyConflict, RedisError, Refused
from corral.protocols.base import Binding
from corral.protocols.batches import MOST_BYTES, MOST_ROWS, cuts
from corral.protocols.broker import (
    LONGEST_BLOCK_S,
    BaseBroker,
    TripAnswer,
    TripReceipt,
    added_jobs,
    served_names,
    settle_errors,
    with_refusals,
)
from corral.protocols.streams import codec
from corral.protocols.streams.codec import EntryReceipt, StreamsJobRow, StreamsSettlementRow
from corral.protocols.streams.scripts import CANCELED, ERRORS, SCRIPTS, StreamsPort
from corral.protocols.wire import pack, text

RECOVER_ROWS = 100
"""Abandoned entries looked at in one call: putting one back takes a dozen commands."""
FORGET_WORKER_MS = 600_000
"""A Corral worker that was silent for so long, and holds nothing, is removed from the group."""
SKIPPED = ("expired", "over", "malformed")

StreamsReceipt = EntryReceipt | TripReceipt
Rows = Sequence[StreamsJobRow]


class StreamsBroker(StreamsPort, BaseBroker[Rows, StreamsSettlementRow, StreamsReceipt]):
    """Jobs in and out of `jobs:stream`."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._consumer = binding.profile.name
        """Our name in the group `workers`."""
        self._serves = served_names(binding.profile)
        self.skipped: Counter[str] = Counter()
        """Queue entries this broker acknowledged unrun: expired, over (cancelled, finished), malformed."""

    # -- submitting -------------------------------------------------------------------------------------

    def _ledger_key(self, name: str) -> str:
        return self._keys.ledger(name)

    def _encode_jobs(self, jobs: Sequence[Job]) -> list[Rows]:
        now, keys, ttl_s = self._binding.clock(), self._keys, self._settings.ttl_s
        rows = encode_all(jobs, lambda job: codec.encode_job(job, str(uuid4()), keys, ttl_s, now))
        return [rows[cut] for cut in cuts([len(row.payload) for row in rows])]

    async def _check_batches(self, batches: Sequence[Rows]) -> None:
        """Refuse a list for its idempotency keys before the first of its batches is written."""
        if len(batches) < 2:
            return
        keyed = [row._replace(payload=b"") for row in chain.from_iterable(batches) if row.idempotency_key]
        planned: dict[str, StreamsJobRow] = {}
        for start in range(0, len(keyed), MOST_ROWS):
            batch = keyed[start : start + MOST_ROWS]
            for row, added in zip(batch, await self._create("check_idempotency", batch, None), strict=True):
                if isinstance(added, Added) and added.id == row.id:
                    # its key is free until an earlier batch of this very list takes it
                    earlier = planned.setdefault(row.idempotency_key, row)
                    if earlier.fingerprint != row.fingerprint:
                        raise _conflict(b"conflict", row, earlier.id)

    async def _submit_batch(
        self, batch: Rows, ledger: Ledger | None, together: bool
    ) -> Sequence[Added | Refused]:
        indexes = list(range(len(batch)))
        refusals: dict[int, Refused] = {}
        while True:
            try:
                added = await self._create("submit", [batch[index] for index in indexes], ledger)
                return with_refusals(added, refusals)
            except IdempotencyConflict as error:
                # nothing of the batch was written
                if together or error.position is None:
                    raise
                refusals[indexes.pop(error.position)] = error

    async def _create(self, verb: str, rows: Rows, ledger: Ledger | None) -> list[Added | Refused]:
        keys = self._keys
        names = [keys.stream, keys.events, *keys.of_jobs(row.id for row in rows)]
        for row in rows:
            if row.idempotency_key:
                names += [row.idempotency_key, row.fingerprint_key]
            if row.unique is not None:
                names.append(row.unique[0])
        arguments: tuple[Any, ...] = ("", "")
        if ledger is not None:
            arguments = (keys.ledger(ledger.name), ledger.seconds)
            names.append(keys.ledger(ledger.name))
        word, *rest = await self._store.run(SCRIPTS[verb], names, (*self._head(), pack(rows), *arguments))
        if word != b"added":
            error = _conflict(word, rows[rest[0]], rest[1].decode())
            error.position = rest[0]
            raise error
        return added_jobs([job_id.decode() for job_id in rest[0]], rest[1])

    # -- turns ------------------------------------------------------------------------------------------

    def _receipt(self, trip: int) -> StreamsReceipt:
        return TripReceipt(self._id, trip)

    def _encode_settlements(
        self, settlements: Sequence[Settlement[Any]]
    ) -> tuple[list[StreamsSettlementRow], list[int]]:
        rows = [codec.encode_settlement(settlement) for settlement in settlements]
        return rows, [len(row.value) + len(row.data) for row in rows]

    def _own_keys(self) -> list[str]:
        keys = self._keys
        return [keys.stream, keys.events, keys.workers, keys.trip(self._id)]

    async def _trip(
        self, rows: Sequence[StreamsSettlementRow], want: int, receipt: StreamsReceipt
    ) -> TripAnswer[StreamsReceipt]:
        head = self._head(self._consumer)
        codes, claimed, reason, seen, skipped, woken, others = await self._store.run(
            SCRIPTS["turn"],
            [*self._own_keys(), *self._keys.of_jobs(row.id for row in rows)],
            (*head, pack(rows), want, self._trips, self._binding.profile.lock_ms, MOST_BYTES, self._serves),
        )
        self._count(skipped)
        return TripAnswer(
            settle_errors(ERRORS, [row.id for row in rows], codes),
            [codec.decode_claim(row, self._consumer, head[0]) for row in claimed],
            Rest(RestReason(reason.decode()), cursor=(seen.decode() or "$", woken.decode())),
            [text(task) for task in others],
        )

    async def wait(self, rest: Rest) -> None:
        if rest.reason is RestReason.SATISFIED:
            return
        block_ms = int(LONGEST_BLOCK_S * 1000)
        keys = self._keys
        await self._blocking.call(
            "XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", keys.stream, keys.parked, *rest.cursor
        )

    # -- maintenance ------------------------------------------------------------------------------------

    async def _renew(self, claims: Sequence[Claim[Any]]) -> tuple[Iterable[int], Iterable[int]]:
        keys = self._keys
        rows = [
            (claim.receipt.entry, claim.receipt.consumer, claim.receipt.deliveries, claim.job.id)
            for claim in claims
        ]
        names = [keys.stream, keys.events, *keys.of_jobs(claim.job.id for claim in claims)]
        codes = await self._store.run(SCRIPTS["extend"], names, (*self._head(self._consumer), pack(rows)))
        lost = [index for index, code in enumerate(codes) if code not in (0, CANCELED)]
        return lost, [index for index, code in enumerate(codes) if code == CANCELED]

    async def _renew_trip(self, receipt: StreamsReceipt) -> None:
        if isinstance(receipt, TripReceipt):
            names = [self._keys.stream, self._keys.events, self._keys.trip(receipt.broker)]
            arguments = (*self._head(self._consumer), receipt.number)
            await self._store.run(SCRIPTS["extend_trip"], names, arguments)

    async def promote(self) -> int:
        """Return 0: nothing is ever delayed here."""
        return 0

    async def _sweep(self) -> Recovery[StreamsReceipt]:
        settings = self._settings
        requeued: list[str] = []
        ended: list[str] = []
        page = "-"
        while page:
            back, over, following, skipped = await self._store.run(
                SCRIPTS["recover"],
                [self._keys.stream, self._keys.events, self._keys.workers],
                (*self._head(self._consumer), settings.max_deliveries, settings.stranger_idle_ms,
                 page, RECOVER_ROWS, FORGET_WORKER_MS, self._binding.profile.unknown_ms),
            )  # fmt: skip
            requeued += [job_id.decode() for job_id in back]
            ended += [job_id.decode() for job_id in over]
            self._count(skipped)
            page = following.decode()
        return Recovery((), requeued, ended)

    async def _adopt(self, owner: StreamsReceipt) -> Sequence[Claim[StreamsReceipt]]:
        """Return what a trip claimed or, by the receipt of one claim, that claim."""
        broker, number, entry = self._id, "", ""
        if isinstance(owner, TripReceipt):
            broker, number = owner.broker, str(owner.number)
        else:
            entry = owner.entry
        head = self._head(self._consumer)
        rows = await self._store.run(
            SCRIPTS["adopt"],
            [self._keys.stream, self._keys.events, self._keys.trip(broker)],
            (*head, number, entry),
        )
        return [codec.decode_claim(row, self._consumer, head[0]) for row in rows]

    def _connection_name(self) -> str:
        return self._keys.connection_name(self._consumer)

    async def close(self) -> None:
        await super().close()
        if not self._trips:
            return
        try:
            await self._store.run(SCRIPTS["leave"], self._own_keys(), self._head(self._consumer))
        except RedisError:
            # nothing is lost by it: a later recovery removes the silent consumer
            return

    def _count(self, skipped: Sequence[int]) -> None:
        self.skipped.update({why: count for why, count in zip(SKIPPED, skipped, strict=True) if count})


def _conflict(word: bytes, row: StreamsJobRow, job_id: str) -> IdempotencyConflict:
    return codec.conflict(word, row.idempotency_key.partition("idempotency:")[2], job_id)
