"""Planner: the driver's side of reading events: which queues, how far each reaches, how to split."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from corral.core.event import Extent
from corral.core.shown import shown
from corral.errors import InvalidOptions
from corral.spark import offsets
from corral.spark.ahead import Ahead
from corral.spark.counting import PARTITION_EVENTS, Counting, Points
from corral.spark.offsets import BEGINNING, Position, Positions, Stretch
from corral.spark.options import EARLIEST, LATEST, Reading, Where
from corral.spark.visit import Visit

NO_MARKS = 1 << 52


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
                raise InvalidOptions(f"offset {shown(asked)} of queue {queue!r} has no 'id'")
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
