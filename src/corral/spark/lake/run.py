"""A run of the lake: new events into bronze, then silver, gold and maintenance; once or until stopped."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from pyspark.sql import SparkSession

from corral.spark.lake import bronze, ingest
from corral.spark.lake.ingest import LakeProgress, OnProgress
from corral.spark.lake.maintenance import COMPACT_AFTER, compact, retain, vacuum
from corral.spark.lake.refresh import refresh
from corral.spark.lake.tables import Lake
from corral.spark.options import QueueAddress

VACUUM_S = 3600.0
"""In a continuous run: the time between two deletions of files that no kept version has."""


@dataclass(frozen=True)
class RunOptions:
    """Options of a run."""

    is_continuous: bool = False
    """Whether to run until stopped; else until the events that exist now have been read."""
    every_s: float = 10.0
    """In a continuous run: the time between two polls for new events."""
    refresh_s: float = 60.0
    """In a continuous run: the time between two refreshes of silver and gold."""
    batch_events: int = ingest.BATCH_EVENTS
    keep_days: int | None = None
    keep_versions_h: int | None = None
    """Hours for which old versions stay readable; None: 24, and of bronze about the last 360 at most."""
    compact_after: int = COMPACT_AFTER


@dataclass(frozen=True)
class RunResult:
    """What a run has done."""

    events: int = 0
    """Rows of bronze that are new in silver and gold, gaps among them."""
    batches: int = 0
    days: int = 0
    """Days of silver and gold that were written."""
    compacted: int = 0
    """Files of bronze that were merged into larger ones."""
    dropped: int = 0
    """Days that retention has deleted."""
    missing: int = 0
    """Events that were gone before they were read, in the whole history; each gap is a row of bronze."""
    unknown_gaps: int = 0
    """Gaps of unknown size."""


def run_lake(
    spark: SparkSession,
    lake: Lake,
    addresses: Sequence[QueueAddress],
    options: RunOptions | None = None,
    on_progress: OnProgress = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Bring a lake up to date with the events of these queues.

    >>> run_lake(spark, Lake("history"), [address]).events                             # doctest: +SKIP
    """
    options = options or RunOptions()
    with lake.exclusive(), ingest.in_utc(spark):
        ingest.prepare(lake)
        update = _Update(spark, lake, options, on_progress)
        every_s = options.every_s if options.is_continuous else None
        with ingest.started_queries(spark, lake, addresses, options.batch_events, every_s) as queries:
            ingest.await_queries(queries, on_progress, should_stop, update.when_due)
        update.now()
        vacuum(lake, options.keep_versions_h)
        gaps = bronze.gaps(lake)
        return replace(
            update.result,
            missing=sum(gap["missing"] or 0 for gap in gaps),
            unknown_gaps=sum(gap["missing"] is None for gap in gaps),
        )


class _Update:
    """Refreshes silver and gold and maintains the files, at the end and now and then in between."""

    def __init__(self, spark: SparkSession, lake: Lake, options: RunOptions, on_progress: OnProgress) -> None:
        self._spark = spark
        self._lake = lake
        self._options = options
        self._on_progress = on_progress
        self._days: set[date] = set()
        self._last = self._vacuumed = time.monotonic()
        self.result = RunResult()

    def when_due(self) -> None:
        """Update if the run is continuous and `refresh_s` have passed."""
        if self._options.is_continuous and time.monotonic() - self._last >= self._options.refresh_s:
            self.now()
            self._last = time.monotonic()
            if self._last - self._vacuumed >= VACUUM_S:
                vacuum(self._lake, self._options.keep_versions_h)
                self._vacuumed = self._last

    def now(self) -> None:
        spark, lake, options, result = self._spark, self._lake, self._options, self.result
        self._on_progress(LakeProgress("silver and gold", result.events))
        refreshed = refresh(spark, lake)
        self._days |= refreshed.dates
        self._on_progress(LakeProgress("maintenance", result.events + refreshed.events))
        compacted = 0 if refreshed.bronze is None else compact(refreshed.bronze, options.compact_after)
        today = datetime.now(UTC).date()
        dropped = [] if options.keep_days is None else retain(lake, options.keep_days, today)
        self.result = replace(
            result,
            events=result.events + refreshed.events,
            batches=result.batches + refreshed.batches,
            days=len(self._days),
            compacted=result.compacted + compacted,
            dropped=result.dropped + len(dropped),
        )
