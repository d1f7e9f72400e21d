"""BatchSignature: how a handler takes the data of many jobs at a time, and what it returns for each."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin

from corral.core.conversion import Conversion
from corral.core.signature import NoParameters, class_of, hints_of, only_argument, result_conversion
from corral.errors import InvalidArguments, InvalidOptions, Unrecoverable

R = TypeVar("R")
JobOutcome: TypeAlias = R | BaseException
"""What becomes of one job of a batch: its result, or the exception that its attempt ends with."""

Items = tuple[list[Any], list[Any], list[Any]]
"""Contexts and items of the jobs that can run, and what is returned for all: errors of the others."""


class BatchSignature:
    """A handler that takes a list: of the jobs' data, of their contexts, or the contexts and the data."""

    def __init__(
        self, name: str, item: Conversion | None, has_contexts: bool, result: Conversion | None
    ) -> None:
        self.result = result
        """The type of one job's result."""
        self._name = name
        self._item = item
        self._has_contexts = has_contexts

    @property
    def is_raw(self) -> bool:
        """Whether it takes the contexts alone, and all data fits."""
        return self._item is None

    def data(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return the data of one job: the one argument, encoded and checked."""
        data = only_argument(*arguments, **named)
        if self._item is None:
            return data
        data = self._item.encode(data)
        self.check(data)
        return data

    def check(self, data: Any) -> None:
        """Raise `InvalidArguments` for data of one job that the handler could not be called with."""
        if self._item is not None:
            self._item.decode(data)

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of one job's data."""
        return None if self._item is None else self._item.schema()

    def after_first(self) -> tuple[str, NoParameters]:
        """Return "": a result is all of one job's data; and what else there is to pass."""
        return "", NoParameters()

    def runner(self, fn: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
        """Return a function that calls the handler with the contexts of jobs."""

        def run(contexts: Sequence[Any]) -> Any:
            able, items, outcomes = self._items(contexts)
            if not able:
                return outcomes
            return self._merge(outcomes, fn(*self._arguments(able, items)))

        return run

    def async_runner(self, fn: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
        """Return the same for a handler that is awaited."""

        async def run(contexts: Sequence[Any]) -> Any:
            able, items, outcomes = self._items(contexts)
            if not able:
                return outcomes
            return self._merge(outcomes, await fn(*self._arguments(able, items)))

        return run

    def _items(self, contexts: Sequence[Any]) -> Items:
        """Decode the data of each job; data that does not fit fails its own job."""
        able: list[Any] = []
        items: list[Any] = []
        outcomes: list[Any] = []
        for context in contexts:
            try:
                item = None if self._item is None else self._item.decode(context.job.data)
            except InvalidArguments as error:
                outcomes.append(error)
            else:
                able.append(context)
                items.append(item)
                outcomes.append(_OPEN)
        return able, items, outcomes

    def _arguments(self, contexts: list[Any], items: list[Any]) -> tuple[list[Any], ...]:
        if self._item is None:
            return (contexts,)
        return (contexts, items) if self._has_contexts else (items,)

    def _merge(self, outcomes: list[Any], returned: Any) -> list[JobOutcome[Any]]:
        """Return an outcome for each job: what the handler returned, in the places that are open."""
        count = outcomes.count(_OPEN)
        if returned is None:
            returned = [None] * count
        is_list = isinstance(returned, Sequence) and not isinstance(returned, str | bytes)
        if not is_list or len(returned) != count:
            what = f"{len(returned)} results" if is_list else repr(type(returned).__name__)
            raise Unrecoverable(
                f"the handler of {self._name!r} returned {what} for {count} jobs; return a list with the "
                f"result or the exception of each, in their order, or None"
            )
        values = iter(returned)
        return [next(values) if outcome is _OPEN else outcome for outcome in outcomes]

    def encode(self, outcomes: Sequence[JobOutcome[Any]]) -> Sequence[JobOutcome[Any]]:
        """Return the results as what JSON can represent; one that cannot be written fails its own job."""
        if self.result is None or self.result.is_plain:
            return outcomes
        return [_encoded(self.result, value) for value in outcomes]


_OPEN = object()


def _encoded(result: Conversion, value: Any) -> Any:
    if isinstance(value, BaseException):
        return value
    try:
        return result.encode(value)
    except InvalidArguments as error:
        return error


def read_batch_signature(
    fn: Callable[..., Any], name: str, contexts: Mapping[type, bool], is_async: bool
) -> BatchSignature:
    """Return how the handler of batches of jobs called `name` is called; refused where it cannot be.

    `contexts` has the classes of contexts, and whether each is for async handlers.
    """
    parameters = list(inspect.signature(fn).parameters.values())
    hints = hints_of(fn, name, parameters)
    items = [_item(hints.get(one.name, Any)) for one in parameters]
    has_contexts = bool(items) and class_of(items[0]) in contexts
    if len(items) not in (1, 1 + has_contexts) or any(item is None for item in items):
        raise InvalidOptions(
            f"the handler of {name!r} takes batches: give it one list, annotated as list[…], of the jobs' "
            f"data or of their contexts, or a list of contexts and then one of the data"
        )
    if has_contexts and contexts[class_of(items[0])] is not is_async:
        [right] = [cls.__name__ for cls, fits in contexts.items() if fits is is_async]
        raise InvalidOptions(
            f"the handler of {name!r} is a `{'async def' if is_async else 'def'}` and takes "
            f"{class_of(items[0]).__name__}s; use list[{right}]"
        )
    is_raw = has_contexts and len(items) == 1
    item = None if is_raw else Conversion(items[-1], f"the data of {name!r}")
    return BatchSignature(name, item, has_contexts, _result(hints.get("return"), name, is_raw))


def _item(annotation: Any) -> Any:
    """Return the type of a list's items; None where the annotation is no list."""
    if annotation is Any or annotation is list:
        return Any
    is_list = isinstance(get_origin(annotation), type) and issubclass(list, get_origin(annotation))
    return get_args(annotation)[0] if is_list and get_args(annotation) else None


def _result(annotation: Any, name: str, is_raw: bool) -> Conversion | None:
    """Return the conversion of one job's result; exceptions are none."""
    if annotation is None or annotation is type(None):
        return None
    item = _item(annotation)
    if item is None:
        raise InvalidOptions(
            f"the handler of {name!r} takes batches and returns {annotation!r}; let it return a list with "
            f"the result or the exception of each job, or None"
        )
    if get_origin(item) in (Union, UnionType):
        kept = [part for part in get_args(item) if not _is_exception(part)]
        item = reduce(or_, kept) if kept else None
    elif _is_exception(item):
        item = None
    return result_conversion(item, name, is_raw)


def _is_exception(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, BaseException)
