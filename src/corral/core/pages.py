"""Event logs in bulk: pages of columns, and marks that say how far a stretch of a log reaches."""

from collections.abc import Sequence
from typing import Any

import orjson
from msgspec import Struct

from corral.core.event import Extent, JobEvent


class EventColumns(Struct, frozen=True):
    """Events side by side, a list for each column: ten thousand of them cost as much as ten thousand
    objects do not. Texts are UTF-8 as they came from the wire, or str; `data` is JSON.
    """

    ids: list[Any]
    at: list[int]
    kinds: list[Any]
    job_ids: list[Any]
    names: list[Any]
    attempts: list[int | None]
    previous: list[Any]
    workers: list[Any]
    data: list[Any]

    def __len__(self) -> int:
        return len(self.ids)


class EventPage(Struct, frozen=True):
    """A page of a log, and how far the log reached at that very moment."""

    columns: EventColumns
    extent: Extent
    size: int
    """Bytes of the entries, about."""
    seen: int
    """Entries that were looked at: more than there are events where several queues share one log."""
    last: str | None
    """The id of the last of them; the next page begins after it."""


class Marks(Struct, frozen=True):
    """How many events a stretch of a log holds, and the ids at every so manieth of them."""

    count: int
    marks: Sequence[tuple[int, str]]
    """(events up to and with this one, its id)"""
    last: str | None
    """The id of the last event counted."""
    is_whole: bool
    """Was the stretch counted to its end? Else go on after `last`."""
    extent: Extent


def empty_columns() -> EventColumns:
    """No events."""
    return EventColumns([], [], [], [], [], [], [], [], [])


def columns_of(events: Sequence[JobEvent]) -> EventColumns:
    """Events as columns, for protocols that read their log one event at a time."""
    return EventColumns(
        ids=[event.id for event in events],
        at=[event.at for event in events],
        kinds=[str(event.kind) for event in events],
        job_ids=[event.job_id for event in events],
        names=[event.name for event in events],
        attempts=[event.attempt for event in events],
        previous=[event.previous for event in events],
        workers=[event.worker for event in events],
        data=[None if event.data is None else as_json(event.data) for event in events],
    )


def as_json(value: Any) -> bytes:
    """What was read from a wire, as JSON again; half a surrogate pair cannot be, and is shown instead."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps({"_raw": repr(value)})
