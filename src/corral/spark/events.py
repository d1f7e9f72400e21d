"""Readers of the table `events`: logs read by offset, a page at a time, as Arrow record batches."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming import datasource as streaming

from corral.core.event import EventColumns, EventPage
from corral.spark import offsets
from corral.spark.client import QueueClient, garbage_collection_off
from corral.spark.filters import EventFilter, FilterPushdown
from corral.spark.offsets import DataLoss, Gap, GapDetector, OffsetRange, Position
from corral.spark.options import EventReadOptions, QueueAddress
from corral.spark.planner import Planner
from corral.spark.schema import EVENTS, GAP, POSITION, arrow_schema

FIRST_PAGE = 100
"""Few, because the size of the events is not known yet."""
MAX_ENTRIES = 10_000
"""Of one page: about 10 ms of the server's time."""
PAGE_BYTES = 8 * 1024 * 1024

log = logging.getLogger("corral.spark")


@dataclass
class EventPartition(InputPartition):
    """One range of one log: what one Spark task reads."""

    events: OffsetRange


class EventReader(DataSourceReader):
    """Batch reader of events. `pushFilters` and `partitions` run on the driver, `read` on executors."""

    def __init__(self, address: QueueAddress, options: EventReadOptions) -> None:
        self.address = address
        self.options = options
        self.filter = EventFilter()
        self.pushFilters = FilterPushdown(self._narrow)  # type: ignore[method-assign]

    def _narrow(self, condition: Filter) -> bool:
        narrowed = self.filter.narrowed(condition)
        self.filter = narrowed or self.filter
        return narrowed is not None

    def partitions(self) -> Sequence[InputPartition]:
        if not self.filter.has("protocol", self.address.protocol_name):
            return []
        with Planner(self.address, self.options) as planner:
            start, end = (
                {queue: position for queue, position in positions.items() if self.filter.has("queue", queue)}
                for positions in (planner.initial(), planner.ending())
            )
            return [EventPartition(events) for events in planner.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, EventPartition):
            return  # Spark's own partition, where there was nothing to plan
        for batch in read_range(self.address, self.options, partition.events):
            rows = self.filter.apply(batch)
            if len(rows):
                yield rows


class EventStreamReader(DataSourceStreamReader, streaming.SupportsTriggerAvailableNow):
    """Streaming reader of events. Offsets are planned on the driver, `read` runs on executors."""

    def __init__(self, address: QueueAddress, options: EventReadOptions) -> None:
        self.address = address
        self.options = options
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        """The planner, made when first used: the reader is pickled to executors, which need none."""
        if self._planner is None:
            self._planner = Planner(self.address, self.options)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return offsets.to_json(self.planner.initial())

    def getDefaultReadLimit(self) -> streaming.ReadLimit:  # noqa: N802
        limit = self.options.max_per_trigger
        return streaming.ReadAllAvailable() if limit is None else streaming.ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.planner.stop_at_present()

    def latestOffset(self, start: dict[str, Any], limit: streaming.ReadLimit) -> dict[str, Any]:  # noqa: N802
        max_rows = limit.max_rows if isinstance(limit, streaming.ReadMaxRows) else None
        return offsets.to_json(self.planner.next(offsets.from_json(start), max_rows))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets.to_json(self.planner.present()) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self.planner.ranges(offsets.from_json(start), offsets.from_json(end))
        return [EventPartition(events) for events in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, EventPartition)
        return read_range(self.address, self.options, partition.events)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address, "options": self.options, "_planner": None}


# -- on executors -------------------------------------------------------------------------------------------


def read_range(
    address: QueueAddress, options: EventReadOptions, events: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """Yield a range as record batches, one per page; what was gone before it was read is a row of its own."""
    detector = GapDetector(events)
    with QueueClient(address, options.retry_s) as client, garbage_collection_off():
        for after, page in pages(client, events):
            gap = detector.check_page(after, page.extent)
            if gap is not None:
                _report(gap, options)
            detector.count(page.seen)
            if page.columns.ids:
                yield record_batch(page.columns, address.protocol_name, events.queue)
    gap = detector.total()
    if gap is not None:
        _report(gap, options)
        yield gap_batch(gap, address.protocol_name)
    if options.include_positions:
        end = Position(events.until, events.last)
        yield _single_row(POSITION, end.id, end.id, end.as_json(), address.protocol_name, events.queue)


def pages(client: QueueClient, events: OffsetRange) -> Iterator[tuple[str, EventPage]]:
    """Yield (the id before it, page) to the end of the range; the size of pages adapts to about 8 MB."""
    event_log, after, count = client.ports(events.queue).events, events.after, FIRST_PAGE
    while True:
        page = client.call(partial(event_log.page, after, events.until, count))
        yield after, page
        if page.seen < count or page.last is None or page.last == events.until:
            return
        after, count = page.last, next_count(page.seen, page.size)


def next_count(read: int, size: int) -> int:
    """Return how many entries the next page should have, if they are like those of the last.

    >>> next_count(1000, 100_000), next_count(1000, 800 * 1024 * 1024)
    (10000, 10)
    """
    each = max(size // max(read, 1), 1)
    return max(min(PAGE_BYTES // each, MAX_ENTRIES), 1)


def _report(gap: Gap, options: EventReadOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{gap.sentence()}; keep more events or read more often, or set failOnDataLoss=false to go on: "
            f"the gap is then a row of its own"
        )
    log.warning("%s", gap.sentence())


_SCHEMA = arrow_schema(EVENTS)


def record_batch(columns: EventColumns, protocol: str, queue: str) -> pa.RecordBatch:
    """Return the columns as a record batch of the table `events`."""
    arrays = [
        pa.repeat(pa.scalar(protocol), len(columns)),
        pa.repeat(pa.scalar(queue), len(columns)),
        _texts(columns.ids),
        pa.array(np.array(columns.at, dtype=np.int64) * 1000).cast(pa.timestamp("us", "UTC")),
        *map(_texts, (columns.kinds, columns.job_ids, columns.names)),
        pa.array(columns.attempts, pa.int32()),
        *map(_texts, (columns.previous, columns.workers, columns.data)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _texts(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        # some client has written bytes that are not UTF-8
        raw = (value.encode() if isinstance(value, str) else value for value in values)
        texts = [None if value is None else value.decode("utf-8", "replace") for value in raw]
        return pa.array(texts, pa.string())


def gap_batch(gap: Gap, protocol: str) -> pa.RecordBatch:
    """Return a gap as a record batch of one row."""
    return _single_row(GAP, f"{gap.after}..{gap.before}", gap.before, gap.as_json(), protocol, gap.queue)


def _single_row(kind: str, event_id: str, at: str, data: bytes, protocol: str, queue: str) -> pa.RecordBatch:
    """Return a row that is no event of the log; `at` is the event id that has its time."""
    milliseconds = offsets.id_key(at)[0] or int(time.time() * 1000)
    columns = EventColumns([event_id], [milliseconds], [kind], [None], [None], [None], [None], [None], [data])
    return record_batch(columns, protocol, queue)
