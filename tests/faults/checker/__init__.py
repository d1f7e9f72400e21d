"""A checker for the histories of job queues: pure, and without knowledge of any queue's code."""

from tests.faults.checker.check import Report, check
from tests.faults.checker.history import History, HistoryError, Writer, encode_value, read
from tests.faults.checker.report import as_text

__all__ = ["History", "HistoryError", "Report", "Writer", "as_text", "check", "encode_value", "read"]
