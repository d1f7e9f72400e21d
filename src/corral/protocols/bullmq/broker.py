"""The bullmq protocol's Broker: each verb one script."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import msgpack

from corral.core.batch import LazySequence
from corral.core.job import Claim, Job, JobState
from corral.core.outcome import Postponed, Settlement, Unhandled, WaitingChildren
from corral.core.ports import GROUP_CONCURRENCY, MOST_ACTIVE, Added, Ledger, Recovery, Rest, RestReason
from corral.errors import Refused, SettleError
from corral.protocols.base import Binding
from corral.protocols.batches import MOST_BYTES, SingleCalls, cuts
from corral.protocols.broker import LONGEST_BLOCK_S, BaseBroker, TripAnswer
from corral.protocols.bullmq import codec
from corral.protocols.bullmq.codec import PARENT, Envelope, JobRows, SettlementRow
from corral.protocols.bullmq.schedulers.iterations import Iterations, is_scheduled, postponement_ms
from corral.protocols.bullmq.scripts import ERRORS, BullmqPort, refusal
from corral.protocols.wire import pack, text

SHORTEST_BLOCK_S = 0.001
LATE_TRIP_MS = 600_000
"""How long a trip whose answer was lost may still arrive at the server."""
PARENT_MISSING, PARENT_TAKEN = -5, -7
LEFT_MS = 60_000
"""Twice the longest postponement of jobs that a worker has no handler for."""
OFFER_S, OFFER_MS = 0.25, 250
"""How much later a worker claims such a job than one that may have a handler for it."""
AFTER_KEY_MS = 5
"""How long after the end of the key that limits sweeps the next one begins."""


class BullmqBroker(BullmqPort, BaseBroker[JobRows, SettlementRow, str]):
    """Jobs in and out of one BullMQ queue. A receipt is the value of the locks of one trip."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._is_listed = False
        self._has_taken_marker = False
        self._left_until = 0
        """Until when jobs may be due that this worker has no handler for."""
        self._iterations = Iterations(binding)
        profile = binding.profile
        limit = profile.limit
        self._trip_arguments = (
            profile.name,
            limit.count if limit else "",
            limit.duration if limit else "",
            profile.metrics_points or "",
            MOST_BYTES,
            profile.whole_numbers({GROUP_CONCURRENCY: MOST_ACTIVE}).get(GROUP_CONCURRENCY, ""),
        )

    # -- submitting -------------------------------------------------------------------------------------

    def _ledger_key(self, name: str) -> str:
        return self._keys.ledger(name)

    def _encode_jobs(self, jobs: Sequence[Job]) -> list[JobRows]:
        return batches_of(codec.encode_jobs(jobs))

    async def _check_batches(self, batches: Sequence[JobRows]) -> None:
        """Refuse a list of which one job's parent does not exist, or is another one than the job has: the
        script would add the other jobs."""
        envelopes = list(chain.from_iterable(batch.envelopes for batch in batches))
        children = {n: each for n, each in enumerate(envelopes) if len(each) > PARENT and each[PARENT]}
        if not children or len(envelopes) == 1:
            return
        wanted = [envelope[PARENT][0] for envelope in children.values()]
        present = await self._parents_of([envelope[0] for envelope in children.values()])
        exist = await self._existing({*wanted, *present})
        firsts: dict[str, int] = {}
        for position, envelope in reversed(list(enumerate(envelopes))):
            firsts[self._keys.job(envelope[0])] = position
        for position, parent, other in zip(children, wanted, present, strict=True):
            # the parent may be one of this very list, before its child
            code = 0
            if parent not in exist and firsts.get(parent, position) >= position:
                code = PARENT_MISSING
            elif other != parent and other in exist:
                code = PARENT_TAKEN
            if code:
                error = refusal(code, envelopes[position][0], parent)
                error.position = position
                raise error

    async def _parents_of(self, job_ids: Sequence[str]) -> list[str]:
        """Return the key of the parent that each job has already; "" where it has none, or is new."""
        reads = [("HGET", self._keys.job(job_id), "parentKey") for job_id in job_ids]
        return [text(key or b"") for key in await self._pipe(*reads)]

    async def _existing(self, keys: Iterable[str]) -> set[str]:
        names = [key for key in keys if key]
        exist = await self._pipe(*(("EXISTS", key) for key in names))
        return {key for key, exists in zip(names, exist, strict=True) if exists}

    async def _submit_batch(
        self, batch: JobRows, ledger: Ledger | None, together: bool
    ) -> Sequence[Added | Refused]:
        keys: Sequence[str] = self._keys.fixed
        seconds = ""
        if ledger is not None:
            keys, seconds = (*keys, self._keys.ledger(ledger.name)), str(ledger.seconds)
        answer = await self._run_with("submit", keys, (*batch.arguments(), seconds))
        return decode_added(answer, batch.envelopes)

    async def submit(
        self, jobs: Sequence[Job], ledger: Ledger | None = None, together: bool = True
    ) -> list[Added | Refused]:
        if len(jobs) != 1 or ledger is not None or not together:
            return await super().submit(jobs, ledger, together)
        answer = await self._single_adds.call(codec.encode_jobs(jobs))
        if type(answer) is not Added:
            assert isinstance(answer, Refused)
            answer.position = 0
            raise answer
        return [answer]

    @cached_property
    def _single_adds(self) -> SingleCalls[JobRows, Added | Refused]:
        """Jobs that are added one by one, by many callers at once."""
        return SingleCalls(self._add_each, lambda rows: rows.sizes[0])

    async def _add_each(self, single: Sequence[JobRows]) -> Sequence[Added | Refused]:
        rows = single[0]
        if len(single) > 1:
            rows = JobRows([each.envelopes[0] for each in single], [each.data[0] for each in single])
        return await self._submit_batch(rows, None, together=False)

    async def submit_rows(self, rows: JobRows) -> list[Added | Refused]:
        """Submit encoded jobs; a refusal leaves the others alone."""
        if len(rows) == 1:
            return [await self._single_adds.call(rows)]
        return await self._send(batches_of(rows), range(len(rows)))

    # -- turns ------------------------------------------------------------------------------------------

    def _receipt(self, trip: int) -> str:
        return f"{self._id}:{trip}"

    def _encode_settlements(
        self, settlements: Sequence[Settlement[str]]
    ) -> tuple[list[SettlementRow], list[int]]:
        rows = codec.encode_settlements(settlements, self._binding.profile)
        if Unhandled in {type(settlement.outcome) for settlement in settlements}:
            self._left_until = settlements[-1].at + LEFT_MS
        return rows, [len(value) for _, value, _ in rows]

    async def _before_claiming(self) -> None:
        """Open the blocking connection: tools count workers by it, also those that never had to wait."""
        if not self._is_listed:
            await self._blocking.call("EXISTS", self._keys.marker)
            self._is_listed = True

    async def _trip(self, rows: Sequence[SettlementRow], want: int, receipt: str) -> TripAnswer[str]:
        binding = self._binding
        now = binding.clock()
        failed, count, packed, reason, until, has_scheduled = await self._run_turn(rows, now, receipt, want)
        claims: Sequence[Claim[str]] = []
        if count:
            name = binding.profile.name
            claims = LazySequence(
                count, lambda: codec.decode_claims(packed, binding.queue, receipt, now, name)
            )
        if has_scheduled:
            # where this fails, the claims stay unanswered: they are adopted, and it is tried again
            claims = await self._continue_schedulers(claims, msgpack.unpackb(packed, raw=True))
        return TripAnswer(_errors(failed, rows), claims, Rest(RestReason(reason.decode()), until or None))

    async def _run_turn(
        self, rows: Sequence[SettlementRow], now: int, receipt: str = "", want: int = 0
    ) -> Any:
        """Return what the turn script answers."""
        prefix = self._keys.prefix
        return await self._run_with(
            "turn",
            # what keys.lock returns, written out: this runs once for every job
            (*self._keys.fixed, *[f"{prefix}{job_id}:lock" for job_id, _, _ in rows]),
            (
                now,
                receipt,
                self._binding.profile.lock_ms,
                want,
                codec.pack_settlements(rows),
                *self._trip_arguments,
            ),
        )

    async def _continue_schedulers(
        self, claims: Sequence[Claim[str]], rows: Sequence[Sequence[Any]]
    ) -> Sequence[Claim[str]]:
        """Make the next job of each scheduler whose job was claimed; return the claims that may run."""
        scheduled = [index for index, claim in enumerate(claims) if is_scheduled(claim)]
        failed = await self._iterations.make_next(
            [claims[index] for index in scheduled], [rows[index] for index in scheduled]
        )
        if not failed:
            return claims
        now = self._binding.clock()
        postponed = [Settlement(claim, Postponed(postponement_ms(claim)), now) for claim in failed]
        await self._run_turn(self._encode_settlements(postponed)[0], now)
        return [claim for claim in claims if claim not in failed]

    async def await_children(self, claim: Claim[str], child_key: str = "") -> bool:
        """Set a claimed job aside until its children (or that one) have ended; False where none is pending.

        Where it is True the claim is settled: the handler ends with `AlreadyMoved`.
        """
        now = self._binding.clock()
        [(job_id, _, envelope)], _ = self._encode_settlements([Settlement(claim, WaitingChildren(), now)])
        failed, *_ = await self._run_turn([(job_id, child_key, envelope)], now)
        for _, code, detail in failed:
            if code == 1:
                return False
            raise ERRORS[code](claim.job.id, text(detail))
        return True

    async def wait(self, rest: Rest) -> None:
        if rest.reason is RestReason.SATISFIED:
            return
        if rest.reason is RestReason.LIMITED and rest.until is not None:
            # the marker is left for when the limit has passed: taking it now would wake nobody
            await asyncio.sleep(min(max(rest.until - self._binding.clock(), 1) / 1000, LONGEST_BLOCK_S))
            return
        until, has_offered = rest.until, False
        deadline = self._binding.clock() + int(LONGEST_BLOCK_S * 1000)
        while True:
            now = self._binding.clock()
            end = deadline if until is None else min(until, deadline)
            if now < self._left_until:
                end += OFFER_MS  # others that wait for the same job come first
            if end <= now:
                return
            marker = await self._pop_marker(max((end - now) / 1000, SHORTEST_BLOCK_S))
            if marker is None:
                return
            member, due = marker
            if member == b"0":
                return
            # "1" says when the earliest delayed job is due; this worker must watch it now
            until = due if until is None else min(until, due)
            if now < self._left_until and not has_offered:
                # it may be one that this worker has no handler for: another one that waits should watch it
                await self._store.call("ZADD", self._keys.marker, due, "1")
                await asyncio.sleep(OFFER_S)
                has_offered = True

    async def _pop_marker(self, timeout: float) -> tuple[bytes, int] | None:
        # until the answer is here, the server may have given the marker to a connection nobody reads any more
        self._has_taken_marker = True
        answer = await self._blocking.call("BZPOPMIN", self._keys.marker, timeout)
        self._has_taken_marker = False
        return None if answer is None else (answer[1], int(float(answer[2])))

    # -- maintenance ------------------------------------------------------------------------------------

    async def _renew(self, claims: Sequence[Claim[str]]) -> tuple[Iterable[int], Iterable[int]]:
        lost, cancelled = await self._run_with(
            "extend",
            (*self._keys.fixed, *[self._keys.lock(claim.job.id) for claim in claims]),
            (self._binding.profile.lock_ms, pack([(claim.job.id, claim.receipt) for claim in claims])),
        )
        return [number - 1 for number in lost], [number - 1 for number in cancelled]

    async def _renew_trip(self, receipt: str) -> None:
        await self._run("extend_trip", receipt, self._binding.profile.lock_ms)

    async def promote(self) -> int:
        moved: int = await self._run("promote", self._binding.clock())
        return moved

    async def _sweep(self) -> Recovery[str]:
        profile = self._binding.profile
        requeued: list[str] = []
        word, interval = b"more", str(profile.sweep_ms)
        while word == b"more":
            ids, left_ms, word = await self._run(
                "recover", self._binding.clock(), profile.max_stalls, interval
            )
            requeued += [job_id.decode() for job_id in ids]
            interval = ""
        return Recovery(
            requeued=requeued,
            is_skipped=word == b"left out",
            # later than the key's end, or a lone worker would meet its own; a foreign key may have none
            next_ms=left_ms + AFTER_KEY_MS if left_ms >= 0 else None,
        )

    async def _adopt(self, owner: str) -> Sequence[Claim[str]]:
        rows = await self._run("adopt", owner, LATE_TRIP_MS)
        queue = self._binding.queue
        claims = [Claim(codec.decode_job(row[0], row[1], queue, JobState.ACTIVE), owner) for row in rows]
        return await self._continue_schedulers(claims, rows) if any(map(is_scheduled, claims)) else claims

    def _connection_name(self) -> str:
        return self._keys.connection_name(self._binding.profile.name)

    async def close(self) -> None:
        if self._has_taken_marker:
            self._has_taken_marker = False
            await self._run("restore_marker")
        await super().close()


def batches_of(rows: JobRows) -> list[JobRows]:
    """Return the rows of each trip."""
    return [JobRows(rows.envelopes[cut], rows.data[cut]) for cut in cuts(rows.sizes)]


def decode_added(
    answer: tuple[Sequence[Any], Sequence[int]], envelopes: Sequence[Envelope]
) -> list[Added | Refused]:
    """Return what the submit script answered for each job: its id, or why it was refused."""
    ids, existing = answer
    added: list[Added | Refused] = [
        Added(job_id.decode())
        if type(job_id) is bytes
        else refusal(job_id, envelopes[index][0], envelopes[index][PARENT][0])
        for index, job_id in enumerate(ids)
    ]
    for number in existing:
        added[number - 1] = Added(ids[number - 1].decode(), existed=True)
    return added


def _errors(
    failed: Sequence[tuple[int, int, bytes]], rows: Sequence[SettlementRow]
) -> Iterable[tuple[int, SettleError]]:
    for number, code, detail in failed:
        yield number - 1, ERRORS[code](rows[number - 1][0], text(detail))
