"""Handlers by job name."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import update_wrapper
from math import isfinite
from typing import Any

from corral.core.batch_signature import BatchSignature, read_batch_signature
from corral.core.conversion import Conversion
from corral.core.outcome import RetryPolicy
from corral.core.ports import Limit
from corral.core.signature import AnySignature, DataStyle, read_signature
from corral.errors import InvalidOptions
from corral.worker.context import JobContext, SyncJobContext
from corral.worker.middleware import (
    Middleware,
    SyncMiddleware,
    around,
    around_batch,
    around_in_process,
    is_async,
)

ANY_NAME = "*"
CONTEXTS: dict[type, bool] = {JobContext: True, SyncJobContext: False}
"""The contexts of handlers; True: of async ones."""
LARGEST_BATCH = 10_000
LONGEST_LIMIT = 2**31 - 1
DEFAULT_LINGER_S = 0.020


class HandlerKind(StrEnum):
    """Where a handler runs."""

    ASYNC = "async"
    """On the worker's event loop."""
    SYNC = "sync"
    """In a thread."""
    PROCESS = "process"
    """In a spawned process."""


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How many jobs a handler takes at a time, and how long the first of them waits for the others."""

    most: int
    linger: float = DEFAULT_LINGER_S
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that runs jobs, and how it is run."""

    name: str
    fn: Callable[[Any], Any]
    """Called with the context of a job."""
    kind: HandlerKind
    is_async: bool = False
    """Whether calling it gives a coroutine."""
    policy: RetryPolicy | None = None
    """How its failures become outcomes; None: as the worker's."""
    timeout: float | None = None
    """Seconds one attempt may take; None: no limit.

    After that an async handler is cancelled and a process killed. A thread can be neither: its job is
    settled as timed out at once and may be tried again, `job.cancelled` is set, what it returns later is
    dropped, and its slot stays taken until it returns.
    """
    schema: Any = None
    """The JSON schema of the data of its jobs; None: any data."""
    batch: BatchSize | None = None
    """Called with a list of contexts instead of one, and returns a list of results or exceptions."""
    concurrency: int | None = None
    """How many of it may run at a time in a worker; None: as many as the worker has slots."""
    limit: Limit | None = None
    """How many of its jobs may begin in a time, in all workers of the queue together."""

    @property
    def is_ruled(self) -> bool:
        """Whether a worker needs to decide when its jobs begin."""
        return self.batch is not None or self.concurrency is not None or self.limit is not None


class HandlerFunction(ABC):
    """A function that a decorator made a handler; a spawned process finds it by its module and name."""

    handler: Handler

    @property
    @abstractmethod
    def app(self) -> object:
        """The app, whose handlers share their resources."""

    @abstractmethod
    def in_process(self) -> tuple[Callable[[Any], Any], bool]:
        """Return what a spawned process calls with the context, and whether that is awaited."""

    @abstractmethod
    def open_resources(self) -> AbstractAsyncContextManager[Any]:
        """Return what opens the resources of the handler's app."""


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
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        run: Callable[[Any], Any] | None = None,
        policy: RetryPolicy | None = None,
        timeout: float | None = None,
        process: bool = False,
        schema: Any = None,
        batch: BatchSize | None = None,
        concurrency: int | None = None,
        limit: Limit | None = None,
    ) -> Handler:
        """Let `fn` run the jobs called `name`; where it takes more than the context, `run` calls it."""
        if not callable(fn):
            raise InvalidOptions(f"the handler of {name!r} is {fn!r}, which is no function")
        if name in self._handlers:
            raise InvalidOptions(f"job name {name!r} has a handler already; give each name one handler")
        if timeout is not None and not (isfinite(timeout) and timeout > 0):
            raise InvalidOptions(f"timeout={timeout!r} of {name!r}: give seconds above 0, or None")
        check_rules(batch, concurrency, limit)
        if process:
            _check_importable(name, fn)
        awaited = is_async(fn)
        kind = HandlerKind.ASYNC if awaited else HandlerKind.SYNC
        where = HandlerKind.PROCESS if process else kind
        handler = Handler(name, run or fn, where, awaited, policy, timeout, schema, batch, concurrency, limit)
        self._handlers[name] = handler
        if name == ANY_NAME:
            self._default = handler
        return handler

    def find(self, name: str) -> Handler | None:
        """Return the handler for jobs called `name`, if there is one."""
        return self._handlers.get(name, self._default)

    def schemas(self) -> dict[str, Any]:
        """Return the names that have a handler, each with the JSON schema of its jobs' data."""
        return {name: self._handlers[name].schema for name in self.names}

    def replaced(self, change: Callable[[Handler], Handler]) -> "HandlerRegistry":
        """Return a registry with another handler for each."""
        registry = HandlerRegistry()
        registry._handlers = {name: change(handler) for name, handler in self._handlers.items()}
        registry._default = registry._handlers.get(ANY_NAME)
        return registry

    @property
    def all(self) -> list[Handler]:
        """Every handler."""
        return list(self._handlers.values())

    @property
    def names(self) -> list[str]:
        """The names that have a handler, sorted."""
        return sorted(self._handlers)


def signature_of(
    fn: Callable[..., Any], name: str, style: DataStyle = "fields", *, is_batch: bool = False
) -> AnySignature | BatchSignature:
    """Return how a function takes the data of jobs called `name`."""
    if is_batch:
        return read_batch_signature(fn, name, CONTEXTS, is_async(fn))
    return read_signature(fn, name, CONTEXTS, is_async(fn), style)


def with_arguments(
    fn: Callable[..., Any],
    signature: AnySignature | BatchSignature,
    middleware: Sequence[Middleware | SyncMiddleware] = (),
    *,
    in_process: bool = False,
) -> Callable[[Any], Any]:
    """Return a function of the context alone: it calls `fn` with its arguments and encodes its result.

    The middleware is between the two, so that it sees the result itself. A handler of batches is called with
    a list of contexts.
    """
    if isinstance(signature, BatchSignature):
        return update_wrapper(_with_batch(fn, signature, middleware, in_process), fn)
    run, is_awaited = signature.runner(fn), is_async(fn)
    if middleware:
        run = (around_in_process if in_process else around)(run, middleware, is_awaited)
        is_awaited = is_awaited or in_process
    if signature.result is not None and not signature.result.is_plain:
        encode = _encode_awaited if is_awaited else _encode_returned
        run = encode(run, signature.result)
    # a spawned process looks for it by module and name
    return run if run is fn else update_wrapper(run, fn)


def _with_batch(
    fn: Callable[..., Any],
    signature: BatchSignature,
    middleware: Sequence[Middleware | SyncMiddleware],
    in_process: bool,
) -> Callable[[Any], Any]:
    is_awaited = is_async(fn)
    run = signature.async_runner(fn) if is_awaited else signature.runner(fn)
    if middleware:
        run = around_batch(run, middleware, is_awaited, in_process)
        is_awaited = is_awaited or in_process

    async def encoded_awaited(contexts: Sequence[Any]) -> Any:
        return signature.encode(await run(contexts))

    return encoded_awaited if is_awaited else lambda contexts: signature.encode(run(contexts))


def _encode_awaited(run: Callable[[Any], Any], result: Conversion) -> Callable[[Any], Any]:
    encode = result.encode

    async def encoded(context: Any) -> Any:
        return encode(await run(context))

    return encoded


def _encode_returned(run: Callable[[Any], Any], result: Conversion) -> Callable[[Any], Any]:
    return lambda context: result.encode(run(context))


def check_rules(batch: BatchSize | None, concurrency: int | None, limit: Limit | None) -> None:
    """Refuse rules that cannot be kept."""
    if batch is not None:
        _check_whole(f"batch={batch.most!r}", batch.most, LARGEST_BATCH)
        is_number = isinstance(batch.linger, int | float) and not isinstance(batch.linger, bool)
        if not is_number or not (isfinite(batch.linger) and batch.linger >= 0):
            raise InvalidOptions(f"linger={batch.linger!r}: give seconds from 0, or a timedelta")
    if concurrency is not None:
        _check_whole(f"concurrency={concurrency!r}", concurrency, LARGEST_BATCH)
    if limit is not None:
        if not isinstance(limit, Limit):
            raise InvalidOptions(f"limit={limit!r}: give a Limit(count, milliseconds)")
        _check_whole(f"limit={limit!r}: its count", limit.count, LONGEST_LIMIT)
        _check_whole(f"limit={limit!r}: its duration", limit.duration, LONGEST_LIMIT)


def _check_whole(what: str, value: Any, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidOptions(f"{what} is no whole number from 1 to {most}")


def _check_importable(name: str, fn: Callable[..., Any]) -> None:
    path: str | None = getattr(fn, "__qualname__", None)
    if path is None or "<" in path or not getattr(fn, "__module__", None):
        raise InvalidOptions(
            f"the handler of {name!r} is to run in a process, which imports it by its module and name, "
            f"and {path or fn!r} cannot be imported so; use a function at the top of a module"
        )
