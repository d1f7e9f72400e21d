"""Planner: which queues are read, how far a batch reaches, and how it is split. All of it on the driver."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from corral.core.event import Extent, Marks
from corral.errors import CorralError, InvalidOptions, short_repr
from corral.spark import offsets
from corral.spark.client import QueueClient
from corral.spark.offsets import BEGINNING, OffsetRange, Position, Positions
from corral.spark.options import EARLIEST, LATEST, EventReadOptions, QueueAddress

PARTITION_EVENTS = 200_000
"""Events of one partition where `minPartitions` is not set."""
NO_MARKS = 1 << 52

SplitPoints = Mapping[tuple[str, str, str], list[Position]]
"""(queue, after, until) -> split points: counting is expensive, so what was counted is kept."""

log = logging.getLogger("corral.spark")


@dataclass(frozen=True)
class BatchPlan:
    """A batch of a limited number of events: where it ends, and the split points found on the way."""

    end: Positions
    points: SplitPoints

    def fits(self, ends: Positions) -> bool:
        """Return whether the logs, which end here now, still reach as far as they did."""
        return all(
            queue in ends and not offsets.is_recreated(position, ends[queue])
            for queue, position in self.end.items()
        )


class CountStopped(Exception):
    """The count is not needed any more."""


class EventCounter:
    """Counts the events of ranges, a bounded number in each call to the server."""

    def __init__(
        self, client: QueueClient, options: EventReadOptions, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._client = client
        self._options = options
        self._should_stop = should_stop

    def plan(self, start: Positions, ends: Positions, limit: int) -> BatchPlan:
        """Return the batch of at most `limit` events from `start` on, shared by what each queue has."""
        ranges = offsets.offset_ranges(start, ends)
        # where the server does not count, each queue may have an equal share
        waiting = {one.queue: limit if one.expected is None else one.expected for one in ranges}
        allowed = offsets.shares(waiting, limit)
        reached, points = dict(start), {}
        pieces = self.pieces(len(ranges))
        step = PARTITION_EVENTS if pieces is None else max(-(-limit // pieces), 1)
        for one in ranges:
            share = allowed.get(one.queue)
            if share is None:
                continue
            reached[one.queue] = ends[one.queue]
            if one.expected is None or one.expected > share:
                positions = self._reach(one, share, step)
                if positions:
                    reached[one.queue] = positions[-1]
                    points[one.queue, one.after, positions[-1].id] = positions[:-1]
        return BatchPlan(reached, points)

    def _reach(self, events: OffsetRange, share: int, step: int) -> list[Position]:
        """Return split points up to the position `share` events into a range; none where it has fewer."""
        count = -(-share // step)
        points = self.points(events, step, share - (count - 1) * step, limit=count)
        return points if len(points) == count else []

    def points(
        self, events: OffsetRange, step: int, first: int | None = None, limit: int | None = None
    ) -> list[Position]:
        """Return the positions after the `first` events of a range and at every `step` from there."""
        points: list[Position] = []
        after, left = Position(events.after, events.first), first or step
        while limit is None or len(points) < limit:
            marks = self.marks(events.queue, after.id, events.until, left, step)
            points += offsets.mark_positions(marks, after)
            if marks.is_whole or marks.last is None:
                break
            after = offsets.last_counted(marks, after)
            left = left - marks.count if marks.count < left else step - (marks.count - left) % step
        return points[:limit]

    def pieces(self, queues: int) -> int | None:
        """Return how many pieces so many queues must be split into; None where the default size will do."""
        least = self._options.min_partitions
        return None if least is None or least <= queues else least

    def marks(self, queue: str, after: str, until: str, first: int, step: int) -> Marks:
        """Count once, as far as the server counts in one call."""
        if self._should_stop():
            raise CountStopped
        return self._client.call(lambda: self._client.ports(queue).events.marks(after, until, first, step))


class PlanAhead:
    """Plans the next batch while this one is read, in a thread with a connection of its own."""

    def __init__(self, address: QueueAddress, options: EventReadOptions) -> None:
        self._address = address
        self._options = options
        self._thread = ThreadPoolExecutor(1, "corral-plan-ahead")
        self._stopping = threading.Event()
        self._plan: tuple[Positions, int, Future[BatchPlan | None]] | None = None

    def begin(self, start: Positions, ends: Positions, limit: int) -> None:
        """Plan the batch that begins at `start`; an earlier plan is dropped."""
        self._plan = start, limit, self._thread.submit(self._count, start, ends, limit)

    def take(self, start: Positions, limit: int) -> BatchPlan | None:
        """Return the plan of this batch, once; None where none was begun, or the server did not answer."""
        plan, self._plan = self._plan, None
        return plan[2].result() if plan is not None and plan[:2] == (start, limit) else None

    def _count(self, start: Positions, ends: Positions, limit: int) -> BatchPlan | None:
        try:
            # no retries here: a plan that is missing is made again, with retries
            with QueueClient(self._address, retry_s=0) as client:
                return EventCounter(client, self._options, self._stopping.is_set).plan(start, ends, limit)
        except (CorralError, CountStopped) as error:
            log.debug("the next batch could not be counted ahead: %s", error)
            return None

    def close(self) -> None:
        """Stop counting."""
        self._stopping.set()
        self._thread.shutdown()


class Planner(AbstractContextManager["Planner"]):
    """Plans the reading of events; holds one connection while a query runs."""

    def __init__(self, address: QueueAddress, options: EventReadOptions) -> None:
        self._options = options
        self._client = QueueClient(address, options.retry_s)
        self._has_pattern = address.has_pattern
        self._queues: list[str] = []
        self._discovered_at = float("-inf")
        self._target: Positions | None = None
        self._counter = EventCounter(self._client, options)
        self._ahead = PlanAhead(address, options)
        self._points: SplitPoints = {}
        self._last_batch = time.monotonic()

    def queues(self) -> list[str]:
        """Return the queues; those of a pattern are discovered again every few seconds."""
        is_stale = self._has_pattern and time.monotonic() - self._discovered_at >= self._options.discovery_s
        if not self._queues or is_stale:
            self._queues = self._client.queues()
            self._discovered_at = time.monotonic()
        return self._queues

    def initial(self) -> Positions:
        """Return where a new query begins."""
        return {queue: self._initial(queue) for queue in self.queues()}

    def _initial(self, queue: str) -> Position:
        if self._options.starting_ms is not None:
            return self._at(queue, offsets.before_time(self._options.starting_ms))
        starting = self._options.starting or EARLIEST
        return self._position(
            queue, starting.get(queue, EARLIEST) if isinstance(starting, Mapping) else starting
        )

    def _position(self, queue: str, value: Any) -> Position:
        """Return a position from its spellings: earliest, latest, an id, or an id with its number."""
        if value in (EARLIEST, LATEST):
            extent = self._extent(queue)
            return offsets.earliest(extent) if value == EARLIEST else offsets.latest(extent)
        if not isinstance(value, Mapping):
            return self._at(queue, offsets.check_id(queue, value))
        if "id" not in value:
            raise InvalidOptions(f"offset {short_repr(value)} of queue {queue!r} has no 'id'")
        event_id, added = offsets.check_id(queue, value["id"]), value.get("added")
        is_numbered = isinstance(added, int) and added >= 0
        return Position(event_id, added) if is_numbered else self._at(queue, event_id)

    def _at(self, queue: str, event_id: str) -> Position:
        """Return the position at an id; its number is that of all events less those that come later."""
        later, after = 0, event_id
        while True:
            marks = self._counter.marks(queue, after, "+", NO_MARKS, NO_MARKS)
            later += marks.count
            if marks.is_whole or marks.last is None:
                break
            after = marks.last
        added = marks.extent.added
        return Position(event_id, None if added is None else added - later)

    def present(self) -> Positions:
        """Return where all logs end now."""
        return {queue: offsets.latest(self._extent(queue)) for queue in self.queues()}

    def ending(self) -> Positions:
        """Return where a batch read ends."""
        ending = self._options.ending
        if ending == EARLIEST:
            raise InvalidOptions("endingOffsets is earliest; use latest, or an event id for each queue")
        present = self.present()
        if not isinstance(ending, Mapping):
            return present
        return {queue: self._position(queue, ending.get(queue, LATEST)) for queue in present}

    def stop_at_present(self) -> None:
        """Treat the present ends of the logs as final, as the trigger `availableNow` wants it."""
        self._discovered_at = float("-inf")
        self._target = self.present()

    def next(self, start: Positions, limit: int | None) -> Positions:
        """Return where the next batch ends: at most `limit` events from `start` on."""
        present = self.present() if self._target is None else self._target
        # a queue that is empty or gone stays where it was
        ends = {**start, **{queue: end for queue, end in present.items() if end.id != BEGINNING}}
        if self._should_wait(start, ends):
            return start
        self._last_batch = time.monotonic()
        if limit is None:
            return ends
        plan = self._ahead.take(start, limit)
        if plan is None or not plan.fits(ends):
            plan = self._counter.plan(start, ends, limit)
        self._points = plan.points
        if sum(one.expected or 0 for one in offsets.offset_ranges(plan.end, ends)) > limit:
            self._ahead.begin(plan.end, ends, limit)
        return plan.end

    def _should_wait(self, start: Positions, ends: Positions) -> bool:
        """Return whether there are fewer events than a batch should have, and they have not waited long."""
        least = self._options.min_per_trigger
        if least is None or self._target is not None:
            return False
        counts = [one.expected for one in offsets.offset_ranges(start, ends)]
        # what the server does not count may be many
        is_small = sum(least if count is None else count for count in counts) < least
        return is_small and time.monotonic() - self._last_batch < self._options.max_delay_s

    def ranges(self, start: Positions, end: Positions) -> list[OffsetRange]:
        """Return the ranges between two offsets, split into at least `minPartitions` pieces."""
        wholes = offsets.offset_ranges(start, end)
        count = self._counter.pieces(len(wholes))
        total = sum(whole.expected or 0 for whole in wholes)
        step = PARTITION_EVENTS if count is None or total == 0 else max(-(-total // count), 1)
        pieces: list[OffsetRange] = []
        for whole in wholes:
            points = self._points.get((whole.queue, whole.after, whole.until))
            if points is None:
                is_small = whole.expected is not None and whole.expected <= step
                points = [] if is_small else self._counter.points(whole, step)
            pieces += offsets.split(whole, points)
        return pieces

    def _extent(self, queue: str) -> Extent:
        return self._client.call(self._client.ports(queue).events.extent)

    def close(self) -> None:
        self._ahead.close()
        self._client.close()

    def __exit__(self, *error: object) -> None:
        self.close()
