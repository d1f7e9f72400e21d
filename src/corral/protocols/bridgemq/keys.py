"""Key names of the BridgeMQ protocol: the document's as it spells them, Corral's own beside them."""

import re
from collections.abc import Iterable

from corral.errors import InvalidName

NAME = "bridgemq"
DEFAULT_QUEUE = "default"
LONGEST_SERVER_ID = 255
FIXED = (
    "jobs:waiting",
    "jobs:active",
    "jobs:delayed",
    "jobs:cron",
    "jobs:deadletter",
    "queues:paused",
    "events",
    "jobs:holders",
    "jobs:cancelling",
    "queues:known",
)
"""The keys every verb declares, in this order; the last four are ours, the rest is the document's."""

_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]*(\{[A-Za-z0-9_.-]+\})?[A-Za-z0-9_.-]*")


class Keys:
    """The keys of one namespace, and of one queue in it.

    >>> Keys("bridge", "mail").data("7"), Keys("{shop}", "mail").lock("7")
    ('bridge:jobs:data:7', '{shop}:jobs:lock:7')
    """

    def __init__(self, namespace: str, queue: str) -> None:
        if not namespace or len(namespace) > 100 or not _NAMESPACE.fullmatch(namespace):
            raise InvalidName(
                f"namespace {namespace!r} does not fit; use letters, digits, '-', '_', '.', "
                f"and braces around a hash tag as in '{{bridge}}'"
            )
        self.root = f"{namespace}:"
        self.queue = queue
        self.fixed = (*(self.root + part for part in FIXED), self.completed(queue))

    def part(self, name: str) -> str:
        """One of the namespace's own keys: `part("jobs:waiting")`."""
        return self.root + name

    # -- one job, as the document spells it -------------------------------------------------------------

    def data(self, job_id: str) -> str:
        """The job's JSON."""
        return f"{self.root}jobs:data:{job_id}"

    def status(self, job_id: str) -> str:
        """One word for where the job is."""
        return f"{self.root}jobs:status:{job_id}"

    def result(self, job_id: str) -> str:
        """How it ended, for 24 hours."""
        return f"{self.root}jobs:result:{job_id}"

    def lock(self, job_id: str) -> str:
        """The id of the worker that has it."""
        return f"{self.root}jobs:lock:{job_id}"

    def progress(self, job_id: str) -> str:
        """How far its handler has come."""
        return f"{self.root}jobs:progress:{job_id}"

    # -- one job, ours ----------------------------------------------------------------------------------

    def attempts(self, job_id: str) -> str:
        """Added: attempts that ended since its JSON was written."""
        return f"{self.root}jobs:attempts:{job_id}"

    def fence(self, job_id: str) -> str:
        """Added: the number of its latest claim."""
        return f"{self.root}jobs:fence:{job_id}"

    def failure(self, job_id: str) -> str:
        """Added: why its last attempt failed, and every trace so far."""
        return f"{self.root}jobs:failure:{job_id}"

    def summary(self, job_id: str) -> str:
        """Added: what is known of a completed job besides its result, for as long."""
        return f"{self.root}jobs:summary:{job_id}"

    def log(self, job_id: str) -> str:
        """Added: what its handler logged."""
        return f"{self.root}jobs:log:{job_id}"

    # -- workers ----------------------------------------------------------------------------------------

    def worker(self, server_id: str) -> str:
        """What a worker says of itself."""
        return f"{self.root}workers:{server_id}"

    def heartbeat(self, server_id: str) -> str:
        """There while the worker is."""
        return f"{self.root}workers:heartbeat:{server_id}"

    def trip(self, broker: str) -> str:
        """Added: what a broker's latest claim took, in case its answer is lost."""
        return f"{self.root}trips:{broker}"

    def connection_name(self, worker: str) -> str:
        """What a worker's waiting connection is called; a connection's name has no spaces."""
        return "corral:bridgemq:" + re.sub(r"[^!-~]", "_", worker)

    # -- queues, limits, the scheduler --------------------------------------------------------------------

    def completed(self, queue: str) -> str:
        """Added: ids of completed jobs of one queue by the time they ended, as long as their results."""
        return f"{self.root}jobs:completed:{queue}"

    def concurrent(self, job_type: str) -> str:
        """How many jobs of this type are active."""
        return f"{self.root}ratelimit:concurrent:{job_type}"

    def minute(self, job_type: str) -> str:
        """How many jobs of this type were claimed in this minute."""
        return f"{self.root}ratelimit:minute:{job_type}"

    def ledger(self, name: str) -> str:
        """Added: the ids that one write has submitted already."""
        return f"{self.root}ledger:{name}"

    @property
    def scheduler(self) -> tuple[str, str, str]:
        """The leader's lock; added: the number of its leadership, and what it has in hand."""
        return self.part("scheduler:lock"), self.part("scheduler:fence"), self.part("scheduler:leases")

    def fences(self, job_ids: Iterable[str]) -> list[str]:
        """Lock and fence of each job, for a script to declare and read."""
        return [name(job_id) for job_id in job_ids for name in (self.lock, self.fence)]


def check_server_id(server_id: str) -> str:
    """The server id itself, if it can be part of a worker's keys."""
    fine = (
        isinstance(server_id, str)
        and 0 < len(server_id.encode("utf-8", "surrogatepass")) <= LONGEST_SERVER_ID
        and ":" not in server_id
        and server_id.isprintable()
        and server_id not in ("active", "heartbeat")
    )
    if not fine:
        raise InvalidName(
            f"server id {server_id!r} does not fit; use 1 to {LONGEST_SERVER_ID} visible characters "
            f"without ':', and neither 'active' nor 'heartbeat'"
        )
    return server_id


def instance_id(schedule_id: str, fire_time: int) -> str:
    """The id of one firing of a schedule.

    >>> instance_id("report", 1732376323000)
    'report@1732376323000'
    """
    return f"{schedule_id}@{fire_time}"
