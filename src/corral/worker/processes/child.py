"""The program of a spawned process: runs handlers for its parent over a pipe, without connections."""

import asyncio
import contextlib
import contextvars
import ctypes
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from itertools import count
from multiprocessing.connection import Connection
from operator import attrgetter
from queue import SimpleQueue
from typing import Any, NamedTuple

import msgspec

from corral.core.job import Claim, Job
from corral.core.retry import classifier
from corral.errors import Unrecoverable
from corral.telemetry import logs
from corral.worker.context import BaseJobContext, JobContext, SyncJobContext, WorkerScope
from corral.worker.handlers import HandlerFunction, signature_of, with_arguments
from corral.worker.middleware import is_async
from corral.worker.processes.errors import RemoteError, describe, rebuild
from corral.worker.settling import completed, trace_of

_PR_SET_PDEATHSIG = 1
TABLE = classifier()
"""The kinds of known errors, without rules of an app."""


class Order(NamedTuple):
    """A job to run, and where its handler is."""

    ticket: int
    module: str
    name: str
    job: Job


def main(pipe: Connection, parent: int, log_configuration: tuple[str, bool] | None) -> None:
    """Run one job after the other until the pipe closes."""
    _die_with(parent)
    if log_configuration is not None:
        logs.configure(*log_configuration)
    for number in (signal.SIGINT, signal.SIGTERM):
        # a signal to the whole group is for the parent to handle; a function, not SIG_IGN, because that
        # would be inherited by processes a handler starts
        signal.signal(number, lambda *_: None)
    with asyncio.Runner() as runner:
        parent_pipe = ParentPipe(pipe, runner.get_loop())
        threading.Thread(target=parent_pipe.listen, name="corral-pipe", daemon=True).start()
        while True:
            parent_pipe.execute(runner)


def _die_with(parent: int) -> None:
    """Have Linux kill this process with its parent; elsewhere the closed pipe ends it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


class ParentPipe:
    """This process's end of the pipe, and the reporter of the job that runs."""

    def __init__(self, pipe: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._pipe = pipe
        self._loop = loop
        self._lock = threading.Lock()
        self._orders: SimpleQueue[Order] = SimpleQueue()
        self._replies: dict[int, Future[Any]] = {}
        self._numbers = count()
        self._context: BaseJobContext | None = None
        self._running = self._cancelled = 0
        self._stop = WorkerScope()
        self._opened: dict[object, tuple[AbstractAsyncContextManager[Any], Any]] = {}

    def listen(self) -> None:
        """Receive the parent's messages until it is gone; then end at once, even while a job runs."""
        try:
            while True:
                self._receive(msgspec.msgpack.decode(self._pipe.recv_bytes()))
        except (EOFError, OSError):
            os._exit(1)

    def _receive(self, message: list[Any]) -> None:
        match message:
            case ["run", ticket, module, name, job]:
                self._orders.put(Order(ticket, module, name, msgspec.msgpack.decode(job, type=Job)))
            case ["cancel", ticket]:
                self._cancelled = ticket
                if ticket == self._running:
                    self._cancel()
            case ["stop"]:
                self._stop.set(self._loop)
            case ["reply", number, value]:
                self._replies.pop(number).set_result(value)
            case ["error", number, error]:
                remote = msgspec.msgpack.decode(error, type=RemoteError)
                self._replies.pop(number).set_exception(rebuild(remote))

    def _cancel(self) -> None:
        context = self._context
        if context is None:
            return
        context.cancelled = True
        if isinstance(context, JobContext):
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(context.cancel)
        else:
            context.cancel()

    def _send(self, *message: Any) -> None:
        packed = msgspec.msgpack.encode(message)
        with self._lock:
            self._pipe.send_bytes(packed)

    def _request(self, verb: str, *arguments: Any) -> "Future[Any]":
        number = next(self._numbers)
        reply = self._replies[number] = Future[Any]()
        self._send(verb, number, *arguments)
        return reply

    def progress(self, value: Any) -> "Future[None]":
        return self._request("progress", value)

    def log(self, line: str) -> "Future[int]":
        return self._request("log", line)

    def emit(self, step: str, data: Any) -> "Future[None]":
        return self._request("emit", step, data)

    def execute(self, runner: asyncio.Runner) -> None:
        """Wait for a job, run it, and send its outcome or error."""
        order = self._orders.get()
        self._running = order.ticket
        logs.current_job.set(order.job)
        try:
            found = find(order.module, order.name)
            outcome = completed(order.job, self._call(found, order.job, runner))
        except BaseException as error:
            remote = describe(error, trace_of(error), TABLE.known(error))
            self._send("raised", msgspec.msgpack.encode(remote))
        else:
            self._send("returned", msgspec.msgpack.encode(outcome))
        finally:
            self._context = None

    def _call(self, found: "FoundHandler", job: Job, runner: asyncio.Runner) -> Any:
        claim, scope = Claim(job, None), self._stop
        if found.owner is not None:
            scope.resources = self._resources(found.owner, runner)
        if found.has_async_context:
            self._begin(JobContext(claim, scope, PipeReporter(self)))
        else:
            self._begin(SyncJobContext(claim, scope, self))
        result = found.fn(self._context)
        return runner.run(result, context=contextvars.copy_context()) if found.is_awaited else result

    def _resources(self, owner: HandlerFunction, runner: asyncio.Runner) -> Any:
        """Return the resources of the handler's app, opened by its first job; they end with this process."""
        if owner.app not in self._opened:
            lifespan = owner.open_resources()

            async def enter() -> Any:
                return await lifespan.__aenter__()

            self._opened[owner.app] = lifespan, runner.run(enter())
        return self._opened[owner.app][1]

    def _begin(self, context: BaseJobContext) -> None:
        self._send("begun")
        self._context = context
        if self._cancelled == self._running:
            context.cancel()


class PipeReporter:
    """A Reporter that sends to the parent."""

    def __init__(self, pipe: ParentPipe) -> None:
        self._pipe = pipe

    async def progress(self, claim: Claim, value: Any) -> None:
        await asyncio.wrap_future(self._pipe.progress(value))

    async def log(self, claim: Claim, line: str) -> int:
        return await asyncio.wrap_future(self._pipe.log(line))

    async def emit(self, claim: Claim, step: str, data: Any) -> None:
        await asyncio.wrap_future(self._pipe.emit(step, data))

    async def beat(self, stopping: bool = False) -> None:
        """Do nothing: the parent sends heartbeats."""


class FoundHandler(NamedTuple):
    """A handler as this process calls it."""

    fn: Callable[[Any], Any]
    has_async_context: bool
    is_awaited: bool
    owner: HandlerFunction | None = None


def find(module: str, name: str) -> FoundHandler:
    """Return the handler at `module:name`, as it is called with a context."""
    try:
        wrapped = attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise Unrecoverable(
            f"the handler {module}:{name} is not found in the process that should run it ({error}); "
            f"keep it at the top of a module that can be imported"
        ) from error
    if isinstance(wrapped, HandlerFunction):
        fn, is_awaited = wrapped.in_process()
        return FoundHandler(fn, wrapped.handler.is_async, is_awaited, wrapped)
    fn = inspect.unwrap(wrapped)
    is_coroutine = is_async(fn)
    return FoundHandler(with_arguments(fn, signature_of(fn, name)), is_coroutine, is_coroutine)
