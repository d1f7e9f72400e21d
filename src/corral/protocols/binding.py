"""Binding: what every port of every protocol is built from."""

from collections.abc import Callable
from dataclasses import dataclass, field

from corral.core.ports import Profile
from corral.store.client import Store


@dataclass(frozen=True)
class Binding:
    """One queue of one protocol on one server, the clock, and (for workers) who claims."""

    store: Store
    queue: str
    namespace: str
    """What the protocol's keys begin with: `bull`, `bridge`, or nothing."""
    clock: Callable[[], int]
    """Milliseconds since the epoch."""
    profile: Profile = field(default_factory=lambda: Profile(name="producer"))
