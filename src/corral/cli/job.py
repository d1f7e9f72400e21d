"""`corral job`: show, follow, retry, promote, remove and cancel single jobs."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text
from typer import Argument, Option

from corral.cli.actions import CANCEL, PROMOTE, REMOVE, RETRY, JobAction, act_on_ids, find_job, require_job
from corral.cli.events import print_event
from corral.cli.options import IdArgument, QueueArgument, YesOption
from corral.cli.output import Output, json_text, printable, time_text, truncated
from corral.cli.queue import job_document
from corral.cli.session import FAILED, Session, at_server
from corral.cli.status import full_name
from corral.core.event import EventKind, JobEvent
from corral.core.job import FailedAttempt, Job, JobState
from corral.protocols.events import CLOCKS_APART_MS
from corral.queue import Queue

COLOURS = {JobState.COMPLETED: "green", JobState.DEAD: "red", JobState.ACTIVE: "cyan"}
MAX_LOG_LINES = 1000

IdsArgument = Annotated[list[str], Argument(metavar="ID", help="Ids of jobs.", show_default=False)]

group = typer.Typer(help="Show, follow, retry, promote, remove and cancel jobs.", no_args_is_help=True)


@group.command("show")
@at_server
async def show(session: Session, queue_name: QueueArgument, job_id: IdArgument) -> None:
    """Show a job: state, data, options, result or reason, log."""
    queue = await session.find_or_default(queue_name)
    job = await require_job(session, queue, job_id)
    await print_job(session.output, queue, job, job.trace[-1:])


async def print_job(output: Output, queue: Queue, job: Job, traces: Sequence[str]) -> None:
    """Print all fields of a job, these tracebacks and its log."""
    lines = await queue.logs(job.id, 0, MAX_LOG_LINES)
    output.document({**job_document(queue, job), "log": lines})
    for title, value in _fields(job):
        _print_field(output, title, value)
    for trace in traces:
        _print_field(output, "trace", truncated(trace))
    for line in lines:
        _print_field(output, "log", line)


def _fields(job: Job) -> Iterator[tuple[str, str | Text]]:
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
    yield "added", time_text(job.created_at)
    if job.started_at:
        yield "started", time_text(job.started_at)
    if job.finished_at:
        yield "finished", time_text(job.finished_at)
    if job.worker:
        yield "worker", job.worker
    yield "options", json_text(_options(job))
    yield "data", json_text(job.data)
    if job.progress is not None:
        yield "progress", json_text(job.progress)
    if job.state is JobState.COMPLETED:
        yield "result", json_text(job.result)
    if job.reason is not None:
        yield "reason", truncated(job.reason)
    for attempt in job.failed_attempts:
        yield "attempt", _attempt_text(attempt)
    for name, value in job.extra.items():
        is_raw = isinstance(value, bytes)
        yield name, truncated(value.decode("utf-8", "replace")) if is_raw else json_text(value)


def _attempt_text(attempt: FailedAttempt) -> str:
    """Return a line about an attempt that failed."""
    took = "" if attempt.started_at is None else f" after {attempt.ended_at - attempt.started_at} ms"
    where = f" on {attempt.worker}" if attempt.worker else ""
    why = f"{attempt.error}: {attempt.message}" if attempt.error else attempt.message
    return f"{attempt.number} failed {time_text(attempt.ended_at)}{took}{where}: {why}"


def _options(job: Job) -> dict[str, Any]:
    """Return the options that differ from nothing."""
    options: dict[str, Any] = msgspec.to_builtins(job.options)
    return {name: value for name, value in options.items() if value not in (None, 0, False, {})}


def _print_field(output: Output, title: str, value: str | Text) -> None:
    heading = Text(f"{printable(title):<9}", "bold")
    if isinstance(value, Text):
        output.line(heading, value)
        return
    # a traceback and a log line may have several lines, each of which is escaped
    for line in value.splitlines() or [""]:
        output.line(heading, line)
        heading = Text(" " * 9)


@group.command("logs")
@at_server
async def logs(
    session: Session,
    queue_name: QueueArgument,
    job_id: IdArgument,
    start: Annotated[int, Option(min=0, help="The first line, counted from 0.")] = 0,
    count: Annotated[int, Option(min=1, help="The maximum number of lines.")] = MAX_LOG_LINES,
) -> None:
    """Print the log of a job."""
    queue = await session.find_or_default(queue_name)
    await require_job(session, queue, job_id)
    for number, line in enumerate(await queue.logs(job_id, start, count), start):
        session.output.document({"line": number, "text": line})
        for part in line.splitlines() or [""]:
            session.output.line(part)


END_STATES: dict[str, JobState] = {
    EventKind.COMPLETED: JobState.COMPLETED,
    EventKind.DEAD: JobState.DEAD,
    EventKind.CANCELLED: JobState.CANCELLED,
}
PAGE = 1000
POLL_S = 0.25


@group.command("tail")
@at_server
async def tail(session: Session, queue_name: QueueArgument, job_id: IdArgument) -> int | None:
    """Follow the events of one job until it ends.

    Exit 0 where it completed, else 1.
    """
    queue = await session.find_or_default(queue_name)
    job = await require_job(session, queue, job_id)
    async with aclosing(follow(queue, job)) as events:
        async for event in events:
            if isinstance(event, JobState):
                return None if event is JobState.COMPLETED else FAILED
            print_event(event, session.output)
    return FAILED


async def follow(queue: Queue, job: Job) -> AsyncGenerator[JobEvent | JobState]:
    """Yield the events of a job as they come, then the state in which it ended."""
    log, has_own_log = queue.events, queue.protocol.spec.has_job_events
    after = "-" if has_own_log else f"{max(job.created_at - CLOCKS_APART_MS, 0)}-0"
    last = None
    while True:
        # the state is read before the events: those of an end that was seen are then among them
        end = await _end_state(queue, job.id)
        while page := await (log.of_job(job, after) if has_own_log else log.range(after, PAGE)):
            after = page[-1].id
            for event in page:
                if event.job_id == job.id:
                    yield event
                    last = END_STATES.get(event.kind)
        if end is not None:
            yield last or end
        await asyncio.sleep(POLL_S)


async def _end_state(queue: Queue, job_id: str) -> JobState | None:
    """Return the state in which the job ended; None while it has not."""
    job = await find_job(queue, job_id)
    if job is None:
        return JobState.CANCELLED  # it is removed: only its events can tell how it ended
    return job.state if job.state in END_STATES.values() else None


@group.command("retry")
@at_server
async def retry(session: Session, queue_name: QueueArgument, job_ids: IdsArgument) -> int | None:
    """Put ended jobs back in the queue.

    They keep the attempts they have made; `corral dlq replay` gives all attempts anew.
    """
    return await act_on_ids(session, await session.find(queue_name), job_ids, RETRY)


@group.command("promote")
@at_server
async def promote(session: Session, queue_name: QueueArgument, job_ids: IdsArgument) -> int | None:
    """Let delayed jobs run now."""
    return await act_on_ids(session, await session.find(queue_name), job_ids, PROMOTE)


@group.command("remove")
@at_server
async def remove(
    session: Session, queue_name: QueueArgument, job_ids: IdsArgument, is_confirmed: YesOption = False
) -> int | None:
    """Delete jobs that are not active."""
    return await _confirm_and_act(session, queue_name, job_ids, REMOVE, is_confirmed)


@group.command("cancel")
@at_server
async def cancel(
    session: Session, queue_name: QueueArgument, job_ids: IdsArgument, is_confirmed: YesOption = False
) -> int | None:
    """Cancel waiting jobs, and ask the workers of active ones to stop."""
    return await _confirm_and_act(session, queue_name, job_ids, CANCEL, is_confirmed)


async def _confirm_and_act(
    session: Session, queue_name: str, job_ids: list[str], action: JobAction, is_confirmed: bool
) -> int | None:
    queue = await session.find(queue_name)
    jobs = f"job {job_ids[0]!a}" if len(job_ids) == 1 else f"{len(set(job_ids)):,} jobs"
    session.confirm(f"{action.verb} {jobs} of {full_name(queue)}", is_confirmed)
    return await act_on_ids(session, queue, job_ids, action)
