"""`corral prove`: run Corral under faults and judge the histories, from the source tree."""

import typer

from corral.cli.bench import run_from_source


def command(context: typer.Context) -> None:
    """Work jobs under faults, and judge their histories.

    The harness is part of the source tree, not of the package; `corral prove --help` prints its options.
    `corral prove check DIR` judges the histories of any other queue.
    """
    run_from_source("the harness of `corral prove` is", "tests.faults.prove", "make faults", context.args)
