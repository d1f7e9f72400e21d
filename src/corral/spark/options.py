"""Options of readers and writers: Spark's strings, checked and typed."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from corral.errors import InvalidOptions, short_repr
from corral.protocols import DEFAULT_PROTOCOL, protocol_named
from corral.protocols.base import Protocol
from corral.store.client import Store

TABLES = ("events", "jobs")
EARLIEST, LATEST = "earliest", "latest"
COMMON = ("url", "protocol", "namespace", "queue", "table")
_SPARK = ("path", "checkpointlocation", "queryname", "numpartitions", "__checkpointlocation")
"""Options that Spark or its callers add, in lower case."""

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class QueueAddress:
    """One protocol on one server, and the queues to read or write."""

    url: str
    protocol_name: str
    namespace: str
    queue: str
    """A name, several separated by commas, or a pattern with `*`, `?` or `[…]`."""

    @property
    def protocol(self) -> Protocol:
        return protocol_named(self.protocol_name)

    @property
    def queues(self) -> tuple[str, ...]:
        """The names and patterns, one by one."""
        return tuple(part.strip() for part in self.queue.split(",") if part.strip())

    @property
    def has_pattern(self) -> bool:
        return any(is_pattern(part) for part in self.queues)

    def as_options(self) -> dict[str, str]:
        """Return the options that name these queues to a reader."""
        return {
            "url": self.url,
            "protocol": self.protocol_name,
            "namespace": self.namespace,
            "queue": self.queue,
        }


def is_pattern(name: str) -> bool:
    """Return whether the name stands for many queues; braces do not: they choose a cluster slot."""
    return any(mark in name for mark in "*?[")


@dataclass(frozen=True)
class _Syntax(Generic[T_co]):
    """What an option accepts: a pattern, in words, and the conversion, which may raise ValueError."""

    pattern: str
    words: str
    convert: Callable[[str], T_co]


def _timestamp(text: str) -> int:
    """Milliseconds since the epoch: a number of them, or a time in ISO 8601 (UTC where it has no zone)."""
    if text.isdecimal():
        return int(text)
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _duration(text: str) -> float:
    unit = text.lstrip("0123456789 ")
    return int(text.removesuffix(unit)) * _UNIT_S[unit.lower()]


def _offsets(text: str) -> str | Mapping[str, Any]:
    offsets: dict[str, Any] | str = text if text in (EARLIEST, LATEST) else json.loads(text)
    return offsets


_TEXT = _Syntax(r"(?s).*", "a text", str)
_WHOLE = _Syntax(r"0*[1-9][0-9]*", "a whole number from 1", int)
_SECONDS = _Syntax(r"[0-9]+\.?[0-9]*|\.[0-9]+", "a number of seconds from 0", float)
_DURATION = _Syntax(r"(?i)[0-9]+ *(ms|s|m|h|d)", "a number with ms, s, m, h or d, such as 15m", _duration)
_BOOLEAN = _Syntax(r"(?i)true|false", "true or false", lambda text: text.lower() == "true")
_WRITE_ID = _Syntax(r"[A-Za-z0-9._-]{1,200}", "up to 200 letters, digits, '-', '_' and '.'", str)
_OBJECT: _Syntax[Mapping[str, Any]] = _Syntax(
    r"(?s)\s*\{.*", 'a JSON object such as {"attempts": 5}', json.loads
)
_OFFSETS = _Syntax(
    r"(?s)earliest|latest|\s*\{.*",
    'earliest, latest, or an event id for each queue, such as {"mail": "1700000000000-0"}',
    _offsets,
)
_TIMESTAMP = _Syntax(
    r".*", "milliseconds since the epoch, or a time such as 2025-01-31T12:00:00Z", _timestamp
)


def _option(name: str, default: T, syntax: _Syntax[T]) -> T:
    """Declare a field that is read from the option `name`."""
    value: T = field(default=default, metadata={"name": name, "syntax": syntax})
    return value


@dataclass(frozen=True)
class EventReadOptions:
    """Options of a reader of the table `events`."""

    starting: str | Mapping[str, Any] | None = _option("startingOffsets", None, _OFFSETS)
    """`earliest` (also None), `latest`, or a position for each queue."""
    starting_ms: int | None = _option("startingTimestamp", None, _TIMESTAMP)
    ending: str | Mapping[str, Any] | None = _option("endingOffsets", None, _OFFSETS)
    """`latest` (also None), or a position for each queue."""
    max_per_trigger: int | None = _option("maxOffsetsPerTrigger", None, _WHOLE)
    min_per_trigger: int | None = _option("minOffsetsPerTrigger", None, _WHOLE)
    max_delay_s: float = _option("maxTriggerDelay", 900.0, _DURATION)
    """How long fewer than `min_per_trigger` events may wait."""
    min_partitions: int | None = _option("minPartitions", None, _WHOLE)
    fail_on_data_loss: bool = _option("failOnDataLoss", True, _BOOLEAN)
    include_positions: bool = _option("includePositions", False, _BOOLEAN)
    discovery_s: float = _option("discoverySeconds", 10.0, _SECONDS)
    retry_s: float = _option("retrySeconds", 60.0, _SECONDS)

    def __post_init__(self) -> None:
        if self.starting_ms is not None and self.starting is not None:
            raise InvalidOptions("startingOffsets and startingTimestamp exclude each other; give one of them")
        least, most = self.min_per_trigger, self.max_per_trigger
        if least is not None and most is not None and least > most:
            raise InvalidOptions(
                f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger {most}; give a smaller minimum"
            )


@dataclass(frozen=True)
class JobReadOptions:
    """Options of a reader of the table `jobs`."""

    partitions: int = _option("numPartitions", 2, _WHOLE)
    """Partitions of each queue."""
    retry_s: float = _option("retrySeconds", 60.0, _SECONDS)


@dataclass(frozen=True)
class WriteOptions:
    """Options of a writer of jobs."""

    name: str | None = _option("name", None, _TEXT)
    name_column: str | None = _option("nameColumn", None, _TEXT)
    id_column: str | None = _option("idColumn", None, _TEXT)
    data_column: str | None = _option("dataColumn", None, _TEXT)
    priority_column: str | None = _option("priorityColumn", None, _TEXT)
    delay_column: str | None = _option("delayColumn", None, _TEXT)
    job_options: Mapping[str, Any] | None = _option("jobOptions", None, _OBJECT)
    dead_rows: str | None = _option("deadRows", None, _TEXT)
    max_pending: int | None = _option("maxPending", None, _WHOLE)
    write_id: str | None = _option("writeId", None, _WRITE_ID)
    ledger_s: int = _option("ledgerSeconds", 86_400, _WHOLE)
    batch_rows: int = _option("batchRows", 2000, _WHOLE)
    retry_s: float = _option("retrySeconds", 60.0, _SECONDS)

    def __post_init__(self) -> None:
        if (self.name is None) == (self.name_column is None):
            raise InvalidOptions(
                "jobs need a name: give option 'name' (the same for all) or 'nameColumn', and not both"
            )


OptionsT = TypeVar("OptionsT", EventReadOptions, JobReadOptions, WriteOptions)


def option_names(kind: type[OptionsT]) -> tuple[str, ...]:
    """Return the names of all options of a reader or writer.

    >>> option_names(JobReadOptions)
    ('url', 'protocol', 'namespace', 'queue', 'table', 'numPartitions', 'retrySeconds')
    """
    return (*COMMON, *(one.metadata["name"] for one in fields(kind)))


def queue_address(options: Mapping[str, str]) -> QueueAddress:
    """Return the server, the protocol and the queues that these options name."""
    protocol = protocol_named(options.get("protocol") or DEFAULT_PROTOCOL)
    url = options.get("url") or os.environ.get("REDIS_URL")
    if not url:
        raise InvalidOptions("option 'url' is missing; give redis://host:6379, or set REDIS_URL")
    Store(url)  # a wrong address is refused here, on the driver, not later on an executor
    namespace = options.get("namespace", protocol.spec.default_namespace)
    return QueueAddress(
        url, protocol.spec.name, namespace, options.get("queue") or protocol.spec.default_queue
    )


def table(options: Mapping[str, str]) -> str:
    """Return `events` or `jobs`."""
    name = options.get("table", "events")
    if name not in TABLES:
        raise InvalidOptions(f"there is no table {short_repr(name)}; use one of {', '.join(TABLES)}")
    return name


def parse(kind: type[OptionsT], options: Mapping[str, str]) -> OptionsT:
    """Return the options of a reader or writer; refuse those that it does not have.

    >>> parse(EventReadOptions, {"maxOffsetsPerTrigger": "1000"}).max_per_trigger
    1000
    """
    spelling = {name.lower(): name for name in option_names(kind)}
    for name in options:
        if name.lower() not in spelling and name.lower() not in _SPARK:
            nearest = get_close_matches(name.lower(), sorted(spelling), n=1)
            names = ", ".join(spelling.values())
            way_out = f"did you mean {spelling[nearest[0]]!r}?" if nearest else f"use {names}"
            raise InvalidOptions(f"there is no option {short_repr(name)} here; {way_out}")
    declared = [(one.name, one.metadata["name"], one.metadata["syntax"]) for one in fields(kind)]
    return kind(
        **{
            name: _convert(option, options[option], syntax)
            for name, option, syntax in declared
            if options.get(option) is not None
        }
    )


def _convert(option: str, text: str, syntax: _Syntax[T]) -> T:
    try:
        if re.fullmatch(syntax.pattern, text):
            return syntax.convert(text)
    except ValueError:
        pass  # it looks right and is not, as 2025-02-30 does
    raise InvalidOptions(f"{option} is {short_repr(text)}; use {syntax.words}")
