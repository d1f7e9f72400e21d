"""`corral job`: one job, with all that is known of it."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from corral.app import Corral
from corral.cli.screen import Screen, cut, moment, printable, shown
from corral.cli.session import (
    FAILED,
    FolderOption,
    JsonOption,
    NamespaceOption,
    RoomOption,
    UrlOption,
    perform,
    remember,
)
from corral.core.job import Job, JobState
from corral.core.naming import RESERVED_IDS
from corral.errors import CorralError
from corral.store.connect import without_password

COLOURS = {JobState.COMPLETED: "green", JobState.DEAD: "red", JobState.ACTIVE: "cyan"}
MOST_LINES = 1000


def show(
    context: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue's name.", show_default=False)],
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)],
    url: UrlOption = None,
    room: RoomOption = None,
    namespace: NamespaceOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one job: state, data, options, result or reason, trace, log."""
    where = remember(context, url, room, namespace, folder, as_json)

    async def act(app: Corral, screen: Screen) -> int | None:
        inspector = where.queue(app, queue).inspector
        # such an id would show one of the queue's own keys as if it were a job
        job = None if job_id in RESERVED_IDS else await inspector.job(job_id)
        if job is None:
            screen.fail(
                CorralError(
                    f"no job {job_id!a} in queue {queue!a} of room {where.chosen_room().name!r} "
                    f"at {without_password(app.url)}; `corral queue ls` lists the queues, "
                    f"and a finished job may have been removed"
                )
            )
            return FAILED
        lines = await inspector.logs(job_id, 0, MOST_LINES)
        if screen.as_json:
            screen.document(document_of(job, where.chosen_room().name, lines))
        else:
            for field, value in _fields(job):
                _say(screen, field, value)
            for line in lines:
                _say(screen, "log", line)
        return None

    perform(where, act)


def document_of(job: Job, room: str, lines: list[str]) -> dict[str, Any]:
    """The job as JSON has it."""
    # to_builtins would write bytes as base64; the screen writes them as text
    fields: dict[str, Any] = msgspec.to_builtins(job, builtin_types=(bytes,))
    return {"room": room, **fields, "log": lines}


def _fields(job: Job) -> Iterator[tuple[str, str | Text]]:
    """What there is to say, in the order people ask for it."""
    yield "id", job.id
    yield "name", job.name
    yield "queue", job.queue
    state = job.state.value if job.state else "unknown"
    yield "state", Text(state, COLOURS.get(job.state, "") if job.state else "yellow")
    yield "attempts", f"{job.attempt} made of {max(job.options.attempts, 1)}, started {job.starts} times"
    if job.stalls:
        yield "stalls", str(job.stalls)
    yield "added", moment(job.created_at)
    if job.started_at:
        yield "started", moment(job.started_at)
    if job.finished_at:
        yield "finished", moment(job.finished_at)
    if job.worker:
        yield "worker", job.worker
    yield "options", shown(_given(job))
    yield "data", shown(job.data)
    if job.progress is not None:
        yield "progress", shown(job.progress)
    if job.state is JobState.COMPLETED:
        yield "result", shown(job.result)
    if job.reason is not None:
        yield "reason", cut(job.reason)
    if job.trace:
        yield "trace", cut(job.trace[-1])
    for name, value in job.extra.items():
        yield name, cut(value.decode("utf-8", "replace")) if isinstance(value, bytes) else shown(value)


def _given(job: Job) -> dict[str, Any]:
    """The options, without those that say nothing."""
    options: dict[str, Any] = msgspec.to_builtins(job.options)
    return {name: value for name, value in options.items() if value not in (None, 0, False, {})}


def _say(screen: Screen, field: str, value: str | Text) -> None:
    title = Text(f"{printable(field):<9}", "bold")
    if isinstance(value, Text):
        screen.line(title, value)
        return
    # a trace and a log line may have several lines; each is made harmless by itself
    for line in value.splitlines() or [""]:
        screen.line(title, line)
        title = Text(" " * 9)
