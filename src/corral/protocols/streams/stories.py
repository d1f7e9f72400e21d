"""The streams protocol's Stories: each job's own event stream, read for many tails at once."""

from collections.abc import AsyncGenerator, Sequence

from corral.core.desk import Peek, Story
from corral.protocols.binding import Binding
from corral.protocols.streams import public
from corral.protocols.streams.broker import SCRIPTS
from corral.protocols.streams.keys import Keys
from corral.store import streams

BEGINNING = "0-0"


class StreamsStories:
    """`job:{id}:events` is the truth about one job; `jobs:events` only hints that there is something new."""

    def __init__(self, binding: Binding) -> None:
        self._store = binding.store
        self._keys = Keys(binding.namespace, binding.queue)

    async def peek(self, job_id: str) -> Peek | None:
        if not public.is_id(job_id):
            return None
        keys = (self._keys.job(job_id), self._keys.job_events(job_id))
        status, owner, first, last, kind, kept, added = await self._store.run(SCRIPTS["peek"], keys, ())
        if not status:
            return None
        return Peek(
            status=status.decode("utf-8", "replace"),
            owner=owner.decode("utf-8", "replace") or None,
            first=first.decode() or None,
            last=last.decode() or None,
            is_told_to_the_end=kind.decode("utf-8", "replace") in public.OVER,
            missing=max(added - kept, 0) if added >= 0 else 0,
        )

    async def read(self, wanted: Sequence[tuple[str, str]], count: int) -> list[Story]:
        # from the last event that was seen: where it is gone, others behind it may be too
        ranges = await self._store.pipe(
            [
                ("XRANGE", self._keys.job_events(job_id), after, "+", "COUNT", count + 1)
                for job_id, after in wanted
            ]
        )
        stories = []
        for (job_id, after), entries in zip(wanted, ranges, strict=True):
            is_joined = bool(entries) and entries[0][0] == after.encode()
            new = entries[1:] if is_joined else entries[:count]
            if new:
                is_loose = not is_joined and after != BEGINNING
                is_cut = is_loose and await self._begins_with(job_id, new[0][0])
                stories.append(_story(new, is_cut, len(new) >= count))
            else:
                status = await self._store.call("HGET", self._keys.job(job_id), "status")
                stories.append(_silence(after, status))
        return stories

    async def news(self, wanted: Sequence[tuple[str, str]], is_thorough: bool) -> list[str]:
        ids = [job_id for job_id, _ in wanted]
        hashes = [self._keys.job(job_id) for job_id in ids]
        streams_and_ids = [*map(self._keys.job_events, ids), *(after for _, after in wanted)]
        grown, there = await self._store.pipe(
            [("XREAD", "COUNT", 1, "STREAMS", *streams_and_ids), ("EXISTS", *hashes)]
        )
        found = {name for name, _ in grown or ()}
        worth = [job_id for job_id in ids if self._keys.job_events(job_id).encode() in found]
        if is_thorough or there < len(hashes):
            rows = await self._store.pipe([("HGET", name, "status") for name in hashes])
            worth += [
                job_id for job_id, row in zip(ids, rows, strict=True) if row is None or row in _OVER_BYTES
            ]
        return worth

    async def _begins_with(self, job_id: str, entry_id: bytes) -> bool:
        """Is nothing older than this entry kept?"""
        first = await self._store.call("XRANGE", self._keys.job_events(job_id), "-", "+", "COUNT", 1)
        return bool(first) and first[0][0] == entry_id

    async def hints(self) -> AsyncGenerator[Sequence[str]]:
        async for entries in streams.follow(self._store, self._keys.events, "$"):
            ids = (dict(zip(flat[::2], flat[1::2], strict=True)).get(b"job_id") for _, flat in entries)
            yield [job_id.decode("utf-8", "replace") for job_id in ids if job_id]


_OVER_BYTES = frozenset(word.encode() for word in public.OVER)


def _story(entries: Sequence[tuple[bytes, Sequence[bytes]]], is_cut: bool, has_more: bool) -> Story:
    return Story(
        events=[public.told(entry_id, flat) for entry_id, flat in entries],
        position=entries[-1][0].decode(),
        is_there=True,
        is_over=False,
        is_cut=is_cut,
        has_more=has_more,
    )


def _silence(after: str, status: bytes | None) -> Story:
    return Story(
        events=(),
        position=after,
        is_there=status is not None,
        is_over=status in _OVER_BYTES,
        is_cut=False,
        has_more=False,
    )
