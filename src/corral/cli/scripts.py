"""`corral scripts`: write the Lua scripts of protocols for clients in other languages."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from corral.protocols import all_protocols

group = typer.Typer(help="Write Lua scripts for clients in other languages.", no_args_is_help=True)


@group.command("export")
def export(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="Created where it does not exist.")],
) -> None:
    """Write the scripts that a protocol's contract defines, complete and ready for SCRIPT LOAD."""
    for path in write_scripts(folder):
        typer.echo(path)


def write_scripts(folder: Path) -> list[Path]:
    """Write each protocol's client scripts to FOLDER/PROTOCOL/NAME.lua; return their paths."""
    paths = []
    for spec in (protocol.spec for protocol in all_protocols()):
        for script in spec.client_scripts():
            path = folder / spec.name / f"{script.name}.lua"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(script.text)
            paths.append(path)
    return paths
