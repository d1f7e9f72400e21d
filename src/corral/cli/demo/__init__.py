"""`corral demo`: every part of Corral at work on a private server, which is deleted afterwards."""

import asyncio
import signal
from importlib.util import find_spec
from time import perf_counter
from typing import Annotated

import typer
from typer import Option

from corral.cli.demo.embeddings import embed_texts
from corral.cli.demo.films import route_films
from corral.cli.demo.http import jobs_by_http
from corral.cli.demo.keep import keep
from corral.cli.demo.lake import keep_history
from corral.cli.demo.mail import send_mail
from corral.cli.demo.steps import DemoOutput, Step, StepFailed, StepSkipped
from corral.cli.options import JsonOption, ServerOptions
from corral.cli.session import FAILED, run_command
from corral.errors import InvalidOptions
from corral.store.embedded import EmbeddedServer
from corral.telemetry import logs

HAS_GATEWAY = find_spec("fastapi") is not None
STEPS: tuple[Step, ...] = (
    send_mail,
    embed_texts,
    route_films,
    *((jobs_by_http,) if HAS_GATEWAY else ()),
    keep_history,
)
"""Run one after the other; where one fails, the next is run all the same."""
TERMINATED = 128 + signal.SIGTERM
NEXT = (
    "next: docs/quickstart.md for a program of your own; `corral demo --keep` for the dashboard;",
    "      `corral doctor`, `corral top` and `corral dlq ls` for a server of your own",
)


def command(
    context: typer.Context,
    without_lake: Annotated[bool, Option("--without-lake", help="Leave out the step on Spark.")] = False,
    is_kept: Annotated[bool, Option("--keep", help="Keep it running, with a dashboard.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Try Corral on a private server; nothing is left behind.

    Jobs run in every protocol, with a table of counts at the end.
    """
    demo = DemoOutput(ServerOptions(as_json=as_json).merged(context).as_json)
    steps = [step for step in STEPS if not (without_lake and step is keep_history)]
    # the failures of handlers are part of the demo
    logs.configure("critical")

    async def run_steps() -> int | None:
        if is_kept and not HAS_GATEWAY:
            raise InvalidOptions("--keep needs the gateway; install it first: pip install 'corral[gateway]'")
        started = perf_counter()
        _end_at_sigterm()
        server = EmbeddedServer(temporary=True)
        with server:
            folder = server.folder
            demo.line(f"a private server is up after {perf_counter() - started:.2f} s")
            failures = [not await _run_step(step, server.url, demo) for step in steps]
            await asyncio.sleep(0)  # an interrupt that came while nothing was awaited is raised here
            demo.summary(perf_counter() - started)
            if is_kept:
                await keep(server.url, demo)
        if folder.exists():
            demo.error(StepFailed(f"the server's folder {folder} still exists"))
            failures.append(True)
        if not is_kept and not any(failures):
            for line in ("the server and its data are gone", "", *NEXT):
                demo.line(line)
        return FAILED if any(failures) else None

    try:
        run_command(demo, run_steps())
    except asyncio.CancelledError:
        raise typer.Exit(TERMINATED) from None


def _end_at_sigterm() -> None:
    """Let SIGTERM end this task as Ctrl-C does, so that everything is cleaned up."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _run_step(step: Step, url: str, demo: DemoOutput) -> bool:
    """Run a step, and return whether it succeeded."""
    title = step.__name__.replace("_", " ")
    try:
        demo.add(await step(url, demo))
    except StepSkipped as error:
        demo.skip(title, error)
    except Exception as error:  # any error fails this step, and the others are run
        demo.fail(title, error)
        return False
    return True
