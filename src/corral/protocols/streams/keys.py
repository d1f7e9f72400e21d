"""Key names of the streams protocol: the contract's own, and those that Corral added."""

import re
from collections.abc import Iterable

from corral.errors import InvalidName

NAME = "streams"
QUEUE = "jobs"
PARKING = b"corral:parked:"
"""What the names of the consumers begin with under which jobs are left to workers with a handler for them."""

_NAMESPACE = re.compile(r"[A-Za-z0-9_.:{}-]{1,100}")


class StreamsKeys:
    """The keys of one namespace; the empty one leaves the contract's names as they are.

    >>> StreamsKeys("", "jobs").stream, StreamsKeys("{shop}", "jobs").stream
    ('jobs:stream', '{shop}:jobs:stream')
    """

    def __init__(self, namespace: str, queue: str) -> None:
        _check(namespace, queue)
        self._prefix = f"{namespace}:" if namespace else ""
        self.stream = self._prefix + "jobs:stream"
        """The queue."""
        self.events = self._prefix + "jobs:events"
        """Added: the events that Corral writes, trimmed."""
        self.workers = self._prefix + "jobs:workers"
        """Added: Corral's consumers, when each was last seen, and how long its lock is."""
        self.parked = self._prefix + "jobs:parked"
        """Added: exists while jobs are left to workers with a handler for them, and wakes those."""
        self.job_prefix = self._prefix + "job:"

    def trip(self, broker: str) -> str:
        """Added: what a broker's latest trip claimed, in case its answer is lost."""
        return f"{self._prefix}jobs:trip:{broker}"

    def ledger(self, name: str) -> str:
        """Added: the ids that one write has submitted already."""
        return f"{self._prefix}jobs:ledger:{name}"

    def job(self, job_id: str) -> str:
        """The hash of one job."""
        return self.job_prefix + job_id

    def job_events(self, job_id: str) -> str:
        """The events of one job."""
        return f"{self.job_prefix}{job_id}:events"

    def deliveries(self, job_id: str) -> str:
        """Added: how often a job was delivered in vain before its present queue entry."""
        return f"{self.job_prefix}{job_id}:deliveries"

    def idempotency(self, key: str) -> str:
        """The job id of an idempotency key."""
        return f"{self._prefix}idempotency:{key}"

    def fingerprint(self, key: str) -> str:
        """Added: the fingerprint of the request with that key."""
        return f"{self._prefix}idempotency-fingerprint:{key}"

    def unique(self, name: str) -> str:
        """Added: the job that stands for all that count as the same."""
        return f"{self._prefix}jobs:unique:{name}"

    def quota(self, client: str) -> str:
        """Added: when the quota of a client of the gateway is full again."""
        return f"{self._prefix}jobs:share:{client}"

    def of_jobs(self, job_ids: Iterable[str]) -> list[str]:
        """Every key of these jobs, for a script to declare."""
        return [name(job_id) for job_id in job_ids for name in (self.job, self.job_events, self.deliveries)]

    def connection_name(self, worker: str) -> str:
        """The name of a worker's blocking connection, which has no spaces."""
        return "corral:streams:" + re.sub(r"[^!-~]", "_", worker)


def _check(namespace: str, queue: str) -> None:
    if queue != QUEUE:
        raise InvalidName(
            f"protocol {NAME!r} has one queue, {QUEUE!r}, and no {queue!r}; "
            f"leave the queue out, or use another protocol"
        )
    if namespace and (not _NAMESPACE.fullmatch(namespace) or namespace.endswith(":")):
        raise InvalidName(
            f"namespace {namespace!r} does not fit; use letters, digits, '-', '_', '.', ':' inside, "
            f"and braces around a hash tag as in '{{shop}}', or leave it empty"
        )
