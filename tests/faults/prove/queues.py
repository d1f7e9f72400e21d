"""Queues: the queues of a run, what each is for, and what it promises to the checker."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from corral import Corral
from corral.core.options import Capability
from corral.core.ports import Limit
from corral.protocols import protocol_named
from tests.faults.checker import records
from tests.faults.prove.plan import LOCK_MS, RECOVER_MS, WORKERS

ASYNC, THREAD = "tool", "code"
"""Job names that every protocol knows: handled on the event loop, and in a thread."""
ATTEMPTS = {"bullmq": 3, "bridgemq": 5, "streams": 1}
MAX_STALLS = 3
LIMIT_CONCURRENCY, LIMIT_RATE = 3, Limit(5, 300)
RECOVERY_MS = 30_000.0
"""Not how fast it is, which is reported, but that it is not left to chance."""
SCHEDULE, EVERY_MS = "every-second", 1000
EXTRA = {"bridgemq": {"heartbeat_ms": 3000, "max_events": 1_000_000}, "streams": {"max_events": 1_000_000}}
"""Settings that only one protocol has."""


@dataclass(frozen=True, slots=True)
class RunQueue:
    """One queue of a run."""

    name: str
    concurrency: int
    slots: tuple[int, ...]
    """The numbers of the workers that serve it."""
    max_stalls: int = MAX_STALLS

    def profile(self, protocol: str) -> dict[str, Any]:
        """Return the settings of its workers."""
        return {
            "concurrency": self.concurrency, "lock_ms": LOCK_MS, "recover_ms": RECOVER_MS,
            "max_stalls": self.max_stalls, "extra": EXTRA.get(protocol, {}),
        }  # fmt: skip

    def app(self, url: str, protocol: str) -> Corral:
        """Return an app of which only this run_queue's queue is used."""
        spec = protocol_named(protocol).spec
        namespaces = {} if protocol == "bullmq" else {spec.name: self.name}
        # a job whose backoff is "custom" is retried at once
        return Corral(url, protocol=protocol, namespaces=namespaces, backoff=lambda *_: 0)

    def queue_name(self, protocol: str) -> str | None:
        """Return the queue's name in the protocol; None: its only one, in a namespace of its own."""
        return self.name if protocol == "bullmq" else None


EVERYONE = tuple(range(WORKERS))
WORK = RunQueue("work", 6, EVERYONE)
"""Jobs of all kinds: delays, priorities, retries, deaths, operations."""
NODE_WORK = replace(WORK, concurrency=2)
"""The same queue, as a worker in Node serves it."""
ORDER = RunQueue("order", 1, (0,))
"""One worker that runs one job at a time: first in, first out."""
LIMITS = RunQueue("limits", 4, (1, 2))
EXTRAS = RunQueue("extras", 4, (1, 2), max_stalls=100)
"""Flows and a schedule: a child that dies would hold its parent for ever."""


def run_queues(protocol: str) -> tuple[RunQueue, ...]:
    """Return the run_queues that a protocol has."""
    able = protocol_named(protocol).spec.capabilities
    return (
        WORK,
        ORDER,
        *((LIMITS,) if Capability.RATE_LIMIT in able else ()),
        *((EXTRAS,) if Capability.CRON in able else ()),
    )


def promises(protocol: str) -> Iterator[records.Promise | records.Limit]:
    """Yield what the run_queues promise, and their limits."""
    yield records.Promise(
        drained=True, events=True, max_attempts=ATTEMPTS[protocol], max_stalls=MAX_STALLS,
        stalls_are_attempts=protocol == "bridgemq", recovery_ms=RECOVERY_MS,
    )  # fmt: skip
    yield records.Promise(queue=ORDER.name, fifo="start")
    yield records.Promise(queue=EXTRAS.name, max_stalls=EXTRAS.max_stalls)
    if protocol == "bullmq":
        yield records.Promise(queue=WORK.name, priority="lower_first")
        per_ms = float(LIMIT_RATE.duration)
        yield records.Limit(queue=LIMITS.name, max=LIMIT_RATE.count, per_ms=per_ms, window="fixed")
        yield records.Limit(queue=LIMITS.name, max=LIMIT_CONCURRENCY)
    elif protocol == "bridgemq":
        yield records.Promise(queue=WORK.name, priority="higher_first")
        yield records.Limit(queue=LIMITS.name, max=LIMIT_CONCURRENCY, by="group")  # of each job type
