"""Is anything left behind in the queues, or stuck there?"""

from corral.cli.doctor.findings import Finding, fine, note, wrong
from corral.cli.looking import Look, look, name_of
from corral.cli.session import Here
from corral.core.job import JobState
from corral.core.ports import Leak
from corral.errors import CorralError
from corral.queue import Queue

MOST_LEAKS = 20
"""So many are named; the rest is counted."""


async def check_queues(here: Here) -> list[Finding]:
    """What no job accounts for, and who waits in vain."""
    found: list[Finding] = []
    leaks: dict[tuple[str, ...], Finding] = {}
    for protocol in here.protocols:
        try:
            queues = await here.app.queues(protocol.spec.name)
            for queue in queues:
                found += _stuck(await look(queue))
                for leak in await queue.ports.snapshot.leaks():
                    # where queues share their keys, each of them tells of the same
                    whose = queue.name if protocol.spec.tags_queues else ""
                    leaks[protocol.spec.name, whose, leak.kind, leak.subject] = _told(queue, leak)
        except CorralError as error:
            told = f"protocol {protocol.spec.name!r} cannot be looked at: {error}"
            found.append(wrong("queues", told, "mend what the server says, and look again"))
    named = list(leaks.values())
    found += named[:MOST_LEAKS]
    if len(named) > MOST_LEAKS:
        more = f"and {len(named) - MOST_LEAKS} more"
        found.append(wrong("leaks", more, "mend these first, and look again"))
    if not named:
        found.append(fine("leaks", "no locks, counters or marks without a job"))
    return found


def _stuck(seen: Look) -> list[Finding]:
    waiting, active = (seen.counts.get(state, 0) for state in (JobState.WAITING, JobState.ACTIVE))
    where = name_of(seen.queue)
    if waiting and seen.is_paused:
        mend = f"corral queue resume {seen.queue.name} --protocol {seen.queue.protocol.spec.name}"
        return [note("queues", f"{_jobs(waiting)} in {where}, which is paused", mend)]
    if (waiting or active) and not seen.workers:
        told = f"{_jobs(waiting)}, {active:,} active, in {where}, and no worker is to be seen"
        return [note("queues", told, "corral worker MODULE:APP")]
    return []


def _jobs(waiting: int) -> str:
    return "1 job waits" if waiting == 1 else f"{waiting:,} jobs wait"


def _told(queue: Queue, leak: Leak) -> Finding:
    where = name_of(queue)
    match leak.kind:
        case "lock":
            mend = (
                f"a lock runs out by itself; where it is still there in a minute, find its key "
                f"(redis-cli --scan --pattern '*lock*' | grep -wF {leak.subject!a}) and DEL it"
            )
            return wrong("locks", f"job {leak.subject!a} of {where} {leak.detail}", mend)
        case "counter":
            mend = "a worker of this protocol sets it right within minutes; start one"
            return wrong("counters", f"the counter of {leak.subject!a} in {where} {leak.detail}", mend)
    mend = "the next sweep of a worker of this queue lets go of it; start one"
    return wrong("marks", f"{leak.subject!a} of {where} {leak.detail}", mend)
