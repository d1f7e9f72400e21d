"""What a worker says of itself in the registry."""

import os
import socket

import orjson

from corral.core.routing import Identity


def metadata(identity: Identity, now: int) -> bytes:
    """The document's JSON; a worker of several stacks or regions lists them as one text."""
    return orjson.dumps(
        {
            "serverId": identity.server,
            "stack": ",".join(sorted(identity.stack)),
            "region": ",".join(sorted(identity.region)),
            "capabilities": sorted(identity.capabilities),
            "lastSeen": now,
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
        }
    )
