"""Signatures: which handlers are taken, what their arguments are in a job's data, and what is refused."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from corral import InvalidArguments, InvalidOptions, JobContext, SyncJobContext
from corral.core.signature import RawSignature
from corral.worker.handlers import signature_of, with_arguments


@dataclass
class Order:
    id: int
    total: float = 0.0


@dataclass
class Refund:
    id: int


class Struct(msgspec.Struct):
    name: str


class Film(TypedDict):
    title: str


class Color(enum.Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    size: int


class Opaque:
    pass


class Holder:
    """A context as far as a handler's runner reads it."""

    def __init__(self, data: Any) -> None:
        self.job = self
        self.data = data


def called(fn: Callable[..., Any], data: Any) -> Any:
    """Call a handler as a worker does."""
    return with_arguments(fn, signature_of(fn, "it"))(Holder(data))


def check_way(fn: Callable[..., Any], arguments: tuple[Any, ...], data: Any) -> None:
    """The arguments are written as `data`, which the handler is called with as the same arguments."""
    assert signature_of(fn, "it").data(arguments, {}) == data
    assert called(fn, data) == arguments


# -- there and back -----------------------------------------------------------------------------------------


def test_arguments_are_fields_of_the_data_by_name() -> None:
    def thumbnail(file: str, width: int = 200) -> tuple[str, int]:
        return file, width

    signature = signature_of(thumbnail, "thumbnail")
    assert signature.data(("a.jpg",), {}) == {"file": "a.jpg"}
    assert signature.data(("a.jpg",), {"width": 3}) == {"file": "a.jpg", "width": 3}
    assert signature.data((), {"width": 3, "file": "a.jpg"}) == {"file": "a.jpg", "width": 3}
    assert called(thumbnail, {"file": "a.jpg", "more": 1}) == ("a.jpg", 200)


@pytest.mark.parametrize(
    ("annotation", "value", "written"),
    [
        (Order, Order(17, 9.5), {"id": 17, "total": 9.5}),
        (Struct, Struct("x"), {"name": "x"}),
        (Film, {"title": "x"}, {"title": "x"}),
        (Order | None, None, None),
        (list[Order], [Order(1)], [{"id": 1, "total": 0.0}]),
        (dict[int, Color], {7: Color.RED}, {"7": "red"}),
        (int | str, "x", "x"),
        (datetime, datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (timedelta, timedelta(seconds=90), "PT90S"),
        (UUID, UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Decimal, Decimal("1.10"), "1.10"),
        (bytes, b"ab", "YWI="),
        (set[int], {1}, [1]),
        (Model, Model(size=3), {"size": 3}),
        (list[Model], [Model(size=3)], [{"size": 3}]),
        (Annotated[int, msgspec.Meta(ge=0)], 3, 3),
        (Any, {"any": [1]}, {"any": [1]}),
    ],
    ids=str,
)
def test_every_type_of_the_field_goes_there_and_back(annotation: Any, value: Any, written: Any) -> None:
    def handler(item):
        return (item,)

    handler.__annotations__["item"] = annotation
    check_way(handler, (value,), {"item": written})


def test_a_default_is_the_handlers_own_object() -> None:
    shared: list[int] = [1]

    def handler(numbers: list[int] = shared) -> list[int]:
        return numbers

    assert signature_of(handler, "it").data((), {}) == {}
    assert called(handler, {}) is shared


def test_keyword_only_and_no_parameters_at_all() -> None:
    def named(*, file: str, width: int = 2) -> tuple[str, int]:
        return file, width

    def nothing() -> str:
        return "ran"

    assert signature_of(named, "it").data((), {"file": "a"}) == {"file": "a"}
    assert called(named, {"file": "a"}) == ("a", 2)
    assert signature_of(nothing, "it").data((), {}) == {}
    assert called(nothing, ["anything"]) == "ran"


def test_what_a_partial_binds_is_no_field_of_the_data() -> None:
    def charge(job: SyncJobContext, order: Order, bank: Opaque, fee: int = 1) -> Any:
        return order.id, bank, fee

    bank = Opaque()
    bound = partial(partial(charge, bank=bank), fee=5)
    signature = signature_of(bound, "charge")
    data = {"order": {"id": 17, "total": 0.0}}
    assert signature.data((), {"order": Order(17)}) == data
    with pytest.raises(TypeError, match="unexpected keyword argument 'bank'"):
        signature.data((), {"order": Order(17), "bank": bank})
    assert called(bound, {**data, "fee": 9}) == (17, bank, 5), "the data cannot replace what is bound"


def test_the_whole_data_goes_to_the_one_parameter() -> None:
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    signature = signature_of(total, "total", "whole")
    assert signature.data(([1, 2],), {}) == [1, 2]
    assert with_arguments(total, signature)(Holder([1, 2])) == 3
    with pytest.raises(InvalidArguments, match=r"the data of 'total' does not fit: \[1\]: Expected `int`"):
        with_arguments(total, signature)(Holder([1, "2"]))


def test_a_result_is_written_as_what_json_has() -> None:
    def order() -> Order:
        return Order(1, 2.5)

    async def model() -> list[Model]:
        return [Model(size=3)]

    assert called(order, {}) == {"id": 1, "total": 2.5}
    with pytest.raises(StopIteration) as stop:
        called(model, {}).send(None)
    assert stop.value.value == [{"size": 3}]


# -- the context --------------------------------------------------------------------------------------------


def test_the_context_is_the_first_parameter_and_callers_do_not_pass_it() -> None:
    async def charge(job: JobContext[int], order: Order) -> None: ...

    def draw(job, size: int): ...

    assert signature_of(charge, "it").data((Order(1),), {}) == {"order": {"id": 1, "total": 0.0}}
    assert signature_of(draw, "it").data((3,), {}) == {"size": 3}


@pytest.mark.parametrize("style", ["bare", "any", "context", "unresolved"])
def test_a_handler_of_the_context_alone_is_raw(style: str) -> None:
    def bare(job): ...
    def of_any(job: Any) -> None: ...
    def of_context(job: SyncJobContext) -> None: ...
    def unresolved(job: "Missing") -> None: ...  # type: ignore[name-defined] # noqa: F821

    handler = {"bare": bare, "any": of_any, "context": of_context, "unresolved": unresolved}[style]
    signature = signature_of(handler, "it")
    assert isinstance(signature, RawSignature)
    assert with_arguments(handler, signature) is handler, "it costs nothing"


def sync_with_async_context(job: JobContext) -> None: ...
async def async_with_sync_context(job: SyncJobContext) -> None: ...
def late_context(file: str, job: SyncJobContext) -> None: ...
def many(*files: str) -> None: ...
def options(**files: str) -> None: ...
def by_position(file: str, /) -> None: ...
def union(item: Order | Refund) -> None: ...
def opaque(item: Opaque) -> None: ...
def opaque_inside(item: dict[str, list[Opaque]]) -> None: ...
def opaque_result(item: int) -> Opaque: ...
def unresolved(item: "Missing") -> None: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (sync_with_async_context, "is a `def` and takes a JobContext; use SyncJobContext"),
        (async_with_sync_context, "is a `async def` and takes a SyncJobContext; use JobContext"),
        (late_context, "the context 'job' of 'it' is not its first parameter; put it in front"),
        (many, "has *files, which cannot be called by name"),
        (options, "has **files, which cannot be called by name"),
        (by_position, "has the positional-only parameter 'file', which cannot be called by name"),
        (union, "parameter 'item' of the data of 'it' cannot be decoded: Type unions may not contain more"),
        (opaque, "parameter 'item' of the data of 'it' has the type Opaque, which cannot be decoded"),
        (opaque_inside, "has the type Opaque, which cannot be decoded; use a dataclass"),
        (opaque_result, "the result of 'it' has the type Opaque, which cannot be decoded"),
        (unresolved, "an annotation of the handler of 'it' cannot be resolved (name 'Missing'"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_handler_that_cannot_be_called_is_refused(handler: Any, sentence: str) -> None:
    with pytest.raises(InvalidOptions) as refusal:
        signature_of(handler, "it")
    assert sentence in str(refusal.value)


def test_the_whole_data_needs_one_parameter() -> None:
    with pytest.raises(InvalidOptions, match=r"data='whole' of 'it': its handler has 2 parameters"):
        signature_of(lambda a, b: None, "it", "whole")
    with pytest.raises(InvalidOptions, match=r"data='all' of 'it': use 'fields' \(the default\) or 'whole'"):
        signature_of(lambda a: None, "it", "all")  # type: ignore[arg-type]


# -- what does not fit --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({}, "Object missing required field `order`"),
        ([], "Expected `object`, got `array`"),
        ({"order": {"id": "17"}}, "order.id: Expected `int`, got `str`"),
        ({"order": {"id": 17}, "model": {"size": "x"}}, "model: size: Input should be a valid integer"),
    ],
    ids=str,
)
def test_data_that_does_not_fit_is_refused_with_its_field(data: Any, sentence: str) -> None:
    def handler(order: Order, model: Model | None = None) -> None: ...

    with pytest.raises(InvalidArguments) as refusal:
        called(handler, data)
    assert str(refusal.value).startswith(f"the data of 'it' does not fit: {sentence}")


def test_an_instance_of_the_right_type_with_a_wrong_field_is_refused_at_add() -> None:
    def handler(order: Order) -> None: ...

    wrong: Any = "17"
    with pytest.raises(InvalidArguments, match=r"the data of 'it' does not fit: order\.id: Expected `int`"):
        signature_of(handler, "it").data((Order(wrong),), {})
    with pytest.raises(
        InvalidArguments, match="the data of 'it' cannot be written as JSON: Encoding objects of type"
    ):
        signature_of(handler, "it").data((Opaque(),), {})


@pytest.mark.parametrize(
    ("arguments", "named", "sentence"),
    [
        ((), {}, "missing a required argument: 'file'"),
        (("a", 2, 3), {}, "too many positional arguments"),
        (("a",), {"file": "b"}, "multiple values for argument 'file'"),
        (("a",), {"wide": 2}, "unexpected keyword argument 'wide'"),
    ],
)
def test_a_wrong_call_is_pythons_own_error(arguments: Any, named: Any, sentence: str) -> None:
    def thumbnail(file: str, width: int = 200) -> None: ...

    with pytest.raises(TypeError, match=sentence):
        signature_of(thumbnail, "it").data(arguments, named)
