"""Conversion: values of a Python type, to and from what JSON can represent."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import inspect as types

from corral.errors import InvalidArguments, InvalidOptions

_PLAIN = (
    types.AnyType,
    types.NoneType,
    types.BoolType,
    types.IntType,
    types.FloatType,
    types.StrType,
    types.EnumType,
    types.LiteralType,
)
"""Types whose values are written as they are."""


class Conversion:
    """A type that data is converted to and checked against.

    >>> Conversion(dict[str, int], "the result of 'count'").decode({"a": 1})
    {'a': 1}
    >>> Conversion(list[int], "the data of 'sum'").decode([1, "2"])
    Traceback (most recent call last):
    ...
    corral.errors.InvalidArguments: the data of 'sum' does not fit: [1]: Expected `int`, got `str`
    """

    def __init__(self, type_: Any, what: str) -> None:
        self.what = what
        self._type = type_
        try:
            msgspec.json.Decoder(type_, dec_hook=_decode_model)
            parts = list(_parts(types.type_info(type_)))
        except (TypeError, NameError) as error:
            raise InvalidOptions(f"{what} cannot be decoded: {error}") from None
        models = [part.cls for part in parts if isinstance(part, types.CustomType)]
        for model in models:
            if not _is_model(model):
                raise InvalidOptions(
                    f"{what} has the type {model.__qualname__}, which cannot be decoded; use a dataclass, a "
                    f"msgspec.Struct, a TypedDict, a pydantic model, or what JSON has"
                )
        self.is_plain = all(isinstance(part, _PLAIN) or _is_plain_container(part) for part in parts)
        """Whether its values can be written without being encoded first."""
        # the usual types need neither of these options, each of which costs as much as a small conversion
        has_odd_keys = any(isinstance(part, types.DictType) and not _has_text_keys(part) for part in parts)
        self._options: dict[str, Any] = {"str_keys": True} if has_odd_keys or models else {}
        self._decode_options = {**self._options, "dec_hook": _decode_model} if models else self._options
        self._encode_options = {**self._options, "enc_hook": _encode_model} if models else self._options
        self.decode = self._decoder()

    def _decoder(self) -> Callable[[Any], Any]:
        """Return a function that converts data to the type, or raises `InvalidArguments`."""
        convert, type_, options = msgspec.convert, self._type, self._decode_options

        def decode(data: Any) -> Any:
            try:
                return convert(data, type_, **options) if options else convert(data, type_)
            except msgspec.ValidationError as error:
                raise InvalidArguments(f"{self.what} does not fit: {_located(str(error))}") from None

        return decode

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the type; None where it has none."""
        try:
            return msgspec.json.schema(self._type, schema_hook=_model_schema)
        except (TypeError, NotImplementedError):
            return None

    def encode(self, value: Any) -> Any:
        """Return the value as what JSON can represent: dicts, lists, text, numbers."""
        try:
            return msgspec.to_builtins(value, **self._encode_options)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArguments(f"{self.what} cannot be written as JSON: {error}") from None


def _model_schema(model: Any) -> dict[str, Any]:
    schema: dict[str, Any] = model.model_json_schema()
    return schema


def _located(message: str) -> str:
    """Return a message of msgspec with the place in front: `order.id: Expected …`."""
    text, separator, path = message.rpartition(" - at `$")
    if not separator:
        return message
    return f"{path.removesuffix('`').removeprefix('.')}: {text}"


def _parts(info: types.Type) -> Iterator[types.Type]:
    """Yield a type and all the types inside it, each once."""
    stack, seen = [info], set[int]()
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        stack.extend(_inside(part))


def _inside(part: types.Type) -> Iterator[types.Type]:
    match part:
        case types.Metadata(type=inner):
            yield inner
        case types.UnionType(types=inners):
            yield from inners
        case types.TupleType(item_types=inners):
            yield from inners
        case types.CollectionType(item_type=inner):
            yield inner
        case types.DictType(key_type=key, value_type=value):
            yield key
            yield value
        case types.StructType() | types.DataclassType() | types.TypedDictType() | types.NamedTupleType():
            for field in part.fields:
                yield field.type


def _has_text_keys(part: types.DictType) -> bool:
    return isinstance(part.key_type, types.StrType | types.AnyType)


def _is_plain_container(part: types.Type) -> bool:
    match part:
        case types.DictType():
            return _has_text_keys(part)
        case types.ListType() | types.VarTupleType() | types.TupleType() | types.TypedDictType():
            return True
        case types.UnionType() | types.Metadata():
            return True
    return False


# -- pydantic's models, where it is installed ---------------------------------------------------------------


def _is_model(value: Any) -> bool:
    pydantic = sys.modules.get("pydantic")  # a program with models has imported it
    return pydantic is not None and isinstance(value, type) and issubclass(value, pydantic.BaseModel)


def _decode_model(model: Any, data: Any) -> Any:
    """Return an instance of a pydantic model; msgspec adds where it is to the error."""
    try:
        return model.model_validate(data)
    except ValueError as error:
        raise ValueError(_model_errors(error)) from None


def _model_errors(error: Any) -> str:
    """Return pydantic's complaints on one line."""
    return "; ".join(
        f"{'.'.join(map(str, complaint['loc']))}: {complaint['msg']}" for complaint in error.errors()
    )


def _encode_model(value: Any) -> Any:
    if _is_model(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
