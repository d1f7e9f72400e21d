"""What the ports of this protocol are built from: one queue's place, its keys, and the protocol's scripts."""

from collections.abc import Sequence
from typing import Any

from corral.errors import JobMissing
from corral.protocols.base import Binding
from corral.protocols.bullmq.keys import Keys
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.protocols.bullmq")


class Bound:
    """Something that works on one queue."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)

    async def _run(self, verb: str, *args: Any) -> Any:
        """The answer of a script that needs no keys but the queue's own."""
        return await self._store.run(SCRIPTS[verb], self._keys.fixed, args)

    async def _pipe(self, *commands: Sequence[Any]) -> list[Any]:
        return await self._store.pipe(commands)


def found(code: int, job_id: str) -> int:
    """The code itself, or `JobMissing` where it says that the job is gone."""
    if code == -1:
        raise JobMissing(job_id)
    return code


def text(raw: bytes) -> str:
    """What a key holds, as text that can be shown."""
    return raw.decode("utf-8", "replace")


def number(raw: bytes | None) -> int | None:
    """A number as it stands in a hash; None where there is none."""
    return None if raw is None else int(float(raw))
