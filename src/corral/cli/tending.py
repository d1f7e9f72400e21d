"""`corral queue pause`, `resume`, `drain`, `clean` and `retry`: what is done to a whole queue."""

from typing import Annotated

import typer

from corral.cli.deeds import RetryLimit, act_on_dead, put_back
from corral.cli.looking import dead_jobs, name_of
from corral.cli.session import FAILED, Here, QueueArgument, YesOption, at_server
from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.errors import InvalidOptions
from corral.queue import Queue

ENDED = {"completed": JobState.COMPLETED, "dead": JobState.DEAD}


@at_server
async def pause(here: Here, queue: QueueArgument) -> None:
    """No claims until the queue is resumed; what runs goes on."""
    found = await here.find(queue)
    await found.pause()
    _say(here, found, is_paused=True)


@at_server
async def resume(here: Here, queue: QueueArgument) -> None:
    """Claims again."""
    found = await here.find(queue)
    await found.resume()
    _say(here, found, is_paused=False)


def _say(here: Here, queue: Queue, is_paused: bool) -> None:
    if here.screen.as_json:
        here.screen.document({"protocol": queue.protocol.spec.name, "queue": queue.name, "paused": is_paused})
    else:
        here.screen.line(f"{name_of(queue)} is {'paused' if is_paused else 'not paused any more'}")


@at_server
async def drain(
    here: Here,
    queue: QueueArgument,
    delayed: Annotated[bool, typer.Option("--delayed", help="Delayed jobs too.")] = False,
    is_agreed: YesOption = False,
) -> int | None:
    """Delete all jobs that wait; active and ended ones stay, and delayed ones unless --delayed."""
    found = await here.find(queue)
    states = (JobState.WAITING, JobState.DELAYED) if delayed else (JobState.WAITING,)
    before = await _count(found, states)
    if before:
        words = " and ".join(state.value for state in states)
        if not here.agree(f"delete {before:,} {words} jobs of {name_of(found)}", is_agreed):
            return FAILED
        await found.drain(delayed)
    left = await _count(found, states)
    gone = max(before - left, 0)
    if here.screen.as_json:
        here.screen.document(
            {"protocol": found.protocol.spec.name, "queue": found.name, "deleted": gone, "left": left}
        )
    else:
        # a scheduler's next job stays, and others may have been added meanwhile
        kept = f"; {left:,} are there now" if left else ""
        here.screen.line(f"deleted {gone:,} jobs of {name_of(found)}{kept}")
    return None


async def _count(queue: Queue, states: tuple[JobState, ...]) -> int:
    counts = await queue.counts()
    return sum(counts.get(state, 0) for state in states)


@at_server
async def clean(
    here: Here,
    queue: QueueArgument,
    state: Annotated[str, typer.Option(help="completed or dead.")] = "completed",
    older: Annotated[int, typer.Option(min=0, metavar="SECONDS", help="Ended longer ago than this.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    is_agreed: YesOption = False,
) -> int | None:
    """Delete jobs that ended long ago."""
    if state not in ENDED:
        raise InvalidOptions(f"--state {state!a} cannot be cleaned; use {' or '.join(ENDED)}")
    found = await here.find(queue)
    counts = await found.counts()
    # where the contract keeps no count, what can be listed is what can be deleted
    ended = counts.get(ENDED[state])
    if ended is None:
        ended = len(await found.jobs(ENDED[state], 0, limit))
    gone: list[str] = []
    if ended:
        which = f"up to {min(limit, ended):,} of {ended:,} {state} jobs of {name_of(found)}"
        ago = f" that ended more than {older} s ago" if older else ""
        if not here.agree(f"delete {which}{ago}", is_agreed):
            return FAILED
        ended_until = here.app.clock() - older * 1000
        gone = await found.clean(
            JobFilter(states=frozenset({ENDED[state]}), ended_until=ended_until, limit=limit)
        )
    if here.screen.as_json:
        here.screen.document({"protocol": found.protocol.spec.name, "queue": found.name, "deleted": gone})
    else:
        here.screen.line(f"deleted {len(gone):,} {state} jobs of {name_of(found)}")
    return None


@at_server
async def retry(
    here: Here, queue: QueueArgument, limit: RetryLimit = 1000, is_agreed: YesOption = False
) -> int | None:
    """Put dead jobs back in the queue, the last to die first; `corral dlq replay` chooses among them."""
    found = await here.find(queue)
    return await act_on_dead(here, [found], [], dead_jobs(limit=limit), is_agreed, put_back)
