"""Checks of a server, and how to mend what they find; `corral doctor` and the gateway show them."""

from collections.abc import Sequence

from corral.app import Corral
from corral.doctor.cluster import check_cluster
from corral.doctor.node import check_node, read_info
from corral.doctor.results import CheckResult, fine, wrong
from corral.errors import RedisError
from corral.protocols.base import Protocol


async def check_server(app: Corral, protocols: Sequence[Protocol]) -> list[CheckResult]:
    """Check the server, or every master of the cluster."""
    try:
        info = await read_info(app.store())
    except RedisError as error:
        return [wrong("access", f"INFO is refused: {error}", "let this user run INFO (ACL SETUSER … +info)")]
    if info.get("cluster_enabled") == "1":
        return await check_cluster(app, protocols)
    return [*await check_node(app.store(), info), fine("cluster", "a single server, not a cluster")]
