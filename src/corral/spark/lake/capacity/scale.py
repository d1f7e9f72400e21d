"""ScalePlan: shards, queues, workers and executors for many more jobs, from measured costs per job."""

import json
from dataclasses import dataclass
from importlib.resources import files
from math import ceil

from corral.spark.lake.capacity.history import QueueHistory
from corral.spark.lake.capacity.simulation import TripCosts

RATES = (100_000, 1_000_000, 10_000_000)
"""Jobs a second."""
KEPT_EVENTS = 10_000
"""Events that a queue keeps where nothing else is set."""
POLL_S = 10.0
"""Between two reads of a continuous run of the lake."""
CLUSTER_NODES = 1_000
"""Up to which Redis's cluster specification says that a cluster grows linearly."""
DAY_S = 86_400


@dataclass(frozen=True)
class MeasuredCosts:
    """What `make bench` has measured on one machine; `costs.json` says where and when."""

    measured: str
    """When, and on what."""
    add_server_us: float
    job_server_us: float
    """The server's time for a claim and its settlement."""
    job_worker_us: float
    adds_per_second: float
    """One after the other, each awaited: a round trip each."""
    events_per_second: float
    """Into the lake, by Spark."""
    events_cores: int
    """Cores that took."""

    @property
    def trip_ms(self) -> float:
        return 1000 / self.adds_per_second

    def trip_costs(self, trip_ms: float | None) -> TripCosts:
        """Return the costs of a simulated job."""
        return TripCosts(
            trip_ms=self.trip_ms if trip_ms is None else trip_ms,
            server_add_ms=self.add_server_us / 1000,
            server_job_ms=self.job_server_us / 1000,
            worker_job_ms=self.job_worker_us / 1000,
        )


@dataclass(frozen=True)
class ScaleRow:
    """What a rate of jobs needs."""

    jobs_per_second: int
    shards: int
    """Of a Redis Cluster; a queue lives on one of them."""
    queues: int
    """At least: so many that each fits on a shard."""
    worker_processes: int
    """For the worker's own work, without that of the handlers."""
    slots: int
    """That run handlers at once, on average."""
    executor_cores: int
    """Of Spark, to take the events into the lake."""
    kept_events: int
    """That each queue must keep for two reads of the lake."""
    lake_bytes_per_day: float
    limit: str


@dataclass(frozen=True)
class ScalePlan:
    """A plan past one machine, on paper."""

    costs: MeasuredCosts
    utilisation: float
    first_limit: str
    rows: tuple[ScaleRow, ...]


def measured_costs() -> MeasuredCosts:
    """Return the costs that this version of Corral was measured with."""
    text = files("corral.spark.lake.capacity").joinpath("costs.json").read_text()
    return MeasuredCosts(**json.loads(text))


def scale_plan(history: QueueHistory, costs: MeasuredCosts, utilisation: float) -> ScalePlan:
    """Return what 10^5, 10^6 and 10^7 jobs a second like those of a queue need."""
    tries, events = history.attempts_per_job, history.events_per_job
    server_us = costs.add_server_us + costs.job_server_us * tries
    limits = {
        "the processor of one Redis shard, which a queue cannot leave": 1e6 / server_us,
        "the process of one worker": 1e6 / (costs.job_worker_us * tries),
        f"Spark on {costs.events_cores} cores": costs.events_per_second / events,
    }
    name = min(limits, key=lambda each: limits[each])
    others = ", then ".join(
        f"{other} at {rate:,.0f}"
        for other, rate in sorted(limits.items(), key=lambda item: item[1])
        if other != name
    )
    first_limit = f"{name}: full at {limits[name]:,.0f} jobs a second; then {others}"
    rows = tuple(_row(rate, history, costs, utilisation, server_us) for rate in RATES)
    return ScalePlan(costs, utilisation, first_limit, rows)


def _row(
    rate: int, history: QueueHistory, costs: MeasuredCosts, utilisation: float, server_us: float
) -> ScaleRow:
    tries, events = history.attempts_per_job, history.events_per_job
    shards = ceil(rate * server_us / 1e6 / utilisation)
    kept = ceil(rate * events / shards * POLL_S * 2)
    return ScaleRow(
        jobs_per_second=rate,
        shards=shards,
        queues=shards,
        worker_processes=ceil(rate * tries * costs.job_worker_us / 1e6 / utilisation),
        slots=ceil(rate * tries * history.mean_ms / 1000),
        executor_cores=ceil(rate * events * costs.events_cores / costs.events_per_second / utilisation),
        kept_events=max(kept, KEPT_EVENTS),
        lake_bytes_per_day=rate * events * history.bytes_per_event * DAY_S,
        limit=_limit(shards, kept),
    )


def _limit(shards: int, kept: int) -> str:
    """Return what must be changed first at this size."""
    nodes = shards * 2
    if nodes > CLUSTER_NODES:
        return (
            f"the cluster: {nodes:,} nodes with a replica each, and Redis's specification goes to "
            f"{CLUSTER_NODES:,}; use several clusters"
        )
    limit = "the processor of the shards"
    if kept > KEPT_EVENTS:
        limit = f"the event log: the {KEPT_EVENTS:,} events that a queue keeps are gone before they are read"
    if nodes > CLUSTER_NODES / 2:
        limit += f"; then the cluster, {nodes:,} nodes with a replica each of {CLUSTER_NODES:,}"
    return limit
