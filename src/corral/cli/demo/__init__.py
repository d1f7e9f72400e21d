"""`corral demo`: every part of the house at work on a server of its own, which is gone afterwards."""

import asyncio
import signal
from importlib.util import find_spec
from time import perf_counter
from typing import Annotated

import typer

from corral.cli.demo.bridge import route_films
from corral.cli.demo.embeddings import embed_texts
from corral.cli.demo.http import jobs_by_http
from corral.cli.demo.keeping import keep
from corral.cli.demo.lake import keep_history
from corral.cli.demo.mail import send_mail
from corral.cli.demo.stage import Broken, Report, Skipped, Stage, Step
from corral.cli.screen import Screen
from corral.cli.session import FAILED, JsonOption, finish, remember
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
"""What is shown, one after the other; a step that fails does not hide the next."""
TERMINATED = 128 + signal.SIGTERM


NEXT = (
    "next: docs/quickstart.md for a program of your own; `corral demo --keep` for the dashboard;",
    "      `corral doctor`, `corral top` and `corral dlq ls` for a server that you have",
)


def command(
    context: typer.Context,
    without_lake: Annotated[
        bool, typer.Option("--without-lake", help="Leave out the lake: Spark takes its time to start.")
    ] = False,
    is_kept: Annotated[
        bool, typer.Option("--keep", help="Leave it running, with the gateway and its page, until Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Try it out: a private server, jobs in every protocol, counts at the end, and nothing left behind."""
    where = remember(context, None, None, None, None, as_json)
    steps = [step for step in STEPS if not (without_lake and step is keep_history)]
    # the failures shown here are part of the show
    logs.configure("critical")

    async def play(screen: Screen) -> int | None:
        if is_kept and not HAS_GATEWAY:
            raise InvalidOptions("--keep shows the gateway; install it first: pip install 'corral[gateway]'")
        began = perf_counter()
        end_at_sigterm()
        stage = Stage(screen)
        server = EmbeddedServer(temporary=True)
        with server:
            folder = server.folder
            stage.say(f"a private server is up after {perf_counter() - began:.2f} s")
            failures = [not await _play_one(step, server.url, stage) for step in steps]
            await asyncio.sleep(0)  # Ctrl-C that came where nothing waits is heard here
            stage.close(perf_counter() - began)
            if is_kept:
                await keep(server.url, stage)
        if folder.exists():
            screen.fail(Broken(f"the server's folder {folder} is still there"))
            failures.append(True)
        if not is_kept and not any(failures):
            for line in ("the server and its data are gone", "", *NEXT):
                stage.say(line)
        return FAILED if any(failures) else None

    try:
        finish(where.as_json, play)
    except asyncio.CancelledError:
        raise typer.Exit(TERMINATED) from None


def end_at_sigterm() -> None:
    """Let SIGTERM end this task as Ctrl-C does: everything is tidied up first."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _play_one(step: Step, url: str, stage: Stage) -> bool:
    """Did this step succeed? Where it did not, a red line says why."""
    try:
        report: Report = await step(url, stage)
    except Skipped as error:
        stage.skip(step.__name__.replace("_", " "), error)
        return True
    except Exception as error:  # whatever it is, the other steps are shown and the demo fails
        stage.fail(step.__name__.replace("_", " "), error)
        return False
    stage.add(report)
    return True
