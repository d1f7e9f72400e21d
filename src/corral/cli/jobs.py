"""`corral job`: one job, with all that is known of it."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from corral.cli.deeds import Deed, cancel, delete, do_given, no_job, one_job, promote, put_back
from corral.cli.looking import name_of
from corral.cli.queues import job_document
from corral.cli.screen import Screen, cut, moment, printable, shown
from corral.cli.session import FAILED, Here, IdsArgument, QueueArgument, YesOption, at_server
from corral.core.job import Job, JobState
from corral.errors import CorralError
from corral.queue import Queue

COLOURS = {JobState.COMPLETED: "green", JobState.DEAD: "red", JobState.ACTIVE: "cyan"}
MOST_LINES = 1000

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]


@at_server
async def show(here: Here, queue: QueueArgument, job_id: IdArgument) -> int | None:
    """Show one job: state, data, options, result or reason, trace, log."""
    found = await here.readable(queue)
    job = await _job(here, found, job_id)
    return FAILED if job is None else await _show(here, found, job)


@at_server
async def show_dead(here: Here, queue: QueueArgument, job_id: IdArgument) -> int | None:
    """Show one dead job: its reason, every trace, its data, its log."""
    found = await here.readable(queue)
    job = await _job(here, found, job_id)
    if job is None:
        return FAILED
    if job.state is not JobState.DEAD:
        state = job.state.value if job.state else "in no state that is known"
        told = f"job {job_id!a} of {name_of(found)} is {state}, not dead; `corral job show` shows it"
        here.screen.fail(CorralError(told))
        return FAILED
    return await _show(here, found, job, has_all_traces=True)


async def _job(here: Here, queue: Queue, job_id: str) -> Job | None:
    """The job; where there is none, that is said."""
    job = await one_job(queue, job_id)
    if job is None:
        here.screen.fail(CorralError(no_job(here, queue, job_id)))
    return job


async def _show(here: Here, queue: Queue, job: Job, has_all_traces: bool = False) -> int | None:
    lines = await queue.logs(job.id, 0, MOST_LINES)
    if here.screen.as_json:
        here.screen.document({**job_document(job, queue.protocol.spec.name), "log": lines})
        return None
    for field, value in _fields(job):
        _say(here.screen, field, value)
    for trace in job.trace if has_all_traces else job.trace[-1:]:
        _say(here.screen, "trace", cut(trace))
    for line in lines:
        _say(here.screen, "log", line)
    return None


@at_server
async def logs(
    here: Here,
    queue: QueueArgument,
    job_id: IdArgument,
    start: Annotated[int, typer.Option(min=0, help="The first line, counted from 0.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="At most so many lines.")] = MOST_LINES,
) -> int | None:
    """Print what a job's handler logged."""
    found = await here.readable(queue)
    if await _job(here, found, job_id) is None:
        return FAILED
    for number, line in enumerate(await found.logs(job_id, start, count), start):
        if here.screen.as_json:
            here.screen.document({"line": number, "text": line})
        else:
            for part in line.splitlines() or [""]:
                here.screen.line(part)
    return None


@at_server
async def retry(here: Here, queue: QueueArgument, job_ids: IdsArgument) -> int | None:
    """Put ended jobs back in the queue."""
    return await do_given(here, await here.find(queue), job_ids, put_back)


@at_server
async def bring_forward(here: Here, queue: QueueArgument, job_ids: IdsArgument) -> int | None:
    """Make delayed jobs claimable now."""
    return await do_given(here, await here.find(queue), job_ids, promote)


@at_server
async def remove(
    here: Here, queue: QueueArgument, job_ids: IdsArgument, is_agreed: YesOption = False
) -> int | None:
    """Delete jobs that are not active."""
    return await _agreed(here, queue, job_ids, is_agreed, delete)


@at_server
async def stop(
    here: Here, queue: QueueArgument, job_ids: IdsArgument, is_agreed: YesOption = False
) -> int | None:
    """End jobs that wait, and ask those that run to end."""
    return await _agreed(here, queue, job_ids, is_agreed, cancel)


async def _agreed(here: Here, queue: str, job_ids: list[str], is_agreed: bool, deed: Deed) -> int | None:
    found = await here.find(queue)
    if not here.agree(f"{deed.verb} {_number(job_ids)} of {name_of(found)}", is_agreed):
        return FAILED
    return await do_given(here, found, job_ids, deed)


def _number(job_ids: list[str]) -> str:
    return f"job {job_ids[0]!a}" if len(job_ids) == 1 else f"{len(set(job_ids)):,} jobs"


def _fields(job: Job) -> Iterator[tuple[str, str | Text]]:
    """What there is to say, in the order people ask for it."""
    yield "id", job.id
    yield "name", job.name
    yield "queue", job.queue
    state = job.state.value if job.state else "unknown"
    yield "state", Text(state, COLOURS.get(job.state, "") if job.state else "yellow")
    yield (
        "attempts",
        f"{job.attempts_made} made of {max(job.options.attempts, 1)}, started {job.starts} times",
    )
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
