"""Intake: a protocol's own submit under a ledger, the same for all protocols."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from corral.core.bulk import Ledger
from corral.core.job import Job
from corral.core.ports import Broker
from corral.errors import InvalidName, Refused
from corral.protocols.binding import Binding
from corral.store.ledger import KnownRows, OnceStore


class LedgerIntake:
    """Jobs in, each once. The ledger is asked and written in the same script that submits."""

    def __init__(
        self,
        binding: Binding,
        broker: Callable[[Binding], Broker],
        ledger_key: Callable[[str], str],
        rows_at: int,
    ) -> None:
        self._binding = binding
        self._broker = broker
        self._ledger_key = ledger_key
        self._rows_at = rows_at

    async def submit_once(self, jobs: Sequence[Job], ledger: Ledger) -> int:
        for position, job in enumerate(jobs):
            if not job.id:
                error = InvalidName(f"job {job.name!r} has no id by which it could be known again")
                error.position = position
                raise error
        store = OnceStore(self._binding.store, self._ledger_key(ledger.name), ledger.seconds, self._rows_at)
        broker = self._broker(replace(self._binding, store=store))
        left = list({job.id: job for job in reversed(jobs)}.values())[::-1]
        while left:
            try:
                await broker.submit(left)
                break
            except KnownRows as known:
                left = [job for job in left if job.id not in known.ids]
            except Refused as error:
                if error.position is not None:
                    refused = left[error.position].id
                    error.position = next(n for n, job in enumerate(jobs) if job.id == refused)
                raise
        return store.added

    async def forget(self, ledger: Ledger) -> None:
        await self._binding.store.call("UNLINK", self._ledger_key(ledger.name))
