"""The Lua scripts of the bridgemq protocol, and the errors of their return codes."""

from typing import Any

from corral.errors import JobMissing, LockMissing, LockStolen, NotActive
from corral.protocols.base import Binding, BoundPort
from corral.protocols.bridgemq.keys import BridgemqKeys
from corral.protocols.bridgemq.options import BridgemqSettings
from corral.protocols.broker import SettleErrors
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.protocols.bridgemq")
DOCUMENT_SCRIPTS = ("claim_job", "process_delayed", "process_cron", "release_lock")
"""The document's own scripts, for clients in other languages."""

ERRORS: SettleErrors = {
    1: (JobMissing, "its data was deleted while it ran"),
    2: (LockMissing, "its lock has expired, or was released"),
    3: (LockStolen, "it was claimed again since"),
    4: (NotActive, "it is not active any more"),
}
CANCELLING = -1
"""The code for a claimed job that should be cancelled."""


class BridgemqPort(BoundPort):
    """A port of one queue of a namespace."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._keys = BridgemqKeys(binding.namespace, binding.queue)
        self._settings = BridgemqSettings.of(binding.profile)

    def _head(self, worker: str = "") -> tuple[Any, ...]:
        """Return the arguments that every script of ours begins with (lua/parts/keys.lua)."""
        return (self._binding.clock(), worker, self._settings.max_events)

    async def _run(self, verb: str, *args: Any) -> Any:
        """Return the answer of a script that needs no keys but the namespace's own."""
        return await self._store.run(SCRIPTS[verb], self._keys.fixed, (*self._head(), *args))
