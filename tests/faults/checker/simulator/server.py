"""A model of a correct job server in memory, with faults in its logic that can be turned on."""

from dataclasses import dataclass, field
from random import Random
from typing import Literal

from tests.faults.checker.records import ENDS

Bug = Literal[
    "loses_job", "forgets_recovery", "keeps_active", "claims_twice", "recovers_early",
    "recovers_at_kill", "settles_without_lock", "settles_twice", "forgets_bound", "counts_stalls",
    "ignores_delay", "keeps_refused", "leaks_lock", "leaks_key", "adds_twice", "invents_job",
    "newest_first", "ignores_priority", "ignores_pause", "forgets_tick", "doubles_tick",
    "parent_early", "parent_stuck", "exceeds_rate", "exceeds_concurrency", "corrupts_result",
    "forgets_event", "logs_twice", "recovers_slowly", "runs_ended_job",
]  # fmt: skip


@dataclass
class Model:
    """A job on the server."""

    id: str
    place: str
    order: int
    priority: int = 0
    tag: str | None = None
    due: float = 0.0
    attempts_made: int = 0
    granted: int = 0
    stalls: int = 0
    receipt: str | None = None
    worker: str | None = None
    locked_until: float = 0.0
    result: str | None = None
    parents: list[str] = field(default_factory=list)
    children: set[str] = field(default_factory=set)
    tick: float | None = None


@dataclass(frozen=True)
class Entry:
    """An entry of the event log."""

    id: str
    at: float
    job: str
    name: str
    value: str | None
    tick: float | None


@dataclass(frozen=True)
class Claimed:
    """What a worker gets with a job."""

    job: str
    receipt: str
    attempt: int
    claim: int
    last: bool
    """Whether it is the last attempt that the job may have."""
    tag: str | None
    tick: float | None


@dataclass(frozen=True)
class Settings:
    """The configuration of the server."""

    lock_ms: float
    max_attempts: int = 3
    max_stalls: int = 2
    keeps_ended: bool = True
    rate: int | None = None
    rate_ms: float = 100.0
    concurrency: int | None = None


class Server:
    """Jobs, places, locks, limits and the event log; every method is one atomic step at a given time."""

    def __init__(self, settings: Settings, random: Random, bug: Bug | None = None) -> None:
        self.settings, self.random, self.bug = settings, random, bug
        self.jobs: dict[str, Model] = {}
        self.log: list[Entry] = []
        self.stray_keys: dict[str, tuple[Literal["job", "lock"], str]] = {}
        """Keys that should not be there: name to role and job."""
        self.paused = False
        self.claims: list[float] = []
        self.orders = self.receipts = self.claim_numbers = self.entries = self.ids = 0

    def has(self, bug: Bug, chance: float = 1.0) -> bool:
        return self.bug == bug and self.random.random() < chance

    def add(
        self, now: float, *, id: str | None, tag: str | None = None, priority: int = 0, delay: float = 0.0,
        children: frozenset[str] = frozenset(), tick: float | None = None,
    ) -> tuple[str, bool]:  # fmt: skip
        """Add a job; return its id and whether it existed."""
        if id is None:
            self.ids += 1
            id = str(self.ids)
        if id in self.jobs:
            return id, True
        place = (
            "waiting_children"
            if children
            else "delayed"
            if delay and not self.has("ignores_delay")
            else "waiting"
        )
        if children and self.has("parent_early"):
            place = "waiting"
        self.orders += 1
        job = Model(id, place, self.orders, priority, tag, now + delay, children=set(children), tick=tick)
        for child in children.intersection(self.jobs):
            self.jobs[child].parents.append(id)
        if not self.has("loses_job", 0.2):
            self.jobs[id] = job
        self.entry(now, id, "added", tick=tick)
        return id, False

    def refuse(self, id: str) -> None:
        if self.has("keeps_refused"):
            self.stray_keys[f"job:{id}"] = ("job", id)

    def claim(self, now: float, worker: str) -> Claimed | None:
        """Give the next job to a worker."""
        self.promote(now)
        active = [job for job in self.jobs.values() if job.place == "active"]
        limits = self.settings
        if self.paused and not self.has("ignores_pause"):
            return None
        if (
            limits.concurrency is not None
            and len(active) >= limits.concurrency
            and not self.has("exceeds_concurrency")
        ):
            return None
        recent = [at for at in self.claims if at > now - limits.rate_ms]
        if limits.rate is not None and len(recent) >= limits.rate and not self.has("exceeds_rate"):
            return None
        waiting = [job for job in self.jobs.values() if job.place == "waiting"]
        if not waiting:
            return None
        job = min(waiting, key=self._rank)
        self.receipts += 1
        self.claim_numbers += 1
        self.claims = [*recent, now]
        job.receipt, job.worker, job.locked_until = f"r{self.receipts}", worker, now + limits.lock_ms
        if not self.has("claims_twice", 0.3):
            job.place = "active"
        attempt = job.attempts_made + 1
        last = attempt >= limits.max_attempts + job.granted and not self.has("forgets_bound", 0.9)
        return Claimed(job.id, job.receipt, attempt, self.claim_numbers, last, job.tag, job.tick)

    def _rank(self, job: Model) -> tuple[int, int]:
        priority = 0 if self.bug == "ignores_priority" else job.priority
        return (priority, -job.order) if self.bug == "newest_first" else (priority, job.order)

    def extend(self, now: float, id: str, receipt: str) -> bool:
        job = self.jobs.get(id)
        if job is None or job.receipt != receipt:
            return False
        job.locked_until = now + self.settings.lock_ms
        return True

    def settle(
        self, now: float, id: str, receipt: str, outcome: str, value: str | None, delay: float
    ) -> bool:
        """Settle an attempt; return whether it was applied."""
        job = self.jobs.get(id)
        if job is None:
            return False
        holds = job.place in ("active", "waiting") and job.receipt == receipt
        if (
            not holds
            and not self.has("settles_without_lock")
            and not (job.place in ENDS and self.has("settles_twice"))
        ):
            return False
        if self.has("leaks_lock", 0.3):
            self.stray_keys[f"lock:{id}"] = ("lock", id)
        job.receipt = None
        if outcome == "released":
            self._wait(job)
            return True
        job.attempts_made += 1
        if outcome == "retry":
            job.place, job.due = "delayed", now + delay
            if self.has("ignores_delay"):
                job.due = now
            self.entry(now, id, "retrying")
            return True
        if value is not None:
            job.result = "Y29ycnVwdA==" if self.has("corrupts_result", 0.5) else value
        self.end(now, job, outcome)
        return True

    def end(self, now: float, job: Model, outcome: str) -> None:
        job.place = outcome
        if self.has("runs_ended_job", 0.3):
            self._wait(job)
        if not self.has("forgets_event", 0.3):
            self.entry(now, job.id, outcome, job.result if outcome == "completed" else None)
        if self.has("logs_twice", 0.3):
            self.entry(now, job.id, outcome)
        self._release_parents(job)
        if not self.settings.keeps_ended and job.place in ENDS:
            self._delete(job)

    def _delete(self, job: Model) -> None:
        del self.jobs[job.id]
        if self.has("leaks_key", 0.3):
            self.stray_keys[f"job:{job.id}"] = ("job", job.id)

    def _release_parents(self, child: Model) -> None:
        for id in child.parents:
            parent = self.jobs.get(id)
            if parent is not None and parent.place == "waiting_children":
                parent.children.discard(child.id)
                if not parent.children and not self.has("parent_stuck"):
                    self._wait(parent)

    def _wait(self, job: Model) -> None:
        self.orders += 1
        job.place, job.order = "waiting", self.orders

    def promote(self, now: float) -> None:
        for job in self.jobs.values():
            if job.place == "delayed" and job.due <= now:
                self._wait(job)

    def recover(self, now: float) -> None:
        """Take back the jobs whose locks have run out."""
        for job in list(self.jobs.values()):
            expired = job.locked_until <= now - (500.0 if self.bug == "recovers_slowly" else 0.0)
            if job.place == "active" and (expired or self.has("recovers_early", 0.3)):
                self._recover(now, job)

    def _recover(self, now: float, job: Model) -> None:
        if self.has("forgets_recovery", 0.5):
            del self.jobs[job.id]
            return
        job.receipt = None
        job.stalls += 1
        job.attempts_made += self.has("counts_stalls")
        if job.stalls > self.settings.max_stalls:
            self.end(now, job, "dead")
            return
        self._wait(job)
        self.entry(now, job.id, "stalled")

    def worker_died(self, now: float, worker: str) -> None:
        """With a bug, put the jobs of a killed worker back at once, without an entry in the log."""
        if self.has("recovers_at_kill"):
            for job in self.jobs.values():
                if job.place == "active" and job.worker == worker:
                    self._wait(job)

    def cancel(self, now: float, id: str) -> bool | None:
        """Return whether the job ended by this; None: there is nothing to cancel."""
        job = self.jobs.get(id)
        if job is None or job.place in ENDS:
            return None
        if job.place == "active" or job.receipt is not None:
            return False
        self.end(now, job, "cancelled")
        return True

    def remove(self, id: str) -> bool:
        job = self.jobs.get(id)
        if job is None or job.place == "active" or job.receipt is not None:
            return False
        self._release_parents(job)
        self._delete(job)
        return True

    def reopen(self, id: str, anew: bool) -> bool:
        """Put a dead job back, with its attempts kept and one more, or anew."""
        job = self.jobs.get(id)
        if job is None or job.place != "dead":
            return False
        if anew:
            job.attempts_made = 0
        job.granted = 0 if anew else job.attempts_made + 1 - self.settings.max_attempts
        job.stalls = 0
        self._wait(job)
        return True

    def tick(self, now: float, at: float) -> None:
        if self.has("forgets_tick", 0.3):
            return
        self.add(now, id=f"tick:{at:.0f}", tick=at)
        if self.has("doubles_tick", 0.3):
            self.add(now, id=f"tick:{at:.0f}:again", tick=at)

    def entry(
        self, now: float, job: str, name: str, value: str | None = None, tick: float | None = None
    ) -> None:
        self.entries += 1
        self.log.append(Entry(f"e{self.entries}", now, job, name, value, tick))

    def places(self, job: Model) -> tuple[str, ...]:
        twice = job.place == "completed" and self.has("keeps_active", 0.3)
        return (job.place, "active") if twice else (job.place,)

    @property
    def unfinished(self) -> bool:
        return any(job.place not in ENDS for job in self.jobs.values())
