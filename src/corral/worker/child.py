"""The far side of the pipe: a spawned process that runs handlers for its parent and holds no connection."""

import asyncio
import contextlib
import ctypes
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import msgspec

from corral.core.job import Claim, Job
from corral.core.retry import classify
from corral.errors import Unrecoverable
from corral.worker.context import BlockingJobContext, JobContext, JobView
from corral.worker.registry import is_async
from corral.worker.remote import describe, raised
from corral.worker.results import completed, trace_of

_PR_SET_PDEATHSIG = 1

Order = tuple[int, str, str, Job]
"""(ticket, module, name, job)"""


def main(pipe: Connection, parent: int) -> None:
    """Run one job after the other until the pipe closes."""
    _die_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        # a signal to the whole group is the parent's to answer; a function, not SIG_IGN, because that
        # would be inherited by whatever a handler starts
        signal.signal(number, lambda *_: None)
    line = Line(pipe)
    threading.Thread(target=line.listen, name="corral-pipe", daemon=True).start()
    with asyncio.Runner() as runner:
        while True:
            line.execute(line.next_job(), runner)


def _die_with(parent: int) -> None:
    """Ask Linux to kill this process with its parent; elsewhere the closed pipe says so."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


class Line:
    """This process's end of the pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Order] = SimpleQueue()
        self._answers: dict[int, Future[Any]] = {}
        self._numbers = count()
        self._current: JobView | None = None
        self._running = self._cancelled = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def listen(self) -> None:
        """Take in what the parent says, until it is gone; then end at once, whatever is running."""
        try:
            while True:
                self._take(msgspec.msgpack.decode(self._pipe.recv_bytes()))
        except (EOFError, OSError):
            os._exit(1)

    def _take(self, frame: list[Any]) -> None:
        match frame:
            case ["run", ticket, module, name, job]:
                self._jobs.put((ticket, module, name, msgspec.msgpack.decode(job, type=Job)))
            case ["cancel", ticket]:
                self._cancelled = ticket
                if ticket == self._running:
                    self._tell_cancelled()
            case ["answer", number, value]:
                self._answers.pop(number).set_result(value)
            case ["refused", number, told]:
                self._answers.pop(number).set_exception(raised(told))

    def _tell_cancelled(self) -> None:
        current = self._current
        if current is None:
            return
        current.cancelled = True
        if isinstance(current, JobContext) and self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(current.cancel)
        else:
            current.cancel()

    def say(self, *frame: Any) -> None:
        """Send one frame to the parent."""
        packed = msgspec.msgpack.encode(frame)
        with self._lock:
            self._pipe.send_bytes(packed)

    def ask(self, verb: str, *arguments: Any) -> "Future[Any]":
        """Ask the parent for a Reporter's verb; the answer comes later."""
        number = next(self._numbers)
        answer: Future[Any] = Future()
        self._answers[number] = answer
        self.say("ask", number, verb, list(arguments))
        return answer

    def next_job(self) -> Order:
        """Wait for work."""
        return self._jobs.get()

    def execute(self, order: Order, runner: asyncio.Runner) -> None:
        """Run one job and say how it ended."""
        self._running, module, name, job = order
        try:
            outcome = completed(job, self._call(find(module, name), Claim(job, None), runner))
        except BaseException as error:
            told = describe(error, trace_of(error), str(classify(error)))
            self.say("raised", msgspec.msgpack.encode(told))
        else:
            self.say("returned", msgspec.msgpack.encode(outcome))
        finally:
            self._current = None

    def _call(self, fn: Callable[[Any], Any], claim: Claim, runner: asyncio.Runner) -> Any:
        if not is_async(fn):
            self._begin(BlockingJobContext(claim, lambda verb, *words: self.ask(verb, *words).result()))
            return fn(self._current)
        self._loop = runner.get_loop()
        self._begin(JobContext(claim, PipeReporter(self)))
        return runner.run(fn(self._current))

    def _begin(self, context: JobView) -> None:
        self._current = context
        if self._cancelled == self._running:
            context.cancel()


class PipeReporter:
    """A Reporter whose words go to the parent."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def progress(self, claim: Claim, value: Any) -> None:
        await asyncio.wrap_future(self._line.ask("progress", value))

    async def log(self, claim: Claim, line: str) -> int:
        count: int = await asyncio.wrap_future(self._line.ask("log", line))
        return count

    async def emit(self, claim: Claim, step: str, data: Any) -> None:
        await asyncio.wrap_future(self._line.ask("emit", step, data))

    async def beat(self, stopping: bool = False) -> None:
        """The parent beats; a child has nothing to add."""


def find(module: str, name: str) -> Callable[[Any], Any]:
    """The handler at `module:name`, without the wrapping a decorator left around it."""
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise Unrecoverable(
            f"the handler {module}:{name} is not found in the process that should run it ({error}); "
            f"keep it at the top of a module that can be imported"
        ) from error
    fn: Callable[[Any], Any] = inspect.unwrap(found)
    return fn
