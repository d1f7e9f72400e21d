"""Wait for a condition with a deadline; and, where time itself is tested, let it pass."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_S = 30.0
"""More than any condition takes on a machine that is busy; one that holds is seen at once."""


def eventually(condition: Callable[[], T], seconds: float = TIMEOUT_S, pause: float = 0.01) -> T:
    """Return the condition's value once that is true, or its last value when the time is up."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return value


async def becomes_true(condition: Callable[[], T], seconds: float = TIMEOUT_S) -> T:
    """`eventually` on an event loop, which goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return value


async def until(condition: Callable[[], Awaitable[T]], what: str = "it", seconds: float = TIMEOUT_S) -> T:
    """Return the condition's value once that is true; fail where it takes too long."""
    deadline = time.monotonic() + seconds
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s (last value: {value!r})"
        await asyncio.sleep(0.01)
    return value


async def outlast(seconds: float) -> None:
    """Let more time pass than a lock, a block or an outage takes: that it has passed is what is tested."""
    await asyncio.sleep(seconds)


def block(seconds: float) -> None:
    """Block this thread, and with it the event loop that runs in it, for so long."""
    time.sleep(seconds)


async def forever() -> None:
    """Wait to be cancelled."""
    await asyncio.Event().wait()
