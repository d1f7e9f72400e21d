"""Reads of a job's children: their results, failures and numbers."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from corral.core import payload
from corral.core.ports import Children
from corral.protocols.bullmq.scripts import BullmqPort
from corral.protocols.wire import fields_of, text

KINDS = ("processed", "unprocessed", "ignored", "failed")
"""How children may have ended, in the order of `keys.children`."""
COUNT = {"processed": "HLEN", "unprocessed": "SCARD", "ignored": "HLEN", "failed": "ZCARD"}


class ChildrenPage(Struct, frozen=True):
    """Some children of one kind, and the cursor for more (0: there are none)."""

    children: dict[str, Any]
    cursor: int


class ChildReads(BullmqPort):
    """The children of jobs, by the names of their keys."""

    async def children(self, job_id: str) -> Children:
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

    async def results(self, job_id: str, queue: str | None = None, name: str | None = None) -> list[Any]:
        """Return the results of the children that completed, in the order of their ids.

        With `queue` and `name` those of that kind; of a child that was removed, the queue alone is known.
        """
        values = await self.children_values(job_id)
        keys = sorted(values, key=lambda key: key.rpartition(":")[2])
        if queue is not None:
            keys = [key for key in keys if key.rpartition(":")[0].rpartition(":")[2] == queue]
            names = await self._pipe(*(("HGET", key, "name") for key in keys))
            kinds = dict(zip(keys, names, strict=True))
            keys = [key for key, kind in kinds.items() if kind is None or text(kind) == name]
        return [values[key] for key in keys]

    async def children_values(self, job_id: str) -> dict[str, Any]:
        """Return the results of the children that completed."""
        return _results(await self._store.call("HGETALL", self._keys.children(job_id)[0]))

    async def ignored_failures(self, job_id: str) -> dict[str, str]:
        """Return the reasons of failed children that the parent goes on without."""
        return _reasons(await self._store.call("HGETALL", self._keys.children(job_id)[2]))

    async def children_counts(self, job_id: str, kinds: Sequence[str] = KINDS) -> dict[str, int]:
        """Return how many children of each kind there are."""
        keys = dict(zip(KINDS, self._keys.children(job_id), strict=True))
        return dict(zip(kinds, await self._pipe(*((COUNT[kind], keys[kind]) for kind in kinds)), strict=True))

    async def children_page(self, job_id: str, kind: str, cursor: int = 0, count: int = 20) -> ChildrenPage:
        """Return about `count` children of one kind from `cursor` on, in the server's own order."""
        key = dict(zip(KINDS, self._keys.children(job_id), strict=True))[kind]
        if kind == "failed":
            children = await self._store.call("ZRANGE", key, cursor, cursor + count - 1)
            more = cursor + count if len(children) == count else 0
            return ChildrenPage({text(child): None for child in children}, more)
        scan = "SSCAN" if kind == "unprocessed" else "HSCAN"
        following, flat = await self._store.call(scan, key, cursor, "COUNT", count)
        if kind == "unprocessed":
            return ChildrenPage({text(child): None for child in flat}, int(following))
        decode = _results if kind == "processed" else _reasons
        return ChildrenPage(decode(flat), int(following))


def _results(flat: Sequence[bytes]) -> dict[str, Any]:
    return {text(key): payload.decode(raw) for key, raw in fields_of(flat).items()}


def _reasons(flat: Sequence[bytes]) -> dict[str, str]:
    return {text(key): text(raw) for key, raw in fields_of(flat).items()}
