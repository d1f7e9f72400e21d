"""The bullmq protocol's Reporter: what a handler reports while it runs."""

from typing import Any

from corral.core import payload
from corral.core.job import DEFAULT_KEEP_LOGS, Claim
from corral.errors import InvalidOptions
from corral.protocols.bullmq.flows.children import ChildReads
from corral.protocols.bullmq.scripts import ERRORS, BullmqPort

RESERVED_EVENTS = frozenset(
    {
        "active", "added", "cleaned", "completed", "debounced", "deduplicated", "delayed", "drained",
        "duplicated", "error", "failed", "paused", "progress", "removed", "resumed", "retries-exhausted",
        "stalled", "waiting", "waiting-children",
    }
)  # fmt: skip
"""Event names that have a meaning in the contract."""


class BullmqReporter(BullmqPort):
    """Progress, logs and events of claimed jobs; each is written only while the claim is held."""

    async def progress(self, claim: Claim[str], value: Any) -> None:
        await self._write("progress", claim, payload.encode(value, "progress"))

    async def log(self, claim: Claim[str], line: str, mark: str = "") -> int:
        kept = claim.job.options.keep_logs or DEFAULT_KEEP_LOGS
        return await self._write("log", claim, line, kept, mark, self._binding.profile.lock_ms)

    async def emit(self, claim: Claim[str], step: str, data: Any, mark: str = "") -> None:
        if step in RESERVED_EVENTS:
            raise InvalidOptions(f"event name {step!r} has a meaning of its own in BullMQ; use another")
        encoded = payload.encode(data, "data")
        await self._write("emit", claim, step, encoded, mark, self._binding.profile.lock_ms)

    async def children_results(
        self, claim: Claim[str], queue: str | None = None, name: str | None = None
    ) -> list[Any]:
        return await ChildReads(self._binding).results(claim.job.id, queue, name)

    async def beat(self, stopping: bool = False) -> None:
        """Write nothing: the server lists workers by their blocking connections."""

    async def _write(self, verb: str, claim: Claim[str], *args: Any) -> int:
        job_id = claim.job.id
        keys = (*self._keys.fixed, self._keys.lock(job_id))
        code: int = await self._run_with(verb, keys, (job_id, claim.receipt, *args))
        if code < 0:
            raise ERRORS[code](job_id)
        return code
