"""Signature: a handler's parameters, as they are read from a job's data and written to it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter
from typing import Any, Literal, Never, NoReturn, get_origin, get_type_hints

import msgspec

from corral.core.conversion import Conversion
from corral.errors import InvalidOptions

DataStyle = Literal["fields", "whole"]
"""Whether each parameter is a field of the job's data, or the only one is the whole of it."""

JOB = "job"
"""The name of a parameter that is the context although it has no annotation."""

_REFUSED = {
    Parameter.VAR_POSITIONAL: "*{0}",
    Parameter.VAR_KEYWORD: "**{0}",
    Parameter.POSITIONAL_ONLY: "the positional-only parameter {0!r}",
}

Run = Callable[[Any], Any]
"""A handler as a worker calls it: with the context alone."""


class NoParameters:
    """The rest of the parameters, where the first takes all of the data."""

    def data(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return no data; refused where there are arguments."""
        _nothing(*arguments, **named)
        return {}


class RawSignature:
    """A handler that takes the context alone and reads the job's data itself."""

    is_raw = True

    def __init__(self, result: Conversion | None = None) -> None:
        self.result = result

    def data(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return the job's data: the one argument as it is."""
        return only_argument(*arguments, **named)

    def check(self, data: Any) -> None:
        """Accept all data."""

    def schema(self) -> dict[str, Any] | None:
        """Return None: all data fits."""
        return None

    def after_first(self) -> "tuple[str, NoParameters]":
        """Return "": a result is all of the data; and what else there is to pass."""
        return "", NoParameters()

    def runner(self, fn: Callable[..., Any]) -> Run:
        """Return the handler itself."""
        return fn


class WholeSignature:
    """A handler whose one parameter, besides the context, is the whole data of the job."""

    is_raw = False

    def __init__(self, parameter: Conversion, has_context: bool, result: Conversion | None) -> None:
        self._parameter = parameter
        self._has_context = has_context
        self.result = result

    def data(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return the job's data: the one argument, encoded and checked."""
        data = self._parameter.encode(only_argument(*arguments, **named))
        self.check(data)
        return data

    def check(self, data: Any) -> None:
        """Raise `InvalidArguments` for data that the handler could not be called with."""
        self._parameter.decode(data)

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the data."""
        return self._parameter.schema()

    def after_first(self) -> "tuple[str, NoParameters]":
        """Return "": a result is all of the data; and what else there is to pass."""
        return "", NoParameters()

    def runner(self, fn: Callable[..., Any]) -> Run:
        """Return a function that calls the handler with the data of a context's job."""
        decode = self._parameter.decode
        if self._has_context:
            return lambda context: fn(context, decode(context.job.data))
        return lambda context: fn(decode(context.job.data))


class Signature:
    """A handler whose parameters are fields of the job's data, by name."""

    is_raw = False

    def __init__(
        self,
        what: str,
        parameters: Sequence[tuple[Parameter, Any]],
        has_context: bool,
        result: Conversion | None,
    ) -> None:
        self.result = result
        self._what = what
        self._parameters = parameters
        self._has_context = has_context
        self._names = tuple(parameter.name for parameter, _ in parameters)
        self._by_position = sum(
            parameter.kind is Parameter.POSITIONAL_OR_KEYWORD for parameter, _ in parameters
        )
        self._required = frozenset(
            parameter.name for parameter, _ in parameters if parameter.default is Parameter.empty
        )
        self._signature = inspect.Signature([parameter for parameter, _ in parameters])
        for parameter, annotation in parameters:
            Conversion(annotation, f"parameter {parameter.name!r} of {what}")  # refused by its own name
        self._fields = Conversion(_struct(parameters), what)

    def data(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return the job's data: the arguments by name, encoded and checked.

        Those that are not given stay away: their defaults are the handler's.
        """
        given = dict(zip(self._names[: self._by_position], arguments, strict=False))
        is_odd = len(arguments) > self._by_position
        for name, value in named.items():
            is_odd = is_odd or name in given or name not in self._names
            given[name] = value
        if is_odd or not self._required <= given.keys():
            self._signature.bind(*arguments, **named)  # raises Python's own error for such a call
        data = self._fields.encode(given)
        self.check(data)
        return data

    def check(self, data: Any) -> None:
        """Raise `InvalidArguments` for data that the handler could not be called with."""
        self._fields.decode(data)

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the data."""
        return self._fields.schema()

    def after_first(self) -> "tuple[str, Signature]":
        """Return the name of the first parameter, and the signature of the others."""
        if not self._by_position:
            raise InvalidOptions(f"{self._what}: its handler has no parameter to take a result; give it one")
        rest = Signature(self._what, self._parameters[1:], self._has_context, self.result)
        return self._names[0], rest

    def runner(self, fn: Callable[..., Any]) -> Run:
        """Return a function that calls the handler with the data of a context's job."""
        decode, astuple = self._fields.decode, msgspec.structs.astuple
        if self._by_position < len(self._names):
            return self._runner_by_name(fn)
        if not self._names:
            return fn if self._has_context else lambda _: fn()
        if self._has_context:
            return lambda context: fn(context, *astuple(decode(context.job.data)))
        return lambda context: fn(*astuple(decode(context.job.data)))

    def _runner_by_name(self, fn: Callable[..., Any]) -> Run:
        """Return the runner of a handler that has keyword-only parameters."""
        decode, astuple, names = self._fields.decode, msgspec.structs.astuple, self._names

        def run(context: Any) -> Any:
            named = dict(zip(names, astuple(decode(context.job.data)), strict=True))
            return fn(context, **named) if self._has_context else fn(**named)

        return run


AnySignature = RawSignature | WholeSignature | Signature


def read_signature(
    fn: Callable[..., Any],
    name: str,
    contexts: Mapping[type, bool],
    is_async: bool,
    style: DataStyle = "fields",
) -> AnySignature:
    """Return the signature of the handler of jobs called `name`; refused where it cannot be called.

    `contexts` has the classes of contexts, and whether each is for async handlers.
    """
    if style not in ("fields", "whole"):
        raise InvalidOptions(f"data={style!r} of {name!r}: use 'fields' (the default) or 'whole'")
    bound = _bound_names(fn)
    parameters = [one for one in inspect.signature(fn).parameters.values() if one.name not in bound]
    for parameter in parameters:
        if parameter.kind in _REFUSED:
            raise InvalidOptions(
                f"the handler of {name!r} has {_REFUSED[parameter.kind].format(parameter.name)}, which "
                f"cannot be called by name; give each field of the job's data a named parameter"
            )
    hints = hints_of(fn, name, parameters)
    has_context = bool(parameters) and _is_context(parameters[0], hints, contexts)
    if has_context:
        _check_context(name, hints.get(parameters[0].name), contexts, is_async)
    fields = [(one, hints.get(one.name, Any)) for one in parameters[has_context:]]
    for one, annotation in fields:
        if class_of(annotation) in contexts:
            raise InvalidOptions(
                f"the context {one.name!r} of {name!r} is not its first parameter; put it in front"
            )
    result = result_conversion(hints.get("return"), name, is_raw=has_context and not fields)
    if style == "whole":
        if len(fields) != 1:
            raise InvalidOptions(
                f"data='whole' of {name!r}: its handler has {len(fields)} parameters besides the context; "
                f"give it one"
            )
        return WholeSignature(Conversion(fields[0][1], f"the data of {name!r}"), has_context, result)
    if has_context and not fields:
        return RawSignature(result)
    return Signature(f"the data of {name!r}", fields, has_context, result)


def _struct(parameters: Sequence[tuple[Parameter, Any]]) -> type[msgspec.Struct]:
    """Return a Struct with a field for each parameter; renamed, so that every name is allowed."""
    fields: list[Any] = []
    for number, (parameter, annotation) in enumerate(parameters):
        field: tuple[Any, ...] = (f"p{number}", annotation)
        if parameter.default is not Parameter.empty:
            # a factory: the default is the very object, as in a call
            field = (*field, msgspec.field(default_factory=partial(_same, parameter.default)))
        fields.append(field)
    names = {f"p{number}": parameter.name for number, (parameter, _) in enumerate(parameters)}
    return msgspec.defstruct("Arguments", fields, rename=names, kw_only=True, gc=False)


def _same(value: Any) -> Any:
    return value


def _nothing() -> None:
    """Take no arguments."""


def only_argument(data: Any = None) -> Any:
    """Return the only argument of a call."""
    return data


def _bound_names(fn: Callable[..., Any]) -> set[str]:
    """Return the keywords that a partial has bound: they are the program's, not the job's data."""
    names: set[str] = set()
    while isinstance(fn, partial):
        names |= fn.keywords.keys()
        fn = fn.func
    return names


def hints_of(fn: Callable[..., Any], name: str, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the annotations by parameter, resolved."""
    while isinstance(fn, partial):
        fn = fn.func
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    try:
        return get_type_hints(inspect.unwrap(fn), include_extras=True)
    except (NameError, AttributeError) as error:
        if [one.name for one in parameters] == [JOB]:
            return {}
        raise InvalidOptions(
            f"an annotation of the handler of {name!r} cannot be resolved ({error}); "
            f"define or import it at the top of the module, not only for type checkers"
        ) from None


def class_of(annotation: Any) -> Any:
    """Return the class of an annotation, without its parameters."""
    return get_origin(annotation) or annotation


def _is_context(first: Parameter, hints: Mapping[str, Any], contexts: Mapping[type, bool]) -> bool:
    annotation = hints.get(first.name, Any)
    return class_of(annotation) in contexts or (first.name == JOB and annotation is Any)


def _check_context(name: str, annotation: Any, contexts: Mapping[type, bool], is_async: bool) -> None:
    """Refuse the context of an async handler in a sync one, and the other way round."""
    context = class_of(annotation)
    if contexts.get(context, is_async) is not is_async:
        [right] = [cls.__name__ for cls, fits in contexts.items() if fits is is_async]
        kind = "async def" if is_async else "def"
        raise InvalidOptions(
            f"the handler of {name!r} is a `{kind}` and takes a {context.__name__}; use {right}"
        )


def result_conversion(annotation: Any, name: str, is_raw: bool) -> Conversion | None:
    """Return the conversion of results; None where they are read as they were written."""
    if annotation in (None, type(None), Any, Never, NoReturn):
        return None
    try:
        return Conversion(annotation, f"the result of {name!r}")
    except InvalidOptions:
        if is_raw:
            return None  # it is written as JSON or refused when it is returned, as always
        raise
