"""The near side of the pipe: spawned processes that run heavy handlers."""

import atexit
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from threading import Lock
from time import monotonic
from typing import Any
from weakref import WeakSet

import msgspec

from corral.core.job import Claim, Job
from corral.core.outcome import Completed, Dead, Outcome
from corral.errors import JobTimeout, ProcessDied
from corral.worker import child
from corral.worker.context import JobView
from corral.worker.registry import Handler
from corral.worker.remote import RemoteError, refusal

# spawned, never forked: a fork copies locks and connections that threads hold
_SPAWN = multiprocessing.get_context("spawn")
_starting = Lock()

Ask = Callable[[str, list[Any], Callable[[Any, BaseException | None], None]], None]
"""(verb, arguments, answered): have the Reporter say it, and hand its answer or its error to `answered`."""


class Child:
    """One process, running one job at a time."""

    def __init__(self) -> None:
        self._pipe, far = _SPAWN.Pipe()
        self._lock = Lock()
        self._tickets = 0
        self.process: SpawnProcess = _SPAWN.Process(
            target=child.main, args=(far, os.getpid()), name="corral-handler"
        )
        with _starting:
            self.process.start()
        far.close()

    def ticket(self) -> int:
        """A number for the next job, so that what is said about one is never heard by another."""
        self._tickets += 1
        return self._tickets

    def run(self, ticket: int, handler: Handler, job: Job, ask: Ask) -> Outcome | RemoteError:
        """The outcome, or the error the handler raised. Blocks; kills the child when time is up."""
        deadline = None if handler.timeout is None else monotonic() + handler.timeout
        fn = handler.fn
        try:
            self._say("run", ticket, fn.__module__, fn.__qualname__, msgspec.msgpack.encode(job))
            while True:
                self._await_frame(handler, deadline)
                match msgspec.msgpack.decode(self._pipe.recv_bytes()):
                    case ["returned", bytes(result)]:
                        return msgspec.msgpack.decode(result, type=Completed | Dead)
                    case ["raised", bytes(told)]:
                        return msgspec.msgpack.decode(told, type=RemoteError)
                    case ["ask", int(number), str(verb), list(arguments)]:
                        ask(verb, arguments, self._answerer(number))
        except (EOFError, OSError):
            raise self._died() from None

    def _await_frame(self, handler: Handler, deadline: float | None) -> None:
        left = None if deadline is None else max(deadline - monotonic(), 0)
        # what the child said before it died is still in the pipe, and a dead child's pipe is readable
        if not wait([self._pipe], left):
            self.kill()
            raise JobTimeout(f"{handler.name!r} took longer than {handler.timeout} s; its process was killed")

    def _answerer(self, number: int) -> Callable[[Any, BaseException | None], None]:
        def answered(value: Any, error: BaseException | None) -> None:
            try:
                if error is None:
                    self._say("answer", number, value)
                else:
                    self._say("refused", number, refusal(error))
            except OSError:
                return  # the child is gone, and whoever runs it has seen that too

        return answered

    def cancel(self, ticket: int) -> None:
        """Tell the handler of that job that it should end."""
        try:
            self._say("cancel", ticket)
        except OSError:
            return

    def _say(self, *frame: Any) -> None:
        packed = msgspec.msgpack.encode(frame)
        with self._lock:
            self._pipe.send_bytes(packed)

    def _died(self) -> ProcessDied:
        self.process.join(1)
        code = self.process.exitcode
        how = "went silent" if code is None else _how_it_ended(code)
        self.kill()
        return ProcessDied(f"the process that ran the handler {how}")

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()

    def bury(self) -> None:
        """Let go of a process that was killed or has died."""
        self.process.join(5)
        self._pipe.close()

    @property
    def is_ready(self) -> bool:
        """Does it live? An idle child says nothing, so a pipe with something to read has ended."""
        return self.process.is_alive() and not self._pipe.poll()


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


class ProcessView(JobView):
    """The parent's side of a job that runs in a child."""

    __slots__ = ("_child", "_is_killed", "_ticket")

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim)
        self._child: Child | None = None
        self._ticket = 0
        self._is_killed = False

    def attach(self, child: Child) -> int:
        """From here on the job runs there, under this number."""
        self._ticket = child.ticket()
        self._child = child
        if self._is_killed:
            child.kill()
        elif self.cancelled:
            child.cancel(self._ticket)
        return self._ticket

    def detach(self) -> None:
        """The child runs this job no more."""
        self._child = None

    def cancel(self) -> None:
        self.cancelled = True
        if (child := self._child) is not None:
            child.cancel(self._ticket)

    def kill(self) -> None:
        """End the child, now or as soon as there is one."""
        self._is_killed = True
        if (child := self._child) is not None:
            child.kill()


def answer_of(said: Future[Any]) -> tuple[Any, BaseException | None]:
    """What a Reporter's verb came to: (value, None) or (None, error)."""
    if said.cancelled():
        return None, ProcessDied("the worker is stopping")
    error = said.exception()
    return (said.result(), None) if error is None else (None, error)


class Children:
    """Processes to run handlers in, kept for the next job; as many as are busy at once.

    A child is started by the thread that needs it and Linux ties its life to that thread, so the
    threads must live as long as this does.
    """

    def __init__(self) -> None:
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._lock = Lock()
        self._closed = False
        _open.add(self)

    def take(self) -> Child:
        """A child that has nothing to do."""
        with self._lock:
            if self._closed:
                raise ProcessDied("the worker is stopping and starts no more processes")
            while self._idle:
                ready = self._idle.pop()
                if ready.is_ready:
                    self._busy.add(ready)
                    return ready
                ready.bury()
        fresh = Child()
        with self._lock:
            if not self._closed:
                self._busy.add(fresh)
                return fresh
        fresh.kill()
        raise ProcessDied("the worker is stopping and starts no more processes")

    def give_back(self, used: Child) -> None:
        """Keep the child for the next job, if it lives."""
        with self._lock:
            self._busy.discard(used)
            if not self._closed and used.is_ready:
                self._idle.append(used)
                return
        used.kill()
        used.bury()

    def close(self) -> None:
        """End every child."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for process in (*idle, *busy):
            process.kill()
        for process in idle:
            process.bury()


_open: WeakSet[Children] = WeakSet()


@atexit.register
def _close_all() -> None:
    # multiprocessing waits at exit for children that wait for us; this runs before it does
    for children in list(_open):
        children.close()
