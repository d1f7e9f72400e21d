"""Counting: how far so many events reach, and where to split them, as the server counts them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from corral.core.pages import Marks
from corral.spark import offsets
from corral.spark.offsets import Position, Positions, Stretch
from corral.spark.options import Reading
from corral.spark.visit import Visit

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
