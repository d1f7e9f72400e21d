"""What the snapshots of protocols share whose jobs have locks and are listed by id."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from corral.core.ports import Leak, Location
from corral.protocols.base import BoundPort
from corral.protocols.wire import id_text, text
from corral.store.scanning import IdList, escape_pattern, lists_page, scan_all


class LocatedJob(Struct, frozen=True):
    """Where a job is listed at one moment, and whether it has a record and a lock."""

    id: str
    has_record: bool
    has_lock: bool
    places: tuple[str, ...]


class BaseSnapshot(BoundPort, ABC):
    """Lists are walked, and the few jobs that look odd are located exactly by a script."""

    @property
    @abstractmethod
    def _lists(self) -> Sequence[IdList]:
        """The keys that list jobs."""

    @abstractmethod
    async def _locate(self, ids: Sequence[str]) -> list[LocatedJob]:
        """Return where some jobs are."""

    async def listed(self, cursor: str = "0") -> tuple[list[tuple[str, str]], str]:
        members, following = await lists_page(self._store, self._lists, cursor)
        return [(place, id_text(member)) for place, member in members], following

    async def locate(self, ids: Sequence[str]) -> list[Location]:
        located = await self._locate(ids) if ids else []
        return [Location(job.id, job.has_record, job.places) for job in located]

    async def _lock_leaks(self, prefix: str, suffix: str = "") -> list[Leak]:
        """Return the locks of jobs that are not active; the id is between `prefix` and `suffix`."""
        leaks: list[Leak] = []
        start, end = len(prefix.encode()), -len(suffix) or None
        async for keys in scan_all(self._store, f"{escape_pattern(prefix)}*{suffix}", "string"):
            for job in await self._locate([id_text(key[start:end]) for key in keys]):
                if job.has_lock and "active" not in job.places:
                    where = " and ".join(job.places) or "listed nowhere"
                    leaks.append(Leak("lock", job.id, f"has a lock, but is not active ({where})"))
        return leaks


def decode_located(row: Sequence[Any]) -> LocatedJob:
    """Return a row of the locate scripts: id, has a record, has a lock, place, place, …"""
    job_id, has_record, has_lock, *places = row
    return LocatedJob(id_text(job_id), has_record == 1, has_lock == 1, tuple(sorted(map(text, places))))
