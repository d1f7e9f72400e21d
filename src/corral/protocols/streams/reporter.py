"""The streams protocol's Reporter: what a handler reports, as events of its job."""

from typing import Any

from corral.core import payload
from corral.core.job import Claim
from corral.errors import JobCancelled
from corral.protocols.streams import codec
from corral.protocols.streams.codec import EntryReceipt
from corral.protocols.streams.keys import NAME
from corral.protocols.streams.options import LACKS
from corral.protocols.streams.scripts import CANCELED, ERRORS, SCRIPTS, StreamsPort


class StreamsReporter(StreamsPort):
    """Events of claimed jobs; each is written only while the claim is held.

    A call for a job that was cancelled raises `JobCancelled`.
    """

    async def progress(self, claim: Claim[EntryReceipt], value: Any) -> None:
        """Emit the progress as an event; the hash has the latest, and beside it its message."""
        encoded = payload.encode(value, "progress")
        await self._write(claim, "progress", "worker.progress", encoded, "", *codec.encode_progress(value))

    async def log(self, claim: Claim[EntryReceipt], line: str, mark: str = "") -> int:
        """Emit the line as an event; return 0, as the contract keeps no log whose lines could be counted."""
        await self._write(claim, "log", "worker.log", codec.encode_line(line), mark)
        return 0

    async def emit(self, claim: Claim[EntryReceipt], step: str, data: Any, mark: str = "") -> None:
        """Emit an event of type `event`, which cannot end a reader's tail."""
        encoded = payload.encode({} if data is None else data, "data")
        await self._write(claim, "event", codec.encode_step(step), encoded, mark)

    async def children_results(
        self, claim: Claim[EntryReceipt], queue: str | None = None, name: str | None = None
    ) -> list[Any]:
        raise LACKS["flows"].error(NAME)

    async def beat(self, stopping: bool = False) -> None:
        profile = self._binding.profile
        names = [self._keys.stream, self._keys.events, self._keys.workers]
        head = self._head(profile.name)
        if stopping:
            await self._store.run(SCRIPTS["leave"], names, head)
        else:
            await self._store.run(SCRIPTS["beat"], names, (*head, profile.lock_ms))

    async def _write(
        self, claim: Claim[EntryReceipt], kind: str, step: str, data: bytes, mark: str, *fields: str | bytes
    ) -> None:
        keys, job, receipt = self._keys, claim.job, claim.receipt
        code = await self._store.run(
            SCRIPTS["report"],
            [keys.stream, keys.events, *keys.of_jobs([job.id])],
            (
                *self._head(receipt.consumer),
                receipt.entry,
                receipt.deliveries,
                job.id,
                job.name,
                kind,
                step,
                data,
                mark,
                self._binding.profile.lock_ms,
                *fields,
            ),
        )
        if code == CANCELED:
            raise JobCancelled(f"job {job.id} was cancelled while it ran")
        if code != 0:
            error, detail = ERRORS[code]
            raise error(job.id, detail)
