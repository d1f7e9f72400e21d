"""Planner: the driver's side of reading events: which queues, how far each reaches, how to split."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from corral.core.event import Extent
from corral.core.pages import Marks
from corral.core.shown import shown
from corral.errors import InvalidOptions
from corral.spark import offsets
from corral.spark.offsets import BEGINNING, Position, Positions, Stretch
from corral.spark.options import EARLIEST, LATEST, Reading, Where
from corral.spark.visit import Visit

NO_MARKS = 1 << 52
PARTITION_EVENTS = 200_000
"""A stretch is split after so many events where no number of partitions was asked for."""


class Planner:
    """Asks the server where its logs begin and end; holds one connection while a query runs."""

    def __init__(self, where: Where, reading: Reading) -> None:
        self._reading = reading
        self._visit = Visit(where, reading.retry_s)
        self._has_pattern = where.has_pattern
        self._queues: list[str] = []
        self._looked_at = float("-inf")
        self._target: Positions | None = None
        self._counted: dict[tuple[str, str, str], list[Position]] = {}
        """(queue, after, until) -> split points of what `next` has just measured: counting is dear."""

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
            marks = self._marks(queue, after, "+", NO_MARKS, NO_MARKS)
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
        return ends if most is None else self._limited(start, ends, most)

    def _limited(self, start: Positions, ends: Positions, most: int) -> Positions:
        stretches = [
            found
            for queue, end in ends.items()
            if (found := offsets.stretch(queue, start.get(queue), end)) is not None
        ]
        # where the server does not count, each queue may have an equal share
        waiting = {found.queue: most if found.expected is None else found.expected for found in stretches}
        allowed = offsets.shares(waiting, most)
        limited = dict(start)
        self._counted.clear()
        pieces = self._pieces(len(stretches))
        for found in stretches:
            share = allowed.get(found.queue)
            if share is None:
                continue
            if found.expected is not None and found.expected <= share:
                limited[found.queue] = ends[found.queue]
            else:
                step = PARTITION_EVENTS if pieces is None else max(-(-most // pieces), 1)
                limited[found.queue] = self._reach(found, share, step) or ends[found.queue]
        return limited

    def _reach(self, stretch: Stretch, share: int, step: int) -> Position | None:
        """The position `share` events into a stretch; None where it has fewer."""
        count = -(-share // step)
        points = self._points(stretch, step, share - (count - 1) * step, enough=count)
        if len(points) < count:
            return None
        self._counted[stretch.queue, stretch.after, points[-1].id] = points[:-1]
        return points[-1]

    def _points(
        self, stretch: Stretch, step: int, first: int | None = None, enough: int | None = None
    ) -> list[Position]:
        """The positions after the first few events of a stretch and at every `step` on."""
        points: list[Position] = []
        after, left = Position(stretch.after, stretch.first), first or step
        while enough is None or len(points) < enough:
            marks = self._marks(stretch.queue, after.id, stretch.until, left, step)
            points += offsets.numbered(marks, after)
            if marks.is_whole or marks.last is None:
                break
            after = offsets.counted_on(marks, after)
            left = left - marks.count if marks.count < left else step - (marks.count - left) % step
        return points[:enough]

    # -- how to split it --------------------------------------------------------------------------------

    def stretches(self, start: Positions, end: Positions) -> list[Stretch]:
        """What lies between two offsets, in as many pieces as were asked for."""
        wholes = [
            found
            for queue, position in end.items()
            if (found := offsets.stretch(queue, start.get(queue), position)) is not None
        ]
        step = self._step(wholes)
        pieces: list[Stretch] = []
        for whole in wholes:
            counted = self._counted.get((whole.queue, whole.after, whole.until))
            if counted is not None:
                pieces += offsets.split(whole, counted)
            elif whole.expected is not None and whole.expected <= step:
                pieces.append(whole)
            else:
                pieces += offsets.split(whole, self._points(whole, step))
        return pieces

    def _step(self, wholes: list[Stretch]) -> int:
        wanted = self._pieces(len(wholes))
        total = sum(whole.expected or 0 for whole in wholes)
        return PARTITION_EVENTS if wanted is None or total == 0 else max(-(-total // wanted), 1)

    def _pieces(self, queues: int) -> int | None:
        """In how many pieces what lies in so many queues must be split; None where the usual size will do."""
        wanted = self._reading.min_partitions
        return None if wanted is None or wanted <= queues else wanted

    # -- the server -------------------------------------------------------------------------------------

    def _extent(self, queue: str) -> Extent:
        return self._visit.ask(lambda: self._visit.events(queue).extent())

    def _marks(self, queue: str, after: str, until: str, first: int, step: int) -> Marks:
        return self._visit.ask(lambda: self._visit.events(queue).marks(after, until, first, step))

    def close(self) -> None:
        self._visit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
