"""Gaps: events that were gone before they were read, counted and named."""

from dataclasses import dataclass
from enum import StrEnum

import orjson

from corral.core.event import Extent
from corral.errors import CorralError
from corral.spark.offsets import BEGINNING, Stretch, id_key, trimmed


class WhyGone(StrEnum):
    """What became of events that cannot be read any more."""

    TRIMMED = "trimmed"
    RECREATED = "recreated"
    """The log was deleted; what it held between the last read and its end nobody knows."""
    UNKNOWN = "size unknown"
    """The server does not count (before Redis 7): some may be missing, or none."""


class DataLoss(CorralError):
    """Events were gone before they were read."""


@dataclass(frozen=True)
class Gap:
    """A hole in one stretch of one queue's log."""

    queue: str
    why: WhyGone
    missing: int | None
    after: str
    before: str

    def as_json(self) -> bytes:
        """What the row of a gap says in its `data`."""
        told = {"why": self.why, "missing": self.missing, "after": self.after, "before": self.before}
        return orjson.dumps(told)

    def sentence(self) -> str:
        """What happened, for people."""
        where = f"queue {self.queue!r}, after event {self.after} and before {self.before}"
        match self.why:
            case WhyGone.TRIMMED:
                return f"{self.missing} events were trimmed before they were read ({where})"
            case WhyGone.RECREATED if self.missing is None:
                return f"the event log was deleted or begun anew; how much is missing is unknown ({where})"
            case WhyGone.RECREATED:
                return f"{self.missing} events are gone with a deleted event log ({where})"
            case _:
                return f"the log's beginning has moved on and the server does not count ({where})"


class Watch:
    """Looks at each page of a stretch, and knows at its end what was missing."""

    def __init__(self, stretch: Stretch) -> None:
        self._stretch = stretch
        self._read = 0
        self._lost_so_far = 0
        self._why: WhyGone | None = WhyGone.RECREATED if stretch.is_recreated else None
        self._after = stretch.after
        self._before = stretch.until

    def look(self, after: str, extent: Extent) -> Gap | None:
        """The gap that the page behind `after` reveals, as far as is known."""
        stretch = self._stretch
        if extent.first is not None and id_key(extent.first) <= id_key(after):
            return None
        number = None if stretch.first is None else stretch.first + self._read + self._lost_so_far
        gone = trimmed(extent)
        if number is None or gone is None:
            if after == BEGINNING:
                return None
            return self._note(WhyGone.UNKNOWN, None, after, extent.first)
        if gone < number:
            return self._note(WhyGone.RECREATED, None, after, extent.first)
        lost = min(gone, gone if stretch.last is None else stretch.last) - number
        if lost <= 0:
            return None
        self._lost_so_far += lost
        return self._note(WhyGone.TRIMMED, lost, after, extent.first)

    def _note(self, why: WhyGone, missing: int | None, after: str, before: str | None) -> Gap:
        if self._why is None:
            self._why, self._after = why, after
        is_inside = before is not None and id_key(before) < id_key(self._stretch.until)
        self._before = str(before) if is_inside else self._stretch.until
        return Gap(self._stretch.queue, why, missing, after, self._before)

    def count(self, read: int) -> None:
        """So many events were read."""
        self._read += read

    def verdict(self) -> Gap | None:
        """What was missing in all, once the stretch is read to its end."""
        stretch, expected = self._stretch, self._stretch.expected
        if self._why is WhyGone.UNKNOWN or expected is None:
            return None if self._why is None else self._gap(self._why, None)
        missing = expected - self._read
        if stretch.is_recreated or missing < 0:
            return self._gap(WhyGone.RECREATED, None)
        return self._gap(self._why or WhyGone.TRIMMED, missing) if missing else None

    def _gap(self, why: WhyGone, missing: int | None) -> Gap:
        return Gap(self._stretch.queue, why, missing, self._after, self._before)
