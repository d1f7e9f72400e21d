"""`corral doctor`: examine a server, its queues and this machine, and say how to fix what is wrong."""

from typing import Annotated

from rich.text import Text
from typer import Option

from corral.cli.doctor.machine import check_machine
from corral.cli.doctor.queues import check_queues
from corral.cli.gateway import PORT
from corral.cli.options import MAX_PORT
from corral.cli.output import Output
from corral.cli.session import FAILED, Session, at_server
from corral.doctor import check_server
from corral.doctor.results import CheckResult, Level, merge_nodes

COLOURS = {Level.FINE: "green", Level.NOTE: "yellow", Level.MEND: "bold red"}


@at_server
async def command(
    session: Session,
    port: Annotated[int, Option(min=1, max=MAX_PORT, help="The port meant for the gateway.")] = PORT,
) -> int | None:
    """Examine the server, its queues and this machine.

    Each finding says how to mend it. Exit 1 where something needs mending.
    """
    results = [
        *await check_server(session.app, session.protocols),
        *await check_queues(session),
        *check_machine(port),
    ]
    for result in results:
        session.output.document(result.document)
    results = merge_nodes(results)
    for result in results:
        _print(session.output, result)
    count = sum(result.level is Level.MEND for result in results)
    summary = f"{count} to mend" if count else "nothing to mend"
    colour = COLOURS[Level.MEND if count else Level.FINE]
    session.output.line(Text(f"{summary} at {session.address}", colour))
    return FAILED if count else None


def _print(output: Output, result: CheckResult) -> None:
    level = Text(f"{result.level.value:<4}", COLOURS[result.level])
    output.line(level, f"{result.check:<12}", result.finding)
    if result.mend:
        output.line("    ", " " * 12, f"-> {result.mend}")
