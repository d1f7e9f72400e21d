"""The streams room's Stories: each job's own event stream, read for many tails at once."""

from collections.abc import AsyncGenerator, Sequence

from corral.core.desk import Glimpse, Story
from corral.store import streams
from corral.wire.place import Place
from corral.wire.streams import public
from corral.wire.streams.broker import SCRIPTS
from corral.wire.streams.keys import Keys

BEGINNING = "0-0"


class StreamsStories:
    """`job:{id}:events` is the truth about one job; `jobs:events` only hints that there is something new."""

    def __init__(self, place: Place) -> None:
        self._store = place.store
        self._keys = Keys(place.namespace, place.queue)

    async def glimpse(self, job_id: str) -> Glimpse | None:
        if not public.is_id(job_id):
            return None
        keys = (self._keys.job(job_id), self._keys.job_events(job_id))
        status, owner, first, last, kind, kept, added = await self._store.run(SCRIPTS["glimpse"], keys, ())
        if not status:
            return None
        return Glimpse(
            status=status.decode("utf-8", "replace"),
            owner=owner.decode("utf-8", "replace") or None,
            first=first.decode() or None,
            last=last.decode() or None,
            is_told_to_the_end=kind.decode("utf-8", "replace") in public.OVER,
            missing=max(added - kept, 0) if added >= 0 else 0,
        )

    async def read(self, wanted: Sequence[tuple[str, str]], count: int) -> list[Story]:
        commands: list[tuple[str | int, ...]] = []
        for job_id, after in wanted:
            # from the last event that was seen: where it is gone, others behind it may be too
            commands.append(("XRANGE", self._keys.job_events(job_id), after, "+", "COUNT", count + 1))
            commands.append(("HGET", self._keys.job(job_id), "status"))
        answers = await self._store.pipe(commands)
        stories = []
        for position, (job_id, after) in enumerate(wanted):
            entries, status = answers[2 * position], answers[2 * position + 1]
            is_joined = bool(entries) and entries[0][0] == after.encode()
            new = entries[1:] if is_joined else entries[:count]
            is_loose = bool(new) and not is_joined and after != BEGINNING
            stories.append(
                Story(
                    events=[public.told(entry_id, flat) for entry_id, flat in new],
                    position=new[-1][0].decode() if new else after,
                    is_there=status is not None,
                    is_over=status is not None and status.decode("utf-8", "replace") in public.OVER,
                    is_cut=is_loose and await self._begins_with(job_id, new[0][0]),
                    has_more=len(new) >= count,
                )
            )
        return stories

    async def _begins_with(self, job_id: str, entry_id: bytes) -> bool:
        """Is nothing older than this entry kept?"""
        first = await self._store.call("XRANGE", self._keys.job_events(job_id), "-", "+", "COUNT", 1)
        return bool(first) and first[0][0] == entry_id

    async def hints(self) -> AsyncGenerator[Sequence[str]]:
        async for entries in streams.follow(self._store, self._keys.events, "$"):
            ids = (dict(zip(flat[::2], flat[1::2], strict=True)).get(b"job_id") for _, flat in entries)
            yield [job_id.decode("utf-8", "replace") for job_id in ids if job_id]
