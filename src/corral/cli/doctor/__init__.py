"""`corral doctor`: what is wrong with a server, its queues or this machine, and how to mend it."""

from typing import Annotated

import typer
from rich.text import Text

from corral.cli.doctor.findings import Finding, Level, folded
from corral.cli.doctor.machine import check_machine
from corral.cli.doctor.queues import check_queues
from corral.cli.doctor.server import check_server
from corral.cli.session import FAILED, Here, at_server

COLOURS = {Level.FINE: "green", Level.NOTE: "yellow", Level.MEND: "bold red"}
GATEWAY_PORT = 8080


@at_server
async def command(
    here: Here,
    port: Annotated[
        int, typer.Option(min=1, max=65_535, help="The port the gateway is to have.")
    ] = GATEWAY_PORT,
) -> int | None:
    """Examine the server, its queues and this machine; each finding with its mend.

    Exit 0 where nothing needs mending, 1 where something does.
    """
    findings = [
        *await check_server(here.app, here.protocols),
        *await check_queues(here),
        *check_machine(port),
    ]
    if here.screen.as_json:
        for finding in findings:
            here.screen.document(finding.document)
    else:
        findings = folded(findings)
        for finding in findings:
            _say(here, finding)
    wrong = sum(finding.level is Level.MEND for finding in findings)
    if not here.screen.as_json:
        told = f"{wrong} to mend" if wrong else "nothing to mend"
        here.screen.line(Text(f"{told} at {here.dialled}", COLOURS[Level.MEND if wrong else Level.FINE]))
    return FAILED if wrong else None


def _say(here: Here, finding: Finding) -> None:
    level = Text(f"{finding.level.value:<4}", COLOURS[finding.level])
    here.screen.line(level, f"{finding.check:<12}", finding.told)
    if finding.mend:
        here.screen.line("    ", " " * 12, f"-> {finding.mend}")
