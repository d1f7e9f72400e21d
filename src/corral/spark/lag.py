"""Lag: how many events streaming queries have not read yet, from their progress and for Prometheus."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from pyspark.sql import SparkSession
from pyspark.sql.streaming import listener

from corral.spark import offsets
from corral.spark.offsets import BEGINNING, Position

METRIC = "corral_spark_lag_events"


def lag_of(sources: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return queue -> events not read yet, from the `sources` of a query's progress.

    Queues of servers that do not count (before Redis 7) are left out.

    >>> reached, present = '{"mail": {"id": "5-0", "added": 40}}', '{"mail": {"id": "9-0", "added": 100}}'
    >>> lag_of([{"endOffset": reached, "latestOffset": present}])
    {'mail': 60}
    """
    lag: dict[str, int] = {}
    for source in sources:
        reached, present = _positions(source.get("endOffset")), _positions(source.get("latestOffset"))
        for queue, position in present.items():
            pending = offsets.pending(reached.get(queue, Position(BEGINNING, 0)), position)
            if pending is not None:
                lag[queue] = lag.get(queue, 0) + pending
    return lag


def _positions(offset: Any) -> offsets.Positions:
    """Return the positions of an offset; none where it belongs to another kind of source."""
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
        return offsets.from_json(value) if isinstance(value, dict) else {}
    except (ValueError, TypeError, KeyError):
        return {}


class LagListener(listener.StreamingQueryListener):
    """A gauge of the lag of each query and queue, updated while the queries run. Runs on the driver."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._gauge = Gauge(
            METRIC, "Events a streaming query has not read yet.", ("query", "queue"), registry=self.registry
        )
        self._queries: dict[str, tuple[str, set[str]]] = {}
        """Run id -> (name of the query, queues that have a gauge)."""

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:  # noqa: N802
        self._queries[str(event.runId)] = (event.name or str(event.id), set())

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        name, queues = self._queries.setdefault(
            str(progress.runId), (progress.name or str(progress.id), set())
        )
        sources = [
            {"endOffset": source.endOffset, "latestOffset": source.latestOffset}
            for source in progress.sources
        ]
        for queue, lag in lag_of(sources).items():
            queues.add(queue)
            self._gauge.labels(name, queue).set(lag)

    def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:  # noqa: N802
        # no new events, so none are unread
        name, queues = self._queries.get(str(event.runId), ("", set()))
        for queue in queues:
            self._gauge.labels(name, queue).set(0)

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:  # noqa: N802
        # a query that does not run any more has no lag to report
        name, queues = self._queries.pop(str(event.runId), ("", set()))
        for queue in queues:
            self._gauge.remove(name, queue)


def watch(spark: SparkSession, registry: CollectorRegistry | None = None) -> LagListener:
    """Add a listener to every query of this session.

    >>> start_http_server(9100, registry=watch(spark).registry)                     # doctest: +SKIP
    """
    lag = LagListener(registry)
    spark.streams.addListener(lag)
    return lag
