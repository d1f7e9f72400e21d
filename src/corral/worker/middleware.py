"""Middleware: functions of the app around every attempt, composed before a worker starts."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from queue import SimpleQueue
from typing import Any

from corral.worker.context import BaseJobContext, SyncJobContext

CallNext = Callable[[Any], Awaitable[Any]]
"""Runs the rest with a job's context: the next middleware, at last the handler."""
Middleware = Callable[[Any, CallNext], Awaitable[Any]]
"""(context, call_next) -> the result; it sees the result and the exception, and may replace them."""


def around(
    run: Callable[[Any], Any], middleware: Sequence[Middleware], is_async: bool
) -> Callable[[Any], Any]:
    """Return a handler with all middleware around it, the first outermost."""
    if is_async:
        return _chained(run, middleware)

    def run_in_thread(context: SyncJobContext[Any]) -> Any:
        return _serve_calls(run, middleware, context)

    return run_in_thread


def around_in_process(
    run: Callable[[Any], Any], middleware: Sequence[Middleware], is_async: bool
) -> Callable[[Any], Any]:
    """Return the same for a spawned process, which has the event loop to itself."""

    async def call(context: BaseJobContext[Any]) -> Any:
        return run(context)

    return _chained(run if is_async else call, middleware)


def _chained(call: CallNext, middleware: Sequence[Middleware]) -> CallNext:
    for layer in reversed(middleware):
        call = _layered(layer, call)
    return call


def _layered(layer: Middleware, call: CallNext) -> CallNext:
    return lambda context: layer(context, call)


def _serve_calls(
    run: Callable[[Any], Any], middleware: Sequence[Middleware], context: SyncJobContext[Any]
) -> Any:
    """Run the middleware on the event loop, and in this thread what it calls: the handler."""
    loop = context.scope.loop
    calls: SimpleQueue[tuple[Any, asyncio.Future[Any]] | None] = SimpleQueue()

    async def call(job: Any) -> Any:
        future: asyncio.Future[Any] = loop.create_future()
        calls.put((job, future))
        return await future

    async def chain() -> Any:
        return await _chained(call, middleware)(context)

    outcome = asyncio.run_coroutine_threadsafe(chain(), loop)
    outcome.add_done_callback(lambda _: calls.put(None))
    while (wanted := calls.get()) is not None:
        job, future = wanted
        try:
            result = run(job)
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
