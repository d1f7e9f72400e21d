"""The configuration of a worker, and the connections it opens."""

import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from corral.core.outcome import RetryPolicy
from corral.core.ports import Broker, Profile, Reporter, StartLimiter, WorkerRecords
from corral.errors import InvalidOptions
from corral.worker.events import Listener, ListensTo
from corral.worker.handlers import HandlerRegistry

if TYPE_CHECKING:
    from corral.telemetry.metrics import QueueMetrics
    from corral.worker.processes.pool import ProcessPool

DEFAULT_CONCURRENCY = 10
MOST_CONCURRENCY = 10_000


async def _leave_clock() -> None:
    """Rely on the machine's clock."""


class Connections(NamedTuple):
    """The ports a worker needs to one queue, for one event loop."""

    broker: Broker
    reporter: Reporter
    records: WorkerRecords | None = None
    """Where the worker writes about itself; None: it does not."""
    limiter: StartLimiter | None = None
    """Counts what begins, for handlers that have a limit."""
    check_clock: Callable[[], Awaitable[object]] = _leave_clock
    """Compares the worker's clock with the server's, from time to time."""


OpenConnections = Callable[[], AbstractAsyncContextManager[Connections]]
"""Opens connections in the event loop that enters it, and closes them on exit.

A worker enters it twice: the heartbeat's thread has its own loop and so its own connection.
"""


def default_name() -> str:
    """Return `{hostname}-{pid}-{random}`."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def wall_clock() -> int:
    """Return the milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _no_metrics() -> "QueueMetrics":
    """Return metrics that nobody reads."""
    from corral.telemetry.metrics import Metrics

    return Metrics().queue("", "")


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """The queue a worker serves, and how."""

    queue: str
    protocol: str = ""
    handlers: HandlerRegistry
    open_connections: OpenConnections
    profile: Profile
    open_resources: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext
    """What handlers find as `job.resources`; entered before the first claim, left after the last."""
    delays: Callable[[int], float]
    """(tries) -> seconds to wait while Redis is unavailable."""
    max_tries: int = 0
    """Tries to reach Redis before the worker ends; 0: without end."""
    heartbeat_s: float | None = None
    """Seconds between two renewals of locks; None: a quarter of their life, at most 10 s."""
    policy: RetryPolicy = RetryPolicy()
    concurrency: int = DEFAULT_CONCURRENCY
    clock: Callable[[], int] = wall_clock
    metrics: "QueueMetrics" = msgspec.field(default_factory=_no_metrics)
    listener: Listener | None = None
    listens_to: ListensTo | None = None
    logs_payloads: bool = False
    processes: "ProcessPool | None" = None
    """Where handlers run that need a process of their own; workers may share it. None: its own."""
    schedules: list[str] = []
    """The schedules of the queue that the app declares; the worker's record has them."""
    has_delays: bool = False
    """Whether a job can be put back for later."""

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= MOST_CONCURRENCY:
            raise InvalidOptions(f"concurrency {self.concurrency!r} is outside 1..{MOST_CONCURRENCY}")
        if self.profile.lock_ms < 100:
            lock_ms = self.profile.lock_ms
            raise InvalidOptions(f"lock_ms {lock_ms!r} is too short to be renewed; use 100 or more")
        for handler in self.handlers.all:
            if handler.batch is not None and handler.batch.linger * 1000 > self.profile.lock_ms / 4:
                raise InvalidOptions(
                    f"linger={handler.batch.linger!r} of {handler.name!r} is longer than a quarter of "
                    f"lock_ms={self.profile.lock_ms}; give a shorter linger, or a longer lock"
                )
