"""The JSON of user data: what it carries, what it refuses, and how large it may be."""

import dataclasses
import json
import math
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import msgspec
import numpy
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as some

from corral.core.payload import LIMIT_BYTES, check_progress, check_size, decode, encode, encode_each
from corral.errors import InvalidPayload, PayloadTooLarge


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Odd(Enum):
    ENDLESS = math.inf
    NOTHING = None


@dataclasses.dataclass
class Address:
    city: str
    _secret: str = "x"


Point = namedtuple("Point", "x y")


class Model(pydantic.BaseModel):
    to: str = "x"


class Record(msgspec.Struct):
    to: str = "x"


def refusal(value: Any, what: str = "data") -> str:
    with pytest.raises(InvalidPayload) as caught:
        encode(value, what)
    return str(caught.value)


# -- what JSON carries

numbers = some.integers(-(2**63), 2**64 - 1) | some.floats(allow_nan=False, allow_infinity=False)
words = some.text(some.characters(exclude_categories=["Cs"]))
values = some.recursive(
    some.none() | some.booleans() | numbers | words,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_what_is_written_is_read_back_equal(value: Any) -> None:
    written = encode(value)
    assert decode(written) == value
    assert json.loads(written) == value


@given(some.lists(some.floats() | some.none(), max_size=6), some.booleans())
def test_a_number_json_does_not_have_never_gets_through(parts: list[float | None], deep: bool) -> None:
    value: Any = {"a": [{"b": tuple(parts)}]} if deep else parts
    if all(part is None or math.isfinite(part) for part in parts):
        assert decode(encode(value)) is not None
    else:
        assert "JSON has no such number" in refusal(value)


def test_text_is_written_as_it_is() -> None:
    assert encode({"größe": "😀 </script>"}) == '{"größe":"😀 </script>"}'.encode()


def test_large_integers_keep_every_digit() -> None:
    large = [130775545883395173, 2**64 - 1, -(2**63)]
    assert decode(encode(large)) == large


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ((1, (2,)), [1, [2]]),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Odd.NOTHING, None),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03:04:00"),
        (OrderedDict(a=1), {"a": 1}),
        ({}, {}),
        ([], []),
    ],
)
def test_some_things_come_back_as_the_json_they_are(value: Any, read: Any) -> None:
    assert decode(encode({"k": value})) == {"k": read}


# -- what it refuses


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_json_does_not_have_are_refused_where_they_stand(number: float) -> None:
    assert refusal(number) == f"data is {number}; JSON has no such number: use None or text"
    assert refusal({"rows": [1, {"the price": number}]}, "result") == (
        f"result.rows[1]['the price'] is {number}; JSON has no such number: use None or text"
    )


def test_an_endless_number_in_an_enum_is_found_too() -> None:
    assert refusal({"a": None, "b": Odd.ENDLESS}).startswith("data.b is inf; JSON has no such number")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2**64, "data.k is 18446744073709551616; JSON here carries 64 bits: use text"),
        (-(2**63) - 1, "data.k is -9223372036854775809; JSON here carries 64 bits: use text"),
        (10**69, f"data.k is 1{'0' * 69}; JSON here carries 64 bits: use text"),
        (1 << 20_000, "data.k is an integer of 20001 bits; JSON here carries 64 bits: use text"),
        ("half \ud83d", "data.k has half a surrogate pair; cut text between characters, not inside one"),
        (b"x", "data.k is b'x' (bytes); use text, such as base64"),
        ({1}, "data.k is {1} (set); use a list"),
        (Decimal("1.10"), "data.k is Decimal('1.10') (Decimal); use str() to keep every digit, or float()"),
        (Fraction(1, 3), "data.k is Fraction(1, 3) (Fraction); use str() to keep every digit, or float()"),
        (timedelta(1), "data.k is datetime.timedelta(days=1) (timedelta); use a number of seconds"),
        (time(1, tzinfo=UTC), "data.k is a time of day with a zone; use a datetime, or text"),
        (Point(1, 2), "data.k is Point(x=1, y=2) (Point); use ._asdict() or list()"),
        (Address("Rom"), "data.k is Address(city='Rom', _secret='x') (Address); use dataclasses.asdict()"),
        (Model(), "data.k is Model(to='x') (Model); use model_dump(mode=\"json\")"),
        (Record(), "data.k is Record(to='x') (Record); use msgspec.to_builtins()"),
        (numpy.float64(1.5), "data.k is np.float64(1.5) (float64); use float()"),
        (numpy.zeros(2), "data.k is array([0., 0.]) (ndarray); use .tolist()"),
        (1j, "data.k is 1j (complex); use what JSON has: text, numbers, True, False, None, lists and dicts"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_json_cannot_carry_is_refused_with_the_way_out(value: Any, said: str) -> None:
    assert refusal({"k": value}) == said


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1,), b"k", Colour.RED])
def test_a_key_that_is_no_text_is_refused(key: Any) -> None:
    assert refusal({"a": [{key: 1}]}) == (
        f"data.a[0] has the key {key!r} ({type(key).__name__}); use plain text for keys"
    )


def test_a_key_with_half_a_surrogate_pair_is_refused() -> None:
    assert refusal({"\udfff": 1}).startswith("data has a key with half a surrogate pair, '\\udfff'")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_goes_254_levels_deep() -> None:
    assert decode(encode(nested(254))) == nested(254)
    for levels in (255, 3_000, 100_000):
        assert "is nested more than 254 levels deep" in refusal(nested(levels))


def test_a_value_inside_itself_is_refused() -> None:
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    assert "(or inside itself); flatten it" in refusal(ring)
    assert len(refusal(ring)) < 250


def test_the_first_fault_is_the_one_that_is_named() -> None:
    assert refusal({"a": 1, "b": {1}, "c": b"x"}).startswith("data.b ")
    assert refusal([1, b"x", {2}]).startswith("data[1] ")


def test_a_refusal_of_something_huge_is_short() -> None:
    assert len(refusal({"k" * 1000: {"x": b"y" * 1_000_000}})) < 300


# -- many at once


@given(some.lists(values | some.sampled_from([",\0,", "\0", {"\0,": None}]), max_size=8))
def test_many_are_written_as_each_alone(many: list[Any]) -> None:
    assert encode_each(many) == [encode(value) for value in many]


@pytest.mark.parametrize("bad", [{1}, math.nan, "\ud800", {1: 2}, Address("Bern"), nested(255)])
def test_the_bad_one_of_many_is_told_by_its_place(bad: Any) -> None:
    for many in ([bad], [1, None, bad, 2, bad]):
        with pytest.raises(InvalidPayload) as caught:
            encode_each(many)
        assert (caught.value.position, str(caught.value)) == (many.index(bad), refusal(bad))


def test_one_of_many_may_be_nested_as_deep_as_one_alone() -> None:
    assert encode_each([1, nested(254)]) == [b"1", encode(nested(254))]


# -- reading


@pytest.mark.parametrize("raw", [b"", b"{to:", b"NaN", b'{"a":Infinity}', b"[1,]", b"undefined", b"{} {}"])
def test_what_is_no_json_is_read_as_raw_text(raw: bytes) -> None:
    assert decode(raw) == {"_raw": raw.decode()}


def test_bytes_that_are_no_text_are_read_as_raw_text_too() -> None:
    assert decode(b"\xff\xfe{}") == {"_raw": "\\xff\\xfe{}"}
    assert encode(decode(b"\xff")) == b'{"_raw":"\\\\xff"}'


def test_text_that_another_language_cut_in_half_does_not_hide_the_rest() -> None:
    assert decode(b'{"title":"half \\ud83d","n":1}') == {"title": "half \ud83d", "n": 1}


def test_nesting_beyond_all_measure_is_read_as_raw_text() -> None:
    raw = b"[" * 200_000 + b"]" * 200_000
    assert decode(raw) == {"_raw": raw.decode()}


@given(some.binary(max_size=200))
def test_whatever_the_bytes_reading_never_fails(raw: bytes) -> None:
    assert decode(raw) == decode(raw.decode("utf-8", "backslashreplace"))


def test_text_is_read_like_bytes() -> None:
    assert decode('{"a":1}') == {"a": 1}


# -- size


def test_ten_megabytes_of_data_and_options_together_are_allowed() -> None:
    check_size(b"x" * (LIMIT_BYTES - 100), b"o" * 100)


@pytest.mark.parametrize(
    ("data", "options", "shown"),
    [
        (12_897_485, 0, "12.3 MB"),
        (12_897_385, 100, "12.3 MB"),
        (LIMIT_BYTES, 104_858, "10.1 MB"),
        (0, 3 * LIMIT_BYTES, "30.0 MB"),
    ],
)
def test_more_is_refused_in_the_words_of_the_contract(data: int, options: int, shown: str) -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        check_size(b"x" * data, b"o" * options)
    assert str(caught.value) == f"Job payload size {shown} exceeds limit of 10.0 MB"
    assert "elsewhere" in caught.value.__notes__[0]


def test_one_byte_too_many_is_told_in_bytes() -> None:
    with pytest.raises(InvalidPayload) as caught:
        check_size(b"x" * LIMIT_BYTES, b"o")
    assert str(caught.value) == ("Job payload size 10.0 MB exceeds limit of 10.0 MB (10485761 bytes, 1 over)")


# -- progress


@pytest.mark.parametrize("value", [0, 25, 99.5, 100, {"step": 3, "of": 400}, "half", [1000], None, True])
def test_progress_is_a_percentage_or_any_other_json(value: Any) -> None:
    assert check_progress(value) == value


@pytest.mark.parametrize("value", [-1, 101, 100.1, -0.5, math.nan, math.inf, 10**70])
def test_a_percentage_outside_0_to_100_is_refused(value: Any) -> None:
    with pytest.raises(InvalidPayload, match=r"^progress is .*; use a number from 0 to 100, or an object"):
        check_progress(value)
