"""Running the rules over a history."""

from collections.abc import Collection
from dataclasses import dataclass

from tests.faults.checker.history import History, without_garbage_collection
from tests.faults.checker.index import Index
from tests.faults.checker.records import AnyRecord
from tests.faults.checker.rules import RULES, Verdict, Violation
from tests.faults.checker.rules.recovery import Distribution, distribution, recoveries
from tests.faults.checker.shrink import shortest


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A violation with the shortest history that shows it."""

    violation: Violation
    records: tuple[AnyRecord, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What the rules make of a history."""

    records: int
    files: int
    torn: int
    processes: int
    jobs: int
    attempts: int
    dangling: int
    """Records about an attempt or operation whose beginning is missing."""
    begin: float
    verdicts: tuple[Verdict, ...]
    contradictions: tuple[Contradiction, ...]
    """The shortest first; of each rule no more than `shown`."""
    recovery: Distribution | None
    """From a kill to the next start of a job that the killed worker had."""
    never_recovered: int

    @property
    def ok(self) -> bool:
        """Whether no rule was broken."""
        return not any(verdict.violations for verdict in self.verdicts)

    @property
    def violations(self) -> list[Violation]:
        """Every violation of every rule."""
        return [violation for verdict in self.verdicts for violation in verdict.violations]

    @property
    def not_judged(self) -> list[str]:
        """The rules that had nothing to judge: the history proves nothing about them."""
        return [verdict.rule for verdict in self.verdicts if not verdict.cases]


def check(history: History, rules: Collection[str] = tuple(RULES), shown: int = 3) -> Report:
    """Judge the history by the rules; reduce `shown` violations of each rule to their shortest history."""
    unknown = set(rules) - set(RULES)
    if unknown:
        raise ValueError(f"unknown rule {sorted(unknown)[0]!r}; the rules are {', '.join(RULES)}")
    with without_garbage_collection():
        index = Index(history.records)
        verdicts = tuple(rule.judge(index) for name, rule in RULES.items() if name in rules)
        contradictions = []
        for verdict in verdicts:
            for violation in sorted(verdict.violations, key=lambda violation: len(violation.records))[:shown]:
                records = shortest(index, violation, RULES[verdict.rule])
                contradictions.append(Contradiction(violation, tuple(records)))
    contradictions.sort(key=lambda contradiction: len(contradiction.records))
    times = [one.ms for one in recoveries(index)]
    return Report(
        records=len(history.records),
        files=history.files,
        torn=history.torn,
        processes=len({record.process for record in history.records}),
        jobs=sum(len(queue.jobs) for queue in index.queues.values()),
        attempts=sum(len(job.attempts) for job in index.jobs),
        dangling=index.dangling,
        begin=history.records[0].at if history.records else 0.0,
        verdicts=verdicts,
        contradictions=tuple(contradictions),
        recovery=distribution([time for time in times if time != float("inf")]),
        never_recovered=sum(time == float("inf") for time in times),
    )
