"""Middleware: functions of the app around every attempt, composed before a worker starts."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

from corral.worker.context import BaseJobContext, SyncJobContext

CallNext = Callable[[Any], Awaitable[Any]]
"""Runs the rest with a job's context: the next middleware, at last the handler."""
Middleware = Callable[[Any, CallNext], Awaitable[Any]]
"""(context, call_next) -> the result; it sees the result and the exception, and may replace them."""
SyncMiddleware = Callable[[Any, Callable[[Any], Any]], Any]
"""The same as a `def`: it runs around `def` handlers only, in the thread of the handler."""
MOST_NESTED = 100
"""Jobs of a batch that one call of the handler takes where a `def` middleware is around them: one middleware
is inside the other, and Python's stack is not endless."""


def is_async(fn: Callable[..., Any]) -> bool:
    """Return whether calling `fn` gives a coroutine."""
    while isinstance(fn, partial):
        fn = fn.func
    if inspect.iscoroutinefunction(fn):
        return True
    return not inspect.isroutine(fn) and inspect.iscoroutinefunction(type(fn).__call__)


def around(
    run: Callable[[Any], Any], middleware: Sequence[Middleware | SyncMiddleware], is_awaited: bool
) -> Callable[[Any], Any]:
    """Return a handler with all middleware around it, the first outermost; in threads the async ones are."""
    layers = [layer for layer in middleware if is_async(layer)]
    if is_awaited:
        return _chained(run, layers)
    call = _chained(run, [layer for layer in middleware if not is_async(layer)])
    return partial(_serve_calls, call, layers) if layers else call


def around_in_process(
    run: Callable[[Any], Any], middleware: Sequence[Middleware | SyncMiddleware], is_awaited: bool
) -> Callable[[Any], Any]:
    """Return the same for a spawned process, which has the event loop to itself; it is awaited."""
    layers = [layer for layer in middleware if is_async(layer)]
    if is_awaited:
        return _chained(run, layers)
    in_thread = _chained(run, [layer for layer in middleware if not is_async(layer)])

    async def call(context: BaseJobContext[Any]) -> Any:
        return in_thread(context)

    return _chained(call, layers)


def around_batch(
    run: Callable[[Any], Any],
    middleware: Sequence[Middleware | SyncMiddleware],
    is_awaited: bool,
    in_process: bool,
) -> Callable[[Any], Any]:
    """Return a handler of batches with the middleware around each of its jobs."""
    layers = [layer for layer in middleware if is_async(layer)]
    nested = [layer for layer in middleware if not is_async(layer)]
    in_thread = run
    if nested and not is_awaited:

        def in_thread(contexts: Sequence[Any]) -> list[Any]:
            parts = [contexts[start : start + MOST_NESTED] for start in range(0, len(contexts), MOST_NESTED)]
            return [outcome for part in parts for outcome in _Nesting(part, nested, run).run()]

        if not (layers or in_process):
            return in_thread

    async def call(contexts: Sequence[Any]) -> Any:
        return await run(contexts) if is_awaited else in_thread(contexts)

    async def run_here(contexts: Sequence[Any]) -> list[Any]:
        return await _Gathering(contexts, layers, call).run()

    if is_awaited or in_process:
        return run_here

    def run_in_thread(contexts: Sequence[SyncJobContext[Any]]) -> list[Any]:
        def chain(call: CallNext) -> Awaitable[list[Any]]:
            return _Gathering(contexts, layers, call).run()

        results: list[Any] = _serve(in_thread, chain, contexts[0].scope.loop)
        return results

    return run_in_thread


class _Gathering:
    """The middleware of each job of a batch, and one call of the handler for all that wait for it."""

    def __init__(self, contexts: Sequence[Any], layers: Sequence[Callable[..., Any]], call: CallNext) -> None:
        self._contexts = contexts
        self._chain = _chained(self._join, layers)
        self._call = call
        self._waiting: list[tuple[Any, Context, asyncio.Future[Any]]] = []
        self._changed = asyncio.Event()

    async def run(self) -> list[Any]:
        """Return the result or the exception of each job."""
        jobs = [asyncio.ensure_future(self._chain(context)) for context in self._contexts]
        for job in jobs:
            job.add_done_callback(lambda _: self._changed.set())
        try:
            while not all(job.done() for job in jobs):
                await self._changed.wait()
                self._changed.clear()
                if self._waiting and len(self._waiting) == sum(not job.done() for job in jobs):
                    await self._call_all()
        finally:
            for job in jobs:
                job.cancel()
        return await asyncio.gather(*jobs, return_exceptions=True)

    async def _join(self, context: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((context, copy_context(), future))
        self._changed.set()
        return await future

    async def _call_all(self) -> None:
        """Call the handler; it sees the context variables that the middleware of the first job has set."""
        waiting, self._waiting = self._waiting, []
        call = self._call([context for context, _, _ in waiting])
        try:
            results = await asyncio.create_task(_awaited(call), context=waiting[0][1])
        except Exception as error:
            results = [error] * len(waiting)
        for (_, _, future), result in zip(waiting, results, strict=True):
            (fail_future if isinstance(result, BaseException) else set_result)(future, result)


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


class _Nesting:
    """The `def` middleware of each job of a batch, one inside the other in one thread, around one call."""

    def __init__(
        self, contexts: Sequence[Any], layers: Sequence[Callable[..., Any]], run: Callable[[Any], Any]
    ) -> None:
        self._contexts = contexts
        self._chain = _chained(self._join, layers)
        self._run = run
        self._entered = 0
        self._is_called = False
        self._joined: list[Any] = []
        self._results: dict[int, Any] = {}
        """What the handler returned, by the identity of the context."""
        self._outcomes: list[Any] = [None] * len(contexts)

    def run(self) -> list[Any]:
        """Return the result or the exception of each job."""
        self._enter()
        return self._outcomes

    def _enter(self) -> None:
        """Enter the middleware of the next job; inside that of the last, call the handler."""
        position = self._entered
        if position == len(self._contexts):
            if not self._is_called:
                self._is_called = True
                self._call(self._joined)
            return
        self._entered += 1
        try:
            self._outcomes[position] = self._chain(self._contexts[position])
        except Exception as error:
            self._outcomes[position] = error
        if self._entered == position + 1:
            self._enter()  # it has not called the next: the others are still to come

    def _join(self, context: Any) -> Any:
        if id(context) in self._results:
            self._call([context])  # once more
        else:
            self._joined.append(context)
            self._enter()
        result = self._results[id(context)]
        if isinstance(result, BaseException):
            raise result
        return result

    def _call(self, contexts: list[Any]) -> None:
        if not contexts:
            return
        try:
            results = self._run(contexts)
        except Exception as error:
            results = [error] * len(contexts)
        self._results.update(zip(map(id, contexts), results, strict=True))


def _chained(call: Callable[[Any], Any], layers: Sequence[Callable[..., Any]]) -> Callable[[Any], Any]:
    for layer in reversed(layers):
        call = _layered(layer, call)
    return call


def _layered(layer: Callable[..., Any], call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda context: layer(context, call)


def _serve_calls(
    run: Callable[[Any], Any], layers: Sequence[Callable[..., Any]], context: SyncJobContext[Any]
) -> Any:
    """Run the middleware on the event loop, and in this thread what it calls: the handler.

    The handler sees the context variables that the middleware has set.
    """
    return _serve(run, lambda call: _chained(call, layers)(context), context.scope.loop)


def _serve(
    run: Callable[[Any], Any], chain: Callable[[CallNext], Awaitable[Any]], loop: asyncio.AbstractEventLoop
) -> Any:
    """Run `chain` on the event loop, and in this thread what it calls."""
    calls: SimpleQueue[tuple[Any, Context, asyncio.Future[Any]] | None] = SimpleQueue()

    async def call(job: Any) -> Any:
        future: asyncio.Future[Any] = loop.create_future()
        calls.put((job, copy_context(), future))
        return await future

    async def run_chain() -> Any:
        return await chain(call)

    outcome = asyncio.run_coroutine_threadsafe(run_chain(), loop)
    outcome.add_done_callback(lambda _: calls.put(None))
    while (wanted := calls.get()) is not None:
        job, variables, future = wanted
        try:
            result = variables.run(run, job)
        except BaseException as error:
            loop.call_soon_threadsafe(fail_future, future, error)
        else:
            loop.call_soon_threadsafe(set_result, future, result)
    return outcome.result()


def set_result(future: "asyncio.Future[Any]", result: Any) -> None:
    """Set the result of a future, unless it was cancelled."""
    if not future.done():
        future.set_result(result)


def fail_future(future: "asyncio.Future[Any]", error: BaseException) -> None:
    """Set the error of a future, unless it was cancelled."""
    if not future.done():
        # a future does not take StopIteration
        stopped = RuntimeError(f"the handler raised {error!r}") if isinstance(error, StopIteration) else error
        future.set_exception(stopped)
