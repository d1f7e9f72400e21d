"""How far streaming queries are behind the events they read: in a query's progress, and for Prometheus."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Gauge
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from corral.spark import offsets
from corral.spark.offsets import BEGINNING, Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "corral_spark_lag_events"


def lag_of(sources: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Queue -> how many of its events a query has not read yet, from the `sources` of its progress.

    Queues of servers that do not count (before Redis 7) are left out.

    >>> reached, present = '{"mail": {"id": "5-0", "added": 40}}', '{"mail": {"id": "9-0", "added": 100}}'
    >>> lag_of([{"endOffset": reached, "latestOffset": present}])
    {'mail': 60}
    """
    behind: dict[str, int] = {}
    for source in sources:
        reached, present = _positions(source.get("endOffset")), _positions(source.get("latestOffset"))
        for queue, position in present.items():
            waiting = offsets.pending(reached.get(queue, Position(BEGINNING, 0)), position)
            if waiting is not None:
                behind[queue] = behind.get(queue, 0) + waiting
    return behind


def _positions(told: Any) -> offsets.Positions:
    """Positions out of a progress; none where the source is not one of ours."""
    try:
        found = json.loads(told) if isinstance(told, str) else told
        return offsets.from_json(found) if isinstance(found, dict) else {}
    except (ValueError, TypeError, KeyError):
        return {}


class LagListener(StreamingQueryListener):
    """A gauge of the lag of each query and queue, kept up to date while the queries run."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._gauge = Gauge(
            NAME, "Events a streaming query has not read yet.", ("query", "queue"), registry=self.registry
        )
        self._names: dict[str, tuple[str, set[str]]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self._names[str(event.runId)] = (event.name or str(event.id), set())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        name, queues = self._names.setdefault(str(progress.runId), (progress.name or str(progress.id), set()))
        sources = [
            {"endOffset": source.endOffset, "latestOffset": source.latestOffset}
            for source in progress.sources
        ]
        for queue, waiting in lag_of(sources).items():
            queues.add(queue)
            self._gauge.labels(name, queue).set(waiting)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        # nothing new came, so nothing waits
        name, queues = self._names.get(str(event.runId), ("", set()))
        for queue in queues:
            self._gauge.labels(name, queue).set(0)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        # the number of a query that does not run any more would be a lie
        name, queues = self._names.pop(str(event.runId), ("", set()))
        for queue in queues:
            self._gauge.remove(name, queue)


def watch(spark: "SparkSession", registry: CollectorRegistry | None = None) -> LagListener:
    """A listener that is told of every query of this session.

    >>> listener = watch(spark)                                                     # doctest: +SKIP
    >>> start_http_server(9100, registry=listener.registry)                         # doctest: +SKIP
    """
    listener = LagListener(registry)
    spark.streams.addListener(listener)
    return listener
