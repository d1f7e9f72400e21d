"""Where jobs of another library come from: its lists and sorted sets, read as its format says."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence

import msgpack
from msgspec.structs import replace

from corral.core.job import Job, JobState
from corral.core.transfer import HeldJob, HoldingPort, Unheld
from corral.errors import InvalidOptions, QueueInUse, Unsupported
from corral.migrate import formats
from corral.migrate.endpoint import Endpoint
from corral.migrate.formats import Format, Member, Place, UnreadableJob, told_apart
from corral.protocols.transfer import RunRecord, held_groups
from corral.protocols.wire import id_bytes, id_text, pack, text
from corral.store.client import Store
from corral.store.clock import ServerClock
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.migrate")
FORMATS = tuple(formats.FORMATS)


async def foreign_source(end: Endpoint, store: Store, clock: ServerClock) -> "ForeignSource":
    """Return the queue of another library; refused where it does not exist."""
    source = ForeignSource(end, store, clock)
    names = [place.key for places in source.places.values() for place in places]
    kinds = await store.pipe([("TYPE", name) for name in names])
    for name, kind in zip(names, kinds, strict=True):
        if kind not in (b"none", b"list", b"zset"):
            raise InvalidOptions(f"key {name!r} at {end} is a {text(kind)}, and no queue of {end.format}")
    if not end.queue and end.format == "json":
        raise InvalidOptions(f"address {end} names no list; write its key as queue=…")
    # while a move holds the last jobs, the keys do not exist either
    if set(kinds) == {b"none"} and await source.holding.run() is None:
        raise InvalidOptions(
            f"there is no queue {end.queue or names[0]!r} of {end.format} at {end}. Nothing was moved"
        )
    return source


class ForeignHolding(RunRecord):
    """Members are held in a key of Corral's own; their records stay where they are."""

    def __init__(self, source: "ForeignSource", store: Store, prefix: str) -> None:
        self._source = source
        self._store = store
        self._prefix = prefix

    @property
    def _run_key(self) -> str:
        return f"{self._prefix}:run"

    @property
    def _held_key(self) -> str:
        return f"{self._prefix}:held"

    async def hold(
        self, run: str, batch: str, groups: Sequence[Sequence[str]]
    ) -> list[list[HeldJob] | Unheld]:
        members = [self._source.known[group[0]] for group in groups]
        rows = [
            (id_bytes(member.id), member.key, member.kind, member.raw, member.active_key, member.records)
            for member in members
        ]
        keys = [self._run_key, self._held_key]
        answers = await self._store.run(SCRIPTS["hold_members"], keys, (run, batch, pack(rows)))
        if answers is None:
            raise QueueInUse(f"the move {run} has ended, or was put back, by another process; begin anew")
        return await held_groups(answers, self._read)

    async def held(self) -> list[HeldJob]:
        return await self._read(await self._store.call("ZRANGE", self._held_key, 0, -1))

    async def _read(self, receipts: Sequence[bytes]) -> list[HeldJob]:
        members: list[Member] = []
        batches: list[str] = []
        for receipt in receipts:
            batch, kind, score, job_id, key, raw, _ = msgpack.unpackb(receipt, raw=True)
            place = Place(id_text(key), text(kind))
            member = self._source.format.member(place, raw, float(score) if score else None)
            members.append(replace(member, id=id_text(job_id)))
            batches.append(text(batch))
        read = await self._source.decode(members)
        held: list[HeldJob] = []
        gone: list[bytes] = []
        for receipt, batch, job in zip(receipts, batches, read, strict=True):
            if isinstance(job, HeldJob):
                held.append(replace(job, receipt=receipt, batch=batch))
            else:
                gone.append(receipt)  # it changed after it was listed
        await self._end("restore", gone)
        return held

    async def drop(self, held: Sequence[HeldJob]) -> int:
        return await self._end("drop", [job.receipt for job in held])

    async def restore(self, held: Sequence[HeldJob]) -> int:
        return await self._end("restore", [job.receipt for job in held])

    async def _end(self, word: str, receipts: Sequence[bytes]) -> int:
        if not receipts:
            return 0
        keys = [self._run_key, self._held_key]
        ended: int = await self._store.run(SCRIPTS["end_hold"], keys, (word, *receipts))
        return ended


class ForeignSource:
    """A queue of RQ, Celery, arq, or a list of JSON."""

    schedules = None

    def __init__(self, end: Endpoint, store: Store, clock: ServerClock) -> None:
        self._end = end
        self._store = store
        self._clock = clock
        self.format: Format = formats.FORMATS[end.format]()
        self.places = self.format.places(end.queue)
        self.holding: HoldingPort = ForeignHolding(self, store, f"corral:move:{end.format}:{end.queue}")
        self.known: dict[str, Member] = {}
        """The members that were listed last, by their ids."""

    async def page(self, state: JobState, cursor: str, count: int) -> tuple[list[HeldJob], str | None]:
        """Return what stands behind the members that were listed before, and are still there."""
        start = int(cursor or 0)
        page = (await self._members(state, start + count))[start:]
        stuck = sum(member.id in self.known for member in page)
        self.known |= {member.id: member for member in page}
        jobs = [
            job if isinstance(job, HeldJob) else self._unread(member)
            for member, job in zip(page, await self.decode(page), strict=True)
        ]
        return jobs, str(start + stuck) if len(page) == count else None

    async def _members(self, state: JobState, most: int) -> list[Member]:
        """Return up to `most` members of a state, the next to run first."""
        members: list[Member] = []
        rows: list[tuple[bytes, float | None]]
        for place in self.places.get(state, ()):
            missing = most - len(members)
            match place.kind:
                case "left":
                    rows = [(raw, None) for raw in await self._range("LRANGE", place.key, 0, missing - 1)]
                case "right":
                    rows = [(raw, None) for raw in await self._range("LRANGE", place.key, -missing, -1)]
                    rows.reverse()
                case _:
                    flat = await self._range("ZRANGE", place.key, 0, missing - 1, "WITHSCORES")
                    rows = [(raw, float(score)) for raw, score in zip(flat[::2], flat[1::2], strict=True)]
            members += [self.format.member(place, raw, score) for raw, score in rows]
            if len(members) >= most:
                break
        return told_apart(members, Counter())

    async def _range(self, *command: object) -> list[bytes]:
        return list(await self._store.call(*command))

    async def decode(self, members: Sequence[Member]) -> list[HeldJob | UnreadableJob]:
        """Return each job, or why it cannot be read."""
        if not members:
            return []
        decoded: list[HeldJob | UnreadableJob] = []
        for member, record in zip(members, await self.format.records(self._store, members), strict=True):
            try:
                decoded.append(self._unheld(member, self.format.decode(member, record)))
            except UnreadableJob as error:
                decoded.append(error)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                decoded.append(UnreadableJob(f"it cannot be read ({error!r:.80})"))
        return decoded

    def _unheld(self, member: Member, job: Job) -> HeldJob:
        own = job.extra.get("id")
        due = int(job.extra.get("due") or member.score or 0)
        if job.state is JobState.DELAYED and due <= self._clock():
            job = replace(job, state=JobState.WAITING)
        if not job.created_at:
            job = replace(job, created_at=self._clock())
        has_id = member.has_id or isinstance(own, str)
        return HeldJob(
            receipt=b"", batch="", job=replace(job, extra={}), due=due, has_id=has_id,
            target_id=own if isinstance(own, str) else "",
        )  # fmt: skip

    def _unread(self, member: Member) -> HeldJob:
        """Return a job that no target takes: it is reported, and stays."""
        job = Job(id=member.id, name="", data=None, queue="", state=JobState.WAITING)
        return HeldJob(receipt=b"", batch="", job=job, is_unreadable=True)

    async def every(self, states: Sequence[JobState]) -> AsyncIterator[list[HeldJob]]:
        for state in states:
            for members in _pages(await self._members(state, 2**31)):
                yield [job for job in await self.decode(members) if isinstance(job, HeldJob)]

    async def flows(self) -> list[list[HeldJob]]:
        return []

    async def active(self) -> tuple[int, list[str]]:
        return await self.format.active(self._store, self._end.queue), []

    async def unreadable(self) -> dict[str, list[str]]:
        reasons: dict[str, list[str]] = {}
        for state in self.places:
            for members in _pages(await self._members(state, 2**31)):
                for member, job in zip(members, await self.decode(members), strict=True):
                    if isinstance(job, UnreadableJob):
                        reasons.setdefault(str(job), []).append(member.id)
        return reasons

    async def pause(self) -> None:
        raise Unsupported(
            f"a queue of {self._end.format} cannot be paused from here; stop its workers instead"
        )


def _pages(members: Sequence[Member]) -> list[Sequence[Member]]:
    return [members[start : start + 500] for start in range(0, len(members), 500)]
