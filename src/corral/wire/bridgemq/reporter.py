"""The BridgeMQ room's Reporter: a handler's own words, and the worker's heartbeat."""

from typing import Any

from corral.core import payload
from corral.core.job import Claim
from corral.wire.bridgemq import codec
from corral.wire.bridgemq.broker import ERRORS, SCRIPTS, head
from corral.wire.bridgemq.codec import Receipt
from corral.wire.bridgemq.keys import Keys
from corral.wire.bridgemq.metadata import metadata
from corral.wire.bridgemq.options import Settings
from corral.wire.place import Place


class BridgemqReporter:
    """Progress, logs and events of claimed jobs; each is written only while the claim is held."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._keys = Keys(place.namespace, place.queue)
        self._settings = Settings.of(place.profile)

    async def progress(self, claim: Claim, value: Any) -> None:
        told = b'{"progress":%b}' % payload.encode(value, "progress")
        await self._tell(claim, "progress", codec.encode_progress(value, self._place.clock()), told)

    async def log(self, claim: Claim, line: str) -> int:
        return await self._tell(claim, "log", str(line).encode("utf-8", "replace"), b"")

    async def emit(self, claim: Claim, step: str, data: Any) -> None:
        await self._tell(claim, "event", codec.encode_step(step), payload.encode(data, "data"))

    async def beat(self, stopping: bool = False) -> None:
        identity = self._settings.identity
        start = head(self._place, self._settings, identity.server)
        words = ("", "") if stopping else (self._settings.heartbeat_ms, metadata(identity, start[0]))
        await self._place.store.run(SCRIPTS["beat"], self._keys.fixed, (*start, *words))

    async def _tell(self, claim: Claim, kind: str, words: str | bytes, told: bytes) -> int:
        job, receipt = claim.job, claim.receipt
        assert isinstance(receipt, Receipt)
        kept = job.options.keep_logs
        answer: int = await self._place.store.run(
            SCRIPTS["report"],
            [*self._keys.fixed, *self._keys.fences([job.id])],
            (*head(self._place, self._settings, receipt.worker), job.id, receipt.fence, job.name, job.queue,
             kind, words, told, "" if kept is None else kept),
        )  # fmt: skip
        if answer < 0:
            error, detail = ERRORS[-answer]
            raise error(job.id, detail)
        return answer
