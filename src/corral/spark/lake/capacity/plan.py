"""CapacityPlan: the fewest slots that keep the waits of a queue below a target, by hour and by what-if."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil

from corral.core.ports import Limit
from corral.errors import InvalidOptions
from corral.spark.lake.capacity.history import HourOfWeek, QueueHistory
from corral.spark.lake.capacity.scale import MeasuredCosts, ScalePlan, measured_costs, scale_plan
from corral.spark.lake.capacity.simulation import (
    Fleet,
    Outage,
    QueueRules,
    SimulatedJob,
    SimulatedRun,
    SimulationResult,
    TripCosts,
    simulate,
)
from corral.spark.lake.report.report import duration
from corral.worker.config import DEFAULT_CONCURRENCY, MOST_CONCURRENCY

MAX_WORKERS = 10_000
CURVE_POINTS = 9
TARGET_SHARE = 0.95

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class CapacityOptions:
    """The target, and what is assumed."""

    target_ms: float
    """The wait that 95 % of attempts may not exceed, in each hour."""
    concurrency: int = DEFAULT_CONCURRENCY
    """Slots of a worker."""
    workers: int | None = None
    """Predict the waits with so many workers; None: search for the fewest."""
    load: float = 1.0
    """Arrivals come so many times as fast."""
    slower: float = 1.0
    """Handlers take so many times as long."""
    failover_ms: float = 0.0
    """In the middle of the peak the server does not reply for so long."""
    limit: Limit | None = None
    max_active: int | None = None
    trip_ms: float | None = None
    """A round trip to the server; None: as measured."""
    utilisation: float = 0.7
    """The share of a processor that the plan past one machine uses."""

    def __post_init__(self) -> None:
        for name in ("target_ms", "load", "slower"):
            value = {"target_ms": self.target_ms, "load": self.load, "slower": self.slower}[name]
            if not 0 < value < 1e9:
                raise InvalidOptions(f"{name} {value!r} is out of range; use a number above 0")
        if not 1 <= self.concurrency <= MOST_CONCURRENCY:
            raise InvalidOptions(f"concurrency {self.concurrency!r} is outside 1..{MOST_CONCURRENCY}")
        if not 0 < self.utilisation <= 1:
            raise InvalidOptions(f"utilisation {self.utilisation!r} is outside 0..1; use one such as 0.7")


@dataclass(frozen=True)
class WaitPrediction:
    """The waits of one hour with a fleet, in milliseconds."""

    hour: str
    """The busiest one, or the one that needs the most slots."""
    workers: int
    slots: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    worst_ms: float
    utilisation: float
    """The share of slots that run handlers."""


@dataclass(frozen=True)
class Scenario:
    """What a case needs."""

    title: str
    prediction: WaitPrediction
    recovered_ms: float | None = None
    """After a failover: the time until attempts wait no longer than the target; None: none was."""


@dataclass(frozen=True)
class HourNeed:
    """One hour of the week: what arrived and ran on average, and the slots for its busiest one."""

    hour: HourOfWeek
    slots: int
    p95_ms: float


@dataclass(frozen=True)
class CapacityPlan:
    """The answer; `page.page` renders it as one HTML page."""

    queue: str
    protocol: str
    since: datetime
    until: datetime
    jobs: int
    attempts: int
    mean_ms: float
    options: CapacityOptions
    scenarios: tuple[Scenario, ...]
    hours: tuple[HourNeed, ...]
    """Of the last scenario, in the order of the week."""
    curve: tuple[WaitPrediction, ...]
    """The peak of the last scenario with fewer and more slots."""
    scale: ScalePlan

    @property
    def needed(self) -> WaitPrediction:
        """The prediction of the last scenario."""
        return self.scenarios[-1].prediction

    @property
    def peak(self) -> HourNeed:
        """The hour of the prediction, without a failover."""
        return next(need for need in self.hours if need.hour.name == self.needed.hour)


def plan_capacity(
    history: QueueHistory, options: CapacityOptions, on_step: OnStep = lambda step: None
) -> CapacityPlan:
    """Return how many workers and slots the queue needs, or what it would wait with those that are named."""
    costs = measured_costs()
    scenarios = []
    needs: list[HourNeed] = []
    for title, case in _cases(options):
        on_step(title)
        needs = _needs(_Case(history, case, costs), is_exact=case == options)
        scenarios.append(_scenario(_Case(history, case, costs), title, needs))
    on_step("curve")
    last = _Case(history, options, costs)
    return CapacityPlan(
        queue=history.queue,
        protocol=history.protocol,
        since=history.since,
        until=history.until,
        jobs=history.jobs,
        attempts=history.attempts,
        mean_ms=history.mean_ms,
        options=options,
        scenarios=tuple(scenarios),
        hours=tuple(sorted(needs, key=lambda need: need.hour.number)),
        curve=tuple(_curve(last, scenarios[-1].prediction)),
        scale=scale_plan(history, costs, options.utilisation),
    )


def _cases(options: CapacityOptions) -> Iterator[tuple[str, CapacityOptions]]:
    """Yield the history as it was, each of the changes alone, and all of them together."""
    plain = replace(options, load=1.0, slower=1.0, failover_ms=0.0)
    cases = [
        (f"{options.load:g} times the load", replace(plain, load=options.load)),
        (f"handlers {options.slower:g} times as slow", replace(plain, slower=options.slower)),
        (f"a failover of {duration(options.failover_ms)}", replace(plain, failover_ms=options.failover_ms)),
    ]
    changes = [case for case in cases if case[1] != plain]
    yield "as seen", plain
    yield from changes
    if len(changes) > 1:
        yield "all of these", options


@dataclass(frozen=True)
class _Case:
    """The history under one set of options."""

    history: QueueHistory
    options: CapacityOptions
    costs: MeasuredCosts

    @property
    def trip_costs(self) -> TripCosts:
        return self.costs.trip_costs(self.options.trip_ms)

    def jobs(self, hour: HourOfWeek) -> list[SimulatedJob]:
        """Return the jobs of an hour: handlers without the trips that are part of their time in the lake."""
        trip_ms = self.trip_costs.trip_ms
        load, slower = self.options.load, self.options.slower
        return [
            SimulatedJob(
                job.at / load,
                tuple(
                    [
                        SimulatedRun(max(run.handler_ms - trip_ms, 0.0) * slower, run.retry_ms)
                        for run in job.runs
                    ]
                ),
                job.priority,
            )
            for job in self.history.arrivals[hour.number]
        ]

    def fleet(self, slots: int) -> Fleet:
        return Fleet(self.options.workers or ceil(slots / self.options.concurrency), slots)

    def simulate(
        self, jobs: Sequence[SimulatedJob], slots: int, outage: Outage | None = None
    ) -> SimulationResult:
        rules = QueueRules(self.options.limit, self.options.max_active)
        return simulate(jobs, self.fleet(slots), self.trip_costs, rules, outage)

    def prediction(self, hour: HourOfWeek, slots: int, result: SimulationResult) -> WaitPrediction:
        return WaitPrediction(
            hour=hour.name,
            workers=self.fleet(slots).workers,
            slots=slots,
            p50_ms=result.wait(0.5),
            p95_ms=result.wait(TARGET_SHARE),
            p99_ms=result.wait(0.99),
            worst_ms=result.worst,
            utilisation=min(result.handler_ms / (slots * max(result.ended_at, 1.0)), 1.0),
        )


def _needs(case: _Case, is_exact: bool) -> list[HourNeed]:
    """Return what each hour needs, or what it would wait with the workers that are named.

    Unless it is to be exact, an hour for which the slots of a busier one are enough needs as many.
    """
    needs: list[HourNeed] = []
    for hour in case.history.hours:
        slots = max([need.slots for need in needs], default=0)
        if case.options.workers is not None:
            slots = case.options.workers * case.options.concurrency
        jobs = case.jobs(hour)
        need = None
        if slots and (case.options.workers is not None or not is_exact):
            need = HourNeed(hour, slots, case.simulate(jobs, slots).wait(TARGET_SHARE))
        if need is None or (case.options.workers is None and need.p95_ms > case.options.target_ms):
            need = _need(case, hour, jobs, slots)
        needs.append(need)
    return needs


def _scenario(case: _Case, title: str, needs: Sequence[HourNeed]) -> Scenario:
    options = case.options
    peak = max(needs, key=lambda need: (need.slots, need.p95_ms))
    jobs = case.jobs(peak.hour)
    if not options.failover_ms:
        result = case.simulate(jobs, peak.slots)
        return Scenario(title, case.prediction(peak.hour, peak.slots, result))
    outage = Outage(jobs[-1].at / 2, options.failover_ms)
    result = case.simulate(jobs, peak.slots, outage)
    recovered_ms = result.recovered_at(outage.end, max(options.target_ms, peak.p95_ms)) - outage.end
    return Scenario(title, case.prediction(peak.hour, peak.slots, result), recovered_ms)


def _need(case: _Case, hour: HourOfWeek, jobs: Sequence[SimulatedJob], known: int) -> HourNeed:
    """Return the fewest slots for an hour; `known` were enough for busier ones, 0: none was before."""
    target_ms = case.options.target_ms
    waits: dict[int, float] = {}

    def is_enough(slots: int) -> bool:
        if slots not in waits:
            waits[slots] = case.simulate(jobs, slots).wait(TARGET_SHARE)
        return waits[slots] <= target_ms

    upper = known or max(ceil(hour.busiest_slots * case.options.load * case.options.slower), 1)
    # more slots than jobs change nothing
    most = min(max(len(jobs), 1), MAX_WORKERS * case.options.concurrency)
    upper, lower = min(upper, most), 0
    if not is_enough(upper) and not is_enough(most):
        raise _unreachable(case, hour, jobs, waits[most])
    while not is_enough(upper):
        upper, lower = min(upper * 2, most), upper
    while upper - lower > 1:
        middle = (lower + upper) // 2
        if is_enough(middle):
            upper = middle
        else:
            lower = middle
    return HourNeed(hour, upper, waits[upper])


def _unreachable(
    case: _Case, hour: HourOfWeek, jobs: Sequence[SimulatedJob], wait_ms: float
) -> InvalidOptions:
    options = case.options
    target = f"no number of workers keeps the p95 wait of {hour.name} below {duration(options.target_ms)}: "
    if options.limit is not None or options.max_active is not None:
        rate = len(jobs) * 1000 / max(jobs[-1].at, 1.0)
        return InvalidOptions(
            f"{target}with the queue's limits {rate:.3g} jobs/s wait {duration(wait_ms)}; raise the limits"
        )
    return InvalidOptions(
        f"{target}with a slot for each job it is {duration(wait_ms)}, of which a round trip takes "
        f"{duration(case.trip_costs.trip_ms)}; give a longer --target-wait-p95"
    )


def _curve(case: _Case, prediction: WaitPrediction) -> Iterator[WaitPrediction]:
    hour = next(hour for hour in case.history.hours if hour.name == prediction.hour)
    jobs = case.jobs(hour)
    fewest = max(prediction.slots - CURVE_POINTS // 2, 1)
    if case.options.workers is not None:
        case = replace(case, options=replace(case.options, workers=None))
    for slots in range(fewest, fewest + CURVE_POINTS):
        yield case.prediction(hour, slots, case.simulate(jobs, slots))
