"""Cursors of job lists: places that are found again while jobs move, and the keys that list ids."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from corral.core.job import Job, JobState
from corral.errors import InvalidOptions
from corral.protocols.wire import fields_of, text
from corral.store.client import Store
from corral.store.scripts import Scripts

SCRIPTS = Scripts("corral.protocols")
MARKS = 64
"""The last ids before a place in a list, by which it is found again."""
TRAIL = 16
"""The last ids of so many pages before that one."""
DIGEST, VERSION = 6, 2
"""Bytes of a mark: of the id, and of what a job's next attempt changes."""
WINDOW = 2000
"""Ids of a list read at a time in search of a mark."""
AHEAD = 20_000
"""Ids behind the expected place that are searched: so many may have been put in front of it meanwhile."""
ENTRY_ID = re.compile(rb"([0-9]{1,20}-[0-9]{1,20})?")
MOST = 10_000
"""Characters of the longest cursor."""


class SortedPlace(Struct, frozen=True, array_like=True, tag="z"):
    """Behind a member of a sorted set, whether it is still there or not."""

    score: str
    member: bytes


class ListPlace(Struct, frozen=True, array_like=True, tag="l"):
    """Behind the last of these ids of a list that is still there."""

    offset: int
    marks: bytes
    trail: bytes


class IdPlace(Struct, frozen=True, array_like=True, tag="i"):
    """Behind an id, in a list in the order of ids."""

    id: bytes


Place = SortedPlace | ListPlace | IdPlace


class Cursor(Struct, frozen=True, array_like=True):
    """The place at which the next page of a state begins; `source`: in which of its lists."""

    state: JobState
    source: int = 0
    place: Place | None = None

    def __str__(self) -> str:
        return urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")


def parse_cursor(cursor: str, state: JobState) -> Cursor:
    """Return the place that a cursor of this state stands for; "" is the beginning."""
    if not cursor:
        return Cursor(state)
    try:
        padded = cursor[:MOST].encode("ascii") + b"=" * (-len(cursor) % 4)
        place = msgspec.msgpack.decode(urlsafe_b64decode(padded), type=Cursor)
        if place.state is not state:
            raise ValueError("another state")
    except ValueError:
        raise InvalidOptions(
            f"cursor {cursor[:40]!a} is not valid for {state.value} jobs; use that of the page before"
        ) from None
    return place


class IdChunk(Struct, frozen=True):
    """Some ids in the order of their list; `place(n, jobs)` is the place behind the n-th of them."""

    ids: Sequence[bytes]
    place: Callable[[int, Mapping[bytes, Job]], Place]
    is_last: bool
    looked: int
    """Entries that were read for them."""


class IdSource(Protocol):
    """One of the lists of a state."""

    async def read(self, place: Any, count: int) -> IdChunk:
        """Return the ids behind a place (None: from the beginning)."""


def id_of(place: Place | None) -> bytes:
    """Return the id behind which a page begins; empty at the beginning."""
    if place is None:
        return b""
    if not isinstance(place, IdPlace):
        raise other_list()
    return place.id


def other_list() -> InvalidOptions:
    """Return the error of a cursor whose place is of another kind of list."""
    return InvalidOptions("the cursor is of another list; use that of the page before")


class SortedIds(Struct, frozen=True):
    """The ids of a sorted set: by their scores, or the highest first."""

    store: Store
    key: str
    is_reverse: bool = False

    async def read(self, place: Place | None, count: int) -> IdChunk:
        after: tuple[Any, ...] = ()
        if place is not None:
            if not isinstance(place, SortedPlace):
                raise other_list()
            after = (_score(place.score), place.member)
        rows = await self.store.run(SCRIPTS["page"], (self.key,), (int(self.is_reverse), count, *after))
        ids, scores = rows[::2], rows[1::2]
        return IdChunk(
            ids, lambda n, _: SortedPlace(scores[n - 1].decode(), ids[n - 1]), len(ids) < count, len(ids)
        )


def _score(score: str) -> str:
    try:
        is_number = float(score) == float(score)
    except ValueError:
        is_number = False
    if not is_number:
        raise other_list()
    return score


class SetIds(Struct, frozen=True):
    """The ids of a set that is not large, in the order of their bytes."""

    store: Store
    key: str

    async def read(self, place: Place | None, count: int) -> IdChunk:
        after = id_of(place)
        members = sorted(one for one in await self.store.call("SMEMBERS", self.key) if one > after)
        ids = members[:count]
        return IdChunk(ids, lambda n, _: IdPlace(ids[n - 1]), len(members) <= count, len(ids))


class Entries(Struct, frozen=True):
    """Some entries of a stream that are of a list; `following`: the id behind which there may be more."""

    entries: Sequence[Sequence[Any]]
    following: bytes
    looked: int

    @property
    def is_last(self) -> bool:
        """Whether there are no more."""
        return not self.following


class IdStream(Struct, frozen=True):
    """The job ids of the entries of a stream, which are in the order of the entries' own ids."""

    read_entries: Callable[[bytes, int], Awaitable[Entries]]

    async def read(self, place: Place | None, count: int) -> IdChunk:
        after = id_of(place)
        if not ENTRY_ID.fullmatch(after):
            raise other_list()
        page = await self.read_entries(after, count)
        rows = [(entry_id, fields_of(flat).get(b"job_id")) for entry_id, flat in page.entries]
        ids = [(entry_id, job_id) for entry_id, job_id in rows if job_id]

        def place_behind(n: int, _: Mapping[bytes, Job]) -> IdPlace:
            return IdPlace(ids[n - 1][0] if n < len(ids) or page.is_last else page.following)

        return IdChunk([job_id for _, job_id in ids], place_behind, page.is_last, page.looked)


class ListedIds(Struct, frozen=True):
    """The ids of lists, one list after the other.

    A list knows no places, only ends at which jobs come and go. So the last ids before a place are marks,
    and the page goes on behind the last of them that is still there. A job that was claimed meanwhile and
    came back has made an attempt, by which it is told from one that has stayed.
    """

    store: Store
    keys: Sequence[str]
    read_jobs: Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, Job]]]
    from_right: bool = False

    async def read(self, place: Place | None, count: int) -> IdChunk:
        start, marks, trail = 0, b"", b""
        if place is not None:
            if not isinstance(place, ListPlace):
                raise other_list()
            marks = place.marks
            trail = (place.trail + marks[-(DIGEST + VERSION) :])[-TRAIL * (DIGEST + VERSION) :]
            start, ids = await self._resume(place, count)
        else:
            ids = await self._range(0, count)

        def place_behind(n: int, jobs: Mapping[bytes, Job]) -> ListPlace:
            fresh = b"".join(_mark(one, jobs.get(one)) for one in ids[max(n - MARKS, 0) : n])
            return ListPlace(start + n, (marks + fresh)[-MARKS * (DIGEST + VERSION) :], trail)

        return IdChunk(ids, place_behind, len(ids) < count, len(ids))

    async def _range(self, low: int, high: int) -> list[bytes]:
        """Return the ids from one position to another, counted from where reading begins."""
        ids: list[bytes] = []
        lengths = await self._lengths() if len(self.keys) > 1 else (high,)
        for key, length in zip(self.keys, lengths, strict=True):
            first, last = max(low, 0), min(high, length)
            if first < last:
                ids += await self._slice(key, first, last)
            low, high = low - length, high - length
        return ids

    async def _slice(self, key: str, low: int, high: int) -> list[bytes]:
        if self.from_right:
            return list(reversed(await self.store.call("LRANGE", key, -high, -low - 1)))
        return list(await self.store.call("LRANGE", key, low, high - 1))

    async def _lengths(self) -> Sequence[int]:
        return await self.store.pipe([("LLEN", key) for key in self.keys])

    async def _resume(self, place: ListPlace, count: int) -> tuple[int, list[bytes]]:
        """Return the position behind the last mark that has stayed, and the ids from there."""
        size = DIGEST + VERSION
        known = place.trail + place.marks
        versions = {
            known[at : at + DIGEST]: known[at + DIGEST : at + size] for at in range(0, len(known), size)
        }
        start = await self._behind_marks(place.offset, versions)
        return start, await self._range(start, start + count)

    async def _behind_marks(self, offset: int, versions: Mapping[bytes, bytes]) -> int:
        length = sum(await self._lengths())
        # jobs leave in front of it: towards the beginning first, then as far behind as others may have come
        high = top = min(offset + WINDOW // 2, length)
        while high > 0:
            low = max(high - WINDOW, 0)
            found = await self._last_mark(low, high, versions)
            if found is not None:
                return found + 1
            high = low and low + MARKS
        for low in range(top, min(top + AHEAD, length), WINDOW):
            found = await self._last_mark(low, low + WINDOW, versions)
            if found is not None:
                # the next window may have more of them
                further = await self._last_mark(found + 1, found + 1 + WINDOW, versions)
                return 1 + (found if further is None else further)
        return 0

    async def _last_mark(self, low: int, high: int, versions: Mapping[bytes, bytes]) -> int | None:
        ids = await self._range(low, high)
        positions = {one: low + n for n, one in enumerate(ids) if _digest(one, DIGEST) in versions}
        jobs = await self.read_jobs(list(positions)) if positions else {}
        stayed = [
            position
            for one, position in positions.items()
            if versions[_digest(one, DIGEST)] in (b"\0" * VERSION, _version(jobs.get(one)))
        ]
        return max(stayed, default=None)


def _mark(job_id: bytes, job: Job | None) -> bytes:
    return _digest(job_id, DIGEST) + _version(job)


def _version(job: Job | None) -> bytes:
    """Return a digest of what changes when a job is claimed and comes back; zeros where it is not known."""
    if job is None:
        return b"\0" * VERSION
    return _digest(f"{job.starts} {job.attempts_made} {job.stalls}".encode(), VERSION)


def _digest(raw: bytes, size: int) -> bytes:
    return blake2b(raw, digest_size=size).digest()


def found_by_id(ids: Sequence[bytes], jobs: Sequence[Job]) -> dict[bytes, Job]:
    """Return the jobs that were read by the ids under which they are listed."""
    by_text = {job.id: job for job in jobs}
    return {one: by_text[text(one)] for one in ids if text(one) in by_text}
