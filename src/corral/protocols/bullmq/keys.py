"""Key names of one queue, as BullMQ spells them."""

from base64 import b64encode

NAME = "bullmq"

FIXED = (
    "wait",
    "paused",
    "prioritized",
    "delayed",
    "active",
    "completed",
    "failed",
    "stalled",
    "stalled-check",
    "limiter",
    "meta",
    "id",
    "marker",
    "events",
    "pc",
    "cancelling",
    "waiting-children",
    "repeat",
)
"""The parts every script declares, in this order; `cancelling` is ours, the rest is the contract's."""


class Keys:
    """The names of one queue's keys.

    >>> Keys("bull", "mail").job("7")
    'bull:mail:7'
    """

    def __init__(self, namespace: str, queue: str) -> None:
        self.namespace = namespace
        self.queue = queue
        self.prefix = f"{namespace}:{queue}:"
        self.fixed = tuple(self.prefix + part for part in FIXED)

    def part(self, name: str) -> str:
        """One of the queue's own keys: `part("wait")`."""
        return self.prefix + name

    def job(self, job_id: str) -> str:
        return self.prefix + job_id

    def lock(self, job_id: str) -> str:
        return f"{self.prefix}{job_id}:lock"

    def logs(self, job_id: str) -> str:
        return f"{self.prefix}{job_id}:logs"

    def deduplication(self, text: str) -> str:
        return f"{self.prefix}de:{text}"

    def scheduler(self, scheduler_id: str) -> str:
        return f"{self.prefix}repeat:{scheduler_id}"

    def ledger(self, name: str) -> str:
        """Added: the ids that one write has submitted already."""
        return f"{self.prefix}ledger:{name}"

    def children(self, job_id: str) -> tuple[str, str, str, str]:
        """Where a parent's children are: completed, not ended, failed and ignored, failed and fatal."""
        job = self.job(job_id)
        return f"{job}:processed", f"{job}:dependencies", f"{job}:failed", f"{job}:unsuccessful"

    def connection_name(self, worker: str = "") -> str:
        """What a worker's blocking connection is called, so that tools can list workers."""
        base = f"{self.namespace}:{b64encode(self.queue.encode()).decode()}"
        return f"{base}:w:{worker}" if worker else base
