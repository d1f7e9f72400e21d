"""Move jobs and schedules between queues, namespaces, servers and protocols, and in from other libraries."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from time import time_ns
from uuid import uuid4

import msgspec
from msgspec import Struct

from corral.core.filter import JobFilter
from corral.core.job import JobState
from corral.core.ports import Inspector, Schedules, Snapshot
from corral.core.transfer import HeldJob, Run, Transfer
from corral.errors import InvalidOptions, QueueInUse, RedisResponseError, Refused
from corral.migrate.endpoint import Endpoint, is_same_server
from corral.migrate.fit import Fit
from corral.migrate.foreign import FORMATS, foreign_source
from corral.migrate.mover import LEFT, Mover, Progress
from corral.migrate.report import Leftover, MoveReport
from corral.migrate.schedules import ScheduleMover
from corral.migrate.source import ENDED, UNENDED, QueueSource, Source, transfer_of
from corral.protocols.transfer import is_made_by_server
from corral.store.client import Store
from corral.store.clock import ServerClock
from corral.telemetry.logs import warn_of_clock

__all__ = ["MoveOptions", "MoveReport", "OpenMove", "migrate", "open_move", "put_back"]


class MoveOptions(Struct, frozen=True, kw_only=True):
    """What is to be moved, and how; picklable, for executors."""

    source: str
    """`redis://host/0?protocol=…&queue=…&namespace=…`, or with `format=` that of another library."""
    target: str
    ended: bool = False
    """Whether completed and dead jobs are moved too."""
    adapt: bool = False
    """Whether jobs leave behind the options that the target has no word for."""
    leave: bool = False
    """Whether jobs that do not fit stay at the source; else nothing is moved where there are any."""
    rename: Mapping[str, str] = {}
    """New names of jobs."""

    @property
    def states(self) -> tuple[JobState, ...]:
        """The states whose jobs are moved."""
        return (*UNENDED, *ENDED) if self.ended else UNENDED

    @property
    def terms(self) -> str:
        """What decides which jobs fit: everyone who works at a run must have the same."""
        return msgspec.json.encode({"adapt": self.adapt, "rename": self.rename}, order="sorted").decode()


class OpenMove(Struct, frozen=True, kw_only=True):
    """Both sides of a move, connected."""

    options: MoveOptions
    source_end: Endpoint
    target_end: Endpoint
    source: Source
    target: Transfer
    snapshot: Snapshot
    inspector: Inspector
    schedules: Schedules | None
    fit: Fit

    def mover(self, run: str) -> Mover:
        """Return what moves jobs in this process."""
        return Mover(self.source, self.target, self.snapshot, self.fit, run, MoveReport(run=run))

    def schedule_mover(self, schedules: Schedules) -> ScheduleMover:
        """Return what moves the schedules of the source."""
        return ScheduleMover(self.source.holding, schedules, self.schedules, self.fit, self.target)

    # -- before anything is written ---------------------------------------------------------------------

    async def check(self) -> None:
        """Raise an error where the move cannot be made at all."""
        for side, transfer in (("source", self.source.holding), ("target", self.target)):
            try:
                await transfer.check_rights()
            except RedisResponseError as error:
                raise InvalidOptions(
                    f"the user of the {side} {self.end_of(side)} may not do what a move does ({error}); "
                    f"give it the rights that the page about ACLs lists. Nothing was moved"
                ) from error

    def end_of(self, side: str) -> Endpoint:
        """Return the address of a side."""
        return self.source_end if side == "source" else self.target_end

    async def survey(self) -> MoveReport:
        """Return what would be moved and what not, writing nothing."""
        report = MoveReport(is_dry=True)
        flows = {job.job.id: job.group for group in await self.source.flows() for job in _grouped(group)}
        held = {job.job.id for job in await self.source.holding.held()}
        async for page in self.source.every(self.options.states):
            jobs = [job for job in page if job.job.id not in held]  # those may have arrived
            taken = await self._taken(jobs)
            for job in jobs:
                if job.wanted_id in taken:
                    report.leave("id: it is taken at the target; remove one of the two jobs", job.wanted_id)
                else:
                    self._judge(msgspec.structs.replace(job, group=flows.get(job.job.id, "")), report)
        await self.list_unreadable(report)
        await self.count_active(report)
        if self.source.schedules is not None:
            await self.schedule_mover(self.source.schedules).survey(report)
        return report

    async def count_active(self, report: MoveReport) -> None:
        """Add the jobs that are active to what is left."""
        count, examples = await self.source.active()
        if count:
            left = report.left.setdefault(LEFT_ACTIVE, Leftover())
            left.count = max(left.count, count)
            left.examples = left.examples or examples

    async def list_unreadable(self, report: MoveReport) -> None:
        """Add the jobs that cannot be read to what is left."""
        for reason, ids in (await self.source.unreadable()).items():
            for job_id in ids:
                report.leave(reason, job_id)

    async def _taken(self, jobs: Sequence[HeldJob]) -> set[str]:
        """Return the ids of jobs that the target has already, and that no server has made."""
        ids = [job.wanted_id for job in jobs]
        kept = [job_id for job_id in ids if self.target.keeps_id(job_id) and not is_made_by_server(job_id)]
        return {job.id for job in await self.snapshot.read(kept, JobFilter())} if kept else set()

    def _judge(self, held: HeldJob, report: MoveReport) -> None:
        misfits = self.fit.misfits(held, self.target)
        if self.fit.adapted(held, misfits) is None:
            for misfit in misfits:
                if not misfit.is_optional or not self.fit.adapts:
                    report.leave(f"{misfit.part}: {misfit.reason}", held.job.id)
            return
        for misfit in misfits:
            report.adapt(f"{misfit.part}: {misfit.reason}", held.job.id)
        state = str(held.job.state or JobState.WAITING)
        report.moved[state] = report.moved.get(state, 0) + 1
        report.renumbered += not self.target.keeps_id(held.job.id)

    async def begin(self) -> tuple[Run, bool]:
        """Record the run at the source; return it, and whether it continues an interrupted one."""
        run = Run(
            id=uuid4().hex[:12],
            target=str(self.target_end),
            options=self.options.terms,
            started_at=time_ns() // 1_000_000,
        )
        recorded = await self.source.holding.begin(run)
        if recorded.target != run.target:
            raise QueueInUse(
                f"a move from {self.source_end} to {recorded.target} was interrupted; finish it with the "
                f"same --to, or put back what it holds with --put-back. Nothing was moved"
            )
        if recorded.options != run.options:
            raise QueueInUse(
                f"the interrupted move from {self.source_end} was begun with other options "
                f"({recorded.options}); use the same, or put back what it holds with --put-back"
            )
        return recorded, recorded.id != run.id

    async def finish(self, mover: Mover) -> MoveReport:
        """Verify the run, and end it."""
        report = mover.report
        await mover.compare()
        await self.count_active(report)
        run = await self.source.holding.run()
        report.total = run.moved if run is not None else report.count
        report.received = await self.target.received(report.run)
        await self.source.holding.finish(report.run)
        return report


LEFT_ACTIVE = next(iter(LEFT.values()))


def _grouped(jobs: list[HeldJob]) -> list[HeldJob]:
    return [msgspec.structs.replace(job, group=jobs[0].job.id) for job in jobs]


@asynccontextmanager
async def open_move(options: MoveOptions) -> AsyncIterator[OpenMove]:
    """Connect both sides; refuses addresses that make no sense together."""
    source_end = Endpoint.parse(options.source, FORMATS)
    target_end = Endpoint.parse(options.target)
    if source_end == target_end:
        raise InvalidOptions(f"source and target are the same: {source_end}; name another queue")
    async with AsyncExitStack() as stack:
        stores = []
        for end in (source_end, target_end):
            store = Store(end.url)
            stack.push_async_callback(store.close)
            await store.check_connection()
            stores.append(store)
        clocks = [ServerClock(lambda: time_ns() // 1_000_000, warn_of_clock) for _ in stores]
        for store, clock in zip(stores, clocks, strict=True):
            await store.compare_clocks(clock)
        ports = target_end.bind(stores[1], clocks[1])
        target = transfer_of(ports, target_end.protocol_name)
        source: Source
        if source_end.format:
            source = await foreign_source(source_end, stores[0], clocks[0])
        else:
            await _check_queue(source_end, stores[0])
            source = QueueSource(
                source_end.bind(stores[0], clocks[0]), source_end.protocol_name, source_end.queue
            )
            if source.holding.place == target.place and await is_same_server(*stores):
                raise InvalidOptions(
                    f"source and target are the same queue: {source_end} and {target_end}; name another"
                )
        yield OpenMove(
            options=options,
            source_end=source_end,
            target_end=target_end,
            source=source,
            target=target,
            snapshot=ports.snapshot,
            inspector=ports.inspector,
            schedules=ports.schedules,
            fit=Fit(
                source=source_end.protocol_name,
                target=target_end.protocol,
                adapts=options.adapt,
                names=options.rename,
            ),
        )


async def _check_queue(end: Endpoint, store: Store) -> None:
    queues = await end.protocol.queues(store, end.namespace)
    if end.queue not in queues:
        names = ", ".join(map(repr, sorted(queues))) or "none"
        raise InvalidOptions(
            f"there is no queue {end.queue!r} at {end}; there are: {names}. Nothing was moved"
        )


async def migrate(
    options: MoveOptions, *, paused: bool = False, dry_run: bool = False, progress: Progress = lambda _: None
) -> MoveReport:
    """Move the jobs and schedules of a queue; continues an interrupted move of the same queue.

    Both queues go on meanwhile: each job can be claimed in at most one of them at any moment. `paused`: the
    source is paused first, and stays so. `dry_run`: only say what would be moved, and what not.
    """
    async with open_move(options) as move:
        if dry_run:
            return await move.survey()
        await prepare(move, paused)
        run, is_resumed = await move.begin()
        mover = move.mover(run.id)
        mover.report.is_resumed = is_resumed
        await move_all(move, mover, run, progress)
        return await move.finish(mover)


async def prepare(move: OpenMove, paused: bool) -> None:
    """Check everything that can be checked, then pause the source where that is wanted."""
    await move.check()
    if not move.options.leave:
        survey = await move.survey()
        misfits = {reason: left for reason, left in survey.left.items() if reason != LEFT_ACTIVE}
        if misfits:
            reason, left = next(iter(misfits.items()))
            count = sum(other.count for other in misfits.values())
            raise Misfits(
                f"{count} of {survey.count + count} jobs or schedules do not fit {move.target_end}, such as "
                f"{left.examples[0]!r} ({reason}); --dry-run lists all reasons, --adapt leaves such options "
                f"behind, --leave moves the others. Nothing was moved"
            )
    if paused:
        await move.source.pause()


class Misfits(Refused):
    """Jobs that the target cannot hold."""


async def move_all(move: OpenMove, mover: Mover, run: Run, progress: Progress) -> None:
    """Move everything, in this process."""
    await mover.resume()
    if move.source.schedules is not None:
        await move.schedule_mover(move.source.schedules).move(run, mover.report)
    await move.list_unreadable(mover.report)
    await mover.move_flows(progress)
    for state in move.options.states:
        await mover.drain(state, progress)


async def put_back(options: MoveOptions) -> int:
    """Put back the jobs that an interrupted move holds; return how many that were."""
    async with open_move(options) as move:
        run = await move.source.holding.run()
        if run is None:
            raise InvalidOptions(
                f"no move from {move.source_end} was interrupted; there is nothing to put back"
            )
        if run.target != str(move.target_end):
            raise InvalidOptions(f"the interrupted move goes to {run.target}; give that as --to")
        mover = move.mover(run.id)
        count = await mover.put_back()
        if move.source.schedules is not None:
            schedules = move.schedule_mover(move.source.schedules)
            await schedules.move(run, mover.report, is_only_resumed=True)
        await move.source.holding.finish(run.id)
        return count
