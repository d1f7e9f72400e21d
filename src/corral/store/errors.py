"""Redis's error replies as Corral's own errors."""

import re
from typing import Any

from corral import errors
from corral.errors import RedisClusterError, RedisConnectionError, RedisError, RedisResponseError


class ConnectError(RedisConnectionError):
    """No connection could be made, so nothing was sent."""


class NoScriptError(RedisResponseError):
    """NOSCRIPT: the server does not know the script; it did not run."""


class SlotMovedError(RedisClusterError):
    """MOVED or ASK: another node serves this slot, or some of its keys; the command did not run."""

    _TEXT = re.compile(r"(MOVED|ASK) (\d+) (\S*):(\d+)")

    def __init__(self, text: Any) -> None:
        super().__init__(text)
        match = self._TEXT.search(str(text))
        self.is_permanent = match is not None and match[1] == "MOVED"
        self.slot = int(match[2]) if match else 0
        self.node = (match[3], int(match[4])) if match else ("", 0)
        """Host and port; the host is empty where it is that of the node which replied."""


_BY_CODE: dict[str, type[RedisError]] = {
    "LOADING": errors.RedisLoadingError,
    "READONLY": errors.RedisReadOnlyError,
    "MASTERDOWN": errors.RedisReadOnlyError,
    "OOM": errors.RedisOutOfMemoryError,
    "MISCONF": errors.RedisPersistenceError,
    "NOREPLICAS": errors.RedisPersistenceError,
    "UNBLOCKED": errors.RedisUnblockedError,
    "BUSY": errors.RedisBusyError,
    "TRYAGAIN": RedisClusterError,
    "CLUSTERDOWN": RedisClusterError,
    "MOVED": SlotMovedError,
    "ASK": SlotMovedError,
    "NOSCRIPT": NoScriptError,
    "WRONGTYPE": errors.RedisWrongTypeError,
}

_CODE = re.compile(r"(?:.*@user_script: ?\d+: -?)?([A-Z]+) ", re.DOTALL)
"""A reply's first word; older servers wrap it where it came from inside a script."""


def error_from_reply(text: str, address: str) -> RedisError:
    """Return the error for an error reply of the server at `address`."""
    if text.startswith("ERR max number of clients"):
        return RedisConnectionError(f"{address}: {text}")
    code = _CODE.match(text)
    error_class = _BY_CODE.get(code.group(1), RedisResponseError) if code else RedisResponseError
    return error_class(f"{address}: {text}")


def may_have_run(error: RedisError) -> bool:
    """Return whether the command may have changed something although it ended with this error."""
    if isinstance(error, ConnectError | NoScriptError):
        return False
    return isinstance(error, RedisConnectionError | RedisResponseError)


def with_cluster_hint(error: RedisError) -> RedisError:
    """Return the error; for a cluster node that was addressed as a single server, one with the way out."""
    text = str(error)
    if isinstance(error, SlotMovedError) or ": CROSSSLOT" in text:
        return RedisResponseError(
            f"{text}; this server is a node of a cluster: write redis+cluster://host:port"
        )
    return error


def connect_error(error: BaseException, address: str) -> ConnectError:
    """Return the error for a connection that could not be made."""
    return ConnectError(f"{address}: {str(error) or type(error).__name__}")
