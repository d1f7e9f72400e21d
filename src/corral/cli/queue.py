"""`corral queue`: list and show queues, add jobs, pause, resume, drain, clean, retry."""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text
from typer import Argument, Option

from corral.app_loader import load_app
from corral.cli.actions import RETRY, act_on_dead
from corral.cli.options import CountOption, JobSelection, LimitOption, QueueArgument, YesOption
from corral.cli.output import Output, json_text, time_text, truncated
from corral.cli.session import Session, at_server
from corral.cli.status import QueueStatus, full_name, identity, in_use, status_of
from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.outcome import error_class_of
from corral.errors import InvalidOptions, InvalidPayload
from corral.protocols import option_help, priority_help
from corral.queue import Queue

STATES = (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE, JobState.COMPLETED, JobState.DEAD)
ENDED = {"completed": JobState.COMPLETED, "dead": JobState.DEAD}
TITLES = ("queue", "protocol", *STATES, "paused", "workers")
JOB_TITLES = ("id", "queue", "protocol", "name", "attempts", "since", "reason or data")
REASON_WIDTH = 80
PAGE = 100

group = typer.Typer(help="List queues, add jobs; pause, drain and clean.", no_args_is_help=True)


@group.command("ls")
@at_server
async def list_queues(session: Session) -> None:
    """List queues with their jobs by state and their workers.

    Without --protocol: the queues of every protocol that is in use.
    """
    queues = await session.queues()
    is_named = session.options.protocol is not None
    statuses = await asyncio.gather(*map(status_of, queues)) if is_named else await in_use(queues)
    session.output.listing(
        statuses,
        lambda status: status.document,
        TITLES,
        _row,
        "no queues yet; `corral queue add` creates one",
    )
    for status in statuses:
        if status.error:
            session.output.line(status.error)


def _row(status: QueueStatus) -> list[str | Text]:
    return [
        status.queue.name,
        status.queue.protocol.spec.name,
        # a dash: the protocol does not count this state
        *("–" if state not in status.counts else str(status.counts[state]) for state in STATES),
        Text("paused", "yellow") if status.is_paused else Text("broken", "red") if status.error else "no",
        str(len(status.workers)),
    ]


@group.command("show")
@at_server
async def show(
    session: Session,
    queue_name: QueueArgument,
    selection: JobSelection,
    state: Annotated[JobState | None, Option(help="List the jobs in this state.")] = None,
    count: CountOption = 20,
    cursor: Annotated[
        str | None,
        Option(help="Go on with the list where a page ended; with --json, '' asks for the cursors."),
    ] = None,
) -> None:
    """Show one queue, or with --state its jobs.

    Jobs are listed in the order in which they run, ended jobs latest first.
    """
    queue = await session.find(queue_name)
    spec, output = queue.protocol.spec, session.output
    if state is not None:
        await _show_jobs(output, queue, selection.filter(state, count), state, cursor)
        return
    if cursor is not None:
        raise InvalidOptions("--cursor goes on with a list of jobs; give its --state too")
    status = await status_of(queue)
    if output.as_json:
        output.document({**status.document, "capabilities": sorted(spec.capabilities)})
        return
    output.table(TITLES, [_row(status)])
    workers = [worker.name or str(worker.address) for worker in status.workers]
    output.line("workers:", ", ".join(workers) or "none")
    output.line(f"protocol {spec.name!r} supports:", ", ".join(sorted(spec.capabilities)))
    if dead := await queue.jobs(JobState.DEAD, 5):
        output.line("latest dead jobs:")
        list_jobs(output, [(queue, job) for job in dead], "")


async def _show_jobs(
    output: Output, queue: Queue, jobs: JobFilter, state: JobState, cursor: str | None
) -> None:
    empty = f"no jobs are {state.value}"
    if jobs != JobFilter(states=jobs.states, limit=jobs.limit):
        if cursor is not None:
            raise InvalidOptions(
                "--cursor goes on with all jobs of a state; leave out what selects among them"
            )
        list_jobs(output, [(queue, job) for job in await queue.search(jobs)], empty)
        return
    page = await queue.page(state, cursor or "", jobs.limit or PAGE)
    list_jobs(output, [(queue, job) for job in page.jobs], empty)
    if cursor is not None:
        output.document({"next": page.cursor})
    if page.cursor is not None:
        output.line(f"more: --cursor {page.cursor}")


def list_jobs(output: Output, jobs: Sequence[tuple[Queue, Job]], empty: str) -> None:
    """Print jobs of queues, a line each, or `empty` where there are none."""
    output.listing(jobs, lambda pair: job_document(*pair), JOB_TITLES, lambda pair: _job_row(*pair), empty)


def job_document(queue: Queue, job: Job) -> dict[str, Any]:
    """Return the job as JSON."""
    # to_builtins would write bytes as base64; the output writes them as text
    fields: dict[str, Any] = msgspec.to_builtins(job, builtin_types=(bytes,))
    return {"protocol": queue.protocol.spec.name, **fields}


def _job_row(queue: Queue, job: Job) -> list[str]:
    text = _reason_text(job) if job.reason is not None else json_text(job.data)
    short = text if len(text) <= REASON_WIDTH else f"{text[: REASON_WIDTH - 1]}…"
    since = time_text(job.finished_at or job.started_at or job.created_at)
    attempts = f"{job.attempts_made}/{max(job.options.attempts, 1)}"
    return [job.id, job.queue, queue.protocol.spec.name, truncated(job.name), attempts, since, short]


def _reason_text(job: Job) -> str:
    """Return the reason with the class of the error, where the traceback tells it."""
    reason = job.reason or ""
    name = (error_class_of(job.trace[-1]) or "") if job.trace else ""
    name = name.rpartition(".")[2]
    return f"{name}: {reason}" if name and not reason.startswith(name) else reason


@group.command("add")
@at_server
async def add(
    session: Session,
    queue_name: QueueArgument,
    name: Annotated[
        str, Argument(metavar="NAME", help="The job's name, which selects its handler.", show_default=False)
    ],
    data: Annotated[str, Argument(metavar="JSON", help="The job's data; -: from standard input.")] = "{}",
    job_id: Annotated[str | None, Option("--id", help="The job's id; default: a new one.")] = None,
    delay: Annotated[int | None, Option(help="Milliseconds before the job may run.")] = None,
    priority: Annotated[int | None, Option(help=priority_help())] = None,
    attempts: Annotated[int | None, Option(help="The maximum number of attempts.")] = None,
    backoff: Annotated[str | None, Option(help="Between attempts: ms, fixed, exponential, JSON.")] = None,
    lifo: Annotated[bool, Option("--lifo", help="Run it before the jobs that wait.")] = False,
    unique: Annotated[
        str | None, Option(metavar="KEY", help="One job of this key until it has ended; JSON: see options.")
    ] = None,
    throttle: Annotated[
        str | None, Option(metavar="MS", help="The first job of its name in this time; JSON: with a key.")
    ] = None,
    debounce: Annotated[
        str | None, Option(metavar="MS", help="The last job of its name, after this time; JSON: with a key.")
    ] = None,
    ttl: Annotated[int | None, Option(help=option_help("ttl_s"))] = None,
    idempotency_key: Annotated[str | None, Option(help=option_help("idempotency_key"))] = None,
    more: Annotated[
        list[str] | None,
        Option("--option", metavar="NAME=JSON", help="Any other option of the protocol; repeatable."),
    ] = None,
    app: Annotated[
        str | None,
        Option(metavar="MODULE:APP", help="The app whose handler gives its options and checks the data."),
    ] = None,
) -> None:
    """Add a job, and print its id."""
    named = {
        "delay": delay,
        "priority": priority,
        "attempts": attempts,
        "backoff": None if backoff is None else _json_or_text(backoff),
        "lifo": lifo or None,
        "unique": None if unique is None else _object_or_text(unique),
        "throttle": None if throttle is None else _json_or_text(throttle),
        "debounce": None if debounce is None else _json_or_text(debounce),
        "ttl_s": ttl,
        "idempotency_key": idempotency_key,
    }
    options = {option: value for option, value in named.items() if value is not None}
    options.update(map(_option, more or ()))
    if app is not None:
        session.app.know(load_app(app))
    queue = session.app.queue(queue_name)
    job = await queue.add_by_name(name, _read_json(data), {"id": job_id, **options})
    session.output.document(
        {"protocol": queue.protocol.spec.name, "queue": queue_name, "id": job.id, "existed": job.existed}
    )
    session.output.line(job.id)


def _option(text: str) -> tuple[str, Any]:
    """Parse `NAME=JSON`."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise InvalidOptions(f"--option {text!a} is not an option; write NAME=JSON, such as attempts=5")
    return name, _json_or_text(value)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        return text


def _object_or_text(text: str) -> Any:
    """Parse a JSON object or `true`; anything else is text, a key that looks like a number too."""
    value = _json_or_text(text)
    return value if isinstance(value, dict | bool) else text


def _read_json(text: str) -> Any:
    """Parse the data on the command line; `-` reads it from standard input."""
    if text == "-":
        text = sys.stdin.read()
    try:
        # not orjson: it would round an integer beyond 64 bits, which `add` refuses by name
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidPayload("the data is nested too deeply; flatten it") from None
    except ValueError as error:
        raise InvalidPayload(
            f'the data is not JSON ({error}); quote it for the shell, as in \'{{"to": "a@b.c"}}\''
        ) from None


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


@group.command("pause")
@at_server
async def pause(session: Session, queue_name: QueueArgument) -> None:
    """Stop workers from claiming jobs until `resume`; active jobs go on."""
    queue = await session.find(queue_name)
    await queue.pause()
    session.output.document({**identity(queue), "paused": True})
    session.output.line(f"{full_name(queue)} is paused")


@group.command("resume")
@at_server
async def resume(session: Session, queue_name: QueueArgument) -> None:
    """Let workers claim jobs again."""
    queue = await session.find(queue_name)
    await queue.resume()
    session.output.document({**identity(queue), "paused": False})
    session.output.line(f"{full_name(queue)} is resumed")


@group.command("drain")
@at_server
async def drain(
    session: Session,
    queue_name: QueueArgument,
    delayed: Annotated[bool, Option("--delayed", help="Delete delayed jobs too.")] = False,
    is_confirmed: YesOption = False,
) -> None:
    """Delete all waiting jobs; active and ended ones stay."""
    queue = await session.find(queue_name)
    states = (JobState.WAITING, JobState.DELAYED) if delayed else (JobState.WAITING,)
    before = await _count(queue, states)
    if before:
        words = " and ".join(state.value for state in states)
        session.confirm(f"delete {before:,} {words} jobs of {full_name(queue)}", is_confirmed)
        await queue.drain(delayed)
    left = await _count(queue, states)
    deleted = max(before - left, 0)
    # a scheduler's next job stays, and jobs may have been added meanwhile
    remaining = f"; {left:,} are left" if left else ""
    session.output.document({**identity(queue), "deleted": deleted, "left": left})
    session.output.line(f"deleted {deleted:,} jobs of {full_name(queue)}{remaining}")


async def _count(queue: Queue, states: tuple[JobState, ...]) -> int:
    counts = await queue.counts()
    return sum(counts.get(state, 0) for state in states)


@group.command("clean")
@at_server
async def clean(
    session: Session,
    queue_name: QueueArgument,
    state: Annotated[str, Option(help="completed or dead.")] = "completed",
    older: Annotated[int, Option(min=0, metavar="SECONDS", help="Only jobs that ended before.")] = 0,
    limit: Annotated[int, Option(min=1, help="The maximum number of jobs.")] = 1000,
    is_confirmed: YesOption = False,
) -> None:
    """Delete jobs that have ended."""
    if state not in ENDED:
        raise InvalidOptions(f"--state {state!a} cannot be cleaned; use {' or '.join(ENDED)}")
    queue = await session.find(queue_name)
    ended = (await queue.counts()).get(ENDED[state])
    if ended is None:  # the protocol keeps no count: the jobs that it lists can be deleted
        ended = len(await queue.jobs(ENDED[state], limit))
    deleted: list[str] = []
    if ended:
        jobs = f"up to {min(limit, ended):,} of {ended:,} {state} jobs of {full_name(queue)}"
        age = f" that ended more than {older} s ago" if older else ""
        session.confirm(f"delete {jobs}{age}", is_confirmed)
        ended_until = session.app.clock() - older * 1000
        deleted = await queue.clean(
            JobFilter(states=frozenset({ENDED[state]}), ended_until=ended_until, limit=limit)
        )
    session.output.document({**identity(queue), "deleted": deleted})
    session.output.line(f"deleted {len(deleted):,} {state} jobs of {full_name(queue)}")


@group.command("retry")
@at_server
async def retry(
    session: Session, queue_name: QueueArgument, limit: LimitOption = 1000, is_confirmed: YesOption = False
) -> int | None:
    """Put dead jobs back in the queue, latest first.

    They keep the attempts they have made; `corral dlq replay` gives all attempts anew.
    """
    return await act_on_dead(
        session, [await session.find(queue_name)], JobSelection(), limit, RETRY, is_confirmed
    )
