"""Logging: the standard library's, under `corral.*`; only Corral's own commands configure handlers."""

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from json import dumps
from typing import Any, TextIO

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
ROOT = "corral"

# without a handler of the program's own, nothing is printed
logging.getLogger(ROOT).addHandler(logging.NullHandler())


class LogEvent:
    """The message of one of Corral's lines: what happened, and fields about it."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, Any]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        """As a line for people.

        >>> str(LogEvent("working", {"queue": "mail", "concurrency": 10}))
        'working queue=mail concurrency=10'
        """
        return " ".join([self.event, *(f"{name}={value}" for name, value in self.fields.items())])


class FieldLogger:
    """A logger of the standard library whose lines have fields."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: Mapping[str, Any]) -> None:
        self._logger = logger
        self._fields = fields

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Write an error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, fields, with_trace=True)

    def _write(self, level: int, event: str, fields: Mapping[str, Any], with_trace: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            message = LogEvent(event, {**self._fields, **fields})
            # the line is about the caller of `debug`, `info` …
            self._logger.log(level, message, exc_info=with_trace, stacklevel=3)


def logger(part: str, **fields: Any) -> FieldLogger:
    """Return a logger for one part of Corral; `fields` are on each of its lines.

    >>> log = logger("worker", queue="mail")
    """
    return FieldLogger(logging.getLogger(f"{ROOT}.{part}"), fields)


# -- for Corral's own commands ------------------------------------------------------------------------------


def configure(level: str = "info", json: bool | None = None, stream: TextIO | None = None) -> None:
    """Send all logs of the process to `stream` (stderr), as JSON lines or, on a terminal, as text.

    Corral's lines name jobs by id and contain neither their data nor their results.

    >>> configure(level="warning", json=True)
    """
    if level.lower() not in LEVELS:
        raise ValueError(f"log level {level!r} is unknown; use one of {', '.join(LEVELS)}")
    stream = stream or sys.stderr
    handler = _LineHandler(stream)
    is_json = not stream.isatty() if json is None else json
    handler.setFormatter(_JsonFormatter() if is_json else _TextFormatter(stream.isatty()))
    logging.basicConfig(level=LEVELS[level.lower()], handlers=[handler], force=True)


class _LineHandler(logging.StreamHandler[TextIO]):
    """Drops lines that cannot be written: a closed pipe must not stop a worker."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exc_info()[1], OSError | ValueError):
            super().handleError(record)


class _JsonFormatter(logging.Formatter):
    """One object a line: the fields, then event, level and timestamp."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.msg
        name = record.name.removeprefix(f"{ROOT}.")
        entry: dict[str, Any] = {"part" if name != record.name else "logger": name}
        if isinstance(message, LogEvent):
            entry |= {**message.fields, "event": message.event}
        else:
            entry["event"] = record.getMessage()
        entry |= {"level": record.levelname.lower(), "timestamp": _time(record)}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return dumps(entry, default=str)


class _TextFormatter(logging.Formatter):
    """Lines for people, with colours on a terminal."""

    YELLOW, RED, PLAIN = "\033[33m", "\033[31m", "\033[0m"

    def __init__(self, is_coloured: bool) -> None:
        super().__init__()
        self._is_coloured = is_coloured

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower():8}"
        if self._is_coloured and record.levelno >= logging.WARNING:
            level = f"{self.RED if record.levelno >= logging.ERROR else self.YELLOW}{level}{self.PLAIN}"
        name = record.name.removeprefix(f"{ROOT}.")
        line = f"{_time(record)} {level} {name}: {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
