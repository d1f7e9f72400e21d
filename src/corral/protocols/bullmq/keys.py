"""Key names of one queue, as BullMQ spells them."""

import re
from base64 import b64encode

NAME = "bullmq"
GENERATIONS = (5, 6)
"""The major versions of BullMQ whose queues are served; see docs/protocols/bullmq-6.md."""
_VERSION = re.compile(r"bullmq:(\d+)")

STATE_KEYS = {
    "waiting": "wait",
    "wait": "wait",
    "paused": "paused",
    "active": "active",
    "prioritized": "prioritized",
    "delayed": "delayed",
    "waiting-children": "waiting-children",
    "completed": "completed",
    "failed": "failed",
}
"""The states of the contract, and the key that lists the jobs of each."""
LISTS = frozenset({"wait", "paused", "active"})
"""Those keys that are lists; the others are sorted sets."""


def noted_generation(version: str | None) -> int | None:
    """Return the generation that `version` in a queue's meta means; None where it means none.

    >>> noted_generation("bullmq:6.7.0"), noted_generation("bullmq-pro:7.1.0")
    (6, None)
    """
    found = _VERSION.match(version or "")
    return min(max(int(found[1]), GENERATIONS[0]), GENERATIONS[-1]) if found else None


class BullmqKeys:
    """The names of one queue's keys.

    >>> BullmqKeys("bull", "mail").wait, BullmqKeys("bull", "mail").job("7")
    ('bull:mail:wait', 'bull:mail:7')
    """

    def __init__(self, namespace: str, queue: str) -> None:
        self.namespace = namespace
        self.queue = queue
        self.prefix = prefix = f"{namespace}:{queue}:"
        self.wait = prefix + "wait"
        self.paused = prefix + "paused"
        self.prioritized = prefix + "prioritized"
        self.delayed = prefix + "delayed"
        self.active = prefix + "active"
        self.completed = prefix + "completed"
        self.failed = prefix + "failed"
        self.stalled = prefix + "stalled"
        self.limiter = prefix + "limiter"
        self.meta = prefix + "meta"
        self.marker = prefix + "marker"
        self.events = prefix + "events"
        self.cancelling = prefix + "cancelling"
        """Added: ids of active jobs that should be cancelled."""
        self.grouped = prefix + "grouped"
        """Added: the jobs that wait in groups; lua/parts/groups.lua has the other keys of groups."""
        self.waiting_children = prefix + "waiting-children"
        self.repeat = prefix + "repeat"
        self.fixed = (
            self.wait, self.paused, self.prioritized, self.delayed, self.active, self.completed, self.failed,
            self.stalled, prefix + "stalled-check", self.limiter, self.meta, prefix + "id", self.marker,
            self.events, prefix + "pc", self.cancelling, self.waiting_children, self.repeat,
        )  # fmt: skip
        """The keys every script declares, in this order (lua/parts/queue.lua)."""

    def state(self, name: str) -> str:
        """The key that lists the jobs in a state of the contract."""
        return self.prefix + STATE_KEYS[name]

    def metrics(self, state: str) -> str:
        """How many jobs `completed` or `failed`; the minutes are under `…:data`."""
        return f"{self.prefix}metrics:{state}"

    def job(self, job_id: str) -> str:
        return self.prefix + job_id

    def lock(self, job_id: str) -> str:
        return f"{self.prefix}{job_id}:lock"

    def logs(self, job_id: str) -> str:
        return f"{self.prefix}{job_id}:logs"

    def deduplication(self, deduplication_id: str) -> str:
        return f"{self.prefix}de:{deduplication_id}"

    def scheduler(self, scheduler_id: str) -> str:
        return f"{self.repeat}:{scheduler_id}"

    def ledger(self, name: str) -> str:
        """Added: the ids that one write has submitted already."""
        return f"{self.prefix}ledger:{name}"

    def children(self, job_id: str) -> tuple[str, str, str, str]:
        """A parent's children: completed, not ended, failed and ignored, failed and fatal."""
        job = self.job(job_id)
        return f"{job}:processed", f"{job}:dependencies", f"{job}:failed", f"{job}:unsuccessful"

    def connection_name(self, worker: str = "") -> str:
        """The name of a worker's blocking connection, by which tools list workers."""
        base = f"{self.namespace}:{b64encode(self.queue.encode()).decode()}"
        return f"{base}:w:{worker}" if worker else base
