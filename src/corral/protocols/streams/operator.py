"""The streams protocol's Operator: writes on demand."""

from collections.abc import Sequence
from typing import NoReturn

from corral.errors import Unsupported
from corral.protocols.batches import MOST_ROWS
from corral.protocols.binding import Binding
from corral.protocols.streams.broker import SCRIPTS, head
from corral.protocols.streams.codec import Settings
from corral.protocols.streams.keys import Keys
from corral.store.scripts import Script


class StreamsOperator:
    """Cancel and remove; what the contract has no word for is refused."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._keys = Keys(binding.namespace, binding.queue)
        self._settings = Settings.of(binding.profile)

    async def pause(self) -> None:
        _refuse("pause", "stop its workers instead")

    async def resume(self) -> None:
        _refuse("pause, so there is nothing to resume", "start workers instead")

    async def retry(self, job_ids: Sequence[str]) -> list[str]:
        _refuse("retry: an ended job stays ended", "submit its payload as a new job")

    async def promote(self, job_ids: Sequence[str]) -> list[str]:
        _refuse("delay, so there is nothing to promote", "a queued job runs as soon as a worker is free")

    async def remove(self, job_ids: Sequence[str]) -> list[str]:
        """Delete jobs that are not running; the queue entry of a waiting one is passed over later."""
        return await self._run(SCRIPTS["remove"], job_ids)

    async def cancel(self, job_ids: Sequence[str]) -> list[str]:
        """Cancel jobs that are not over; a running handler is told when its claim is next renewed."""
        return await self._run(SCRIPTS["cancel"], job_ids)

    async def _run(self, script: Script, job_ids: Sequence[str]) -> list[str]:
        done: list[str] = []
        keys = self._keys
        for start in range(0, len(job_ids), MOST_ROWS):
            chunk = job_ids[start : start + MOST_ROWS]
            names = [keys.stream, keys.events, *keys.of_jobs(chunk)]
            answer = await self._binding.store.run(
                script, names, (*head(self._binding, keys, self._settings), *chunk)
            )
            done += [job_id.decode() for job_id in answer]
        return done


def _refuse(what: str, way_out: str) -> NoReturn:
    raise Unsupported(f"protocol 'streams' has no {what}; {way_out}")
