"""Place: what every port of every room is built from."""

from collections.abc import Callable
from dataclasses import dataclass, field

from corral.core.ports import Profile
from corral.store.connect import Store


@dataclass(frozen=True)
class Place:
    """One queue of one room on one server, the clock, and (for workers) who claims."""

    store: Store
    queue: str
    namespace: str
    """What the room's keys begin with: `bull`, `bridge`, or nothing."""
    clock: Callable[[], int]
    """Milliseconds since the epoch."""
    profile: Profile = field(default_factory=lambda: Profile(name="producer"))
