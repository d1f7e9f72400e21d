"""Handlers by job name."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import isfinite
from typing import Any

from corral.errors import InvalidOptions

ANY_NAME = "*"


class HandlerKind(StrEnum):
    """Where a handler runs."""

    ASYNC = "async"
    """On the worker's event loop."""
    SYNC = "sync"
    """In a thread."""
    PROCESS = "process"
    """In a spawned process."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that runs jobs, and how it is run."""

    name: str
    fn: Callable[[Any], Any]
    kind: HandlerKind
    timeout: float | None = None
    """Seconds one attempt may take; None: no limit.

    After that an async handler is cancelled and a process killed. A thread can be neither: its job is
    settled as timed out at once and may be tried again, `job.cancelled` is set, what it returns later is
    dropped, and its slot stays taken until it returns.
    """


class HandlerRegistry:
    """Handlers by job name; the one under `*` takes every name without a handler of its own.

    >>> handlers = HandlerRegistry()
    >>> handlers.add("greet", lambda job: f"hello {job.data}").kind.value
    'sync'
    >>> handlers.find("part") is None
    True
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._default: Handler | None = None

    def add(
        self, name: str, fn: Callable[[Any], Any], *, timeout: float | None = None, process: bool = False
    ) -> Handler:
        """Let `fn` run the jobs called `name`."""
        if not callable(fn):
            raise InvalidOptions(f"the handler of {name!r} is {fn!r}, which is no function")
        if name in self._handlers:
            raise InvalidOptions(f"job name {name!r} has a handler already; give each name one handler")
        if timeout is not None and not (isfinite(timeout) and timeout > 0):
            raise InvalidOptions(f"timeout={timeout!r} of {name!r}: give seconds above 0, or None")
        if process:
            _check_importable(name, fn)
        kind = HandlerKind.ASYNC if is_async(fn) else HandlerKind.SYNC
        handler = Handler(name, fn, HandlerKind.PROCESS if process else kind, timeout)
        self._handlers[name] = handler
        if name == ANY_NAME:
            self._default = handler
        return handler

    def find(self, name: str) -> Handler | None:
        """Return the handler for jobs called `name`, if there is one."""
        return self._handlers.get(name, self._default)

    @property
    def names(self) -> list[str]:
        """The names that have a handler, sorted."""
        return sorted(self._handlers)


def is_async(fn: Callable[..., Any]) -> bool:
    """Return whether calling `fn` gives a coroutine."""
    while isinstance(fn, partial):
        fn = fn.func
    if inspect.iscoroutinefunction(fn):
        return True
    return not inspect.isroutine(fn) and inspect.iscoroutinefunction(type(fn).__call__)


def _check_importable(name: str, fn: Callable[..., Any]) -> None:
    path: str | None = getattr(fn, "__qualname__", None)
    if path is None or "<" in path or not getattr(fn, "__module__", None):
        raise InvalidOptions(
            f"the handler of {name!r} is to run in a process, which imports it by its module and name, "
            f"and {path or fn!r} cannot be imported so; use a function at the top of a module"
        )
