"""Redis errors become our own here: nobody above sees redis-py's."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as redis_errors

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

_BY_CLASS: tuple[tuple[type[Exception], type[StoreFault]], ...] = (
    (redis_errors.BusyLoadingError, Loading),
    (redis_errors.ReadOnlyError, ReadOnly),
    (redis_errors.OutOfMemoryError, OutOfMemory),
    (redis_errors.AuthenticationError, StoreRefused),
    (redis_errors.AuthorizationError, StoreRefused),
    (redis_errors.ConnectionError, Away),
    (redis_errors.TimeoutError, Away),
    (redis_errors.MasterDownError, ReadOnly),
    (redis_errors.ClusterError, ClusterMoving),
    (redis_errors.AskError, ClusterMoving),
    (redis_errors.TryAgainError, ClusterMoving),
)
"""The words redis-py takes off an answer and turns into a class."""

_WORD = re.compile(r"(?:.*@user_script: ?\d+: -?)?([A-Z]+) ", re.DOTALL)
"""An answer's first word; older servers wrap it where it came from inside a script."""


def translate(error: BaseException, dialled: str) -> StoreFault:
    """Our own error for one of redis-py's; `dialled` says which server was meant."""
    text = str(error)
    word = _WORD.match(text)
    if word and word.group(1) in _BY_WORD:
        return _BY_WORD[word.group(1)](f"{dialled}: {text}")
    for theirs, ours in _BY_CLASS:
        if isinstance(error, theirs):
            return ours(f"{dialled}: {text}")
    if isinstance(error, OSError | EOFError | asyncio.IncompleteReadError | asyncio.TimeoutError):
        return Away(f"{dialled}: {text or type(error).__name__}")
    return StoreRefused(f"{dialled}: {text}")


@contextmanager
def translating(dialled: str) -> Iterator[None]:
    """Raise our own errors for whatever redis-py raises inside."""
    try:
        yield
    except (redis_errors.RedisError, OSError, EOFError) as error:
        if isinstance(error, StoreFault):
            raise
        raise translate(error, dialled) from error
