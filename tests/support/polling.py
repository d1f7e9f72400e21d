"""Wait for a condition, with a deadline."""

import asyncio
import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    """Does the condition come true within that time?"""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


async def becomes_true(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    """The same on an event loop, which goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True
