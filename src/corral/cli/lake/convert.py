"""`corral lake convert`: a lake of an earlier Corral becomes one of Delta tables."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from corral.cli.lake.options import StorageOption, lake_at
from corral.cli.lake.spark import SparkOptions, check_packages, progress_bar
from corral.cli.option_groups import option_groups
from corral.cli.options import JsonOption, ServerOptions
from corral.cli.output import Output
from corral.cli.session import errors_to


@option_groups
def command(
    context: typer.Context,
    old: Annotated[Path, Argument(metavar="OLD", help="The folder of the old lake, which stays as it is.")],
    new: Annotated[str, Argument(metavar="NEW", help="The new lake's folder or URL.")],
    spark_options: SparkOptions,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a lake of an earlier Corral into Delta tables."""
    output = Output(ServerOptions(as_json=as_json).merged(context).as_json)
    with errors_to(output):
        check_packages()
        from corral.spark.lake.convert import check_old, convert

        target = lake_at(new, storage)
        check_old(old)
        with spark_options.session(target) as spark, progress_bar(output, "convert") as on_progress:
            events = convert(spark, old, target, on_progress)
    output.document({"events": events})
    output.line(f"{events:,} events converted into {target.path}; {old} is as it was")
