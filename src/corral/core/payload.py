"""The JSON of user data: encoded, decoded, and refused where JSON cannot represent it."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime, time
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID

import orjson

from corral.core.batch import encode_all
from corral.errors import InvalidPayload, PayloadTooLarge, short_repr

LIMIT_BYTES = 10 * 1024 * 1024
"""Of a job's data and options together, as JSON."""
MOST_PROGRESS = 100
DEEPEST = 254
"""Levels of nesting that can be written."""

_MEGABYTE = 1024 * 1024
# a dataclass would silently lose its fields with a leading underscore
_FLAGS = orjson.OPT_PASSTHROUGH_DATACLASS
# no JSON text contains this byte: in a string it is written \u0000
_SEPARATOR: Any = orjson.Fragment(b"\0")
_BROKEN = re.compile("[\ud800-\udfff]")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_PATH = 100
_CUT_WHOLE = "cut text between characters, not inside one"
_PLAIN = frozenset({str, int, bool, type(None)})

_HINTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("bytes", "bytearray", "memoryview"), "use text, such as base64"),
    (("set", "frozenset", "deque", "range", "generator", "dict_keys", "dict_values"), "use a list"),
    (("ndarray",), "use .tolist()"),
    (("Decimal", "Fraction"), "use str() to keep every digit, or float()"),
    (("timedelta",), "use a number of seconds"),
    (("BaseModel",), 'use model_dump(mode="json")'),
    (("Struct",), "use msgspec.to_builtins()"),
)


def encode(value: Any, what: str = "data") -> bytes:
    """Return the JSON of `value`, or raise `InvalidPayload` naming the part that JSON cannot represent.

    The JSON decodes to an equal value, with few exceptions: a tuple becomes a list; an Enum its value;
    UUID, datetime, date and time become text (ISO 8601, as Node writes its dates). All else is refused
    rather than changed: NaN and infinities, integers beyond 64 bits, text with half a surrogate pair, keys
    that are not text, dataclasses, bytes, sets …

    >>> encode({"to": "a@b.c"})
    b'{"to":"a@b.c"}'
    >>> encode({"prices": [1.5, float("nan")]})
    Traceback (most recent call last):
    ...
    corral.errors.InvalidPayload: data.prices[1] is nan; JSON has no such number: use None or text
    """
    try:
        encoded = orjson.dumps(value, None, _FLAGS)
    except TypeError as error:
        raise InvalidPayload(_explain(value, what) or f"{what}: {error}") from None
    # NaN and infinities are encoded as null: without null in the text there is none in the value
    if b"null" in encoded and not _is_finite(value):
        raise InvalidPayload(_explain(value, what))
    return encoded


def encode_each(values: Sequence[Any]) -> list[bytes]:
    """Return the JSON of each value; the error of an invalid one has its `position`.

    All are encoded in one call and split, because a call each costs ten times as much for small values.

    >>> encode_each([{"to": "a@b.c"}, [1, "\\0,"]])
    [b'{"to":"a@b.c"}', b'[1,"\\u0000,"]']
    """
    separated = [_SEPARATOR] * (2 * len(values))
    separated[::2] = values
    try:
        text = orjson.dumps(separated, None, _FLAGS)
    except TypeError:
        return encode_all(values, encode)
    parts = text[1:-3].split(b",\0,")
    if len(parts) != len(values) or (b"null" in text and not all(map(_is_finite, values))):
        return encode_all(values, encode)
    return parts


def decode(raw: bytes | str) -> Any:
    """Return the decoded JSON; text that is no JSON becomes `{"_raw": text}`.

    >>> decode(b'{"to":"a@b.c"}'), decode(b"{to:")
    ({'to': 'a@b.c'}, {'_raw': '{to:'})
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        text = raw if isinstance(raw, str) else raw.decode("utf-8", "backslashreplace")
    try:
        # Node escapes half a surrogate pair, of a text cut in two: invalid text, but JSON
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return {"_raw": text}


def check_size(data: bytes, options: bytes) -> None:
    """Raise `PayloadTooLarge` for data and options over the limit, counted as JSON."""
    size = len(data) + len(options)
    if size <= LIMIT_BYTES:
        return
    size_shown, limit = f"{size / _MEGABYTE:.1f} MB", f"{LIMIT_BYTES / _MEGABYTE:.1f} MB"
    sentence = f"Job payload size {size_shown} exceeds limit of {limit}"
    # where both round to the same, the bytes tell them apart
    error = PayloadTooLarge(
        sentence if size_shown != limit else f"{sentence} ({size} bytes, {size - LIMIT_BYTES} over)"
    )
    error.add_note("Store the large part elsewhere and put a reference to it in the job's data.")
    raise error


def check_progress(value: Any) -> Any:
    """Return the progress, if it is valid: a number from 0 to 100, or any other JSON value.

    >>> check_progress(101)
    Traceback (most recent call last):
    ...
    corral.errors.InvalidPayload: progress is 101; use a number from 0 to 100, or an object for anything else
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and not 0 <= value <= MOST_PROGRESS:
        raise InvalidPayload(
            f"progress is {short_repr(value)}; "
            f"use a number from 0 to {MOST_PROGRESS}, or an object for anything else"
        )
    return value


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _is_finite(value: Any) -> bool:
    stack = [value]
    while stack:
        part = stack.pop()
        kind = type(part)
        if kind in _PLAIN:
            continue
        if kind is float:
            if not isfinite(part):
                return False
        elif isinstance(part, dict):
            stack.extend(part.values())
        elif isinstance(part, list | tuple):
            stack.extend(part)
        elif isinstance(part, Enum):
            stack.append(part.value)
    return True


def _explain(value: Any, what: str) -> str | None:
    """Return what JSON cannot represent in `value`, or None; slow, for use after an error."""
    stack: list[tuple[str, Any, int]] = [(what, value, 0)]
    while stack:
        path, part, depth = stack.pop()
        if depth > DEEPEST:
            return f"{_cut(path)} is nested more than {DEEPEST} levels deep (or inside itself); flatten it"
        complaint = _complaint(part)
        if complaint:
            return f"{_cut(path)} {complaint}"
        if isinstance(part, dict):
            for key in part:
                if type(key) is not str or _BROKEN.search(key):
                    return f"{_cut(path)} {_about_key(key)}"
        stack.extend((name, inner, depth + 1) for name, inner in _inside(path, part))
    return None


def _inside(path: str, part: Any) -> Iterator[tuple[str, Any]]:
    # in reverse, because the stack takes the last first and the first error should be named
    if isinstance(part, dict):
        for key in reversed(part):
            name = f".{key}" if _IDENTIFIER.fullmatch(key) else f"[{short_repr(key)}]"
            yield path + name, part[key]
    elif isinstance(part, list | tuple):
        for index in range(len(part) - 1, -1, -1):
            yield f"{path}[{index}]", part[index]


def _complaint(part: Any) -> str | None:
    """Return what is wrong with this value itself, without its parts."""
    if isinstance(part, Enum):
        part = part.value
    match part:
        case None | bool():
            return None
        case str():
            return f"has half a surrogate pair; {_CUT_WHOLE}" if _BROKEN.search(part) else None
        case int():
            is_writable = -(2**63) <= part < 2**64
            return None if is_writable else f"is {short_repr(part)}; JSON here carries 64 bits: use text"
        case float() if type(part) is float:
            return None if isfinite(part) else f"is {part}; JSON has no such number: use None or text"
        case time() if part.tzinfo is not None:
            return "is a time of day with a zone; use a datetime, or text"
        case dict() | list() | datetime() | date() | time() | UUID() | orjson.Fragment():
            return None
        case tuple() if type(part) is tuple:
            return None
    return f"is {short_repr(part)} ({type(part).__name__}); {_way_out(part)}"


def _about_key(key: Any) -> str:
    if type(key) is str:
        return f"has a key with half a surrogate pair, {key!a}; {_CUT_WHOLE}"
    return f"has the key {short_repr(key)} ({type(key).__name__}); use plain text for keys"


def _way_out(part: Any) -> str:
    if is_dataclass(part):
        return "use dataclasses.asdict()"
    if isinstance(part, tuple) and getattr(part, "_asdict", None):
        return "use ._asdict() or list()"
    if isinstance(part, float):
        return "use float()"
    names = {cls.__name__ for cls in type(part).__mro__}
    for known, hint in _HINTS:
        if names.intersection(known):
            return hint
    return "use what JSON has: text, numbers, True, False, None, lists and dicts"


def _cut(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"
