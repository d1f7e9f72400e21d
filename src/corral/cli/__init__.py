"""The command line."""

import sys
from collections.abc import Sequence

import typer

from corral.cli.root import root
from corral.cli.screen import Screen
from corral.cli.session import FAILED, MISTAKEN
from corral.errors import CorralError, InvalidOptions


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name (the process's own where none are given), and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--json" not in words:
        root(words, prog_name="corral")
    sys.exit(_run_for_a_program(words))


def _run_for_a_program(words: list[str]) -> int:
    """The exit code; a command line that is wrong is told as a document, like every other error."""
    try:
        return root(words, prog_name="corral", standalone_mode=False) or 0
    except typer.Abort:
        Screen(as_json=True).fail(CorralError("nothing was changed"))
        return FAILED
    except Exception as error:
        tell = getattr(error, "format_message", None)  # typer's own errors have it, and share no public name
        if tell is None:
            raise
        Screen(as_json=True).fail(InvalidOptions(tell()))
        return MISTAKEN
