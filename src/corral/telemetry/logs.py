"""Logging: the standard library's, under `corral.*`; only Corral's own commands configure handlers."""

import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from json import dumps
from typing import Any, Protocol, TextIO

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
ROOT = "corral"

# without a handler of the program's own, nothing is printed
logging.getLogger(ROOT).addHandler(logging.NullHandler())


class LogEvent:
    """The message of one of Corral's lines: what happened, fields about it, and a handler's traceback."""

    __slots__ = ("event", "fields", "trace")

    def __init__(self, event: str, fields: Mapping[str, Any], trace: str = "") -> None:
        self.event = event
        self.fields = fields
        self.trace = trace

    def __str__(self) -> str:
        """As a line for people, with the traceback below it.

        >>> str(LogEvent("working", {"queue": "mail", "concurrency": 10}))
        'working queue=mail concurrency=10'
        """
        line = " ".join([self.event, *(f"{name}={value}" for name, value in self.fields.items())])
        return f"{line}\n{self.trace.rstrip()}" if self.trace else line


class LoggedJob(Protocol):
    """What log lines say about the job that a handler works on."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def attempts_made(self) -> int: ...


current_job: ContextVar[LoggedJob] = ContextVar("corral_job")
"""The job whose handler is running."""


class JobLogFilter(logging.Filter):
    """Gives each record the job whose handler wrote it: `job_id`, `job_name`, `queue` and `attempt`.

    They are empty where no handler runs. `corral worker` uses it; a program with a configuration of its own
    adds it to its handlers.

    >>> handler = logging.StreamHandler()
    >>> handler.addFilter(JobLogFilter())
    >>> handler.setFormatter(logging.Formatter("%(queue)s/%(job_id)s %(message)s"))
    """

    def filter(self, record: logging.LogRecord) -> bool:
        job = current_job.get(None)
        record.job_id, record.job_name, record.queue, record.attempt = (
            ("", "", "", "") if job is None else (job.id, job.name, job.queue, job.attempts_made + 1)
        )
        return True


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

    def failure(self, level: int, event: str, trace: str, **fields: Any) -> None:
        """Write what a handler raised, with its traceback."""
        self._write(level, event, fields, trace)

    def is_enabled(self, level: int) -> bool:
        """Return whether lines of this level are written at all."""
        return self._logger.isEnabledFor(level)

    def _write(
        self, level: int, event: str, fields: Mapping[str, Any], trace: str = "", with_trace: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            message = LogEvent(event, {**self._fields, **fields}, trace)
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

    Corral's lines name jobs by id and contain neither their data nor their results. Lines that a handler
    writes have its job.

    >>> configure(level="warning", json=True)
    """
    if level.lower() not in LEVELS:
        raise ValueError(f"log level {level!r} is unknown; use one of {', '.join(LEVELS)}")
    stream = stream or sys.stderr
    handler = _LineHandler(stream)
    is_json = not stream.isatty() if json is None else json
    handler.setFormatter(_JsonFormatter() if is_json else _TextFormatter(stream.isatty()))
    handler.addFilter(JobLogFilter())
    logging.basicConfig(level=LEVELS[level.lower()], handlers=[handler], force=True)


def configuration() -> tuple[str, bool] | None:
    """Return level and form, for a process that this one starts; None where `configure` was not called."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _LineHandler):
            level = logging.getLevelName(logging.getLogger().level)
            return str(level).lower(), isinstance(handler.formatter, _JsonFormatter)
    return None


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
            entry |= {**_job_fields(record), "event": record.getMessage()}
        entry |= {"level": record.levelname.lower(), "timestamp": _time(record)}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        elif isinstance(message, LogEvent) and message.trace:
            entry["exception"] = message.trace
        return dumps(entry, default=str)


def warn_of_clock(ahead_ms: int) -> None:
    """Say that this machine's clock is not the server's."""
    logger("clock").warning(
        f"this machine's clock is {abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} "
        f"the server's; due times follow the server's until it is set right"
    )


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
        if not isinstance(record.msg, LogEvent):
            line += "".join(f" {field}={value}" for field, value in _job_fields(record).items())
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _job_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the job of a handler's own line, under the names that Corral's lines have."""
    fields = record.__dict__
    if not fields.get("job_id"):
        return {}
    return {
        "queue": fields["queue"],
        "job": fields["job_id"],
        "name": fields["job_name"],
        "attempt": fields["attempt"],
    }


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
