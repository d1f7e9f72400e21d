"""Corral's log lines, captured."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from corral.telemetry.logs import ROOT, LogEvent


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.msg
        fields = dict(message.fields) if isinstance(message, LogEvent) else {}
        event = message.event if isinstance(message, LogEvent) else record.getMessage()
        self.lines.append({**fields, "event": event, "log_level": record.levelname.lower()})


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """Every line of Corral's, of any level: its fields, its event and its level."""
    logger, handler = logging.getLogger(ROOT), _Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.lines
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
