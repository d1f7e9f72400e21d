"""Planner: the driver's side of reading events: which queues, how far each reaches, how to split."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from corral.core.event import Extent
from corral.core.pages import Marks
from corral.errors import CorralError, InvalidOptions, short_repr
from corral.spark import offsets
from corral.spark.client import Visit
from corral.spark.offsets import BEGINNING, Position, Positions, Stretch
from corral.spark.options import EARLIEST, LATEST, Reading, Where

log = logging.getLogger("corral.spark")

NO_MARKS = 1 << 52
PARTITION_EVENTS = 200_000
"""A stretch is split after so many events where no number of partitions was asked for."""

Points = Mapping[tuple[str, str, str], list[Position]]
"""(queue, after, until) -> split points: counting is dear, so what was counted is kept."""


class Stopped(Exception):
    """The count is not wanted any more."""


@dataclass(frozen=True)
class Plan:
    """A batch of at most so many events: where it ends, and what was counted to find that out."""

    start: Positions
    most: int
    end: Positions
    points: Points

    def fits(self, ends: Positions) -> bool:
        """Do the logs, which end here now, still reach as far as they did?"""
        return all(
            queue in ends and not offsets.is_recreated(position, ends[queue])
            for queue, position in self.end.items()
        )


class Counting:
    """Counts stretches of logs, a bounded piece at a time."""

    def __init__(
        self, visit: Visit, reading: Reading, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._visit = visit
        self._reading = reading
        self._should_stop = should_stop

    def plan(self, start: Positions, ends: Positions, most: int) -> Plan:
        """The next batch: at most `most` events on from `start`, shared among the queues by what waits."""
        stretches = offsets.stretches(start, ends)
        # where the server does not count, each queue may have an equal share
        waiting = {found.queue: most if found.expected is None else found.expected for found in stretches}
        allowed = offsets.shares(waiting, most)
        limited, points = dict(start), {}
        pieces = self.pieces(len(stretches))
        step = PARTITION_EVENTS if pieces is None else max(-(-most // pieces), 1)
        for found in stretches:
            share = allowed.get(found.queue)
            if share is None:
                continue
            limited[found.queue] = ends[found.queue]
            if found.expected is None or found.expected > share:
                reached = self._reach(found, share, step)
                if reached:
                    limited[found.queue] = reached[-1]
                    points[found.queue, found.after, reached[-1].id] = reached[:-1]
        return Plan(start, most, limited, points)

    def _reach(self, stretch: Stretch, share: int, step: int) -> list[Position]:
        """Split points up to the position `share` events into a stretch; none where it has fewer."""
        count = -(-share // step)
        points = self.points(stretch, step, share - (count - 1) * step, enough=count)
        return points if len(points) == count else []

    def points(
        self, stretch: Stretch, step: int, first: int | None = None, enough: int | None = None
    ) -> list[Position]:
        """The positions after the first few events of a stretch and at every `step` on."""
        points: list[Position] = []
        after, left = Position(stretch.after, stretch.first), first or step
        while enough is None or len(points) < enough:
            marks = self.marks(stretch.queue, after.id, stretch.until, left, step)
            points += offsets.numbered(marks, after)
            if marks.is_whole or marks.last is None:
                break
            after = offsets.counted_on(marks, after)
            left = left - marks.count if marks.count < left else step - (marks.count - left) % step
        return points[:enough]

    def pieces(self, queues: int) -> int | None:
        """In how many pieces what lies in so many queues must be split; None where the usual size will do."""
        wanted = self._reading.min_partitions
        return None if wanted is None or wanted <= queues else wanted

    def marks(self, queue: str, after: str, until: str, first: int, step: int) -> Marks:
        """One bounded look."""
        if self._should_stop():
            raise Stopped
        return self._visit.ask(lambda: self._visit.events(queue).marks(after, until, first, step))


class Ahead:
    """One plan at a time, made in a thread with a connection of its own."""

    def __init__(self, where: Where, reading: Reading) -> None:
        self._where = where
        self._reading = reading
        self._threads: ThreadPoolExecutor | None = None
        self._stopping = threading.Event()
        self._asked: tuple[Positions, int] | None = None
        self._plan: Future[Plan | None] | None = None

    def begin(self, start: Positions, ends: Positions, most: int) -> None:
        """Plan the batch that begins at `start`; what was planned before is forgotten."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "corral-ahead")
        self._asked = (start, most)
        self._plan = self._threads.submit(self._count, start, ends, most)

    def take(self, start: Positions, most: int) -> Plan | None:
        """The plan of this batch, once; None where none was begun, or the server did not answer."""
        plan, self._plan = self._plan, None
        return plan.result() if plan is not None and self._asked == (start, most) else None

    def _count(self, start: Positions, ends: Positions, most: int) -> Plan | None:
        try:
            # no second try here: whoever needs the plan counts anew, and is patient
            with Visit(self._where, retry_s=0) as visit:
                return Counting(visit, self._reading, self._stopping.is_set).plan(start, ends, most)
        except (CorralError, Stopped) as error:
            log.debug("the next batch could not be counted ahead: %s", error)
            return None

    def close(self) -> None:
        """Stop counting."""
        self._stopping.set()
        if self._threads is not None:
            self._threads.shutdown()


class Planner:
    """Asks the server where its logs begin and end; holds one connection while a query runs."""

    def __init__(self, where: Where, reading: Reading) -> None:
        self._reading = reading
        self._visit = Visit(where, reading.retry_s)
        self._has_pattern = where.has_pattern
        self._queues: list[str] = []
        self._looked_at = float("-inf")
        self._target: Positions | None = None
        self._counting = Counting(self._visit, reading)
        self._ahead = Ahead(where, reading)
        self._points: Points = {}

    # -- where logs begin and end -----------------------------------------------------------------------

    def queues(self) -> list[str]:
        """The queues there are; those of a pattern are looked for again every few seconds."""
        is_stale = self._has_pattern and time.monotonic() - self._looked_at >= self._reading.discovery_s
        if not self._queues or is_stale:
            self._queues = self._visit.queues()
            self._looked_at = time.monotonic()
        return self._queues

    def initial(self) -> Positions:
        """Where a new query begins."""
        return {queue: self._initial(queue) for queue in self.queues()}

    def _initial(self, queue: str) -> Position:
        reading = self._reading
        if reading.starting_ms is not None:
            return self._at(queue, offsets.before_time(reading.starting_ms))
        asked = reading.starting
        if isinstance(asked, Mapping):
            return self._given(queue, asked.get(queue, EARLIEST))
        return self._given(queue, asked)

    def _given(self, queue: str, asked: Any) -> Position:
        """A position as it may be spelled: earliest, latest, an id, or an id with its number."""
        if asked in (EARLIEST, LATEST):
            extent = self._extent(queue)
            return offsets.earliest(extent) if asked == EARLIEST else offsets.latest(extent)
        if isinstance(asked, Mapping):
            if "id" not in asked:
                raise InvalidOptions(f"offset {short_repr(asked)} of queue {queue!r} has no 'id'")
            event_id, added = offsets.check_id(queue, asked["id"]), asked.get("added")
            if isinstance(added, int) and added >= 0:
                return Position(event_id, added)
            return self._at(queue, event_id)
        return self._at(queue, offsets.check_id(queue, asked))

    def _at(self, queue: str, event_id: str) -> Position:
        """The position at an id, with its number: all that were added, less those that come later."""
        later, after = 0, event_id
        while True:
            marks = self._counting.marks(queue, after, "+", NO_MARKS, NO_MARKS)
            later += marks.count
            if marks.is_whole or marks.last is None:
                break
            after = marks.last
        added = marks.extent.added
        return Position(event_id, None if added is None else added - later)

    def present(self) -> Positions:
        """Where all logs end now."""
        return {queue: offsets.latest(self._extent(queue)) for queue in self.queues()}

    def ending(self, start: Positions) -> Positions:
        """Where a batch read ends."""
        asked = self._reading.ending
        if asked == EARLIEST:
            raise InvalidOptions("endingOffsets is earliest; use latest, or an event id for each queue")
        present = self.present()
        if not isinstance(asked, Mapping):
            return present
        return {queue: self._given(queue, asked.get(queue, LATEST)) for queue in present}

    def stop_at_present(self) -> None:
        """From now on the logs end where they end now."""
        self._looked_at = float("-inf")
        self._target = self.present()

    # -- how much to read next --------------------------------------------------------------------------

    def next(self, start: Positions, most: int | None) -> Positions:
        """Where the next batch ends: at most `most` events on from `start`."""
        found = self.present() if self._target is None else self._target
        # a queue that is empty or gone stays where it was
        ends = {**start, **{queue: end for queue, end in found.items() if end.id != BEGINNING}}
        if most is None:
            return ends
        plan = self._ahead.take(start, most)
        if plan is None or not plan.fits(ends):
            plan = self._counting.plan(start, ends, most)
        self._points = plan.points
        if offsets.waiting(plan.end, ends) > most:
            self._ahead.begin(plan.end, ends, most)
        return plan.end

    # -- how to split it --------------------------------------------------------------------------------

    def stretches(self, start: Positions, end: Positions) -> list[Stretch]:
        """What lies between two offsets, in as many pieces as were asked for."""
        wholes = offsets.stretches(start, end)
        step = self._step(wholes)
        pieces: list[Stretch] = []
        for whole in wholes:
            counted = self._points.get((whole.queue, whole.after, whole.until))
            if counted is not None:
                pieces += offsets.split(whole, counted)
            elif whole.expected is not None and whole.expected <= step:
                pieces.append(whole)
            else:
                pieces += offsets.split(whole, self._counting.points(whole, step))
        return pieces

    def _step(self, wholes: list[Stretch]) -> int:
        wanted = self._counting.pieces(len(wholes))
        total = sum(whole.expected or 0 for whole in wholes)
        return PARTITION_EVENTS if wanted is None or total == 0 else max(-(-total // wanted), 1)

    # -- the server -------------------------------------------------------------------------------------

    def _extent(self, queue: str) -> Extent:
        return self._visit.ask(lambda: self._visit.events(queue).extent())

    def close(self) -> None:
        self._ahead.close()
        self._visit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
