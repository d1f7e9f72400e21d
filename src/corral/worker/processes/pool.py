"""ProcessPool: spawned processes that run handlers, and the parent's side of their pipes."""

import atexit
import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from threading import Lock
from time import monotonic
from typing import Any
from weakref import WeakSet

import msgspec

from corral.core.job import Claim, Job
from corral.core.outcome import Completed, Dead
from corral.errors import JobTimeout, ProcessDied
from corral.telemetry.logs import configuration
from corral.worker.context import BaseJobContext, ClaimReporter, WorkerScope
from corral.worker.handlers import Handler
from corral.worker.processes import child
from corral.worker.processes.errors import RemoteError, describe

# spawned, never forked: a fork copies locks and connections that threads hold
_SPAWN = multiprocessing.get_context("spawn")
_starting = Lock()

ProcessResult = list[Completed | Dead | RemoteError] | RemoteError
"""The outcome of each job of a call, or the error of all."""
START_S = 300.0
"""How long a process may take to import a handler that has a timeout."""


class HandlerProcess:
    """One process, running one job or one batch at a time."""

    def __init__(self) -> None:
        self._pipe, child_pipe = _SPAWN.Pipe()
        self._lock = Lock()
        self._tickets = 0
        self._is_killed = False
        self.has_begun = False
        """Whether the handler of the last job has begun."""
        self.process: SpawnProcess = _SPAWN.Process(
            target=child.main, args=(child_pipe, os.getpid(), configuration()), name="corral-handler"
        )
        with _starting:
            self.process.start()
        child_pipe.close()

    def ticket(self) -> int:
        """Return a number for the next call, so that a message about one never reaches another."""
        self._tickets += 1
        return self._tickets

    def run(
        self, ticket: int, handler: Handler, jobs: Sequence[Job], reporters: Sequence[ClaimReporter]
    ) -> ProcessResult:
        """Return the outcome of each job, or what the handler raised; after its timeout, kill the process."""
        timeout, fn = handler.timeout, handler.fn
        # the handler's own time begins with its first line, not with the interpreter's start
        deadline = None if timeout is None else monotonic() + START_S
        self.has_begun = False
        try:
            packed, is_batch = msgspec.msgpack.encode(jobs), handler.batch is not None
            self._send("run", ticket, fn.__module__, fn.__qualname__, packed, is_batch)
            while True:
                self._wait_for_message(handler, deadline)
                match msgspec.msgpack.decode(self._pipe.recv_bytes()):
                    case ["begun"]:
                        self.has_begun = True
                        deadline = None if timeout is None else monotonic() + timeout
                    case ["returned", bytes(outcomes)]:
                        return msgspec.msgpack.decode(outcomes, type=list[Completed | Dead | RemoteError])
                    case ["raised", bytes(error)]:
                        return msgspec.msgpack.decode(error, type=RemoteError)
                    case ["progress", int(number), int(position), value]:
                        self._reply_to(number, reporters[position].progress(value))
                    case ["log", int(number), int(position), str(line)]:
                        self._reply_to(number, reporters[position].log(line))
                    case ["emit", int(number), int(position), str(step), data]:
                        self._reply_to(number, reporters[position].emit(step, data))
                    case ["children", int(number), int(position), queue, name]:
                        self._reply_to(number, reporters[position].children_results(queue, name))
        except (EOFError, OSError):
            raise self._died() from None

    def _wait_for_message(self, handler: Handler, deadline: float | None) -> None:
        remaining = None if deadline is None else max(deadline - monotonic(), 0)
        # what the child sent before it died is still in the pipe, and a dead child's pipe is readable
        if not wait([self._pipe], remaining):
            self.kill()
            if not self.has_begun:
                raise JobTimeout(f"the process of {handler.name!r} took longer than {START_S} s to start")
            raise JobTimeout(f"{handler.name!r} took longer than {handler.timeout} s; its process was killed")

    def _reply_to(self, number: int, future: "Future[Any]") -> None:
        future.add_done_callback(lambda done: self._reply(number, done))

    def _reply(self, number: int, done: "Future[Any]") -> None:
        error = ProcessDied("the worker is stopping") if done.cancelled() else done.exception()
        try:
            if error is None:
                self._send("reply", number, done.result())
            else:
                self._send("error", number, msgspec.msgpack.encode(describe(error)))
        except OSError:
            return  # the child is gone, which the thread that runs it sees too

    def cancel(self, ticket: int, position: int) -> None:
        """Tell the handler of that call that its job at that position should end."""
        self._tell("cancel", ticket, position)

    def begin_stop(self) -> None:
        """Tell the handlers that the worker stops."""
        self._tell("stop")

    def _tell(self, *message: Any) -> None:
        try:
            self._send(*message)
        except OSError:
            return  # the child is gone, which the thread that runs it sees too

    def _send(self, *message: Any) -> None:
        packed = msgspec.msgpack.encode(message)
        with self._lock:
            self._pipe.send_bytes(packed)

    def _died(self) -> ProcessDied:
        self.process.join(1)
        code = self.process.exitcode
        cause = "stopped responding" if code is None else _exit_cause(code)
        self.kill()
        return ProcessDied(f"the process that ran the handler {cause}")

    def kill(self) -> None:
        """End the process at once; it runs no other job."""
        self._is_killed = True
        self.process.kill()

    def join(self) -> None:
        """Wait for a process that was killed or has died, and close its pipe."""
        self.process.join(5)
        self._pipe.close()

    @property
    def is_ready(self) -> bool:
        """Whether it is alive; an idle child sends nothing, so a readable pipe has been closed."""
        return not self._is_killed and self.process.is_alive() and not self._pipe.poll()


def _exit_cause(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


class ProcessJobContext(BaseJobContext):
    """The parent's side of a job that runs in a process."""

    __slots__ = ("_position", "_process", "_ticket", "is_killed")

    def __init__(self, claim: Claim, scope: WorkerScope) -> None:
        super().__init__(claim, scope)
        self._process: HandlerProcess | None = None
        self._ticket = self._position = 0
        self.is_killed = False

    def attach(self, process: HandlerProcess, ticket: int, position: int) -> None:
        """Set the process that runs the job, in the call of that number, and the job's position in it."""
        self._ticket, self._position = ticket, position
        self._process = process
        if self.is_killed:
            process.kill()
        elif self.cancelled:
            process.cancel(ticket, position)

    def detach(self) -> None:
        """Forget the process."""
        self._process = None

    def cancel(self) -> None:
        self.cancelled = True
        if (process := self._process) is not None:
            process.cancel(self._ticket, self._position)

    def kill(self) -> None:
        """End the process, now or as soon as there is one."""
        self.is_killed = True
        if (process := self._process) is not None:
            process.kill()


class ProcessPool:
    """Processes to run handlers in, kept for the next job; as many as are busy at once.

    A process is started by the thread that needs it and Linux ties its life to that thread, so the
    threads must live as long as the pool.
    """

    def __init__(self) -> None:
        self._idle: list[HandlerProcess] = []
        self._busy: set[HandlerProcess] = set()
        self._lock = Lock()
        self._is_stopping = self._is_closed = False
        _open_pools.add(self)

    def take(self) -> HandlerProcess:
        """Return an idle process, or a new one."""
        with self._lock:
            if self._is_closed:
                raise ProcessDied("the worker is stopping and starts no more processes")
            while self._idle:
                process = self._idle.pop()
                if process.is_ready:
                    self._busy.add(process)
                    return process
                process.kill()
                process.join()
        process = HandlerProcess()
        with self._lock:
            if not self._is_closed:
                self._busy.add(process)
                if self._is_stopping:
                    process.begin_stop()
                return process
        process.kill()
        raise ProcessDied("the worker is stopping and starts no more processes")

    def put_back(self, process: HandlerProcess) -> None:
        """Keep the process for the next job, if it is alive."""
        with self._lock:
            self._busy.discard(process)
            if not self._is_closed and process.is_ready:
                self._idle.append(process)
                return
        process.kill()
        process.join()

    def begin_stop(self) -> None:
        """Tell every process that the worker stops."""
        with self._lock:
            self._is_stopping = True
            for process in (*self._idle, *self._busy):
                process.begin_stop()

    def close(self) -> None:
        """End every process."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for process in (*idle, *busy):
            process.kill()
        for process in idle:
            process.join()


_open_pools: WeakSet[ProcessPool] = WeakSet()


@atexit.register
def _close_all() -> None:
    # multiprocessing waits at exit for children that wait for us; this runs before it does
    for pool in list(_open_pools):
        pool.close()
