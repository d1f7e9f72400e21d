"""The rules: each is a pure function of a history."""

from tests.faults.checker.rules.attempts import attempts, delay
from tests.faults.checker.rules.base import Rule, Verdict, Violation
from tests.faults.checker.rules.ends import end_once, events, result
from tests.faults.checker.rules.flows import flow, schedule
from tests.faults.checker.rules.jobs import leaks, origin, place, refused
from tests.faults.checker.rules.limits import concurrency, rate_limit
from tests.faults.checker.rules.locks import fence, lock
from tests.faults.checker.rules.order import fifo, pause, priority
from tests.faults.checker.rules.recovery import recovery

__all__ = ["RULES", "Rule", "Verdict", "Violation"]

RULES = {
    rule.name: rule
    for rule in (
        Rule(
            "origin",
            "every job comes from one add, tick or flow, and an add without an answer makes at most one",
            origin,
        ),
        Rule("refused", "a refused add left nothing", refused),
        Rule("place", "every acknowledged job has exactly one end or one place", place),
        Rule("end_once", "no job ended twice or started after its end", end_once),
        Rule("lock", "no two attempts of a job held its lock at the same time", lock),
        Rule("fence", "only the attempt that held the lock settled its job", fence),
        Rule("attempts", "attempts are bounded and counted right, and a stall is not an attempt", attempts),
        Rule("delay", "no job started before its delay was over", delay),
        Rule("result", "results are what the handlers returned, byte for byte", result),
        Rule("events", "the event log has every end and invents none", events),
        Rule("leaks", "every key left belongs to its queue or to a job that is there", leaks),
        Rule("fifo", "jobs of one priority started in the order of their adds", fifo),
        Rule("priority", "no job was claimed while a better one waited", priority),
        Rule("pause", "no job of a paused queue was claimed", pause),
        Rule("schedule", "each tick of a schedule was exactly one job", schedule),
        Rule("flow", "parents started after all their children", flow),
        Rule("rate_limit", "no more jobs were claimed in a time than allowed", rate_limit),
        Rule("concurrency", "no more handlers ran at the same time than allowed", concurrency),
        Rule("recovery", "jobs of killed workers started again in the promised time", recovery),
    )
}
