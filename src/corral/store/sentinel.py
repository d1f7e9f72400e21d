"""SentinelResolver: the address of the current master, requested from sentinels at every connect."""

from collections.abc import Mapping
from typing import Any

from corral.errors import RedisConnectionError, RedisError, RedisResponseError
from corral.store.address import Node, RedisAddress
from corral.store.connection import Connection, StaticResolver

SENTINEL_TIMEOUT_S = 1.0
"""For one sentinel, to connect and to reply: another may know while this one hangs."""


class SentinelResolver:
    """Finds the master of one service.

    The sentinel that replied last is used first the next time. The master it names may have died or been
    demoted since; so a master must confirm its role, and is looked up again at the next connect.
    """

    needs_master = True

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._nodes: list[Node] = list(address.nodes)

    async def resolve(self) -> Mapping[str, Any]:
        errors: list[RedisError] = []
        for node in list(self._nodes):
            try:
                master = await self._master_by(node)
            except RedisError as error:
                errors.append(error)
                continue
            self._nodes.remove(node)
            self._nodes.insert(0, node)
            if master is not None:
                return self._address.node_options(master)
        display = self._address.display
        if len(errors) < len(self._nodes):
            raise RedisResponseError(
                f"{display}: the sentinels know no service {self._address.service!r}; write one of those "
                f"that SENTINEL MASTERS lists behind the hosts, as in redis+sentinel://host:26379/service"
            )
        for failure in errors:
            if isinstance(failure, RedisResponseError):
                raise failure
        raise RedisConnectionError(f"{display}: no sentinel answers ({errors[-1]})")

    async def _master_by(self, node: Node) -> Node | None:
        """Return the master by this sentinel; None where it does not know the service."""
        host, port = node
        options = {"socket_connect_timeout": SENTINEL_TIMEOUT_S, **self._address.sentinel_options}
        resolver = StaticResolver({**options, "host": host, "port": port})
        connection = Connection(resolver, f"sentinel {host}:{port}", SENTINEL_TIMEOUT_S)
        try:
            reply = await connection.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service)
        finally:
            connection.disconnect()
        return None if reply is None else (reply[0].decode(), int(reply[1]))
