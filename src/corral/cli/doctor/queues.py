"""Check queues for leaked keys and for jobs that wait in vain."""

from contextlib import suppress

from corral.cli.session import Session
from corral.cli.status import QueueStatus, full_name, status_of
from corral.core.job import JobState
from corral.core.options import Capability
from corral.core.ports import Leak, Notice
from corral.doctor.results import CheckResult, fine, note, wrong
from corral.errors import CorralError, RedisResponseError
from corral.queue import Queue
from corral.worker import ANY_NAME

WRONG_TYPE = "another program uses this name: delete or rename its key, or use --namespace"
MAX_NAMES = 10
ENDED = (JobState.COMPLETED, JobState.DEAD)
MANY_ENDED = 1000
"""Fewer ended jobs in a queue are nothing to speak of."""
SAMPLE = 20
MAX_LEAKS = 20
"""Leaks reported one by one; the others are counted."""


async def check_queues(session: Session) -> list[CheckResult]:
    """Check every queue of the session's protocols."""
    results: list[CheckResult] = []
    leaks: dict[tuple[str, ...], CheckResult] = {}
    for protocol in session.protocols:
        try:
            for queue in await session.app.queues(protocol.spec.name):
                status = await status_of(queue)
                if status.error:
                    results.append(wrong("queues", status.error, WRONG_TYPE))
                    continue
                results += [*_check_waiting(status), *_check_handlers(status)]
                results += [*await _check_schedules(status), *await _check_kept(status)]
                results += [_notice_result(notice) for notice in await queue.ports.inspector.notices()]
                for leak in await queue.ports.snapshot.leaks():
                    # queues that share their keys report the same leaks
                    owner = queue.name if protocol.spec.tags_queues else ""
                    leaks[protocol.spec.name, owner, leak.kind, leak.subject] = _leak_result(queue, leak)
        except CorralError as error:
            finding = f"protocol {protocol.spec.name!r} cannot be examined: {error}"
            results.append(wrong("queues", finding, "mend what the server reports, and run this again"))
    results += list(leaks.values())[:MAX_LEAKS]
    if len(leaks) > MAX_LEAKS:
        more = f"and {len(leaks) - MAX_LEAKS} more"
        results.append(wrong("leaks", more, "mend these first, and run this again"))
    if not leaks:
        results.append(fine("leaks", "no locks, counters or marks without a job"))
    return results


def _check_waiting(status: QueueStatus) -> list[CheckResult]:
    waiting, active = (status.counts.get(state, 0) for state in (JobState.WAITING, JobState.ACTIVE))
    name = full_name(status.queue)
    jobs = "1 job waits" if waiting == 1 else f"{waiting:,} jobs wait"
    if waiting and status.is_paused:
        mend = f"corral queue resume {status.queue.name} --protocol {status.queue.protocol.spec.name}"
        return [note("queues", f"{jobs} in {name}, which is paused", mend)]
    if (waiting or active) and not status.workers:
        finding = f"{jobs}, {active:,} active, in {name}, which has no worker"
        return [note("queues", finding, "corral worker MODULE:APP")]
    return []


def _check_handlers(status: QueueStatus) -> list[CheckResult]:
    """Find the jobs that workers have seen and none of them has a handler for."""
    records = [worker.record for worker in status.workers if worker.record is not None]
    served = {name for record in records for name in record.handlers}
    unhandled = {name for record in records for name in record.unhandled} - served
    if not unhandled or ANY_NAME in served:
        return []
    names = ", ".join(f"{name!a}" for name in sorted(unhandled)[:MAX_NAMES])
    finding = f"no worker of {full_name(status.queue)} has a handler for its jobs called {names}"
    mend = "start a worker that has one, or remove these jobs; they end dead after the workers' unknown_after"
    return [wrong("handlers", finding, mend)]


async def _check_schedules(status: QueueStatus) -> list[CheckResult]:
    """Find schedules that no app declares any more; without a worker nobody knows."""
    queue = status.queue
    if not any(worker.record is not None for worker in status.workers):
        return []
    ids = await queue.undeclared_schedules()
    if not ids:
        return []
    names = ", ".join(f"{schedule_id!a}" for schedule_id in ids[:MAX_NAMES])
    finding = f"{full_name(queue)} has schedules that its workers' apps do not declare any more: {names}"
    return [note("schedules", finding, "corral schedule prune MODULE:APP")]


async def _check_kept(status: QueueStatus) -> list[CheckResult]:
    """Find queues whose ended jobs are never removed."""
    queue, count = status.queue, sum(status.counts.get(state, 0) for state in ENDED)
    records = [worker.record for worker in status.workers if worker.record is not None]
    if count < MANY_ENDED or not any(record.keeps_all for record in records):
        return []
    jobs = [job for state in ENDED for job in await queue.jobs(state, SAMPLE)]
    kept = [job for job in jobs if job.options.keep_completed is None and job.options.keep_dead is None]
    if Capability.REMOVAL not in queue.protocol.spec.capabilities or not kept:
        return []
    size = ""
    with suppress(RedisResponseError):  # a user that may not run MEMORY USAGE
        memory = await queue.ports.snapshot.memory([job.id for job in kept])
        size = f", about {memory // len(kept):,} bytes each"
    finding = f"{full_name(queue)} keeps all of its {count:,} ended jobs{size}"
    return [note("kept", finding, "Corral(keep_completed=timedelta(days=1), keep_dead=timedelta(days=30))")]


def _notice_result(notice: Notice) -> CheckResult:
    return wrong("keys", notice.finding, notice.mend) if notice.mend else fine("keys", notice.finding)


def _leak_result(queue: Queue, leak: Leak) -> CheckResult:
    name = full_name(queue)
    match leak.kind:
        case "lock":
            mend = (
                f"a lock expires by itself; where it still exists in a minute, find its key "
                f"(redis-cli --scan --pattern '*lock*' | grep -wF {leak.subject!a}) and DEL it"
            )
            return wrong("locks", f"job {leak.subject!a} of {name} {leak.detail}", mend)
        case "counter":
            mend = "a worker of this protocol corrects it within minutes; start one"
            return wrong("counters", f"the counter of {leak.subject!a} in {name} {leak.detail}", mend)
    mend = "the next sweep of a worker of this queue deletes it; start one"
    return wrong("marks", f"{leak.subject!a} of {name} {leak.detail}", mend)
