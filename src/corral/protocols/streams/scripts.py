"""The Lua scripts of the streams protocol, and the errors of their return codes."""

from typing import Any

from corral.errors import JobMissing, LockMissing, LockStolen, NotActive
from corral.protocols.base import Binding, BoundPort
from corral.protocols.broker import SettleErrors
from corral.protocols.streams.keys import StreamsKeys
from corral.protocols.streams.options import StreamsSettings
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.protocols.streams")

ERRORS: SettleErrors = {
    1: (LockMissing, "its queue entry is not pending any more: it was settled, or taken back as abandoned"),
    2: (LockStolen, "its queue entry was delivered again since"),
    3: (JobMissing, "its time to live has run out, or it was removed"),
    4: (NotActive, "it is over already: it was ended or cancelled elsewhere"),
}
LEAST_HELD_S = 60
"""The keys of a held job live at least so long from each renewal, and until a dead worker is noticed."""
CANCELED = 5
"""The code for a claimed job that was cancelled."""


class StreamsPort(BoundPort):
    """A port of the one queue of a namespace."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._keys = StreamsKeys(binding.namespace, binding.queue)
        self._settings = StreamsSettings.of(binding.profile)

    def _head(self, worker: str = "") -> tuple[Any, ...]:
        """Return the arguments that every script begins with (lua/parts/job_events.lua)."""
        settings, profile = self._settings, self._binding.profile
        held_s = max(LEAST_HELD_S, (profile.lock_ms + 2 * profile.recover_ms) // 1000)
        lifetimes = f"{settings.ttl_s} {held_s}"
        return (self._binding.clock(), worker, lifetimes, settings.max_events, self._keys.job_prefix)
