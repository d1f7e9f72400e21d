"""Is the server, or every node of the cluster, one that jobs can be trusted to?"""

from collections.abc import Sequence

from corral.app import Corral
from corral.cli.doctor.cluster import check_cluster
from corral.cli.doctor.findings import Finding, fine, wrong
from corral.cli.doctor.node import ask_info, check_node
from corral.errors import RedisError
from corral.protocols import Protocol


async def check_server(app: Corral, protocols: Sequence[Protocol]) -> list[Finding]:
    """All there is to say of the server itself."""
    try:
        info = await ask_info(app.store())
    except RedisError as error:
        return [wrong("access", f"INFO is refused: {error}", "let this user run INFO (ACL SETUSER … +info)")]
    if info.get("cluster_enabled") == "1":
        return await check_cluster(app, protocols)
    return [
        *await check_node(app.store(), info),
        fine("cluster", "a single server: every key in one place"),
    ]
