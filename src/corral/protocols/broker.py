"""What the brokers of all protocols share: submitting in batches, the frame of a turn, renewal, adoption."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Sized
from functools import cached_property
from itertools import chain, islice
from typing import Generic, TypeVar
from uuid import uuid4

from msgspec import Struct

from corral.core.job import Claim, Job, R
from corral.core.outcome import UNWRITTEN, Settlement
from corral.core.ports import Added, Extension, Ledger, Profile, Recovery, Rest, RestReason, Turn
from corral.errors import (
    AddInterrupted,
    InvalidName,
    RedisError,
    RedisResponseError,
    Refused,
    SettleError,
    SettlementFailed,
)
from corral.protocols.base import Binding, BoundPort
from corral.protocols.batches import MOST_ROWS, cuts, overlapped
from corral.protocols.wire import pack, text
from corral.store.client import BlockingConnection
from corral.store.errors import may_have_run

LONGEST_BLOCK_S = 5.0

Batch = TypeVar("Batch", bound=Sized)
Row = TypeVar("Row")

SettleErrors = Mapping[int, tuple[type[SettleError], str]]
"""The error of each code that a script answers for a settlement, and its detail."""


class TripReceipt(Struct, frozen=True):
    """One trip of one broker that claimed jobs."""

    broker: str
    number: int


class TripAnswer(Struct, Generic[R], frozen=True):
    """The answer to a trip: settlements that were not applied, by their index; new claims; and the rest,
    with the names of jobs that the worker has no handler for."""

    failed: Iterable[tuple[int, SettleError]]
    claims: Sequence[Claim[R]]
    rest: Rest
    unhandled: Sequence[str] = ()


class BaseBroker(BoundPort, ABC, Generic[Batch, Row, R]):
    """A broker over batches of encoded jobs, rows of encoded settlements, and receipts `R`."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._id = str(uuid4())
        self._trips = 0
        self._unanswered: R | None = None

    # -- submitting -------------------------------------------------------------------------------------

    @abstractmethod
    def _encode_jobs(self, jobs: Sequence[Job]) -> list[Batch]:
        """Return the jobs in batches; a refusal has the `position` of its job."""

    @abstractmethod
    async def _submit_batch(
        self, batch: Batch, ledger: Ledger | None, together: bool
    ) -> Sequence[Added | Refused]:
        """Submit one batch."""

    async def _check_batches(self, batches: Sequence[Batch]) -> None:
        """Refuse batches that stand together before the first is written; for what only the server knows."""

    @abstractmethod
    def _ledger_key(self, name: str) -> str:
        """Return the key of a ledger."""

    async def submit(
        self, jobs: Sequence[Job], ledger: Ledger | None = None, together: bool = True
    ) -> list[Added | Refused]:
        if ledger is not None:
            _check_ids(jobs)
        batches, refusals = self._encode(jobs, together)
        if together:
            await self._check_batches(batches)
        positions = [n for n in range(len(jobs)) if n not in refusals] if refusals else range(len(jobs))
        answers = await self._send(batches, positions, ledger, together)
        if together:
            for position, answer in enumerate(answers):
                if type(answer) is not Added:
                    # what was checked before has changed since
                    assert isinstance(answer, Refused)
                    answer.position = position
                    if len(answers) > 1:
                        answer.add_note("The other jobs of the list were added.")
                    raise answer
        return with_refusals(answers, refusals)

    async def _send(
        self,
        batches: Sequence[Batch],
        positions: Sequence[int],
        ledger: Ledger | None = None,
        together: bool = False,
    ) -> list[Added | Refused]:
        """Submit the batches; `positions` are those of their jobs in the caller's list."""
        answers: list[Sequence[Added | Refused] | RedisError | None] = [None] * len(batches)

        async def send(number: int) -> Sequence[Added | Refused]:
            try:
                answers[number] = answer = await self._submit_batch(batches[number], ledger, together)
                return answer
            except RedisError as error:
                answers[number] = error
                raise

        try:
            return list(chain.from_iterable(await overlapped(range(len(batches)), send)))
        except RedisError as error:
            if len(positions) == 1 or (len(batches) == 1 and isinstance(error, RedisResponseError)):
                raise  # one script, which checks everything before it writes: the server has refused it
            raise _interrupted(error, [len(batch) for batch in batches], answers, positions) from error

    def _encode(self, jobs: Sequence[Job], together: bool) -> tuple[list[Batch], dict[int, Refused]]:
        """Return the jobs in batches, and the refusals by position: none where the jobs stand together."""
        try:
            return self._encode_jobs(jobs), {}
        except Refused:
            if together:
                raise
        refusals: dict[int, Refused] = {}
        for position, job in enumerate(jobs):
            try:
                self._encode_jobs([job])
            except Refused as error:
                error.position = position
                refusals[position] = error
        return self._encode_jobs([job for n, job in enumerate(jobs) if n not in refusals]), refusals

    async def drop_ledger(self, ledger: Ledger) -> None:
        await self._store.call("UNLINK", self._ledger_key(ledger.name))

    # -- turns ------------------------------------------------------------------------------------------

    @abstractmethod
    def _encode_settlements(self, settlements: Sequence[Settlement[R]]) -> tuple[Sequence[Row], list[int]]:
        """Return the settlements' rows, and about how many bytes each has."""

    @abstractmethod
    def _receipt(self, trip: int) -> R:
        """Return the receipt of the claims of one trip."""

    @abstractmethod
    async def _trip(self, rows: Sequence[Row], want: int, receipt: R) -> TripAnswer[R]:
        """Settle and claim in one script call."""

    async def _before_claiming(self) -> None:
        """Prepare a trip that claims."""

    async def turn(self, settlements: Sequence[Settlement[R]], want: int) -> Turn[R]:
        verdicts: list[SettleError | None] = [None] * len(settlements)
        positions: Sequence[int] = range(len(settlements))
        if not UNWRITTEN.isdisjoint([type(settlement.outcome) for settlement in settlements]):
            positions = [n for n in positions if type(settlements[n].outcome) not in UNWRITTEN]
            settlements = [settlements[n] for n in positions]
        rows, sizes = self._encode_settlements(settlements)
        *earlier, last = cuts(sizes) if rows else (slice(0, 0),)
        for cut in earlier:
            await self._turn(rows[cut], 0, positions[cut], verdicts)
        return await self._turn(rows[last], want, positions[last], verdicts)

    async def _turn(
        self, rows: Sequence[Row], want: int, positions: Sequence[int], verdicts: list[SettleError | None]
    ) -> Turn[R]:
        if not rows and want <= 0:
            return Turn(verdicts, (), Rest(RestReason.SATISFIED))
        self._trips += 1
        receipt = self._receipt(self._trips)
        if want > 0:
            await self._before_claiming()
            self._unanswered = receipt
        answer = await self._trip(rows, want, receipt)
        if want > 0:
            self._unanswered = None
        for index, error in answer.failed:
            verdicts[positions[index]] = error
        return Turn(verdicts, answer.claims, answer.rest, answer.unhandled)

    @property
    def unanswered(self) -> R | None:
        return self._unanswered

    # -- maintenance ------------------------------------------------------------------------------------

    @abstractmethod
    async def _renew(self, claims: Sequence[Claim[R]]) -> tuple[Iterable[int], Iterable[int]]:
        """Renew claims; return the indexes of those that are lost, and of those to be cancelled."""

    @abstractmethod
    async def _renew_trip(self, receipt: R) -> None:
        """Renew what one trip claimed and is still held."""

    @abstractmethod
    async def _sweep(self) -> Recovery[R]:
        """Requeue the jobs of dead workers."""

    @abstractmethod
    async def _adopt(self, owner: R) -> Sequence[Claim[R]]:
        """Return what was claimed under a receipt and is still held."""

    async def extend(self, claims: Sequence[Claim[R]], receipts: Sequence[R] = ()) -> Extension[R]:
        lost: list[Claim[R]] = []
        cancelled: list[Claim[R]] = []
        # the heartbeat's thread may find a claim twice while the loop starts it
        claims = list({id(claim): claim for claim in claims}.values())
        for start in range(0, len(claims), MOST_ROWS):
            chunk = claims[start : start + MOST_ROWS]
            lost_indexes, cancelled_indexes = await self._renew(chunk)
            lost += [chunk[index] for index in lost_indexes]
            cancelled += [chunk[index] for index in cancelled_indexes]
        for receipt in receipts:
            await self._renew_trip(receipt)
        return Extension(lost, cancelled)

    async def recover(self, owner: R | None = None) -> Recovery[R]:
        if owner is None:
            return await self._sweep()
        claims = await self._adopt(owner)
        if owner == self._unanswered:
            self._unanswered = None
        return Recovery(claims)

    # -- the connection that waits ----------------------------------------------------------------------

    @abstractmethod
    def _connection_name(self) -> str:
        """Return the name of the connection a worker waits on."""

    @cached_property
    def _blocking(self) -> BlockingConnection:
        """The connection a worker waits on; a broker that only submits opens none."""
        return self._store.blocking_connection(self._connection_name(), LONGEST_BLOCK_S)

    async def close(self) -> None:
        if "_blocking" in self.__dict__:
            await self._blocking.disconnect()


def _check_ids(jobs: Sequence[Job]) -> None:
    for position, job in enumerate(jobs):
        if not job.id:
            error = InvalidName(f"job {job.name!r} has no id by which a ledger could know it; give it one")
            error.position = position
            raise error


def _interrupted(
    reason: RedisError,
    sizes: Iterable[int],
    answers: Iterable[Sequence[Added | Refused] | RedisError | None],
    positions: Iterable[int],
) -> AddInterrupted:
    """Return which jobs were added and which may have been; a batch that was not sent has no answer."""
    rest = iter(positions)
    added: dict[int, str] = {}
    in_doubt: list[int] = []
    not_added: list[int] = []
    for size, answer in zip(sizes, answers, strict=True):
        batch = list(islice(rest, size))
        if answer is None:
            not_added += batch
        elif isinstance(answer, RedisError):
            (in_doubt if may_have_run(answer) else not_added).extend(batch)
        else:
            for position, job in zip(batch, answer, strict=True):
                if isinstance(job, Added):
                    added[position] = job.id
                else:
                    not_added.append(position)
    return AddInterrupted(reason, added, in_doubt, not_added)


def with_refusals(
    answers: Sequence[Added | Refused], refusals: Mapping[int, Refused]
) -> list[Added | Refused]:
    """Return the answers with the refusals in their places."""
    if not refusals:
        return list(answers)
    rest = iter(answers)
    return [refusals.get(n) or next(rest) for n in range(len(answers) + len(refusals))]


def added_jobs(ids: Sequence[str], existing: Iterable[int]) -> list[Added | Refused]:
    """Return what was added: these ids, of which those at the indexes `existing` were there already."""
    added: list[Added | Refused] = [Added(job_id) for job_id in ids]
    for index in existing:
        added[index] = Added(ids[index], existed=True)
    return added


def served_names(profile: Profile) -> bytes:
    """Return the names of jobs that a worker has handlers for, packed; empty where it takes any.

    Where jobs without a handler are to end at once, it takes them as well.
    """
    return b"" if profile.serves is None or profile.unknown_ms == 0 else pack(profile.serves)


def settle_errors(
    errors: SettleErrors, job_ids: Iterable[str], codes: Iterable[int | bytes]
) -> Iterable[tuple[int, SettleError]]:
    """Yield the error of each settlement whose code is not 0; a text is an error of the server."""
    for index, (job_id, code) in enumerate(zip(job_ids, codes, strict=True)):
        if isinstance(code, bytes):
            yield index, SettlementFailed(job_id, text(code))
        elif code != 0:
            kind, detail = errors[code]
            yield index, kind(job_id, detail)
