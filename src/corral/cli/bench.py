"""`corral bench`: run the benchmarks of the source tree."""

import subprocess
import sys
from pathlib import Path

import typer

from corral import __version__
from corral.cli.output import Output
from corral.cli.session import errors_to
from corral.errors import CorralError


def command(context: typer.Context) -> None:
    """Run the benchmarks, as `make bench` does.

    They are part of the source tree, not of the package; `corral bench --help` prints their options.
    """
    root = source_tree()
    if root is None:
        with errors_to(Output()):
            raise CorralError(
                f"the benchmarks are part of the source tree, not of the package; "
                f"get the source of corral {__version__}, and run `make bench` there"
            )
    ended = subprocess.run([sys.executable, "-m", "bench", *context.args], cwd=root, check=False)
    raise typer.Exit(ended.returncode)


def source_tree(directory: Path | None = None) -> Path | None:
    """Return the source tree of this package, or the one we are in; None where there is neither."""
    candidates = (Path(__file__).resolve().parents[3], directory or Path.cwd())
    return next((root for root in candidates if (root / "bench" / "__main__.py").is_file()), None)
