"""The streams protocol's Reporter: a handler's own words, as events of its job."""

from typing import Any

from corral.core import payload
from corral.core.job import Claim
from corral.errors import JobCancelled
from corral.protocols.base import Binding
from corral.protocols.streams import codec
from corral.protocols.streams.broker import CANCELED, ERRORS, SCRIPTS, head
from corral.protocols.streams.codec import Receipt, Settings
from corral.protocols.streams.keys import Keys


class StreamsReporter:
    """Events of claimed jobs; each is written only while the claim is held.

    A handler whose job was cancelled hears of it here: what it says next raises `JobCancelled`.
    """

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    async def progress(self, claim: Claim, value: Any) -> None:
        """Tell the progress as an event: the hash has no field for it, so the latest event is the record."""
        await self._tell(claim, "progress", "worker.progress", payload.encode(value, "progress"))

    async def log(self, claim: Claim, line: str) -> int:
        """Tell the line as an event; 0, for the contract keeps no log whose lines could be counted."""
        await self._tell(claim, "log", "worker.log", codec.encode_line(line))
        return 0

    async def emit(self, claim: Claim, step: str, data: Any) -> None:
        """An event of type `event`: no handler can end its readers' tail by a word of its own."""
        encoded = payload.encode({} if data is None else data, "data")
        await self._tell(claim, "event", codec.encode_step(step), encoded)

    async def beat(self, stopping: bool = False) -> None:
        keys = self._keys
        start = head(self._binding, keys, self._settings, self._binding.profile.name)
        names = [keys.stream, keys.events, keys.workers]
        if stopping:
            await self._binding.store.run(SCRIPTS["leave"], names, start)
        else:
            await self._binding.store.run(SCRIPTS["beat"], names, (*start, self._binding.profile.lock_ms))

    async def _tell(self, claim: Claim, kind: str, step: str, data: bytes) -> None:
        keys, job, receipt = self._keys, claim.job, claim.receipt
        assert isinstance(receipt, Receipt)
        code = await self._binding.store.run(
            SCRIPTS["report"],
            [keys.stream, keys.events, *keys.of_jobs([job.id])],
            (*head(self._binding, keys, self._settings, receipt.consumer), receipt.entry, receipt.deliveries,
             job.id, job.name, kind, step, data),
        )  # fmt: skip
        if code == CANCELED:
            raise JobCancelled(f"job {job.id} was cancelled while it ran")
        if code != 0:
            error, detail = ERRORS[code]
            raise error(job.id, detail)
