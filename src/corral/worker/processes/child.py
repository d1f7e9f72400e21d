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
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from itertools import count
from multiprocessing.connection import Connection
from operator import attrgetter
from queue import SimpleQueue
from typing import Any, NamedTuple

import msgspec

from corral.core.job import Claim, Job
from corral.core.outcome import Outcome
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
    """Jobs to run in one call, and where their handler is."""

    ticket: int
    module: str
    name: str
    jobs: list[Job]
    is_batch: bool
    """Whether the handler takes a list."""


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
        self._orders: SimpleQueue[Order | list[str]] = SimpleQueue()
        """What to do next: a job, or modules to import before there is one."""
        self._replies: dict[int, Future[Any]] = {}
        self._numbers = count()
        self._contexts: Sequence[BaseJobContext] = ()
        self._running = 0
        self._cancelled: set[tuple[int, int]] = set()
        """Ticket and position of the jobs that were cancelled."""
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
            case ["run", ticket, module, name, jobs, is_batch]:
                decoded = msgspec.msgpack.decode(jobs, type=list[Job])
                self._orders.put(Order(ticket, module, name, decoded, is_batch))
            case ["prepare", modules]:
                self._orders.put(modules)
            case ["cancel", ticket, position]:
                self._cancelled.add((ticket, position))
                if ticket == self._running and self._contexts:
                    self._cancel(self._contexts[position])
            case ["stop"]:
                self._stop.set(self._loop)
            case ["reply", number, value]:
                self._replies.pop(number).set_result(value)
            case ["error", number, error]:
                remote = msgspec.msgpack.decode(error, type=RemoteError)
                self._replies.pop(number).set_exception(rebuild(remote))

    def _cancel(self, context: BaseJobContext) -> None:
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

    def request(self, verb: str, position: int, *arguments: Any) -> "Future[Any]":
        """Ask the parent to report something about the job at that position."""
        number = next(self._numbers)
        reply = self._replies[number] = Future[Any]()
        self._send(verb, number, position, *arguments)
        return reply

    def execute(self, runner: asyncio.Runner) -> None:
        """Wait for jobs, run them in one call, and send the outcome or error of each, or of the call.

        What is to be imported before there is a job comes the same way.
        """
        order = self._orders.get()
        if isinstance(order, list):
            for module in order:
                with contextlib.suppress(Exception, SystemExit):  # the job that needs it tells
                    importlib.import_module(module)
            return
        self._running = order.ticket
        job_token = None if order.is_batch else logs.current_job.set(order.jobs[0])
        try:
            found = find(order.module, order.name, order.is_batch)
            result = self._call(found, order, runner)
            values = result if order.is_batch else [result]
            outcomes = [_outcome(job, value) for job, value in zip(order.jobs, values, strict=True)]
        except BaseException as error:
            self._send("raised", msgspec.msgpack.encode(_described(error)))
        else:
            self._send("returned", msgspec.msgpack.encode(outcomes))
        finally:
            if job_token is not None:
                logs.current_job.reset(job_token)
            self._contexts = ()
            self._cancelled = {each for each in self._cancelled if each[0] > order.ticket}

    def _call(self, found: "FoundHandler", order: Order, runner: asyncio.Runner) -> Any:
        scope = self._stop
        if found.owner is not None:
            scope.resources = self._resources(found.owner, runner)
        contexts: list[BaseJobContext] = []
        for position, job in enumerate(order.jobs):
            claim, reporter = Claim(job, None), PositionReporter(self, position)
            if found.has_async_context:
                contexts.append(JobContext(claim, scope, PipeReporter(reporter)))
            else:
                contexts.append(SyncJobContext(claim, scope, reporter))
        self._begin(contexts)
        result = found.fn(contexts if order.is_batch else contexts[0])
        return runner.run(result, context=contextvars.copy_context()) if found.is_awaited else result

    def _resources(self, owner: HandlerFunction, runner: asyncio.Runner) -> Any:
        """Return the resources of the handler's app, opened by its first job; they end with this process."""
        if owner.app not in self._opened:
            lifespan = owner.open_resources()

            async def enter() -> Any:
                return await lifespan.__aenter__()

            self._opened[owner.app] = lifespan, runner.run(enter())
        return self._opened[owner.app][1]

    def _begin(self, contexts: Sequence[BaseJobContext]) -> None:
        self._send("begun")
        self._contexts = contexts
        for ticket, position in list(self._cancelled):
            if ticket == self._running:
                contexts[position].cancel()


def _outcome(job: Job, value: Any) -> Outcome | RemoteError:
    return _described(value) if isinstance(value, BaseException) else completed(job, value)


def _described(error: BaseException) -> RemoteError:
    return describe(error, trace_of(error), TABLE.known(error))


class PositionReporter:
    """Sends to the parent what is reported about the job at one position."""

    def __init__(self, pipe: ParentPipe, position: int) -> None:
        self._pipe = pipe
        self._position = position

    def progress(self, value: Any) -> "Future[None]":
        return self._pipe.request("progress", self._position, value)

    def log(self, line: str) -> "Future[int]":
        return self._pipe.request("log", self._position, line)

    def emit(self, step: str, data: Any) -> "Future[None]":
        return self._pipe.request("emit", self._position, step, data)

    def children_results(self, queue: str | None, name: str | None) -> "Future[list[Any]]":
        return self._pipe.request("children", self._position, queue, name)


class PipeReporter:
    """A Reporter that sends to the parent."""

    def __init__(self, pipe: PositionReporter) -> None:
        self._pipe = pipe

    async def progress(self, claim: Claim, value: Any) -> None:
        await asyncio.wrap_future(self._pipe.progress(value))

    async def log(self, claim: Claim, line: str, mark: str = "") -> int:
        return await asyncio.wrap_future(self._pipe.log(line))

    async def emit(self, claim: Claim, step: str, data: Any, mark: str = "") -> None:
        await asyncio.wrap_future(self._pipe.emit(step, data))

    async def children_results(
        self, claim: Claim, queue: str | None = None, name: str | None = None
    ) -> list[Any]:
        return await asyncio.wrap_future(self._pipe.children_results(queue, name))

    async def beat(self, stopping: bool = False) -> None:
        """Do nothing: the parent sends heartbeats."""


class FoundHandler(NamedTuple):
    """A handler as this process calls it."""

    fn: Callable[[Any], Any]
    has_async_context: bool
    is_awaited: bool
    owner: HandlerFunction | None = None


def find(module: str, name: str, is_batch: bool = False) -> FoundHandler:
    """Return the handler at `module:name`, as it is called with a context, or with a list of them."""
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
    run = with_arguments(fn, signature_of(fn, name, is_batch=is_batch))
    return FoundHandler(run, is_coroutine, is_coroutine)
