"""What can be read of a BullMQ job's children."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from corral.core import payload
from corral.protocols.bullmq.bound import Bound, text

KINDS = ("processed", "unprocessed", "ignored", "failed")


class Children(Struct, frozen=True):
    """A job's children by the names of their keys, and how each ended."""

    processed: dict[str, Any]
    """Completed, with their results."""
    unprocessed: list[str]
    """Not ended."""
    ignored: dict[str, str]
    """Failed, with their reasons; the parent goes on without them."""
    failed: list[str]
    """Failed, and with them the parent."""


class ChildrenPage(Struct, frozen=True):
    """Some children of one kind, and where the next page begins (0: there is none)."""

    children: dict[str, Any]
    cursor: int


class ChildReads(Bound):
    """Children's results, failures and numbers."""

    async def children(self, job_id: str) -> Children:
        """All children of a job."""
        processed, unprocessed, ignored, failed = self._keys.children(job_id)
        answers = await self._pipe(
            ("HGETALL", processed),
            ("SMEMBERS", unprocessed),
            ("HGETALL", ignored),
            ("ZRANGE", failed, 0, -1),
        )
        return Children(
            _results(answers[0]),
            [text(key) for key in answers[1]],
            _reasons(answers[2]),
            [text(key) for key in answers[3]],
        )

    async def children_values(self, job_id: str) -> dict[str, Any]:
        """The results of the children that completed, by the names of their keys."""
        return _results(await self._store.call("HGETALL", self._keys.children(job_id)[0]))

    async def ignored_failures(self, job_id: str) -> dict[str, str]:
        """Why children failed that the parent goes on without, by the names of their keys."""
        return _reasons(await self._store.call("HGETALL", self._keys.children(job_id)[2]))

    async def children_counts(self, job_id: str, kinds: Sequence[str] = KINDS) -> dict[str, int]:
        """How many children of each kind there are."""
        keys = dict(zip(KINDS, self._keys.children(job_id), strict=True))
        count = {"processed": "HLEN", "unprocessed": "SCARD", "ignored": "HLEN", "failed": "ZCARD"}
        return dict(zip(kinds, await self._pipe(*((count[kind], keys[kind]) for kind in kinds)), strict=True))

    async def children_page(self, job_id: str, kind: str, cursor: int = 0, count: int = 20) -> ChildrenPage:
        """About `count` children of one kind from `cursor` on.

        Cursors are the server's: a page may hold more or fewer, and the order is its own.
        """
        key = dict(zip(KINDS, self._keys.children(job_id), strict=True))[kind]
        if kind == "failed":
            found = await self._store.call("ZRANGE", key, cursor, cursor + count - 1)
            more = cursor + count if len(found) == count else 0
            return ChildrenPage({text(child): None for child in found}, more)
        scan = "SSCAN" if kind == "unprocessed" else "HSCAN"
        following, flat = await self._store.call(scan, key, cursor, "COUNT", count)
        if kind == "unprocessed":
            return ChildrenPage({text(child): None for child in flat}, int(following))
        read = _results if kind == "processed" else _reasons
        return ChildrenPage(read(flat), int(following))


def _results(flat: Sequence[bytes]) -> dict[str, Any]:
    return {text(key): payload.decode(raw) for key, raw in zip(flat[::2], flat[1::2], strict=True)}


def _reasons(flat: Sequence[bytes]) -> dict[str, str]:
    return {text(key): text(raw) for key, raw in zip(flat[::2], flat[1::2], strict=True)}
