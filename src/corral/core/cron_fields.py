"""The fields of a cron expression, parsed into sets of numbers."""

import re

from msgspec import Struct

from corral.errors import InvalidOptions

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_STEP = re.compile(r"(?P<range>[^/]+)/(?P<step>\d+)")
_RANGE = re.compile(r"(?P<low>\w+)-(?P<high>\w+)")


class Fields(Struct, frozen=True, kw_only=True):
    """The values an expression allows; weekdays count from Sunday, which is 0."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    has_last_day: bool = False
    last_weekdays: frozenset[int] = frozenset()
    nth_weekday: int = 0
    every_weekday: bool = False


class _Field(Struct, frozen=True):
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()


_SECOND, _MINUTE, _HOUR = _Field("second", 0, 59), _Field("minute", 0, 59), _Field("hour", 0, 23)
_DAY, _MONTH = _Field("day of month", 1, 31), _Field("month", 1, 12, MONTHS)
_WEEKDAY = _Field("day of week", 0, 7, WEEKDAYS)


def parse_fields(expression: str) -> Fields:
    """Parse five fields (minute hour day month weekday), or six with seconds in front.

    >>> sorted(parse_fields("*/15 9-17 * * mon-fri").minutes)
    [0, 15, 30, 45]
    >>> parse_fields("61 * * * *")
    Traceback (most recent call last):
    ...
    corral.errors.InvalidOptions: cron '61 * * * *': minute '61' is outside 0..59
    """
    parts = expression.split()
    if len(parts) not in (5, 6):
        raise InvalidOptions(
            f"cron {expression!r} has {len(parts)} fields; use five (minute hour day month weekday) "
            f"or six (with seconds in front)"
        )
    second, minute, hour, day, month, weekday = parts if len(parts) == 6 else ("0", *parts)
    try:
        days, has_last_day = _days(day)
        weekdays, last_weekdays, nth = _weekdays(weekday)
        fields = Fields(
            seconds=_numbers(_SECOND, second),
            minutes=_numbers(_MINUTE, minute),
            hours=_numbers(_HOUR, hour),
            days=days,
            months=_numbers(_MONTH, month),
            weekdays=frozenset(number % 7 for number in weekdays),
            has_last_day=has_last_day,
            last_weekdays=last_weekdays,
            nth_weekday=nth,
            # 0 and 7 are both Sunday: only all eight restrict nothing
            every_weekday=len(weekdays) == 8,
        )
        _check_day_exists(fields, day)
    except ValueError as error:
        raise InvalidOptions(f"cron {expression!r}: {error}") from None
    return fields


def _days(text: str) -> tuple[frozenset[int], bool]:
    """Return the days of the month, and whether its last day is included, whatever its number."""
    terms = text.upper().split(",")
    plain = ",".join(term for term in terms if term != "L")
    return _numbers(_DAY, plain.replace("?", "*")) if plain else frozenset(), "L" in terms


def _weekdays(text: str) -> tuple[frozenset[int], frozenset[int], int]:
    """Return the weekdays, those of which only the month's last counts, and the nth of the month or 0."""
    if "#" in text:
        name, _, nth = text.partition("#")
        if not nth.isdecimal() or not 1 <= int(nth) <= 5 or re.search(r"[,/\-*?]", name):
            raise ValueError(f"day of week {text!r} is no weekday and its number, such as 'fri#2' (1 to 5)")
        return _numbers(_WEEKDAY, name), frozenset(), int(nth)
    terms = text.split(",")
    last = [term[:-1] for term in terms if len(term) > 1 and term[-1] in "Ll" and term[:-1].isalnum()]
    plain = ",".join(term for term in terms if not (term[-1:] in "Ll" and term[:-1] in last))
    lasts = frozenset(_number(_WEEKDAY, term) % 7 for term in last)
    return _numbers(_WEEKDAY, plain.replace("?", "*")) if plain else frozenset(), lasts, 0


def _numbers(field: _Field, text: str) -> frozenset[int]:
    return frozenset[int]().union(*(_term(field, term) for term in text.split(",")))


def _term(field: _Field, term: str) -> set[int]:
    step, span = 1, term
    stepped = _STEP.fullmatch(term)
    if stepped:
        span, step = stepped["range"], int(stepped["step"])
        if step == 0:
            raise ValueError(f"{field.name} {term!r} steps by 0; use 1 or more")
    elif "/" in term:
        raise ValueError(f"{field.name} {term!r} has no step; write it as '*/5'")
    ranged = _RANGE.fullmatch(span)
    if span == "*":
        low, high = field.low, field.high
    elif ranged:
        low, high = _number(field, ranged["low"]), _number(field, ranged["high"])
        if low > high:
            raise ValueError(f"{field.name} {term!r} runs backwards; write two ranges")
    else:
        low = _number(field, span)
        high = field.high if stepped else low
    numbers = set(range(low, high + 1, step))
    if field is _WEEKDAY and low < high and high % 7 == 0:
        numbers.add(0)  # a range up to 7 reaches Sunday, whatever its step
    return numbers


def _number(field: _Field, text: str) -> int:
    if text.lower() in field.words:
        return field.words.index(text.lower()) + field.low
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{field.name} {text!r} cannot be read")
    if not field.low <= int(text) <= field.high:
        raise ValueError(f"{field.name} {text!r} is outside {field.low}..{field.high}")
    return int(text)


def _check_day_exists(fields: Fields, day: str) -> None:
    longest = max(LONGEST_MONTHS[month - 1] for month in fields.months)
    is_by_weekday = not fields.every_weekday
    if not fields.has_last_day and min(fields.days) > longest and not is_by_weekday:
        raise ValueError(f"day of month {day!r} does not exist in these months")
