"""The connections a worker is given to its queue."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from corral.core.ports import Broker, Reporter


class Connections(NamedTuple):
    """One queue of one protocol, as one event loop sees it."""

    broker: Broker
    reporter: Reporter


OpenConnections = Callable[[], AbstractAsyncContextManager[Connections]]
"""Opens connections of its own in the event loop that enters it, and closes them on the way out.

A worker enters it twice: the heartbeat's thread has its own loop and so its own connection.
"""
