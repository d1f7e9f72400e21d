"""Threads for sync handlers."""

from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Lock, Thread

Work = tuple[Context, Callable[[], None]]


class Threads:
    """At most `most` threads, started when they are needed.

    They are daemons: a handler that never returns must not keep a stopped process alive, which is
    why this is not a ThreadPoolExecutor.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = Lock()
        self._idle = 0
        self._started = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work`, which must not raise, in a thread, with the caller's context variables."""
        self._queue.put((copy_context(), work))
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
                return
            if self._started == self._most:
                return
            self._started += 1
            number = self._started
        Thread(target=self._serve, name=f"{self._name}-{number}", daemon=True).start()

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            context, call = work
            context.run(call)
            del work, context, call
            with self._lock:
                self._idle += 1

    def close(self) -> None:
        """Let the threads end when what they run has ended."""
        with self._lock:
            for _ in range(self._started):
                self._queue.put(None)
