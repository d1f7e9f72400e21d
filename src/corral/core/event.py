"""JobEvent, an entry of an event log in the words that all protocols share; and event logs in bulk."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct

from corral.core import payload


class EventKind(StrEnum):
    """The kinds all protocols share; a protocol's own further kinds pass through as they are."""

    ADDED = "added"
    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    PROGRESS = "progress"
    RETRY = "retry"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    STALLED = "stalled"
    DUPLICATED = "duplicated"
    DRAINED = "drained"
    PAUSED = "paused"
    RESUMED = "resumed"


OF_QUEUES = (EventKind.DRAINED, EventKind.PAUSED, EventKind.RESUMED)
"""The kinds of events that are about a queue; those of a job name it."""


class JobEvent(Struct, frozen=True, kw_only=True):
    """Something that happened to a job or its queue. `core.schema.event_schema` is made from this class."""

    id: Annotated[str, Meta(pattern="^[0-9]+-[0-9]+$", description="Its place in the log")]
    protocol: Annotated[str, Meta(min_length=1)]
    queue: Annotated[str, Meta(min_length=1)]
    at: Annotated[int, Meta(ge=0, description="When, in milliseconds since the epoch")]
    kind: Annotated[
        str,
        Meta(
            min_length=1,
            description="One of the kinds all protocols share, or a kind of the protocol or of a handler",
            examples=[str(kind) for kind in EventKind],
        ),
    ]
    job_id: Annotated[str, Meta(min_length=1)] | None = None
    name: Annotated[str | None, Meta(description="The job's name, where the protocol records it")] = None
    attempt: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="The number of the attempt, from 1, where the protocol records it"),
    ] = None
    previous: Annotated[str | None, Meta(description="The state before, in the protocol's own words")] = None
    worker: str | None = None
    data: Annotated[Any, Meta(description="The event's other fields, as the protocol has them")] = None


class Extent(Struct, frozen=True, kw_only=True):
    """The range of an event log: what is kept, and how much was ever added."""

    first: str | None
    last: str | None
    length: int
    added: int | None
    """Entries ever added, where the server counts them; `added - length` were trimmed."""


# -- in bulk ------------------------------------------------------------------------------------------------


class EventColumns(Struct, frozen=True):
    """Events as a list for each column, which costs much less than an object for each event.

    Texts are UTF-8 as they came from the wire, or str; `data` is JSON.
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
    """A page of a log, and the extent of the log at the same moment."""

    columns: EventColumns
    extent: Extent
    size: int
    """Bytes of the entries, about."""
    seen: int
    """Entries that were read: more than there are events where several queues share one log."""
    last: str | None
    """The id of the last of them; the next page begins after it."""


class Marks(Struct, frozen=True):
    """How many events a range of a log has, and the ids at regular steps."""

    count: int
    marks: Sequence[tuple[int, str]]
    """(events up to and with this one, its id)"""
    last: str | None
    """The id of the last event counted."""
    is_whole: bool
    """Whether the range was counted to its end; else go on after `last`."""
    extent: Extent


def empty_columns() -> EventColumns:
    """Return columns without events."""
    return EventColumns([], [], [], [], [], [], [], [], [])


def columns_of(events: Sequence[JobEvent]) -> EventColumns:
    """Return events as columns."""
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


def events_of(columns: EventColumns, protocol: str, queue: str) -> list[JobEvent]:
    """Return columns as events."""
    return [
        JobEvent(
            id=_text(columns.ids[n]) or "",
            protocol=protocol,
            queue=queue,
            at=columns.at[n],
            kind=_text(columns.kinds[n]) or "",
            job_id=_text(columns.job_ids[n]),
            name=_text(columns.names[n]),
            attempt=columns.attempts[n],
            previous=_text(columns.previous[n]),
            worker=_text(columns.workers[n]),
            data=None if columns.data[n] is None else payload.decode(columns.data[n]),
        )
        for n in range(len(columns))
    ]


def _text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def as_json(value: Any) -> bytes:
    """Return a value that was read from the wire as JSON; half a surrogate pair is shown as its repr."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps({"_raw": repr(value)})


def json_value(raw: bytes) -> bytes:
    """Return JSON as it stands, digit by digit; anything else as `payload.decode` reads it."""
    try:
        orjson.loads(raw)
        return raw
    except orjson.JSONDecodeError:
        return as_json(payload.decode(raw))
