"""`corral bench`: the benchmarks of the source tree, where there is one."""

import subprocess
import sys
from pathlib import Path

import typer

from corral import __version__
from corral.cli.screen import Screen
from corral.cli.session import FAILED
from corral.errors import CorralError


def command(context: typer.Context) -> None:
    """Measure Corral beside its peers, as `make bench` does; what follows is for the benchmarks.

    They are part of the source tree, not of the package: `corral bench --help` says what they take.
    """
    root = source_tree()
    if root is None:
        Screen().fail(
            CorralError(
                f"the benchmarks are not here: they are part of the source tree, not of the package; "
                f"get the source of corral {__version__}, and run `make bench` there"
            )
        )
        raise typer.Exit(FAILED)
    ended = subprocess.run([sys.executable, "-m", "bench", *context.args], cwd=root, check=False)
    raise typer.Exit(ended.returncode)


def source_tree(here: Path | None = None) -> Path | None:
    """The source tree this package is run from, or the one we stand in; None where there is neither."""
    candidates = (Path(__file__).resolve().parents[3], here or Path.cwd())
    return next((root for root in candidates if (root / "bench" / "__main__.py").is_file()), None)
