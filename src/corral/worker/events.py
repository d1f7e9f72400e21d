"""What a worker tells whoever listens."""

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from corral.core.job import Claim
from corral.core.outcome import Outcome


class Happening(StrEnum):
    ACTIVE = "active"
    """A claim is about to be executed."""
    SETTLED = "settled"
    """An outcome was written down."""
    LOST = "lost"
    """An attempt ended, but its lock was gone: the outcome was refused and the job may run again."""
    UNKNOWN = "unknown"
    """The answer to a settlement was lost for longer than the lock: it may have been written or not."""
    AWAY = "away"
    """The server does not serve; pickup stops and running jobs go on."""
    BACK = "back"
    """It serves again."""
    DRAINED = "drained"
    """Nothing is left to claim."""


class WorkerEvent(Struct, frozen=True):
    """Something a worker did or found."""

    kind: Happening
    claim: Claim | None = None
    outcome: Outcome | None = None
    error: BaseException | None = None


Listener = Callable[[WorkerEvent], None]
"""Called on the worker's event loop; it must be quick, and what it raises is logged."""
