"""The types of functions that may handle batches, for type checkers."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, overload

from corral.core.batch_signature import JobOutcome
from corral.job_type import Item, JobType, R, RawJobType
from corral.worker import JobContext, SyncJobContext
from corral.worker.context import T

# a function returns its results, or results and exceptions, or None for all of them


class BatchDecorator(Protocol):
    """`@app.job(batch=…)`: the function takes a list of jobs' data and returns a list of their results.

    Jobs are added one at a time. An exception in the list that is returned fails its own job; one that is
    raised fails all. The function may take the jobs' contexts as a list, alone or before their data.
    """

    @overload
    def __call__(
        self, fn: Callable[[list[JobContext[T]]], Coroutine[Any, Any, list[JobOutcome[R]]]], /
    ) -> RawJobType[R]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[JobContext[T]]], Coroutine[Any, Any, list[R]]], /
    ) -> RawJobType[R]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[JobContext[T]]], Coroutine[Any, Any, None]], /
    ) -> RawJobType[None]: ...
    @overload
    def __call__(self, fn: Callable[[list[SyncJobContext[T]]], list[JobOutcome[R]]], /) -> RawJobType[R]: ...
    @overload
    def __call__(self, fn: Callable[[list[SyncJobContext[T]]], list[R]], /) -> RawJobType[R]: ...
    @overload
    def __call__(self, fn: Callable[[list[SyncJobContext[T]]], None], /) -> RawJobType[None]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[JobContext[T]], list[Item]], Coroutine[Any, Any, list[JobOutcome[R]]]], /
    ) -> JobType[[Item], R]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[JobContext[T]], list[Item]], Coroutine[Any, Any, list[R]]], /
    ) -> JobType[[Item], R]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[JobContext[T]], list[Item]], Coroutine[Any, Any, None]], /
    ) -> JobType[[Item], None]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[SyncJobContext[T]], list[Item]], list[JobOutcome[R]]], /
    ) -> JobType[[Item], R]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[SyncJobContext[T]], list[Item]], list[R]], /
    ) -> JobType[[Item], R]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[SyncJobContext[T]], list[Item]], None], /
    ) -> JobType[[Item], None]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[Item]], Coroutine[Any, Any, list[JobOutcome[R]]]], /
    ) -> JobType[[Item], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[Item]], Coroutine[Any, Any, list[R]]], /) -> JobType[[Item], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[Item]], Coroutine[Any, Any, None]], /) -> JobType[[Item], None]: ...
    @overload
    def __call__(self, fn: Callable[[list[Item]], list[JobOutcome[R]]], /) -> JobType[[Item], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[Item]], list[R]], /) -> JobType[[Item], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[Item]], None], /) -> JobType[[Item], None]: ...
