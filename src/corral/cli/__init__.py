"""The command line."""

from collections.abc import Sequence

from corral.cli.root import root


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name (the process's own where none are given), and exit."""
    root(None if arguments is None else list(arguments), prog_name="corral")
