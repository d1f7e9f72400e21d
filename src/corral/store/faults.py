"""Redis errors become our own here: nobody above sees redis-py's."""

import asyncio
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
    (redis_errors.ClusterError, ClusterMoving),
)

_WORDS = tuple(_BY_WORD)


def translate(error: BaseException, dialled: str) -> StoreFault:
    """Our own error for one of redis-py's; `dialled` says which server was meant."""
    text = str(error)
    for word in _WORDS:
        # inside a script the server wraps the word: "... script: abc, on @user_script:1: OOM command …"
        if text.startswith(word + " ") or f": {word} " in text or f"-{word} " in text:
            return _BY_WORD[word](f"{dialled}: {text}")
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
