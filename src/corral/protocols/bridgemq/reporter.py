"""The bridgemq protocol's Reporter: what a handler reports, and the worker's heartbeat."""

from typing import Any

from corral.core import payload
from corral.core.job import DEFAULT_KEEP_LOGS, Claim
from corral.protocols.bridgemq import codec
from corral.protocols.bridgemq.codec import ClaimReceipt
from corral.protocols.bridgemq.keys import NAME
from corral.protocols.bridgemq.options import LACKS
from corral.protocols.bridgemq.scripts import ERRORS, SCRIPTS, BridgemqPort


class BridgemqReporter(BridgemqPort):
    """Progress, logs and events of claimed jobs; each is written only while the claim is held."""

    async def progress(self, claim: Claim[ClaimReceipt], value: Any) -> None:
        event = b'{"progress":%b}' % payload.encode(value, "progress")
        await self._write(claim, "progress", codec.encode_progress(value, self._binding.clock()), event)

    async def log(self, claim: Claim[ClaimReceipt], line: str, mark: str = "") -> int:
        return await self._write(claim, "log", str(line).encode("utf-8", "replace"), b"", mark)

    async def emit(self, claim: Claim[ClaimReceipt], step: str, data: Any, mark: str = "") -> None:
        await self._write(claim, "event", codec.encode_step(step), payload.encode(data, "data"), mark)

    async def children_results(
        self, claim: Claim[ClaimReceipt], queue: str | None = None, name: str | None = None
    ) -> list[Any]:
        raise LACKS["flows"].error(NAME)

    async def beat(self, stopping: bool = False) -> int:
        settings = self._settings
        head = self._head(settings.identity.server)
        arguments = (
            ("", "") if stopping else (settings.heartbeat_ms, codec.encode_worker(settings.identity, head[0]))
        )
        await self._store.run(SCRIPTS["beat"], self._keys.fixed, (*head, *arguments))
        return settings.beat_every_ms

    async def _write(
        self, claim: Claim[ClaimReceipt], kind: str, value: str | bytes, event: bytes, mark: str = ""
    ) -> int:
        job, receipt = claim.job, claim.receipt
        answer: int = await self._store.run(
            SCRIPTS["report"],
            [*self._keys.fixed, *self._keys.fences([job.id])],
            (*self._head(receipt.worker), job.id, receipt.fence, job.name, job.queue, kind, value, event,
             job.options.keep_logs or DEFAULT_KEEP_LOGS, mark, self._binding.profile.lock_ms),
        )  # fmt: skip
        if answer < 0:
            error, detail = ERRORS[-answer]
            raise error(job.id, detail)
        return answer
