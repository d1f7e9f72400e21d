"""What commands print: text for people, JSON for programs, never a control character of a job's data."""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 200
"""Columns of a table that goes into a file or a pipe: nothing should be cut there."""
MOST_SHOWN = 4000
"""Characters of one value that people are shown; programs get all of it."""


class Screen:
    """Standard output and standard error of one command."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.out = console()
        self._err = console(is_error=True)

    def line(self, *parts: str | Text) -> None:
        """One line of text; a plain string is shown as it is, whatever it contains."""
        self.out.print(Text("  ").join(as_text(part) for part in parts), soft_wrap=True)

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
        """Rows under their titles."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in titles:
            table.add_column(title, overflow="fold")
        for row in rows:
            table.add_row(*(as_text(cell) for cell in row))
        self.out.print(table)

    def document(self, value: Any) -> None:
        """One JSON document on a line of its own."""
        # ASCII: no terminal and no pipe can mistake it, and half a surrogate pair can be written too
        sys.stdout.write(json.dumps(value, default=_as_json, ensure_ascii=True) + "\n")
        sys.stdout.flush()

    def fail(self, error: BaseException) -> None:
        """Say on standard error what went wrong."""
        told = [str(error) or type(error).__name__, *getattr(error, "__notes__", [])]
        if self.as_json:
            document = {"error": type(error).__name__, "message": "\n".join(told)}
            sys.stderr.write(json.dumps(document, ensure_ascii=True) + "\n")
            return
        self._err.print(Text.assemble(("error: ", "bold red"), as_text(told[0])), soft_wrap=True)
        for note in told[1:]:
            self._err.print(as_text(note), soft_wrap=True)


def console(is_error: bool = False) -> Console:
    """A console that takes text as it is; NO_COLOR, TERM and COLUMNS are heard by rich itself."""
    made = Console(stderr=is_error, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = max(made.width, PIPED_WIDTH)
    return made


def as_text(value: str | Text) -> Text:
    """The value as text to print; a string from anywhere is made harmless first."""
    return value if isinstance(value, Text) else Text(printable(value))


def printable(text: str) -> str:
    r"""The text with everything that cannot be seen written as an escape.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def shown(value: Any) -> str:
    """A value of a job as JSON, as people see it."""
    return cut(json.dumps(value, default=_as_json, ensure_ascii=False))


def cut(text: str) -> str:
    """The text, without its end where it is very long."""
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:MOST_SHOWN]}… ({len(text)} characters; --json shows all)"


def moment(milliseconds: int | None) -> str:
    """Milliseconds since the epoch as a time in UTC; empty for none.

    >>> moment(1_700_000_000_000)
    '2023-11-14 22:13:20.000Z'
    """
    if milliseconds is None:
        return ""
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)  # a stranger may have written any number
    return f"{at:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d}Z"


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{type(value).__name__} is no JSON")
