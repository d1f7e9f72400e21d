"""What a server says when it cannot serve becomes an error of our own."""

import re
from typing import Any

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
    "TRYAGAIN": ClusterMoving,
    "CLUSTERDOWN": ClusterMoving,
    "MASTERDOWN": ReadOnly,
}

_WORD = re.compile(r"(?:.*@user_script: ?\d+: -?)?([A-Z]+) ", re.DOTALL)
"""An answer's first word; older servers wrap it where it came from inside a script."""


class Elsewhere(ClusterMoving):
    """Another node of the cluster serves this slot, or a part of it; the call did not run."""

    _ADDRESS = re.compile(r"(MOVED|ASK) (\d+) (\S*):(\d+)")

    def __init__(self, text: Any) -> None:
        super().__init__(text)
        found = self._ADDRESS.search(str(text))
        self.is_for_good = found is not None and found[1] == "MOVED"
        self.slot = int(found[2]) if found else 0
        self.node = (found[3], int(found[4])) if found else ("", 0)
        """Its host and port; the host is empty where it is that of the node which said so."""


class Unreached(Away):
    """No connection could be made, so nothing was sent."""


class UnknownScript(StoreRefused):
    """The server does not know the script; it did not run."""


_BY_WORD["NOSCRIPT"] = UnknownScript
_BY_WORD["MOVED"] = _BY_WORD["ASK"] = Elsewhere


def fault_of_text(text: str, dialled: str) -> StoreFault:
    """Our own error for what the server answered; `dialled` says which server it was."""
    if text.startswith("ERR max number of clients"):
        return Away(f"{dialled}: {text}")
    word = _WORD.match(text)
    kind = _BY_WORD.get(word.group(1), StoreRefused) if word else StoreRefused
    return kind(f"{dialled}: {text}")


def not_alone(fault: StoreFault) -> StoreFault:
    """What is to be done about a server that was taken for a single one and answered so."""
    text = str(fault)
    if isinstance(fault, Elsewhere) or ": CROSSSLOT" in text:
        return StoreRefused(f"{text}; this server is a node of a cluster: write redis+cluster://host:port")
    return fault


def fault_of_error(error: BaseException, dialled: str) -> Away:
    """Our own error for a connection that could not be made."""
    return Unreached(f"{dialled}: {str(error) or type(error).__name__}")
