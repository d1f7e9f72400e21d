"""Structured logs: one event a line, with fields, without payloads."""

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class LogStream:
    """A stream for log lines that drops those it cannot write: a closed pipe must not stop a worker."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def configure(
    level: str = "info", json: bool | None = None, stream: TextIO | None = None, cache: bool = True
) -> None:
    """Send logs to `stream` (stderr), as JSON lines or, on a terminal, as text.

    Corral's lines name jobs by id and contain neither their data nor their results.

    >>> configure(level="warning", json=True)
    """
    if level.lower() not in LEVELS:
        raise ValueError(f"log level {level!r} is unknown; use one of {', '.join(LEVELS)}")
    stream = stream or sys.stderr
    _configure_own(LEVELS[level.lower()], json, stream, cache)
    logging.basicConfig(level=LEVELS[level.lower()], stream=stream)


def _configure_own(level: int, json: bool | None, stream: TextIO, cache: bool) -> None:
    """Configure Corral's lines only; the standard library's `logging` is not touched."""
    structlog.configure(
        processors=_processors(not stream.isatty() if json is None else json, stream),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, LogStream(stream))),
        cache_logger_on_first_use=cache,
    )


def _processors(json: bool, stream: TextIO) -> list[Processor]:
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if json:
        return [*shared, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [*shared, structlog.dev.ConsoleRenderer(colors=stream.isatty())]


def logger(part: str, **fields: Any) -> FilteringBoundLogger:
    """Return a logger for one part of Corral; `fields` are on each of its lines.

    Without configuration logs go to stderr: stdout belongs to the program.

    >>> log = logger("worker", queue="mail")
    """
    if not structlog.is_configured():
        _configure_own(LEVELS["info"], None, sys.stderr, cache=False)
    bound: FilteringBoundLogger = structlog.get_logger(part=part, **fields)
    return bound
