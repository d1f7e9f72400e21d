"""The synchronous API: an event loop in a thread of its own, for Django, Flask and notebooks."""

import asyncio
import os
from collections.abc import Coroutine
from datetime import timedelta
from threading import Lock, Thread
from typing import Any, TypeVar

from corral.core.options import seconds
from corral.errors import InvalidOptions

T = TypeVar("T")


class SyncRunner:
    """Runs Corral's coroutines for programs without an event loop; an app has it as `app.sync`.

    >>> app.sync(send_email.add({"to": "…"}))                   # doctest: +SKIP
    >>> app.sync(app.queue("mail").counts())          # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def __call__(self, coroutine: Coroutine[Any, Any, T], timeout: float | timedelta | None = None) -> T:
        """Return the coroutine's result or raise its error.

        After `timeout` seconds (or a timedelta), cancel it and raise `TimeoutError`.
        """
        loop = self.loop
        if loop is _running_loop():
            coroutine.close()
            raise InvalidOptions(
                "this code already runs in the event loop of app.sync; await the coroutine instead"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result(seconds(timeout))
        finally:
            future.cancel()  # no effect on a coroutine that has ended

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, started when first used."""
        with self._lock:
            # a forked child (a web server's worker) has the object but not the thread
            if self._loop is None or self._process != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._process = os.getpid()
                Thread(target=self._loop.run_forever, name="corral-sync", daemon=True).start()
            return self._loop

    def close(self) -> None:
        """End the thread; the next call starts another."""
        with self._lock:
            if self._loop is not None and self._process == os.getpid():
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
