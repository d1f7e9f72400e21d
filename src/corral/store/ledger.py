"""A store under which one verb adds each of its rows once, whatever is sent twice."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from corral.store.client import BlockingConnection, Store
from corral.store.scripts import Script

_PLACE = "-- the verb\n"


class KnownRows(Exception):
    """Some rows were added before; none of this batch were now."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = frozenset(ids)
        super().__init__(f"{len(self.ids)} rows were added before")


class OnceStore(Store):
    """Another store, but for the verb `submit`, which first asks a ledger what it knows."""

    def __init__(self, store: Store, ledger: str, seconds: int, rows_at: int) -> None:
        self._inner = store
        self._ledger = ledger
        self._seconds = seconds
        self._rows_at = rows_at
        """Which argument of `submit` holds its rows, counted from 1."""
        self.added = 0

    def blocking_connection(self, name: str, block_s: float) -> BlockingConnection:
        return self._inner.blocking_connection(name, block_s)

    async def call(self, *command: Any) -> Any:
        return await self._inner.call(*command)

    async def pipe(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        return await self._inner.pipe(commands)

    async def run(self, script: Script, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        if script.name != "submit":
            return await self._inner.run(script, keys, args)
        word, *rest = await self._inner.run(
            once(script), [self._ledger, *keys], [self._seconds, self._rows_at, *args]
        )
        if word == b"known":
            raise KnownRows([row_id.decode() for row_id in rest])
        count, answer = rest
        self.added += count
        return answer

    async def close(self) -> None:
        await self._inner.close()


@cache
def once(script: Script) -> Script:
    """The verb, run only where a ledger knows none of its rows (lua/ledger.lua)."""
    around = (files("corral.store") / "lua" / "ledger.lua").read_text()
    before, place, after = around.partition(_PLACE)
    assert place, "ledger.lua has lost its place for the verb"
    return Script(f"{script.name}_once", f"{before}{script.text}\n{after}")
