"""`corral bench`: run the benchmarks of the source tree; and how a command runs what is only there."""

import os
import subprocess
import sys
from collections.abc import Sequence
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
    run_from_source("the benchmarks are", "bench", "make bench", context.args)


def run_from_source(what: str, module: str, target: str, arguments: Sequence[str]) -> None:
    """Run a module of the source tree, and exit as it does; `what` and `target` say what is missing."""
    root = source_tree(module)
    if root is None:
        with errors_to(Output()):
            raise CorralError(
                f"{what} part of the source tree, not of the package; "
                f"get the source of corral {__version__}, and run `{target}` there"
            )
    paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    ended = subprocess.run(
        [sys.executable, "-m", module, *arguments], env={**os.environ, "PYTHONPATH": paths}, check=False
    )
    raise typer.Exit(ended.returncode)


def source_tree(module: str = "bench", directory: Path | None = None) -> Path | None:
    """Return the source tree of this package, or the one we are in; None where neither has the module."""
    main = Path(*module.split("."), "__main__.py")
    candidates = (Path(__file__).resolve().parents[3], directory or Path.cwd())
    return next((root for root in candidates if (root / main).is_file()), None)
