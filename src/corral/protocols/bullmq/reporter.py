"""The BullMQ protocol's Reporter: a handler's own words."""

from typing import Any

from corral.core import payload
from corral.core.job import Claim
from corral.errors import InvalidOptions
from corral.protocols.base import Binding
from corral.protocols.bullmq.broker import SCRIPTS
from corral.protocols.bullmq.codes import ERRORS
from corral.protocols.bullmq.keys import Keys
from corral.store.scripts import Script

RESERVED = frozenset(
    {
        "active", "added", "cleaned", "completed", "debounced", "deduplicated", "delayed", "drained",
        "duplicated", "error", "failed", "paused", "progress", "removed", "resumed", "retries-exhausted",
        "stalled", "waiting", "waiting-children",
    }
)  # fmt: skip
"""Event names the contract gives a meaning to."""


class BullmqReporter:
    """Progress, logs and events of claimed jobs; each is written only while the claim is held."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._keys = Keys(binding.namespace, binding.queue)

    async def progress(self, claim: Claim, value: Any) -> None:
        await self._write(SCRIPTS["progress"], claim, payload.encode(value, "progress"))

    async def log(self, claim: Claim, line: str) -> int:
        kept = claim.job.options.keep_logs
        return await self._write(SCRIPTS["log"], claim, line, "" if kept is None else kept)

    async def emit(self, claim: Claim, step: str, data: Any) -> None:
        if step in RESERVED:
            raise InvalidOptions(f"event name {step!r} has a meaning of its own in BullMQ; use another")
        await self._write(SCRIPTS["emit"], claim, step, payload.encode(data, "data"))

    async def beat(self, stopping: bool = False) -> None:
        """Nothing to write: the server lists workers by their blocking connections."""

    async def _write(self, script: Script, claim: Claim, *args: Any) -> int:
        job_id = claim.job.id
        code: int = await self._binding.store.run(
            script, (*self._keys.fixed, self._keys.lock(job_id)), (job_id, claim.receipt, *args)
        )
        if code < 0:
            raise ERRORS[code](job_id)
        return code
