"""Sentinels: who is the master now is asked of them at every dialling."""

from collections.abc import Mapping
from typing import Any

from corral.errors import RedisConnectionError, RedisError, RedisResponseError
from corral.store.address import Address, Node
from corral.store.connection import Connection, Fixed

ASK_TIMEOUT_S = 1.0
"""For one of them, to connect and to answer: another may know while this one hangs."""


class Sentinels:
    """Finds the master of one service.

    The first sentinel that answers is asked first the next time. What it names may have died or been
    demoted since; so a master must say of itself that it is one, and is looked for again at the next dial.
    """

    needs_master = True

    def __init__(self, address: Address) -> None:
        self._address = address
        self._nodes: list[Node] = list(address.nodes)

    async def find(self) -> Mapping[str, Any]:
        said: list[RedisError] = []
        for node in list(self._nodes):
            try:
                found = await self._ask(node)
            except RedisError as fault:
                said.append(fault)
                continue
            self._nodes.remove(node)
            self._nodes.insert(0, node)
            if found is None:
                continue
            return self._address.at(found)
        shown = self._address.shown
        if len(said) < len(self._nodes):
            raise RedisResponseError(
                f"{shown}: the sentinels know no service {self._address.service!r}; write one of those that "
                f"SENTINEL MASTERS lists behind the hosts, as in redis+sentinel://host:26379/service"
            )
        refused = [fault for fault in said if isinstance(fault, RedisResponseError)]
        if refused:
            raise refused[0]
        raise RedisConnectionError(f"{shown}: no sentinel answers ({said[-1]})")

    async def _ask(self, node: Node) -> Node | None:
        """Where this sentinel says the master is; None where it does not know the service."""
        host, port = node
        options = {"socket_connect_timeout": ASK_TIMEOUT_S, **self._address.sentinels}
        where = Fixed({**options, "host": host, "port": port})
        connection = Connection(where, f"sentinel {host}:{port}", ASK_TIMEOUT_S)
        try:
            answer = await connection.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service)
        finally:
            connection.disconnect()
        return None if answer is None else (answer[0].decode(), int(answer[1]))
