"""What a server says when it cannot serve becomes an error of our own."""

import re

from corral.errors import (
    Away,
    Busy,
    ClusterMoving,
    Loading,
    Misconfigured,
    OutOfMemory,
    ReadOnly,
    StoreFault,
    StoreRefused,
    Unblocked,
)

_BY_WORD: dict[str, type[StoreFault]] = {
    "LOADING": Loading,
    "READONLY": ReadOnly,
    "OOM": OutOfMemory,
    "MISCONF": Misconfigured,
    "NOREPLICAS": Misconfigured,
    "UNBLOCKED": Unblocked,
    "BUSY": Busy,
    "MOVED": ClusterMoving,
    "ASK": ClusterMoving,
    "TRYAGAIN": ClusterMoving,
    "CLUSTERDOWN": ClusterMoving,
    "MASTERDOWN": ReadOnly,
}

_WORD = re.compile(r"(?:.*@user_script: ?\d+: -?)?([A-Z]+) ", re.DOTALL)
"""An answer's first word; older servers wrap it where it came from inside a script."""


class UnknownScript(StoreRefused):
    """The server does not know the script; it did not run."""


_BY_WORD["NOSCRIPT"] = UnknownScript


def fault_of_text(text: str, dialled: str) -> StoreFault:
    """Our own error for what the server answered; `dialled` says which server it was."""
    if text.startswith("ERR max number of clients"):
        return Away(f"{dialled}: {text}")
    word = _WORD.match(text)
    kind = _BY_WORD.get(word.group(1), StoreRefused) if word else StoreRefused
    return kind(f"{dialled}: {text}")


def fault_of_error(error: BaseException, dialled: str) -> Away:
    """Our own error for a connection that could not be made, or broke."""
    return Away(f"{dialled}: {str(error) or type(error).__name__}")
