"""Mover: holds jobs at the source, adds them at the target, and deletes them at the source."""

import random
from collections.abc import Callable, Sequence
from uuid import uuid4

from msgspec.structs import replace

from corral.core.filter import JobFilter
from corral.core.job import Job, JobState
from corral.core.ports import Added, Snapshot
from corral.core.transfer import HeldJob, Transfer, Unheld
from corral.errors import QueueInUse
from corral.migrate.fit import Fit
from corral.migrate.report import MoveReport
from corral.migrate.source import ENDED, Source

PAGE = 250
"""Jobs held at a time: so many can be claimed nowhere for the time of two round trips."""
SAMPLE = 100
LEFT = {
    Unheld.ACTIVE: "active: a worker has claimed it; it ends here",
    Unheld.SCHEDULED: "the next firing of a schedule, which stays here",
    Unheld.FLOW: "part of a flow of which a job is active, or in another queue",
}
Progress = Callable[[MoveReport], None]


class Mover:
    """Works at one run; several may work at the same run, in as many processes.

    A job is held by one atomic step, added at the target under the ledger of its batch, then deleted. Whoever
    repeats a part of that, after a kill or beside another, changes nothing: the ledger answers the same.
    """

    def __init__(
        self, source: Source, target: Transfer, snapshot: Snapshot, fit: Fit, run: str, report: MoveReport
    ) -> None:
        self._source = source
        self._target = target
        self._snapshot = snapshot
        self._fit = fit
        self._run = run
        self.report = report
        self._left: set[str] = set()
        self._sample: list[tuple[str, Job]] = []
        self._seen = 0

    async def resume(self) -> None:
        """Bring to an end what was held when a process was interrupted."""
        batches: dict[str, list[HeldJob]] = {}
        for job in await self._source.holding.held():
            batches.setdefault(job.batch, []).append(job)
        for batch, held in batches.items():
            await self._deliver(batch, held)

    async def put_back(self) -> int:
        """Put back what is held and has not arrived; return how many jobs that were."""
        batches: dict[str, list[HeldJob]] = {}
        for job in await self._source.holding.held():
            batches.setdefault(job.batch, []).append(job)
        count = 0
        for batch, held in batches.items():
            arrived = await self._target.close(self._run, batch)
            await self._source.holding.drop([job for job in held if job.job.id in arrived])
            count += await self._source.holding.restore([job for job in held if job.job.id not in arrived])
        return count

    async def drain(self, state: JobState, progress: Progress, lane: int = 0) -> None:
        """Move all jobs of a state.

        Each of several lanes takes the page behind those of the lanes before it, as long as there is one;
        the rest is left to the first.
        """
        while await self._sweep(state, progress, lane):
            pass

    async def _sweep(self, state: JobState, progress: Progress, lane: int) -> bool:
        """Move jobs page by page; return whether there were any that were not looked at before."""
        has_found = False
        cursor: str | None = ""
        while cursor is not None:
            page, cursor = await self._source.page(state, cursor, (lane + 1) * PAGE)
            fresh = [job for job in page[lane * PAGE :] if job.job.id not in self._left]
            if fresh:
                has_found = True
                await self._move([[job.job.id] for job in self._fitting(fresh)])
                progress(self.report)
            if lane:
                break
        return has_found

    async def move_flows(self, progress: Progress) -> None:
        """Move the flows whose jobs can all be held."""
        for jobs in await self._source.flows():
            ids = [job.job.id for job in jobs]
            queues = {job.job.queue for job in jobs}
            if len(queues) > 1:
                for job_id in ids:
                    self.report.leave(LEFT[Unheld.FLOW], job_id)
                continue
            group = [replace(job, group=ids[0]) for job in jobs]
            if len(self._fitting(group)) == len(group):
                await self._move([ids])
            progress(self.report)

    def _fitting(self, jobs: Sequence[HeldJob]) -> list[HeldJob]:
        """Return the jobs that fit; the others are left."""
        fitting = []
        for job in jobs:
            if job.is_unreadable:
                self._left.add(job.job.id)  # reported once, with all the others
                continue
            misfits = self._fit.misfits(job, self._target)
            if self._fit.adapted(job, misfits) is not None:
                fitting.append(job)
                continue
            self._leave(f"{misfits[0].part}: {misfits[0].reason}", job.job.id)
        return fitting

    def _leave(self, reason: str, job_id: str) -> None:
        self._left.add(job_id)
        self.report.leave(reason, job_id)

    async def _move(self, groups: Sequence[Sequence[str]]) -> None:
        if not groups:
            return
        batch = uuid4().hex
        answers = await self._source.holding.hold(self._run, batch, groups)
        held: list[HeldJob] = []
        for ids, answer in zip(groups, answers, strict=True):
            if isinstance(answer, list):
                held += answer
                continue
            for job_id in ids:
                if answer is Unheld.GONE:
                    self._left.add(job_id)  # a worker was faster
                else:
                    self._leave(LEFT[answer if len(ids) == 1 else Unheld.FLOW], job_id)
        await self._deliver(batch, held)

    async def _deliver(self, batch: str, held: Sequence[HeldJob]) -> None:
        """Add held jobs at the target and delete them at the source; those that do not fit are put back."""
        if not held:
            return
        fitting: list[tuple[HeldJob, HeldJob]] = []
        back: list[HeldJob] = []
        unfit: set[str] = set()
        for job in held:
            misfits = self._fit.misfits(job, self._target)
            adapted = self._fit.adapted(job, misfits)
            if adapted is None:
                unfit.add(job.group or job.job.id)
                self._leave(f"{misfits[0].part}: {misfits[0].reason}", job.job.id)
                back.append(job)
            else:
                fitting.append((job, adapted))
                for misfit in misfits:
                    self.report.adapt(f"{misfit.part}: {misfit.reason}", job.job.id)
        back += [job for job, _ in fitting if job.group and job.group in unfit]
        fitting = [pair for pair in fitting if not pair[0].group or pair[0].group not in unfit]
        answers = await self._target.receive(self._run, batch, [adapted for _, adapted in fitting])
        arrived: list[HeldJob] = []
        for (job, adapted), answer in zip(fitting, answers, strict=True):
            if isinstance(answer, Added):
                arrived.append(job)
                self._count(job, adapted.job, answer.id)
            elif not isinstance(answer, QueueInUse):
                self._leave(str(answer), job.job.id)
                back.append(job)
        await self._source.holding.drop(arrived)
        await self._source.holding.restore(back)
        await self._target.forget(self._run, batch, [job.job.id for job in held])

    # -- verifying --------------------------------------------------------------------------------------

    def _count(self, held: HeldJob, adapted: Job, target_id: str) -> None:
        state = str(held.job.state or JobState.WAITING)
        self.report.moved[state] = self.report.moved.get(state, 0) + 1
        self.report.renumbered += held.wanted_id not in ("", target_id)
        self._seen += 1
        # every job has the same chance to be in the sample
        if len(self._sample) < SAMPLE:
            self._sample.append((target_id, adapted))
        elif (place := random.randrange(self._seen)) < SAMPLE:
            self._sample[place] = (target_id, adapted)

    async def compare(self) -> None:
        """Compare the sample with what the target has; jobs that have ended and are gone cannot be."""
        expected = dict(self._sample)
        for job in await self._snapshot.read(list(expected), JobFilter()):
            before = expected[job.id]
            if job.state in ENDED and before.state not in ENDED:
                continue  # a protocol may keep less of a job that has ended
            self.report.compared += 1
            for part, one, other in (
                ("name", before.name, job.name),
                ("data", before.data, job.data),
                ("options", _comparable(before), _comparable(job)),
            ):
                if one != other:
                    self.report.differences = [
                        *self.report.differences, f"job {job.id!r} has another {part}: {other!r:.80}",
                    ]  # fmt: skip


def _comparable(job: Job) -> tuple[object, ...]:
    options = job.options
    return (
        options.priority,
        max(options.attempts, 1),
        options.keep_completed,
        options.keep_dead,
        job.created_at,
    )
