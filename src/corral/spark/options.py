"""What a reader or a writer was asked for: Spark's options, checked and typed."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

from corral.errors import InvalidOptions, short_repr
from corral.protocols import PROTOCOLS, Protocol, protocol_named
from corral.store.client import Store

TABLES = ("events", "jobs")
EARLIEST, LATEST = "earliest", "latest"

_COMMON = ("url", "protocol", "namespace", "queue", "table")
_READING = ("startingOffsets", "startingTimestamp", "endingOffsets", "maxOffsetsPerTrigger",
            "minPartitions", "failOnDataLoss", "discoverySeconds", "retrySeconds")  # fmt: skip
_WRITING = ("name", "nameColumn", "idColumn", "dataColumn", "priorityColumn", "delayColumn", "jobOptions",
            "deadRows", "maxPending", "writeId", "ledgerSeconds", "batchRows", "retrySeconds")  # fmt: skip
_SPARKS = ("path", "checkpointlocation", "queryname", "numpartitions", "__checkpointlocation")
"""Options that Spark or its callers put beside ours."""


@dataclass(frozen=True)
class Where:
    """One protocol on one server, and which of its queues are meant."""

    url: str
    protocol_name: str
    namespace: str
    queue: str
    """A name, several with commas between them, or a pattern with `*`, `?` or `[…]`."""

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


@dataclass(frozen=True)
class Reading:
    """How events are read."""

    starting: Any = EARLIEST
    """`earliest`, `latest`, or a position for each queue."""
    starting_ms: int | None = None
    ending: Any = LATEST
    max_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    discovery_s: float = 10.0
    retry_s: float = 60.0


@dataclass(frozen=True)
class Writing:
    """How rows become jobs."""

    name: str | None = None
    name_column: str | None = None
    id_column: str | None = None
    data_column: str | None = None
    priority_column: str | None = None
    delay_column: str | None = None
    job_options: Mapping[str, Any] = field(default_factory=dict)
    dead_rows: str | None = None
    max_pending: int | None = None
    write_id: str | None = None
    ledger_s: int = 86_400
    batch_rows: int = 2000
    retry_s: float = 60.0


def where(options: Mapping[str, str], default_queue: str | None = None) -> Where:
    """The server, the protocol and the queues that these options name."""
    protocol = protocol_named(options.get("protocol") or next(iter(PROTOCOLS)))
    url = options.get("url") or os.environ.get("REDIS_URL")
    if not url:
        raise InvalidOptions("option 'url' is missing; give redis://host:6379, or set REDIS_URL")
    Store(url)  # a wrong address is found here, not on an executor
    queue = options.get("queue") or default_queue or protocol.default_queue
    return Where(url, protocol.name, options.get("namespace", protocol.default_namespace), queue)


def table(options: Mapping[str, str]) -> str:
    """`events` or `jobs`."""
    asked = options.get("table", "events")
    if asked not in TABLES:
        raise InvalidOptions(f"there is no table {short_repr(asked)}; use one of {', '.join(TABLES)}")
    return asked


def reading(options: Mapping[str, str]) -> Reading:
    """The options of a reader of events.

    >>> reading({"maxOffsetsPerTrigger": "1000"}).max_per_trigger
    1000
    """
    _check_names(options, _COMMON + _READING)
    timestamp = options.get("startingTimestamp")
    if timestamp is not None and options.get("startingOffsets") is not None:
        raise InvalidOptions("startingOffsets and startingTimestamp exclude each other; give one of them")
    return Reading(
        starting=_offsets(options, "startingOffsets", EARLIEST),
        starting_ms=None if timestamp is None else _moment("startingTimestamp", timestamp),
        ending=_offsets(options, "endingOffsets", LATEST),
        max_per_trigger=_whole(options, "maxOffsetsPerTrigger", None),
        min_partitions=_whole(options, "minPartitions", None),
        fail_on_data_loss=_yes_or_no(options, "failOnDataLoss", True),
        discovery_s=_seconds(options, "discoverySeconds", Reading.discovery_s),
        retry_s=_seconds(options, "retrySeconds", Reading.retry_s),
    )


def writing(options: Mapping[str, str]) -> Writing:
    """The options of a writer of jobs."""
    _check_names(options, _COMMON + _WRITING)
    if (options.get("name") is None) == (options.get("nameColumn") is None):
        raise InvalidOptions(
            "jobs need a name: give option 'name' (the same for all) or 'nameColumn', and not both"
        )
    return Writing(
        name=options.get("name"),
        name_column=options.get("nameColumn"),
        id_column=options.get("idColumn"),
        data_column=options.get("dataColumn"),
        priority_column=options.get("priorityColumn"),
        delay_column=options.get("delayColumn"),
        job_options=_object(options, "jobOptions"),
        dead_rows=options.get("deadRows"),
        max_pending=_whole(options, "maxPending", None),
        write_id=_write_id(options.get("writeId")),
        ledger_s=_whole(options, "ledgerSeconds", Writing.ledger_s) or Writing.ledger_s,
        batch_rows=_whole(options, "batchRows", Writing.batch_rows) or Writing.batch_rows,
        retry_s=_seconds(options, "retrySeconds", Writing.retry_s),
    )


def partition_count(options: Mapping[str, str], default: int) -> int:
    """In how many parts a snapshot is read."""
    _check_names(options, (*_COMMON, "numPartitions", "retrySeconds"))
    return _whole(options, "numPartitions", default) or default


def retry_seconds(options: Mapping[str, str]) -> float:
    """How long a call that finds no server is tried again."""
    return _seconds(options, "retrySeconds", Reading.retry_s)


def is_pattern(name: str) -> bool:
    """Does this stand for many queues? Braces do not: they choose a cluster slot."""
    return any(mark in name for mark in "*?[")


def _check_names(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    lowered = {name.lower() for name in known}
    for name in options:
        if name.lower() not in lowered and name.lower() not in _SPARKS:
            nearest = get_close_matches(name.lower(), sorted(lowered), n=1)
            spelled = {word.lower(): word for word in known}
            way_out = f"did you mean {spelled[nearest[0]]!r}?" if nearest else f"use {', '.join(known)}"
            raise InvalidOptions(f"there is no option {short_repr(name)} here; {way_out}")


def _write_id(given: str | None) -> str | None:
    if given is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", given):
        raise InvalidOptions(
            f"writeId is {short_repr(given)}; use up to 200 letters, digits, '-', '_' and '.'"
        )
    return given


def _whole(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    given = options.get(name)
    if given is None:
        return default
    try:
        value = int(given)
    except ValueError:
        value = 0
    if value < 1:
        raise InvalidOptions(f"{name} is {short_repr(given)}; use a whole number from 1")
    return value


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    given = options.get(name)
    try:
        value = default if given is None else float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InvalidOptions(f"{name} is {short_repr(given)}; use a number of seconds from 0")
    return value


def _yes_or_no(options: Mapping[str, str], name: str, default: bool) -> bool:
    given = options.get(name)
    if given is None:
        return default
    if given.lower() not in ("true", "false"):
        raise InvalidOptions(f"{name} is {short_repr(given)}; use true or false")
    return given.lower() == "true"


def _object(options: Mapping[str, str], name: str) -> dict[str, Any]:
    given = options.get(name)
    if given is None:
        return {}
    try:
        value = json.loads(given)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidOptions(f'{name} is {short_repr(given)}; use a JSON object such as {{"attempts": 5}}')
    return value


def _offsets(options: Mapping[str, str], name: str, default: str) -> Any:
    given = options.get(name)
    if given is None or given in (EARLIEST, LATEST):
        return given or default
    try:
        value = json.loads(given)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidOptions(
            f"{name} is {short_repr(given)}; use earliest, latest, or an event id for each queue, "
            f'such as {{"mail": "1700000000000-0"}}'
        )
    return value


def _moment(name: str, given: str) -> int:
    """Milliseconds since the epoch: a number of them, or a time in ISO 8601 (UTC where it names no zone)."""
    if given.isdecimal():
        return int(given)
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidOptions(
            f"{name} is {short_repr(given)}; use milliseconds since the epoch, or a time such as "
            f"2025-01-31T12:00:00Z"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
