"""The BridgeMQ protocol's Reporter: a handler's own words, and the worker's heartbeat."""

from typing import Any

from corral.core import payload
from corral.core.job import Claim
from corral.protocols.base import Binding
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.broker import ERRORS, SCRIPTS, head
from corral.protocols.bridgemq.codec import Receipt
from corral.protocols.bridgemq.keys import Keys
from corral.protocols.bridgemq.metadata import metadata
from corral.protocols.bridgemq.options import Settings


class BridgemqReporter:
    """Progress, logs and events of claimed jobs; each is written only while the claim is held."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    async def progress(self, claim: Claim, value: Any) -> None:
        told = b'{"progress":%b}' % payload.encode(value, "progress")
        await self._tell(claim, "progress", codec.encode_progress(value, self._binding.clock()), told)

    async def log(self, claim: Claim, line: str) -> int:
        return await self._tell(claim, "log", str(line).encode("utf-8", "replace"), b"")

    async def emit(self, claim: Claim, step: str, data: Any) -> None:
        await self._tell(claim, "event", codec.encode_step(step), payload.encode(data, "data"))

    async def beat(self, stopping: bool = False) -> None:
        identity = self._settings.identity
        start = head(self._binding, self._settings, identity.server)
        words = ("", "") if stopping else (self._settings.heartbeat_ms, metadata(identity, start[0]))
        await self._binding.store.run(SCRIPTS["beat"], self._keys.fixed, (*start, *words))

    async def _tell(self, claim: Claim, kind: str, words: str | bytes, told: bytes) -> int:
        job, receipt = claim.job, claim.receipt
        assert isinstance(receipt, Receipt)
        kept = job.options.keep_logs
        answer: int = await self._binding.store.run(
            SCRIPTS["report"],
            [*self._keys.fixed, *self._keys.fences([job.id])],
            (*head(self._binding, self._settings, receipt.worker), job.id, receipt.fence, job.name, job.queue,
             kind, words, told, "" if kept is None else kept),
        )  # fmt: skip
        if answer < 0:
            error, detail = ERRORS[-answer]
            raise error(job.id, detail)
        return answer
