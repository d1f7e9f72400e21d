"""The synchronous door: an event loop in a thread of its own, for Django, Flask and notebooks."""

import asyncio
import os
from collections.abc import Coroutine
from threading import Lock, Thread
from typing import Any, TypeVar

from corral.errors import InvalidOptions

T = TypeVar("T")


class Door:
    """Runs Corral's coroutines for people who have no event loop.

    >>> app.sync(send_email.add({"to": "…"}))     # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def __call__(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """What the coroutine returns; raises what it raises, or TimeoutError (and the coroutine is ended)."""
        loop = self._running_loop()
        if loop is _current_loop():
            coroutine.close()
            raise InvalidOptions("this code runs inside the synchronous door already; await it instead")
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result(timeout)
        finally:
            future.cancel()  # nobody waits for it any more; what is done already stays so

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # a forked child (a web server's worker) has the object but not the thread
            if self._loop is None or self._process != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._process = os.getpid()
                Thread(target=self._loop.run_forever, name="corral-door", daemon=True).start()
            return self._loop

    def close(self) -> None:
        """End the thread; the next call starts another."""
        with self._lock:
            if self._loop is not None and self._process == os.getpid():
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
