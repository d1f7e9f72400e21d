"""JobType: a typed handler and the options of its jobs; and the decorator that makes it."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Sized
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from corral.core.batch_signature import BatchSignature
from corral.core.options import AddOptions, OptionValues, seconds
from corral.core.ports import Limit
from corral.core.retry import Errors
from corral.core.signature import AnySignature, DataStyle
from corral.errors import InvalidOptions
from corral.handle import JobHandle
from corral.job_call import JobCall, with_children
from corral.queue import NewJob, Queue
from corral.worker import ANY_NAME, Handler, HandlerFunction, JobContext, SyncJobContext
from corral.worker.context import T
from corral.worker.handlers import DEFAULT_LINGER_S, BatchSize, check_rules, signature_of, with_arguments
from corral.worker.middleware import Middleware, SyncMiddleware

if TYPE_CHECKING:
    from corral.app import Corral
    from corral.batch_decorator import BatchDecorator

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)


class CallsWithItem(Protocol[Item_contra, R_co]):
    """A job type that can be called with one argument."""

    def call(self, item: Item_contra, /) -> JobCall[R_co]: ...


class JobType(HandlerFunction, Generic[P, R]):
    """A handler and the jobs it runs: call it as the function it was, or add jobs for it.

    >>> handle = await charge.add(Order(17, 9.5))                                       # doctest: +SKIP
    >>> await charge.options(delay=timedelta(minutes=5)).add(Order(18, 1.0))            # doctest: +SKIP
    """

    def __init__(
        self,
        queue: Queue,
        fn: Callable[..., Any],
        handler: Handler,
        signature: AnySignature | BatchSignature,
        options: Mapping[str, Any],
    ) -> None:
        self.queue = queue
        self.name = handler.name
        self.handler = handler
        self.signature = signature
        self.defaults = dict(options)
        """The options of its jobs."""
        self._fn = fn
        update_wrapper(self, fn)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._fn(*arguments, **named)

    @property
    def app(self) -> "Corral":
        """The app that has its handler."""
        return self.queue.app

    def handler_with(self, middleware: Sequence[Middleware | SyncMiddleware]) -> Handler:
        """Return the handler with middleware around each attempt."""
        run = with_arguments(self._fn, self.signature, middleware)
        return replace(self.handler, fn=run)

    def in_process(self) -> tuple[Callable[[Any], Any], bool]:
        """Return what a spawned process calls with the context, and whether that is awaited."""
        middleware = self.app.middlewares
        run = with_arguments(self._fn, self.signature, middleware, in_process=True)
        return run, self.handler.is_async or bool(middleware)

    def open_resources(self) -> AbstractAsyncContextManager[Any]:
        """Return what opens the resources of the app."""
        return self.app.lifespan()

    def __repr__(self) -> str:
        return (
            f"JobType({self.name!r}, queue={self.queue.name!r}, protocol={self.queue.protocol.spec.name!r})"
        )

    def options(self, **options: Unpack[AddOptions]) -> Self:
        """Return this job type with other options for the jobs that are added through it.

        >>> await charge.options(priority=1, id="order-17").add(order)                  # doctest: +SKIP
        """
        other = copy(self)
        other.defaults = {**self.defaults, **options}
        return other

    def call(self, *arguments: P.args, **named: P.kwargs) -> JobCall[R]:
        """Return a job of this type with these arguments, for `add_many`; refused where they do not fit."""
        return JobCall(self, self.signature.data(arguments, named), self.defaults)

    def call_after(
        self, before: JobCall[Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> JobCall[R]:
        """Return a job of this type that takes the result of another as its first argument."""
        first, rest = self.signature.after_first()
        call = JobCall[R](self, rest.data(arguments, named), self.defaults, first=first)
        return with_children(call, [before])

    def decode_result(self, value: Any) -> R:
        """Return the result of a job of this type, from what was written."""
        conversion = self.signature.result
        result: R = value if conversion is None else conversion.decode(value)
        return result

    async def add(self, *arguments: P.args, **named: P.kwargs) -> JobHandle[R]:
        """Add a job with these arguments; refused where they do not fit."""
        data = self.signature.data(arguments, named)
        return await self.queue.add_one(self.name, data, self.defaults, self.signature.result)

    @overload
    async def add_many(self, jobs: Iterable[JobCall[R]]) -> list[JobHandle[R]]: ...
    @overload
    async def add_many(self: CallsWithItem[Item, R], jobs: Iterable[Item]) -> list[JobHandle[R]]: ...
    async def add_many(self, jobs: Iterable[Any]) -> list[JobHandle[R]]:
        """Add a job for each call, or for each value of the first parameter; return their handles, in order.

        Where one is refused, none of a list is written; of what comes from a generator, the jobs before the
        last 10,000 that were taken from it are.

        >>> await thumbnail.add_many(thumbnail.call(f, width=300) for f in files)       # doctest: +SKIP
        """
        new: Iterable[NewJob] = map(self._new_job, jobs)
        if isinstance(jobs, Sized):
            new = list(new)
        return await self.queue.add_all(new, self.defaults, self.signature.result)

    def _new_job(self, item: Any) -> NewJob:
        if not isinstance(item, JobCall):
            return self.name, self.signature.data((item,), {})
        if item.job_type.handler is not self.handler:
            raise InvalidOptions(
                f"a call of {item.job_type.name!r} is among those of {self.name!r}; "
                f"add it by its own add_many"
            )
        if item.children:
            raise InvalidOptions(f"a flow of {self.name!r} is among the jobs; add each by its own add()")
        if item.options == self.defaults:
            return self.name, item.data
        return self.name, item.data, item.options


class RawJobType(JobType[[Any], R]):
    """A handler that takes the context alone; its jobs have any data."""

    def call(self, data: Any = None) -> JobCall[R]:
        """Return a job of this type with this data, for `add_many`."""
        return JobCall(self, data, self.defaults)

    async def add(self, data: Any = None) -> JobHandle[R]:
        """Add a job with this data.

        >>> await send_email.add({"to": "…"})                                           # doctest: +SKIP
        """
        return await self.queue.add_one(self.name, data, self.defaults, self.signature.result)


@dataclass(frozen=True)
class HandlerOptions:
    """What a decorator was given."""

    name: str | None = None
    queue: str | None = None
    protocol: str | None = None
    timeout: float | None = None
    process: bool = False
    data: DataStyle = "fields"
    retry_on: Errors = ()
    give_up_on: Errors = ()
    batch: BatchSize | None = None
    concurrency: int | None = None
    limit: Limit | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class JobDecorator:
    """`@app.job` and `@app.job(…)`: the function runs the jobs of its name, or of the name that is given.

    `async def` runs on the event loop, `def` in a thread, and with `process=True` in a spawned process. The
    parameters are fields of the job's data, by name; with `data="whole"` the one parameter is all of it. The
    first may be the context; a handler that takes nothing else reads `job.data` itself. Errors in `retry_on`
    are retried and those in `give_up_on` are not, whatever the app's rules say.

    With `batch=64` the function takes a list of up to so many jobs' data and returns a list of their results;
    the first of them waits at most `linger` for the others. At most `concurrency` calls run at a time in a
    worker, and at most as many jobs as `limit` says begin in a time, in all workers of the queue together.
    """

    def __init__(self, app: "Corral", options: HandlerOptions | None = None) -> None:
        self._app = app
        self._options = options or HandlerOptions()

    @overload
    def __call__(self, fn: Callable[[JobContext[T]], Coroutine[Any, Any, R]], /) -> RawJobType[R]: ...
    @overload
    def __call__(self, fn: Callable[[SyncJobContext[T]], R], /) -> RawJobType[R]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[JobContext[T], P], Coroutine[Any, Any, R]], /
    ) -> JobType[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> JobType[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[SyncJobContext[T], P], R], /) -> JobType[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> JobType[P, R]: ...
    @overload
    def __call__(
        self,
        name: str | None = None,
        /,
        *,
        queue: str | None = None,
        protocol: str | None = None,
        timeout: float | timedelta | None = None,
        process: bool = False,
        data: DataStyle = "fields",
        retry_on: Errors = (),
        give_up_on: Errors = (),
        concurrency: int | None = None,
        limit: Limit | None = None,
        **options: Unpack[OptionValues],
    ) -> "JobDecorator": ...
    @overload
    def __call__(
        self,
        name: str | None = None,
        /,
        *,
        batch: int,
        linger: float | timedelta = DEFAULT_LINGER_S,
        queue: str | None = None,
        protocol: str | None = None,
        timeout: float | timedelta | None = None,
        process: bool = False,
        retry_on: Errors = (),
        give_up_on: Errors = (),
        concurrency: int | None = None,
        limit: Limit | None = None,
        **options: Unpack[OptionValues],
    ) -> "BatchDecorator": ...
    def __call__(
        self,
        subject: Callable[..., Any] | str | None = None,
        /,
        *,
        queue: str | None = None,
        protocol: str | None = None,
        timeout: float | timedelta | None = None,
        process: bool = False,
        data: DataStyle = "fields",
        retry_on: Errors = (),
        give_up_on: Errors = (),
        batch: int | None = None,
        linger: float | timedelta | None = None,
        concurrency: int | None = None,
        limit: Limit | None = None,
        **options: Unpack[OptionValues],
    ) -> Any:
        if callable(subject):
            return self._register(subject)
        if not isinstance(subject, str | None):
            raise InvalidOptions(f"the handler {subject!r} is no function, and no name for one")
        target = self._app.queue(queue, protocol)
        # refused here, where the option is written
        target.protocol.check(target.options(options), self._app.clock())
        self._app.policy.before(retry_on, give_up_on)
        size = _batch_size(batch, linger, data)
        check_rules(size, concurrency, limit)
        chosen = HandlerOptions(
            name=subject,
            queue=queue,
            protocol=protocol,
            timeout=seconds(timeout),
            process=process,
            data=data,
            retry_on=retry_on,
            give_up_on=give_up_on,
            batch=size,
            concurrency=concurrency,
            limit=limit,
            options=options,
        )
        return JobDecorator(self._app, chosen)

    def _register(self, fn: Callable[..., Any]) -> JobType[..., Any]:
        chosen = self._options
        target = self._app.queue(chosen.queue, chosen.protocol)
        name = _name_of(fn) if chosen.name is None else chosen.name
        if name != ANY_NAME:
            target.protocol.check_name(name)
        signature = signature_of(fn, name, chosen.data, is_batch=chosen.batch is not None)
        handler = self._app.handlers(target).add(
            name,
            fn,
            run=with_arguments(fn, signature),
            policy=self._app.policy.before(chosen.retry_on, chosen.give_up_on),
            timeout=chosen.timeout,
            process=chosen.process,
            schema=signature.schema(),
            batch=chosen.batch,
            concurrency=chosen.concurrency,
            limit=chosen.limit,
        )
        kind = RawJobType if signature.is_raw else JobType
        job_type: JobType[..., Any] = kind(target, fn, handler, signature, chosen.options)
        self._app.job_types[target.protocol.spec.name, target.name, name] = job_type
        return job_type


def _batch_size(batch: int | None, linger: float | timedelta | None, data: DataStyle) -> BatchSize | None:
    if batch is None:
        if linger is not None:
            raise InvalidOptions(f"linger={linger!r} is for batches; give their size too: batch=64")
        return None
    if data != "fields":
        raise InvalidOptions(f"data={data!r}: the data of a batch's job is always the whole of one item")
    return BatchSize(batch, DEFAULT_LINGER_S if linger is None else seconds(linger))


def _name_of(fn: Callable[..., Any]) -> str:
    name: str | None = getattr(fn, "__name__", None)
    if name is None:
        raise InvalidOptions(f"{fn!r} has no name of its own; give its jobs one: @app.job('…')")
    return name


JobTypes = dict[tuple[str, str, str], JobType[..., Any]]
"""Job types by (protocol, queue, job name)."""


def job_type_of(
    known: JobTypes, name: str, queue: str | None, protocol: str | None
) -> JobType[..., Any] | None:
    """Return the job type of that name, in that queue and protocol where given; None where there is none."""
    matching = [
        job_type
        for (of_protocol, of_queue, of_name), job_type in known.items()
        if of_name == name and queue in (None, of_queue) and protocol in (None, of_protocol)
    ]
    if len(matching) > 1:
        queues = ", ".join(repr(job_type.queue) for job_type in matching)
        raise InvalidOptions(f"there are handlers of {name!r} in {queues}; say which: queue=…, protocol=…")
    return matching[0] if matching else None
