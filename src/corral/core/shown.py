"""A value as error messages show it: short, on one line, and never an error itself."""

from reprlib import Repr
from typing import Any

_short = Repr()
_short.maxlevel = 2
_short.maxstring = _short.maxother = 60
_short.maxlong = 100


def shown(value: Any) -> str:
    """The value's repr, cut where it is long.

    >>> shown(-1), shown("x" * 1000), shown(10**5000)
    ('-1', "'xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxx'", 'an integer of 16610 bits')
    """
    if isinstance(value, int) and value.bit_length() > 300:
        # thousands of digits are slow to print, and past some Python refuses to
        return f"an integer of {value.bit_length()} bits"
    try:
        return _short.repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
