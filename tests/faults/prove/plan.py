"""Plan: what a run does, and which faults are injected when, decided by its seed alone."""

from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from tests.support.node import why_no_node
from tests.support.proxy import ProxyFault

Action = Literal["kill", "late_settle", "freeze", "stop", "restart", "cut", "outage"]

WORKERS = 3
PRODUCERS = 2
NODE = WORKERS + PRODUCERS
"""The number of the worker of BullMQ in Node that works beside Corral's, where Node is installed."""
LOCK_MS = 700
RECOVER_MS = 200
CALM_S = 1.0
"""At the beginning no fault is injected: order, priorities and limits are judged only without one."""

LATE_SETTLE_S = 1.6 * LOCK_MS / 1000
"""How long after the death of its worker a settlement arrives: others have the job by then."""

LEAST: dict[Action, int] = {
    "kill": 1, "late_settle": 1, "freeze": 1, "stop": 1, "restart": 1, "cut": 8, "outage": 1,
}  # fmt: skip
"""What every run does, however short."""
PER_MINUTE: dict[Action, int] = {
    "kill": 8, "late_settle": 4, "freeze": 5, "stop": 4, "restart": 3, "cut": 40, "outage": 4,
}  # fmt: skip
NODE_ACTIONS: tuple[Action, ...] = ("kill", "freeze")
"""What is done to a worker in Node: it has no proxy, and is not expected to live through lost replies."""
CUTS = (
    ProxyFault.CUT_BEFORE,
    ProxyFault.CUT_INSIDE,
    ProxyFault.SWALLOW,
    ProxyFault.CUT_REPLY,
    ProxyFault.LATE,
)
MAY_LOSE_MS = {"always": 0.0, "everysec": 3000.0}
"""What a server that is killed may forget; with `everysec` a slow disk delays writes up to two seconds."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault: when it begins, what it is, whom it hits, and how long it lasts."""

    at_s: float
    action: Action
    target: int = 0
    """The number of a worker; of a cut or an outage, of a worker or, after those, of a producer; `NODE`."""
    seconds: float = 0.0
    cut: ProxyFault | None = None

    def __str__(self) -> str:
        client = "node worker" if self.target == NODE else f"client {self.target}"
        whom = "server" if self.action == "restart" else client
        what = f" ({self.cut.name.lower()})" if self.cut is not None else ""
        lasting = f" for {self.seconds:.2f} s" if self.seconds else ""
        return f"{self.at_s:8.2f} s  {self.action} {whom}{what}{lasting}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of one protocol."""

    seed: int
    protocol: str
    seconds: float
    """How long jobs are added and faults injected; the run ends when every job has."""
    jobs: int
    fsync: Literal["always", "everysec"]
    faults: tuple[PlannedFault, ...]
    has_node: bool = False
    """Whether a worker of BullMQ in Node takes part."""

    @property
    def may_lose_ms(self) -> float:
        return MAY_LOSE_MS[self.fsync]


def make_plan(protocol: str, seed: int, seconds: float = 4.0, jobs: int | None = None) -> Plan:
    """Return the plan of this seed."""
    random = Random(f"{seed} {protocol} {seconds}")
    count = jobs or int(60 * seconds)
    # runs of a minute and more may also forget: then less can be judged
    fsync: Literal["always", "everysec"] = "everysec" if seconds >= 60 and random.random() < 0.3 else "always"
    faults = [_fault(random, action, seconds) for action in LEAST for _ in range(_number(action, seconds))]
    has_node = protocol == "bullmq" and why_no_node() is None
    if has_node:
        more = Random(f"{seed} node {seconds}")
        actions = (action for action in NODE_ACTIONS for _ in range(_number(action, seconds)))
        faults += [replace(_fault(more, action, seconds), target=NODE) for action in actions]
    ordered = tuple(sorted(faults, key=lambda fault: fault.at_s))
    return Plan(seed, protocol, seconds, count, fsync, ordered, has_node)


def _number(action: Action, seconds: float) -> int:
    return max(LEAST[action], int(PER_MINUTE[action] * seconds / 60))


def _fault(random: Random, action: Action, seconds: float) -> PlannedFault:
    at_s = round(random.uniform(min(CALM_S, seconds / 4), seconds), 3)
    worker, lock_s = random.randrange(WORKERS), LOCK_MS / 1000
    match action:
        case "freeze":
            return PlannedFault(at_s, action, worker, round(random.uniform(1.2, 2.5) * lock_s, 3))
        case "restart":
            return PlannedFault(at_s, action, seconds=round(random.uniform(0.05, 0.5), 3))
        case "cut":
            return PlannedFault(at_s, action, random.randrange(WORKERS + PRODUCERS), cut=random.choice(CUTS))
        case "outage":
            client = random.randrange(WORKERS + PRODUCERS)
            return PlannedFault(at_s, action, client, round(random.uniform(0.1, 1.2) * lock_s, 3))
    return PlannedFault(at_s, action, worker)
