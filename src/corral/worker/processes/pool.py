"""ProcessPool: spawned processes that run handlers, and the parent's side of their pipes."""

import atexit
import multiprocessing
import os
import signal
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from threading import Condition, Lock, Thread
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

    def prepare(self, modules: Sequence[str]) -> None:
        """Have it import these modules before its first job."""
        self._send("prepare", modules)

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
    """Processes to run handlers in, kept for the next job; at most `most`, also where workers share them.

    Linux ties the life of a process to the thread that has started it, so a thread of the pool's own does.
    """

    def __init__(self, most: int | None = None) -> None:
        self.is_lazy = False
        """Whether processes are started only when they are needed."""
        self._most = most or os.cpu_count() or 1
        self._changed = Condition()
        self._idle: list[HandlerProcess] = []
        self._busy: set[HandlerProcess] = set()
        self._starting = 0
        """Processes that the starter was told to start."""
        self._taking = 0
        """Threads that wait for a process."""
        self._ready = 0
        """How many are started before they are needed."""
        self._modules: set[str] = set()
        self._failure: BaseException | None = None
        self._starter: Thread | None = None
        self._users = 0
        self._is_stopping = self._is_closed = False
        _open_pools.add(self)

    def enter(self, modules: Iterable[str], concurrency: int) -> None:
        """Count a worker that uses the pool; processes are started now that have imported these modules."""
        with self._changed:
            self._users += 1
            self._modules |= {*modules} - {"__main__"}
            if modules and not self.is_lazy:
                self._ready = min(self._ready + concurrency, self._most)
            self._start_missing()

    def take(self) -> HandlerProcess:
        """Return an idle process; wait where all are busy."""
        with self._changed:
            self._taking += 1
            try:
                while not self._is_closed:
                    process = self._pop_idle()
                    if process is not None:
                        self._busy.add(process)
                        return process
                    self._start_missing()
                    if self._failure is not None:
                        failure, self._failure = self._failure, None
                        raise failure
                    self._changed.wait()
            finally:
                self._taking -= 1
        raise ProcessDied("the worker is stopping and starts no more processes")

    def _pop_idle(self) -> HandlerProcess | None:
        while self._idle:
            process = self._idle.pop()
            if process.is_ready:
                return process
            process.kill()
            process.join()
        return None

    def _start_missing(self) -> None:
        wanted = max(self._ready - len(self._idle) - len(self._busy), self._taking)
        free = self._most - len(self._idle) - len(self._busy)
        missing = min(wanted, free) - self._starting
        if missing <= 0 or self._is_closed:
            return
        self._starting += missing
        if self._starter is None:
            self._starter = Thread(target=self._start_processes, name="corral-starter", daemon=True)
            self._starter.start()
        self._changed.notify_all()

    def _start_processes(self) -> None:
        """Start what is wanted until the pool is closed; in a thread of its own."""
        while True:
            with self._changed:
                while not self._starting and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return
            process, failure = None, None
            try:
                process = HandlerProcess()
                process.prepare(sorted(self._modules))
            except BaseException as error:
                failure = error
            with self._changed:
                self._starting -= 1
                self._failure = failure if self._taking else None
                if process is not None and failure is None and not self._is_closed:
                    if self._is_stopping:
                        process.begin_stop()
                    self._idle.append(process)
                elif process is not None:
                    process.kill()
                self._changed.notify_all()

    def put_back(self, process: HandlerProcess) -> None:
        """Keep the process for the next job, if it is alive; else another takes its place."""
        with self._changed:
            self._busy.discard(process)
            is_kept = not self._is_closed and process.is_ready
            if is_kept:
                self._idle.append(process)
            elif not self._is_stopping:
                self._start_missing()
            self._changed.notify_all()
        if not is_kept:
            process.kill()
            process.join()

    def begin_stop(self) -> None:
        """Tell every process that the worker stops."""
        with self._changed:
            self._is_stopping = True
            for process in (*self._idle, *self._busy):
                process.begin_stop()

    def leave(self) -> None:
        """End every process with the last worker that uses them."""
        self._users -= 1
        if self._users <= 0:
            self.close()

    def close(self) -> None:
        """End every process."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
            self._changed.notify_all()
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
