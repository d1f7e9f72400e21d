"""Key names of the bridgemq protocol: the document's own, and those that Corral added."""

import re
from collections.abc import Iterable

from corral.errors import InvalidName

NAME = "bridgemq"
DEFAULT_QUEUE = "default"
LONGEST_SERVER_ID = 255

_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]*(\{[A-Za-z0-9_.-]+\})?[A-Za-z0-9_.-]*")


class BridgemqKeys:
    """The keys of one namespace, and of one queue in it.

    >>> BridgemqKeys("bridge", "mail").data("7"), BridgemqKeys("{shop}", "mail").lock("7")
    ('bridge:jobs:data:7', '{shop}:jobs:lock:7')
    """

    def __init__(self, namespace: str, queue: str) -> None:
        if not namespace or len(namespace) > 100 or not _NAMESPACE.fullmatch(namespace):
            raise InvalidName(
                f"namespace {namespace!r} does not fit; use letters, digits, '-', '_', '.', "
                f"and braces around a hash tag as in '{{bridge}}'"
            )
        root = f"{namespace}:"
        self.jobs = f"{root}jobs:"
        """What the keys of jobs begin with."""
        self.waiting = f"{root}jobs:waiting"
        self.active = f"{root}jobs:active"
        self.delayed = f"{root}jobs:delayed"
        self.cron = f"{root}jobs:cron"
        self.dead_letters = f"{root}jobs:deadletter"
        self.paused = f"{root}queues:paused"
        self.events = f"{root}events"
        """Added: a stream of what Corral did, trimmed."""
        self.known = f"{root}queues:known"
        """Added: the names of the queues that were seen."""
        self.fixed = (
            self.waiting, self.active, self.delayed, self.cron, self.dead_letters, self.paused, self.events,
            f"{root}jobs:holders", f"{root}jobs:cancelling", self.known, f"{root}jobs:completed:{queue}",
        )  # fmt: skip
        """The keys every script declares, in this order (lua/parts/keys.lua)."""
        self.completed = self.fixed[-1]
        """Added: ids of the queue's completed jobs by the time they ended, as long as their results."""
        self.grouped = f"{root}groups:{queue}:waiting"
        """Added: the queue's jobs that wait in groups; lua/parts/groups.lua has the other keys of groups."""
        self.workers = f"{root}workers:active"
        self.kept_events = f"{root}events:kept"
        """Added: about how many events the namespace keeps."""
        self.leases = f"{root}scheduler:leases"
        """Added: the schedules that the leader is firing."""
        self.leader_lock = f"{root}scheduler:lock"
        self.scheduler = (
            self.leader_lock, f"{root}scheduler:fence", self.leases, f"{root}scheduler:beat",
        )  # fmt: skip
        """The leader's lock; added: the number of its leadership, its leases, and its beat."""
        self._root = root

    # -- one job ----------------------------------------------------------------------------------------

    def data(self, job_id: str) -> str:
        """The job's JSON."""
        return f"{self.jobs}data:{job_id}"

    def status(self, job_id: str) -> str:
        """The job's state, in one word."""
        return f"{self.jobs}status:{job_id}"

    def result(self, job_id: str) -> str:
        """How it ended, for 24 hours."""
        return f"{self.jobs}result:{job_id}"

    def lock(self, job_id: str) -> str:
        """The id of the worker that holds it."""
        return f"{self.jobs}lock:{job_id}"

    def progress(self, job_id: str) -> str:
        return f"{self.jobs}progress:{job_id}"

    def attempts(self, job_id: str) -> str:
        """Added: attempts that ended since its JSON was written."""
        return f"{self.jobs}attempts:{job_id}"

    def fence(self, job_id: str) -> str:
        """Added: the number of its latest claim."""
        return f"{self.jobs}fence:{job_id}"

    def failure(self, job_id: str) -> str:
        """Added: why its last attempt failed, and every trace so far."""
        return f"{self.jobs}failure:{job_id}"

    def summary(self, job_id: str) -> str:
        """Added: what is known of a completed job besides its result, for as long."""
        return f"{self.jobs}summary:{job_id}"

    def log(self, job_id: str) -> str:
        """Added: the lines its handler logged."""
        return f"{self.jobs}log:{job_id}"

    def of_jobs(self, job_ids: Iterable[str]) -> list[str]:
        """Every key of these jobs but their locks."""
        names = (self.data, self.status, self.result, self.progress, self.attempts, self.fence, self.failure,
                 self.summary, self.log)  # fmt: skip
        return [name(job_id) for job_id in job_ids for name in names]

    def fences(self, job_ids: Iterable[str]) -> list[str]:
        """Lock and fence of each job, for a script to declare and read."""
        return [name(job_id) for job_id in job_ids for name in (self.lock, self.fence)]

    # -- workers, limits, writes ------------------------------------------------------------------------

    def worker(self, server_id: str) -> str:
        """The description of a worker."""
        return f"{self._root}workers:{server_id}"

    def heartbeat(self, server_id: str) -> str:
        """Exists while the worker is alive."""
        return f"{self._root}workers:heartbeat:{server_id}"

    def trip(self, broker: str) -> str:
        """Added: what a broker's latest trip claimed, in case its answer is lost."""
        return f"{self._root}trips:{broker}"

    def connection_name(self, worker: str) -> str:
        """The name of a worker's blocking connection, which has no spaces."""
        return "corral:bridgemq:" + re.sub(r"[^!-~]", "_", worker)

    def concurrent(self, job_type: str) -> str:
        """How many jobs of this type are active."""
        return f"{self._root}ratelimit:concurrent:{job_type}"

    def minute(self, job_type: str) -> str:
        """How many jobs of this type were claimed in this minute."""
        return f"{self._root}ratelimit:minute:{job_type}"

    def ledger(self, name: str) -> str:
        """Added: the ids that one write has submitted already."""
        return f"{self._root}ledger:{name}"


def check_server_id(server_id: str) -> str:
    """Return the server id, if it can be part of a worker's keys."""
    is_valid = (
        isinstance(server_id, str)
        and 0 < len(server_id.encode("utf-8", "surrogatepass")) <= LONGEST_SERVER_ID
        and ":" not in server_id
        and server_id.isprintable()
        and server_id not in ("active", "heartbeat")
    )
    if not is_valid:
        raise InvalidName(
            f"server id {server_id!r} does not fit; use 1 to {LONGEST_SERVER_ID} visible characters "
            f"without ':', and neither 'active' nor 'heartbeat'"
        )
    return server_id


def instance_id(schedule_id: str, fire_time: int) -> str:
    """Return the id of one firing of a schedule.

    >>> instance_id("report", 1732376323000)
    'report@1732376323000'
    """
    return f"{schedule_id}@{fire_time}"
