"""What a server says when it cannot serve becomes an error of our own."""

import re
from typing import Any

from corral.errors import (
    RedisBusyError,
    RedisClusterError,
    RedisConnectionError,
    RedisError,
    RedisLoadingError,
    RedisOutOfMemoryError,
    RedisPersistenceError,
    RedisReadOnlyError,
    RedisResponseError,
    RedisUnblockedError,
)

_BY_WORD: dict[str, type[RedisError]] = {
    "LOADING": RedisLoadingError,
    "READONLY": RedisReadOnlyError,
    "OOM": RedisOutOfMemoryError,
    "MISCONF": RedisPersistenceError,
    "NOREPLICAS": RedisPersistenceError,
    "UNBLOCKED": RedisUnblockedError,
    "BUSY": RedisBusyError,
    "TRYAGAIN": RedisClusterError,
    "CLUSTERDOWN": RedisClusterError,
    "MASTERDOWN": RedisReadOnlyError,
}

_WORD = re.compile(r"(?:.*@user_script: ?\d+: -?)?([A-Z]+) ", re.DOTALL)
"""An answer's first word; older servers wrap it where it came from inside a script."""


class SlotMovedError(RedisClusterError):
    """Another node of the cluster serves this slot, or a part of it; the call did not run."""

    _ADDRESS = re.compile(r"(MOVED|ASK) (\d+) (\S*):(\d+)")

    def __init__(self, text: Any) -> None:
        super().__init__(text)
        found = self._ADDRESS.search(str(text))
        self.is_for_good = found is not None and found[1] == "MOVED"
        self.slot = int(found[2]) if found else 0
        self.node = (found[3], int(found[4])) if found else ("", 0)
        """Its host and port; the host is empty where it is that of the node which said so."""


class ConnectError(RedisConnectionError):
    """No connection could be made, so nothing was sent."""


class NoScriptError(RedisResponseError):
    """The server does not know the script; it did not run."""


_BY_WORD["NOSCRIPT"] = NoScriptError
_BY_WORD["MOVED"] = _BY_WORD["ASK"] = SlotMovedError


def error_from_reply(text: str, dialled: str) -> RedisError:
    """Our own error for what the server answered; `dialled` says which server it was."""
    if text.startswith("ERR max number of clients"):
        return RedisConnectionError(f"{dialled}: {text}")
    word = _WORD.match(text)
    kind = _BY_WORD.get(word.group(1), RedisResponseError) if word else RedisResponseError
    return kind(f"{dialled}: {text}")


def with_cluster_hint(fault: RedisError) -> RedisError:
    """What is to be done about a server that was taken for a single one and answered so."""
    text = str(fault)
    if isinstance(fault, SlotMovedError) or ": CROSSSLOT" in text:
        return RedisResponseError(
            f"{text}; this server is a node of a cluster: write redis+cluster://host:port"
        )
    return fault


def connect_error(error: BaseException, dialled: str) -> RedisConnectionError:
    """Our own error for a connection that could not be made."""
    return ConnectError(f"{dialled}: {str(error) or type(error).__name__}")
