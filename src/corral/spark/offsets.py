"""Offset arithmetic: positions in event logs, ranges between them, and gaps within a range.

A position is an event's id and its number: how many events had been added to that log up to and including
it. Numbers make gaps countable: a range from number 100 to number 300 had 200 events, however many were
trimmed since.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from corral.core.event import Extent, Marks
from corral.errors import CorralError, InvalidOptions, short_repr

BEGINNING = "0-0"
LAST_OF_A_MILLISECOND = 18_446_744_073_709_551_615


class Position(NamedTuple):
    """Just after an event: its id, and its number where the server counts (since Redis 7)."""

    id: str
    added: int | None

    def as_json(self) -> bytes:
        """Return the `data` of the position's row."""
        return orjson.dumps({"id": self.id, "added": -1 if self.added is None else self.added})


Positions = dict[str, Position]
"""Queue -> position."""


@dataclass(frozen=True)
class OffsetRange:
    """The events of one queue later than `after` and no later than `until`."""

    queue: str
    after: str
    until: str
    first: int | None
    """The number of the event at `after`."""
    last: int | None
    """The number of the event at `until`."""
    is_recreated: bool = False
    """Whether the log was deleted and created again since the previous range."""

    @property
    def expected(self) -> int | None:
        """How many events were ever added in this range; None where the server does not count."""
        return None if self.first is None or self.last is None else self.last - self.first


def id_key(event_id: str) -> tuple[int, int]:
    """Return the sort key of an event id.

    >>> id_key("99-10") < id_key("100-2")
    True
    """
    milliseconds, _, sequence = event_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def check_id(queue: str, value: Any) -> str:
    """Return the event id, or refuse what is none."""
    parts = str(value).split("-")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise InvalidOptions(
            f"offset {short_repr(value)} of queue {queue!r} is no event id; use one such as 1700000000000-0"
        )
    return str(value)


def before_time(milliseconds: int) -> str:
    """Return the id just before everything that happened at this time or later."""
    return f"{milliseconds - 1}-{LAST_OF_A_MILLISECOND}" if milliseconds > 0 else BEGINNING


def to_json(positions: Mapping[str, Position]) -> dict[str, Any]:
    """Return positions as Spark stores them; always in the same order, because Spark compares the texts."""
    return {
        queue: {"id": position.id, "added": -1 if position.added is None else position.added}
        for queue, position in sorted(positions.items())
    }


def from_json(offset: Mapping[str, Any]) -> Positions:
    """Return the positions that `to_json` wrote."""
    return {
        queue: Position(str(entry["id"]), None if int(entry["added"]) < 0 else int(entry["added"]))
        for queue, entry in offset.items()
    }


def earliest(extent: Extent) -> Position:
    """Return the position before the first event that is kept: what was trimmed earlier is not missing."""
    return Position(BEGINNING, trimmed(extent))


def latest(extent: Extent) -> Position:
    """Return the position after the last event."""
    return Position(extent.last or BEGINNING, extent.added)


def trimmed(extent: Extent) -> int | None:
    """Return how many events were ever added and are not kept any more."""
    return None if extent.added is None else extent.added - extent.length


def is_recreated(start: Position, end: Position) -> bool:
    """Return whether a log that reached `start` and now ends at `end` was deleted and created again."""
    if id_key(end.id) < id_key(start.id):
        return True
    return start.added is not None and end.added is not None and end.added < start.added


def pending(start: Position, end: Position) -> int | None:
    """Return how many events lie between two positions; None where the server does not count."""
    if is_recreated(start, end):
        return end.added
    return None if start.added is None or end.added is None else end.added - start.added


def offset_range(queue: str, start: Position | None, end: Position) -> OffsetRange | None:
    """Return the range between two positions of a queue; without a `start`, from its very beginning."""
    if start is None:
        start = Position(BEGINNING, None if end.added is None else 0)
    if start == end:
        return None
    if is_recreated(start, end):
        # all that is kept was written after the log was created again, so none of it was read before
        return OffsetRange(queue, BEGINNING, end.id, None if end.added is None else 0, end.added, True)
    if start.id == end.id:
        return None
    return OffsetRange(queue, start.id, end.id, start.added, end.added)


def offset_ranges(start: Positions, end: Positions) -> list[OffsetRange]:
    """Return the range between two positions of each queue."""
    ranges = (offset_range(queue, start.get(queue), position) for queue, position in end.items())
    return [one for one in ranges if one is not None]


def shares(waiting: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return how many events of each queue may be read so that all together are at most `limit`.

    >>> shares({"mail": 900, "sms": 100, "empty": 0}, 100)
    {'mail': 90, 'sms': 10}
    """
    total = sum(waiting.values())
    if total <= limit:
        return {queue: count for queue, count in waiting.items() if count}
    allowed = {queue: max(count * limit // total, 1) for queue, count in waiting.items() if count}
    # with more queues than events allowed, the fullest go first and the others next time
    over = sum(allowed.values()) - limit
    for queue in sorted(allowed, key=lambda name: waiting[name]):
        if over <= 0:
            break
        if allowed[queue] == 1:
            del allowed[queue]
            over -= 1
    return allowed


def mark_positions(marks: Marks, after: Position) -> list[Position]:
    """Return the positions of marks that were counted from `after` on."""
    base = _base(marks, after)
    return [Position(entry_id, None if base is None else base + count) for count, entry_id in marks.marks]


def last_counted(marks: Marks, after: Position) -> Position:
    """Return the position of the last event that was counted from `after` on."""
    base = _base(marks, after)
    return Position(marks.last or after.id, None if base is None else base + marks.count)


def _base(marks: Marks, after: Position) -> int | None:
    """Return the number before the first event counted: what was trimmed, if the log was past `after`."""
    gone = trimmed(marks.extent)
    return None if after.added is None or gone is None else max(after.added, gone)


def split(whole: OffsetRange, points: Sequence[Position]) -> list[OffsetRange]:
    """Return the range in pieces that end at these points."""
    pieces: list[OffsetRange] = []
    after, first, is_recreated_ = whole.after, whole.first, whole.is_recreated
    for point in points:
        if id_key(after) < id_key(point.id) < id_key(whole.until):
            pieces.append(OffsetRange(whole.queue, after, point.id, first, point.added, is_recreated_))
            after, first, is_recreated_ = point.id, point.added, False
    pieces.append(OffsetRange(whole.queue, after, whole.until, first, whole.last, is_recreated_))
    return pieces


class GapCause(StrEnum):
    """Why events cannot be read any more."""

    TRIMMED = "trimmed"
    RECREATED = "recreated"
    """The log was deleted; how many events it had after the last read is unknown."""
    UNKNOWN = "size unknown"
    """The server does not count (before Redis 7): some may be missing, or none."""


class DataLoss(CorralError):
    """Events were gone before they were read."""


@dataclass(frozen=True)
class Gap:
    """Events missing in one range of one queue's log."""

    queue: str
    why: GapCause
    missing: int | None
    after: str
    before: str

    def as_json(self) -> bytes:
        """Return the `data` of the gap's row."""
        return orjson.dumps(
            {"why": self.why, "missing": self.missing, "after": self.after, "before": self.before}
        )

    def sentence(self) -> str:
        """Return the gap in words."""
        between = f"queue {self.queue!r}, after event {self.after} and before {self.before}"
        match self.why:
            case GapCause.TRIMMED:
                return f"{self.missing} events were trimmed before they were read ({between})"
            case GapCause.RECREATED if self.missing is None:
                return f"the event log was deleted or begun anew; how much is missing is unknown ({between})"
            case GapCause.RECREATED:
                return f"{self.missing} events are gone with a deleted event log ({between})"
            case _:
                return f"the log's beginning has moved on and the server does not count ({between})"


class GapDetector:
    """Checks the pages of one range as they are read, on the executor that reads it."""

    def __init__(self, events: OffsetRange) -> None:
        self._range = events
        self._read = 0
        self._lost_so_far = 0
        self._why: GapCause | None = GapCause.RECREATED if events.is_recreated else None
        self._after = events.after
        self._before = events.until

    def check_page(self, after: str, extent: Extent) -> Gap | None:
        """Return the gap that the page behind `after` reveals; `extent` is the log's when it was read."""
        if extent.first is not None and id_key(extent.first) <= id_key(after):
            return None
        number = None if self._range.first is None else self._range.first + self._read + self._lost_so_far
        gone = trimmed(extent)
        if number is None or gone is None:
            if after == BEGINNING:
                return None
            return self._note(GapCause.UNKNOWN, None, after, extent.first)
        if gone < number:
            return self._note(GapCause.RECREATED, None, after, extent.first)
        lost = min(gone, gone if self._range.last is None else self._range.last) - number
        if lost <= 0:
            return None
        self._lost_so_far += lost
        return self._note(GapCause.TRIMMED, lost, after, extent.first)

    def _note(self, why: GapCause, missing: int | None, after: str, before: str | None) -> Gap:
        if self._why is None:
            self._why, self._after = why, after
        is_inside = before is not None and id_key(before) < id_key(self._range.until)
        self._before = str(before) if is_inside else self._range.until
        return Gap(self._range.queue, why, missing, after, self._before)

    def count(self, read: int) -> None:
        """Add the number of events that were read."""
        self._read += read

    def total(self) -> Gap | None:
        """Return all that was missing, once the range has been read to its end."""
        expected = self._range.expected
        if self._why is GapCause.UNKNOWN or expected is None:
            return None if self._why is None else self._gap(self._why, None)
        missing = expected - self._read
        if self._range.is_recreated or missing < 0:
            return self._gap(GapCause.RECREATED, None)
        return self._gap(self._why or GapCause.TRIMMED, missing) if missing else None

    def _gap(self, why: GapCause, missing: int | None) -> Gap:
        return Gap(self._range.queue, why, missing, self._after, self._before)
