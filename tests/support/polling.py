"""Wait for a condition, with a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_S = 20.0


def eventually(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    """Return whether the condition becomes true within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


async def becomes_true(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    """`eventually` on an event loop, which goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


async def until(condition: Callable[[], Awaitable[T]], what: str = "it", seconds: float = TIMEOUT_S) -> T:
    """Return the condition's value once that is true; fail where it takes too long."""
    deadline = time.monotonic() + seconds
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s (last value: {value!r})"
        await asyncio.sleep(0.01)
    return value
