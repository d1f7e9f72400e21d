"""A run of the lake: new events into bronze, then silver and gold, once or until it is told to stop."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from corral.spark.lake import bronze
from corral.spark.lake.formats import PARQUET, check_format, publish
from corral.spark.lake.ingest import BATCH_EVENTS, Progress, Tell, filing, follow, in_utc, prepare, silent
from corral.spark.lake.maintenance import ENOUGH, compact, retain
from corral.spark.lake.refresh import refresh
from corral.spark.lake.tables import Lake
from corral.spark.options import Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RunOptions:
    """How a lake is run."""

    is_continuous: bool = False
    """Until it is told to stop; else until the events that are there now have been read."""
    every_s: float = 10.0
    """In a continuous run: the time between two looks for new events."""
    refresh_s: float = 60.0
    """In a continuous run: the time between two refreshes of silver and gold."""
    batch_events: int = BATCH_EVENTS
    keep_days: int | None = None
    fold_after: int = ENOUGH
    format: str = PARQUET


@dataclass(frozen=True)
class Ran:
    """What a run has done."""

    events: int = 0
    """Rows of bronze that silver and gold now tell of, gaps among them."""
    batches: int = 0
    days: int = 0
    """Days of silver and gold that were written anew."""
    folded: int = 0
    """Folders of bronze that became bigger ones."""
    dropped: int = 0
    """Days that retention has dropped."""
    missing: int = 0
    """Events that were gone before they were read, of all times; each gap is a row of bronze."""
    unknown_gaps: int = 0
    """Gaps whose size nobody knows."""


def run(
    spark: "SparkSession",
    lake: Lake,
    places: Sequence[Where],
    options: RunOptions | None = None,
    tell: Tell = silent,
    should_stop: Callable[[], bool] = lambda: False,
) -> Ran:
    """Bring a lake up to date with the events of these places; what that took.

    >>> run(spark, Lake("history"), [where]).events                                    # doctest: +SKIP
    """
    options = options or RunOptions()
    with lake.alone(), in_utc(spark):
        prepare(lake, places)
        if options.format != PARQUET:
            check_format(spark, lake, options.format)
        renewing = _Renewing(spark, lake, options, tell)
        every_s = options.every_s if options.is_continuous else None
        with filing(spark, lake, places, options.batch_events, every_s) as queries:
            follow(queries, tell, should_stop, renewing.now_and_then)
        renewing.once()
        gaps = bronze.missing(spark, lake)
        return replace(
            renewing.done,
            missing=sum(gap["missing"] or 0 for gap in gaps),
            unknown_gaps=sum(gap["missing"] is None for gap in gaps),
        )


class _Renewing:
    """Silver, gold and the tidying that follows, each time enough of bronze is new."""

    def __init__(self, spark: "SparkSession", lake: Lake, options: RunOptions, tell: Tell) -> None:
        self._spark = spark
        self._lake = lake
        self._options = options
        self._tell = tell
        self._days: set[date] = set()
        self._last = time.monotonic()
        self.done = Ran()

    def now_and_then(self) -> None:
        """Renew if it is time in a run that goes on and on."""
        if self._options.is_continuous and time.monotonic() - self._last >= self._options.refresh_s:
            self.once()
            self._last = time.monotonic()

    def once(self) -> None:
        spark, lake, options, done = self._spark, self._lake, self._options, self.done
        self._tell(Progress("silver and gold", done.events))
        made = refresh(spark, lake)
        self._days |= made.dates
        self._tell(Progress("tidying", done.events + made.events))
        folded = compact(spark, lake, options.fold_after)
        today = datetime.now(UTC).date()
        dropped = [] if options.keep_days is None else retain(lake, options.keep_days, today)
        if options.format != PARQUET and (made.dates or dropped):
            publish(spark, lake, options.format)
        self.done = replace(
            done,
            events=done.events + made.events,
            batches=done.batches + made.batches,
            days=len(self._days),
            folded=done.folded + folded,
            dropped=done.dropped + len(dropped),
        )
