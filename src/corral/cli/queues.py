"""`corral queue`: what queues there are, what is in one, and new jobs for it."""

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from corral.cli.looking import Look, job_filter, look
from corral.cli.screen import Screen, cut, moment, shown
from corral.cli.session import Here, QueueArgument, at_server
from corral.core.job import Job, JobState
from corral.errors import InvalidOptions, InvalidPayload
from corral.protocols import option_help, priority_help

STATES = (JobState.WAITING, JobState.DELAYED, JobState.ACTIVE, JobState.COMPLETED, JobState.DEAD)
SHOWN_REASON = 80

CountOption = Annotated[int, typer.Option("--count", min=1, help="At most so many jobs.")]
NameOption = Annotated[str | None, typer.Option("--name", help="Only jobs called so.")]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only jobs whose reason has this text.")
]
DataOption = Annotated[
    str | None, typer.Option("--data", metavar="TEXT", help="Only jobs whose data, as JSON, have this text.")
]


@at_server
async def list_queues(here: Here) -> None:
    """List the queues: jobs by state, paused or not, workers. Without --protocol, those of every protocol."""
    looks: list[Look] = await asyncio.gather(*map(look, await here.every()))
    if here.where.protocol is None:
        looks = [seen for seen in looks if seen.is_used]
    if here.screen.as_json:
        for seen in looks:
            here.screen.document(seen.document)
    elif not looks:
        here.screen.line("no queues here yet; `corral queue add` makes one")
    else:
        here.screen.table(("queue", "protocol", *STATES, "paused", "workers"), map(_row, looks))


def _row(seen: Look) -> list[str | Text]:
    return [
        seen.queue.name,
        seen.queue.protocol.spec.name,
        # a state the protocol's contract does not count
        *("–" if state not in seen.counts else str(seen.counts[state]) for state in STATES),
        Text("paused", "yellow") if seen.is_paused else "no",
        str(len(seen.workers)),
    ]


@at_server
async def show_queue(
    here: Here,
    queue: QueueArgument,
    state: Annotated[JobState | None, typer.Option(help="List the jobs in this state.")] = None,
    name: NameOption = None,
    reason: ReasonOption = None,
    data: DataOption = None,
    count: CountOption = 20,
) -> None:
    """Show one queue; with --state, its jobs: the next to run first, the last to end first.

    With --json: a document for the queue, and with --state one for each job instead.
    """
    found = await here.find(queue)
    if state is not None:
        jobs = await found.search(job_filter(state, name, reason, data, count))
        show_jobs(
            here.screen, [(found.protocol.spec.name, job) for job in jobs], f"no jobs are {state.value}"
        )
        return
    seen = await look(found)
    if here.screen.as_json:
        here.screen.document({**seen.document, "capabilities": sorted(found.protocol.spec.capabilities)})
        return
    here.screen.table(("queue", "protocol", *STATES, "paused", "workers"), [_row(seen)])
    names = [worker.name or str(worker.address) for worker in seen.workers]
    here.screen.line("workers:", ", ".join(names) or "none")
    here.screen.line(
        f"protocol {found.protocol.spec.name!r} has:", ", ".join(sorted(found.protocol.spec.capabilities))
    )
    if dead := await found.jobs(JobState.DEAD, 0, 5):
        here.screen.line("the last to end dead:")
        show_jobs(here.screen, [(found.protocol.spec.name, job) for job in dead], "")


def show_jobs(screen: Screen, jobs: Iterable[tuple[str, Job]], nothing: str) -> None:
    """Jobs and their protocols, a line each; `nothing` is said where there are none."""
    listed = list(jobs)
    if screen.as_json:
        for protocol, job in listed:
            screen.document(job_document(job, protocol))
    elif not listed:
        screen.line(nothing)
    else:
        titles = ("id", "queue", "protocol", "name", "attempts", "since", "reason or data")
        screen.table(titles, [_job_row(protocol, job) for protocol, job in listed])


def job_document(job: Job, protocol: str) -> dict[str, Any]:
    """The job as JSON has it."""
    # to_builtins would write bytes as base64; the screen writes them as text
    fields: dict[str, Any] = msgspec.to_builtins(job, builtin_types=(bytes,))
    return {"protocol": protocol, **fields}


def _job_row(protocol: str, job: Job) -> list[str]:
    told = job.reason if job.reason is not None else shown(job.data)
    short = told if len(told) <= SHOWN_REASON else f"{told[: SHOWN_REASON - 1]}…"
    since = job.finished_at or job.started_at or job.created_at
    made = f"{job.attempts_made}/{max(job.options.attempts, 1)}"
    return [job.id, job.queue, protocol, cut(job.name), made, moment(since), short]


@at_server
async def add(
    here: Here,
    queue: QueueArgument,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The job's name: which handler runs it.", show_default=False),
    ],
    data: Annotated[
        str, typer.Argument(metavar="JSON", help="The job's data; - reads it from a pipe.")
    ] = "{}",
    job_id: Annotated[str | None, typer.Option("--id", help="An id of your own.")] = None,
    delay: Annotated[int | None, typer.Option(help="Milliseconds to wait before it may run.")] = None,
    priority: Annotated[int | None, typer.Option(help=priority_help())] = None,
    attempts: Annotated[int | None, typer.Option(help="How often it may run.")] = None,
    backoff: Annotated[
        str | None, typer.Option(help="Between attempts: milliseconds, fixed, exponential, or JSON.")
    ] = None,
    lifo: Annotated[bool, typer.Option("--lifo", help="Run it next.")] = False,
    ttl: Annotated[int | None, typer.Option(help=option_help("ttl_s"))] = None,
    idempotency_key: Annotated[str | None, typer.Option(help=option_help("idempotency_key"))] = None,
    further: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="NAME=JSON", help="Any other option of the protocol (again for more)."
        ),
    ] = None,
) -> None:
    """Add one job, and print its id."""
    asked = {
        "delay": delay,
        "priority": priority,
        "attempts": attempts,
        "backoff": _backoff(backoff),
        "lifo": lifo or None,
        "ttl_s": ttl,
        "idempotency_key": idempotency_key,
    }
    options = {option: value for option, value in asked.items() if value is not None}
    options.update(map(_option, further or ()))
    job = await here.app.queue(queue).add(name, read_json(data), id=job_id, **options)
    if here.screen.as_json:
        here.screen.document(
            {"protocol": here.where.chosen_protocol().spec.name, "queue": queue, "id": job.id}
        )
    else:
        here.screen.line(job.id)


def _option(given: str) -> tuple[str, Any]:
    """The name and the value of `NAME=JSON`; what is no JSON is text."""
    name, has_value, text = given.partition("=")
    if not name or not has_value:
        raise InvalidOptions(f"--option {given!a} is no option; write NAME=JSON, such as attempts=5")
    try:
        return name, json.loads(text, parse_constant=_no_number)
    except ValueError:
        return name, text


def _backoff(given: str | None) -> Any:
    """The option as the API takes it; what it is not, the API says."""
    if given is None or not given.lstrip().startswith(("{", *"+-0123456789")):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given


def read_json(text: str) -> Any:
    """The data that was written on the command line, or piped in for `-`."""
    if text == "-":
        text = sys.stdin.read()
    try:
        # not orjson: it would round an integer beyond 64 bits where the API refuses it by name
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise InvalidPayload("the data is nested too deeply; flatten it") from None
    except ValueError as error:
        raise InvalidPayload(
            f'the data is no JSON ({error}); quote it for the shell, as in \'{{"to": "a@b.c"}}\''
        ) from None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")
