"""The table `events`: logs read by offset, a page at a time, as Arrow batches."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from corral.core.pages import EventColumns, EventPage
from corral.spark import offsets
from corral.spark.client import Visit, without_collector
from corral.spark.gaps import DataLoss, Gap, Watch
from corral.spark.offsets import Stretch
from corral.spark.options import Reading, Where
from corral.spark.planner import Planner
from corral.spark.schema import EVENTS, GAP, arrow_schema

FIRST_PAGE = 100
"""Few, for nobody knows yet how large they are."""
MOST_ENTRIES = 10_000
"""Of one page: some 10 ms of the server's time."""
PAGE_BYTES = 8 * 1024 * 1024

log = logging.getLogger("corral.spark")


@dataclass
class EventPartition(InputPartition):
    """One stretch of one log: what one Spark task reads."""

    stretch: Stretch


class EventReader(DataSourceReader):
    """Events from one position to another, once. Planned on the driver, read on executors."""

    def __init__(self, where: Where, reading: Reading) -> None:
        self.where = where
        self.reading = reading

    def partitions(self) -> Sequence[InputPartition]:
        with Planner(self.where, self.reading) as planner:
            start = planner.initial()
            return partitions_of(planner.stretches(start, planner.ending(start)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, EventPartition):
            return iter(())  # Spark's own, where there was nothing to plan
        return read_stretch(self.where, self.reading, partition.stretch)


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Events as they come. Offsets are asked for on the driver, stretches read on executors."""

    def __init__(self, where: Where, reading: Reading) -> None:
        self.where = where
        self.reading = reading
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        """Made when first used: the reader itself travels to executors, where no planner is needed."""
        if self._planner is None:
            self._planner = Planner(self.where, self.reading)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return offsets.to_json(self.planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self.reading.max_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.planner.stop_at_present()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offsets.to_json(self.planner.next(offsets.from_json(start), most))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets.to_json(self.planner.present()) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return partitions_of(self.planner.stretches(offsets.from_json(start), offsets.from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, EventPartition)
        return read_stretch(self.where, self.reading, partition.stretch)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"where": self.where, "reading": self.reading, "_planner": None}


def partitions_of(stretches: Sequence[Stretch]) -> list[InputPartition]:
    return [EventPartition(stretch) for stretch in stretches]


# -- on executors -------------------------------------------------------------------------------------------


def read_stretch(where: Where, reading: Reading, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """A stretch as record batches, one a page; what was gone before it was read is a row of its own."""
    watch = Watch(stretch)
    with Visit(where, reading.retry_s) as visit, without_collector():
        for after, page in pages(visit, stretch):
            gap = watch.look(after, page.extent)
            if gap is not None:
                _tell(gap, reading)
            watch.count(page.seen)
            if page.columns.ids:
                yield record_batch(page.columns, where.protocol_name, stretch.queue)
    gap = watch.verdict()
    if gap is not None:
        _tell(gap, reading)
        yield gap_batch(gap, where.protocol_name)


def pages(visit: Visit, stretch: Stretch) -> Iterator[tuple[str, EventPage]]:
    """(the id before it, page) until the stretch is read; pages grow and shrink to about 8 MB."""
    events, after, count = visit.events(stretch.queue), stretch.after, FIRST_PAGE
    while True:
        page = visit.ask(partial(events.page, after, stretch.until, count))
        yield after, page
        if page.seen < count or page.last is None or page.last == stretch.until:
            return
        after, count = page.last, next_count(page.seen, page.size)


def next_count(read: int, size: int) -> int:
    """How many entries the next page should have, if they are like those of the last.

    >>> next_count(1000, 100_000), next_count(1000, 800 * 1024 * 1024)
    (10000, 10)
    """
    each = max(size // max(read, 1), 1)
    return max(min(PAGE_BYTES // each, MOST_ENTRIES), 1)


def _tell(gap: Gap, reading: Reading) -> None:
    if reading.fail_on_data_loss:
        raise DataLoss(
            f"{gap.sentence()}; keep more events or read more often, or set failOnDataLoss=false to go on: "
            f"the gap is then a row of its own"
        )
    log.warning("%s", gap.sentence())


_SCHEMA = arrow_schema(EVENTS)


def record_batch(columns: EventColumns, protocol: str, queue: str) -> pa.RecordBatch:
    """The columns as Spark takes them."""
    many = len(columns)
    moments = pa.array(np.array(columns.at, dtype=np.int64) * 1000).cast(pa.timestamp("us", "UTC"))
    arrays = [
        pa.repeat(pa.scalar(protocol), many),
        pa.repeat(pa.scalar(queue), many),
        _texts(columns.ids),
        moments,
        _texts(columns.kinds),
        _texts(columns.job_ids),
        _texts(columns.names),
        pa.array(columns.attempts, pa.int32()),
        _texts(columns.previous),
        _texts(columns.workers),
        _texts(columns.data),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _texts(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        # a stranger's bytes that are no UTF-8
        as_bytes = (value.encode() if isinstance(value, str) else value for value in values)
        texts = [None if raw is None else raw.decode("utf-8", "replace") for raw in as_bytes]
        return pa.array(texts, pa.string())


def gap_batch(gap: Gap, protocol: str) -> pa.RecordBatch:
    """A gap as the one row it is."""
    at = offsets.id_key(gap.before)[0] or int(time.time() * 1000)
    columns = EventColumns(
        [f"{gap.after}..{gap.before}"], [at], [GAP], [None], [None], [None], [None], [None], [gap.as_json()]
    )
    return record_batch(columns, protocol, gap.queue)
