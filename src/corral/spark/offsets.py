"""The arithmetic of offsets: positions in logs, stretches between them, and what is missing in one.

A position is an event's id and its number: how many events had ever been added to that log up to and with
it. Numbers make gaps countable: a stretch from number 100 to number 300 holds 200 events, whoever trimmed
them since.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from corral.core.event import Extent
from corral.core.pages import Marks
from corral.errors import InvalidOptions, short_repr

BEGINNING = "0-0"
LAST_OF_A_MILLISECOND = 18_446_744_073_709_551_615


class Position(NamedTuple):
    """Just after an event: its id, and its number where the server counts (Redis 7 on)."""

    id: str
    added: int | None


Positions = dict[str, Position]
"""Queue -> position."""


@dataclass(frozen=True)
class Stretch:
    """The events of one queue later than `after` and no later than `until`."""

    queue: str
    after: str
    until: str
    first: int | None
    """The number of the event at `after`."""
    last: int | None
    """The number of the event at `until`."""
    is_recreated: bool = False
    """Was the log deleted and begun anew since the last stretch?"""

    @property
    def expected(self) -> int | None:
        """How many events were ever added here."""
        return None if self.first is None or self.last is None else self.last - self.first


def id_key(event_id: str) -> tuple[int, int]:
    """An event id as something to compare by.

    >>> id_key("99-10") < id_key("100-2")
    True
    """
    milliseconds, _, sequence = event_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def check_id(queue: str, given: Any) -> str:
    """The event id itself, if it is one."""
    text = str(given)
    parts = text.split("-")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise InvalidOptions(
            f"offset {short_repr(given)} of queue {queue!r} is no event id; use one such as 1700000000000-0"
        )
    return text


def before_time(milliseconds: int) -> str:
    """The position just before everything that happened at or after this time."""
    return f"{milliseconds - 1}-{LAST_OF_A_MILLISECOND}" if milliseconds > 0 else BEGINNING


def to_json(positions: Mapping[str, Position]) -> dict[str, Any]:
    """Positions as Spark keeps them; always in the same order, because Spark compares the texts."""
    return {
        queue: {"id": position.id, "added": -1 if position.added is None else position.added}
        for queue, position in sorted(positions.items())
    }


def from_json(offset: Mapping[str, Any]) -> Positions:
    """Positions as they were given to Spark."""
    return {
        queue: Position(str(entry["id"]), None if int(entry["added"]) < 0 else int(entry["added"]))
        for queue, entry in offset.items()
    }


def earliest(extent: Extent) -> Position:
    """Before the first event that is still kept: what was trimmed until now is not missed."""
    return Position(BEGINNING, trimmed(extent))


def latest(extent: Extent) -> Position:
    """After the last event."""
    return Position(extent.last or BEGINNING, extent.added)


def trimmed(extent: Extent) -> int | None:
    """How many events were ever added and are not kept any more."""
    return None if extent.added is None else extent.added - extent.length


def is_recreated(start: Position, end: Position) -> bool:
    """Does a log that once reached `start` and now ends at `end` begin anew in between?"""
    if id_key(end.id) < id_key(start.id):
        return True
    return start.added is not None and end.added is not None and end.added < start.added


def pending(start: Position, end: Position) -> int | None:
    """How many events wait between two positions; None where the server does not count."""
    if is_recreated(start, end):
        return end.added
    return None if start.added is None or end.added is None else end.added - start.added


def stretch(queue: str, start: Position | None, end: Position) -> Stretch | None:
    """What lies between two positions of a queue; a queue that is new is read from its very beginning."""
    if start is None:
        start = Position(BEGINNING, None if end.added is None else 0)
    if start == end:
        return None
    if is_recreated(start, end):
        # whatever is kept was written after the log began anew, so nothing of it was read before
        return Stretch(queue, BEGINNING, end.id, None if end.added is None else 0, end.added, True)
    if start.id == end.id:
        return None
    return Stretch(queue, start.id, end.id, start.added, end.added)


def stretches(start: Positions, end: Positions) -> list[Stretch]:
    """What lies between two positions of each queue."""
    found = (stretch(queue, start.get(queue), position) for queue, position in end.items())
    return [one for one in found if one is not None]


def waiting(start: Positions, end: Positions) -> int:
    """How many events wait in all, as far as the server counts."""
    return sum(found.expected or 0 for found in stretches(start, end))


def shares(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    """How many events of each queue may be read so that all together are no more than `most`.

    >>> shares({"mail": 900, "sms": 100, "empty": 0}, 100)
    {'mail': 90, 'sms': 10}
    """
    total = sum(waiting.values())
    if total <= most:
        return {queue: count for queue, count in waiting.items() if count}
    given = {queue: max(count * most // total, 1) for queue, count in waiting.items() if count}
    # where there are more queues than events allowed, the fullest go first and the others next time
    over = sum(given.values()) - most
    for queue in sorted(given, key=lambda name: waiting[name]):
        if over <= 0:
            break
        if given[queue] == 1:
            del given[queue]
            over -= 1
    return given


def numbered(marks: Marks, after: Position) -> list[Position]:
    """The marks of a stretch that begins after `after`, with their numbers."""
    base = _base(marks, after)
    return [Position(entry_id, None if base is None else base + place) for place, entry_id in marks.marks]


def counted_on(marks: Marks, after: Position) -> Position:
    """The position of the last event that was counted."""
    base = _base(marks, after)
    return Position(marks.last or after.id, None if base is None else base + marks.count)


def _base(marks: Marks, after: Position) -> int | None:
    """How many events were ever added before the first that was counted.

    Where the log was trimmed past `after`, all that were trimmed; else what `after` says.
    """
    gone = trimmed(marks.extent)
    return None if after.added is None or gone is None else max(after.added, gone)


def split(whole: Stretch, points: Sequence[Position]) -> list[Stretch]:
    """The stretch in pieces that end at these points."""
    pieces: list[Stretch] = []
    after, first, is_recreated_ = whole.after, whole.first, whole.is_recreated
    for point in points:
        if id_key(after) < id_key(point.id) < id_key(whole.until):
            pieces.append(Stretch(whole.queue, after, point.id, first, point.added, is_recreated_))
            after, first, is_recreated_ = point.id, point.added, False
    pieces.append(Stretch(whole.queue, after, whole.until, first, whole.last, is_recreated_))
    return pieces
