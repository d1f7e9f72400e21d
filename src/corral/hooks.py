"""Hooks: what an app puts around its jobs: resources, middleware, layers around adding, listeners."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from corral.core.job import Job
from corral.core.ports import Added
from corral.errors import InvalidOptions
from corral.worker import Listener
from corral.worker.middleware import Middleware, SyncMiddleware, is_async

if TYPE_CHECKING:
    from corral.queue import Queue

Submit = Callable[[Sequence[Job]], Awaitable[Sequence[Added]]]
"""Adds jobs; returns what was added for each."""


@dataclass(frozen=True)
class AddNext:
    """Adds jobs to `queue`, through the next layer or at last itself; returns what was added for each."""

    queue: "Queue"
    submit: Submit

    async def __call__(self, jobs: Sequence[Job]) -> Sequence[Added]:
        return await self.submit(jobs)


OnAdd = Callable[[Sequence[Job], AddNext], Awaitable[Sequence[Added]]]
"""(jobs, call_next) -> what was added for each."""
M = TypeVar("M", bound=Middleware | SyncMiddleware)
A = TypeVar("A", bound=OnAdd)
L = TypeVar("L", bound=Listener)


class Hooks:
    """The hooks of an app; `lifespan` returns what opens the resources of its handlers, and closes them."""

    def __init__(self, lifespan: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self.lifespan = lifespan
        self.middlewares: list[Middleware | SyncMiddleware] = []
        self.listeners: list[Listener] = []
        self._on_add: list[OnAdd] = []

    def middleware(self, fn: M) -> M:
        """Decorate an async function that runs around every attempt; the first is the outermost.

        It sees the job, the result and the exception itself, and may replace them. A plain `def` runs around
        the attempts of `def` handlers only, in the handler's thread, inside of the async ones.

        >>> @app.middleware                                                     # doctest: +SKIP
        ... async def timed(job, call_next):
        ...     start = perf_counter()
        ...     try:
        ...         return await call_next(job)
        ...     finally:
        ...         print(job.name, perf_counter() - start)
        """
        self.middlewares.append(fn)
        return fn

    def on_add(self, fn: A) -> A:
        """Decorate an async function that runs around every adding of jobs; the first is the outermost.

        It gets the jobs, may replace them (`msgspec.structs.replace`), and returns an `Added` for each;
        `call_next.queue` is the queue they are added to.

        >>> @app.on_add                                                         # doctest: +SKIP
        ... async def traced(jobs, call_next):
        ...     return await call_next([replace(job, data={**job.data, "trace": …}) for job in jobs])
        """
        self._on_add.append(_check_async(fn, "on_add"))
        return fn

    def listener(self, fn: L) -> L:
        """Decorate a function that is called with each `WorkerEvent` of this app's workers."""
        self.listeners.append(fn)
        return fn

    @property
    def has_on_add(self) -> bool:
        """Whether anything runs around the adding of jobs."""
        return bool(self._on_add)

    def around_add(self, queue: "Queue", submit: Submit) -> Submit:
        """Return what adds jobs to a queue, with everything around it."""
        for layer in reversed(self._on_add):
            submit = partial(_add_through, layer, AddNext(queue, submit))
        return submit


def _check_async(fn: Any, what: str) -> Any:
    if not is_async(fn):
        raise InvalidOptions(f"{what} is {fn!r}; use an `async def` with two parameters")
    return fn


async def _add_through(layer: OnAdd, call_next: AddNext, jobs: Sequence[Job]) -> Sequence[Added]:
    return await layer(jobs, call_next)
