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
    loop = context.scope.loop
    calls: SimpleQueue[tuple[Any, Context, asyncio.Future[Any]] | None] = SimpleQueue()

    async def call(job: Any) -> Any:
        future: asyncio.Future[Any] = loop.create_future()
        calls.put((job, copy_context(), future))
        return await future

    async def chain() -> Any:
        return await _chained(call, layers)(context)

    outcome = asyncio.run_coroutine_threadsafe(chain(), loop)
    outcome.add_done_callback(lambda _: calls.put(None))
    while (wanted := calls.get()) is not None:
        job, variables, future = wanted
        try:
            result = variables.run(run, job)
        except BaseException as error:
            loop.call_soon_threadsafe(_fail, future, error)
        else:
            loop.call_soon_threadsafe(_return, future, result)
    return outcome.result()


def _return(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        # a future does not take StopIteration
        stopped = RuntimeError(f"the handler raised {error!r}") if isinstance(error, StopIteration) else error
        future.set_exception(stopped)
