"""Callbacks by the name of an event."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from corral.telemetry.logs import logger

Callback = TypeVar("Callback", bound=Callable[..., Any])


class EventEmitter:
    """Calls the callbacks of each event; an error in a callback is emitted as an `error` event.

    A callback may be a coroutine function: it then runs as a task of its own.
    """

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callable[..., Any]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def on(self, event_name: str, function: Callback) -> Callback:
        """Call `function` for every such event; return the function."""
        self._callbacks.setdefault(event_name, []).append(function)
        return function

    def once(self, event_name: str, function: Callback) -> Callback:
        """Call `function` for the next such event only."""

        def first(*args: Any, **kwargs: Any) -> Any:
            self.off(event_name, first)
            return function(*args, **kwargs)

        self.on(event_name, first)
        return function

    def off(self, event_name: str, function: Callable[..., Any]) -> None:
        """Remove a callback; ValueError if it was not registered."""
        self._callbacks.get(event_name, []).remove(function)

    def listens_to(self, event_name: str) -> bool:
        """Return whether the event has a callback."""
        return bool(self._callbacks.get(event_name))

    def emit(self, event_name: str, *args: Any, **kwargs: Any) -> bool:
        """Call the event's callbacks; return whether there was one."""
        callbacks = self._callbacks.get(event_name)
        if not callbacks:
            return False
        for callback in list(callbacks):
            try:
                result = callback(*args, **kwargs)
                if inspect.isawaitable(result):
                    self._await(event_name, result)
            except Exception as error:
                self._failed(event_name, error)
        return True

    def _await(self, event_name: str, awaitable: Any) -> None:
        task = asyncio.ensure_future(awaitable)
        self._tasks.add(task)  # the event loop holds only a weak reference

        def done(task: "asyncio.Task[Any]") -> None:
            self._tasks.discard(task)
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                self._failed(event_name, error)

        task.add_done_callback(done)

    def _failed(self, event_name: str, error: Exception) -> None:
        if event_name == "error" or not self.emit("error", error):
            logger("bullmq").error("a callback failed", about=event_name, why=repr(error))
