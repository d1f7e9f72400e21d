"""The output of commands: text for people, JSON for programs; control characters of job data are escaped."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 200
"""Columns of a table written to a file or a pipe, where nothing should be cut."""
MAX_SHOWN = 4000
"""Characters of one value in text output; JSON output has all of it."""

T = TypeVar("T")


class Output:
    """Standard output and standard error of one command.

    With --json, `document` prints and `line` and `table` do not; without it, the other way round.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = _console()
        self._errors = _console(is_error=True)

    def line(self, *parts: str | Text) -> None:
        """Print one line of text; a plain string is printed literally."""
        if self.as_json:
            return
        self.console.print(Text("  ").join(as_text(part) for part in parts), soft_wrap=True)

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
        """Print rows under their titles."""
        if self.as_json:
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in titles:
            table.add_column(title, overflow="fold")
        for row in rows:
            table.add_row(*(as_text(cell) for cell in row))
        self.console.print(table)

    def document(self, value: Any) -> None:
        """Print one JSON document on a line of its own."""
        if not self.as_json:
            return
        # ASCII: safe for any terminal and pipe, and half a surrogate pair can be written too
        sys.stdout.write(json.dumps(value, default=_to_json, ensure_ascii=True) + "\n")
        sys.stdout.flush()

    def listing(
        self,
        items: Sequence[T],
        document: Callable[[T], Any],
        titles: Sequence[str],
        row: Callable[[T], Sequence[str | Text]],
        empty: str,
    ) -> None:
        """Print items as documents, and as a table, or `empty` where there are none."""
        for item in items:
            self.document(document(item))
        if items:
            self.table(titles, map(row, items))
        else:
            self.line(empty)

    def error(self, error: BaseException) -> None:
        """Print an error with its notes to standard error."""
        lines = [str(error) or type(error).__name__, *getattr(error, "__notes__", [])]
        if self.as_json:
            document = {"error": type(error).__name__, "message": "\n".join(lines)}
            sys.stderr.write(json.dumps(document, ensure_ascii=True) + "\n")
            return
        self._errors.print(Text.assemble(("error: ", "bold red"), as_text(lines[0])), soft_wrap=True)
        for note in lines[1:]:
            self._errors.print(as_text(note), soft_wrap=True)


def _console(is_error: bool = False) -> Console:
    """Return a console that prints text literally; rich itself honours NO_COLOR, TERM and COLUMNS."""
    console = Console(stderr=is_error, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPED_WIDTH)
    return console


def as_text(value: str | Text) -> Text:
    """Return the value as text to print; a plain string is escaped first."""
    return value if isinstance(value, Text) else Text(printable(value))


def printable(text: str) -> str:
    r"""Return the text with every invisible character escaped.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def json_text(value: Any) -> str:
    """Return a value of a job as JSON for people: truncated where it is very long."""
    return truncated(json.dumps(value, default=_to_json, ensure_ascii=False))


def truncated(text: str) -> str:
    """Return the text, cut where it is very long."""
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[:MAX_SHOWN]}… ({len(text)} characters; --json shows all)"


def time_text(milliseconds: int | None) -> str:
    """Return milliseconds since the epoch as a time in UTC; empty for None.

    >>> time_text(1_700_000_000_000)
    '2023-11-14 22:13:20.000Z'
    """
    if milliseconds is None:
        return ""
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)  # other clients may write any number
    return f"{at:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d}Z"


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{type(value).__name__} is not JSON")
